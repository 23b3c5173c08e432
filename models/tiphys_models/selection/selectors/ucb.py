"""Upper confidence bounds: no state, one arm a candidate; the rewards' own spread sets the scale of exploration."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.constants import number
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.protocol import Choice, Scored

TUNED_C = number("selection.ucb-c")
"""Chosen on the calibration split by `tiphys train selection --preset ucb`."""


class UCB:
    """Reward = -(J share of a decision / its tasks), scaled by its standard deviation: scaled by the maximum, sqrt(2) explores forever."""

    name = "ucb"

    def __init__(self, arms: tuple[str, ...], c: float = TUNED_C) -> None:
        self._arms, self._c = arms, c
        self._sums = np.zeros((3, len(arms)))
        """Per arm: count, sum and sum of squares."""
        self._made: dict[int, tuple[int, int]] = {}

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Does nothing: an arm is judged by what its decisions cost."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The arm with the highest bound; arms without a settled decision first, in order."""
        open_arms = [i for i, arm in enumerate(self._arms) if arm in candidates]
        count = self._sums[0] + np.bincount([arm for arm, _ in self._made.values()], minlength=len(self._arms))
        bounds = self._bounds(count)
        best = max(open_arms, key=lambda i: (math.inf if count[i] == 0 else bounds[i], -i))
        known = {self._arms[i]: float(self._sums[1, i] / self._sums[0, i]) * len(tasks) for i in open_arms if self._sums[0, i]}
        cheapest = min(known, key=known.__getitem__, default="")
        reason = "BestPredicted" if self._arms[best] == cheapest else "Exploring"
        return Choice(self._arms[best], reason, known, note=len(tasks))

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """Remembers that this candidate decides; implements `Selector.commit`."""
        if candidate in self._arms:
            self._made[decision] = (self._arms.index(candidate), choice.note)

    def _bounds(self, count: FloatArray) -> FloatArray:
        n, total, squares = self._sums
        mean = np.where(n > 0, total / np.maximum(n, 1), 0.0)
        everything = n.sum()
        spread = math.sqrt(max(squares.sum() / everything - (total.sum() / everything) ** 2, 1e-18)) if everything else 1.0
        width = self._c * spread * np.sqrt(2 * math.log(max(float(count.sum()), 1.0)) / np.maximum(count, 1))
        return -mean + np.asarray(width)

    def learn(self, scored: Scored) -> None:
        """Per task: intervals with many tasks would otherwise punish whoever was in charge."""
        made = self._made.pop(scored.decision, None)
        if made is None:
            return  # decided before a restart
        arm, tasks = made
        cost = scored.j / max(tasks, 1)
        self._sums[:, arm] += (1.0, cost, cost**2)

    def forget(self, decision: int) -> None:
        """Forgets a decision that is never measured; implements `Selector.forget`."""
        self._made.pop(decision, None)

    def online_state(self) -> dict[str, FloatArray]:
        """Counts, sums and sums of squares of every arm's costs, for a checkpoint."""
        return {"sums": self._sums.copy()}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Decisions that were open are forgotten."""
        sums = arrays.get("sums")
        if sums is None or sums.shape != self._sums.shape or not np.isfinite(sums).all():
            raise ArtifactRefused("CheckpointInvalid", "a UCB checkpoint holds three finite numbers for every candidate")
        self._sums = np.array(sums, np.float64)
        self._made.clear()


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> UCB:
    """A selector with the tuned constant; it draws nothing and has no use for a seed."""
    return UCB(candidates)

"""`preview`: every candidate's plan is made and priced in closed form; what was measured corrects the executed candidate's price.

It needs no training and knows any application and any host type, but it pays for all plans: use it among candidates that are cheap to run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.preview import preview
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.per_pod import make_candidates
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.selectors.checkpoint import fitting
from tiphys_models.selection.selectors.protocol import Choice, Scored

_PRIOR, _MEMORY = 20.0, 200.0
"""Decisions that "the closed form is right" is worth; decisions after which the mean becomes a moving one."""
_RATIO_MAX = 4.0
"""One absurd measurement must not undo a day."""
_PER_POD_S = 0.001
"""A placement policy answers within a millisecond, pod by pod."""


class LookAhead:
    """Predicted J of a candidate = closed form x what such predictions were off by."""

    name = "preview"

    def __init__(self, planners: Mapping[str, Planner], weights: Weights, divisors: Divisors) -> None:
        self._planners, self._weights, self._divisors = dict(planners), weights, divisors
        self._names = tuple(planners)
        self._ratio: FloatArray = np.ones(len(self._names))
        self._counts: FloatArray = np.zeros(len(self._names))
        self._open: dict[int, tuple[int, float]] = {}

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Does nothing: prices are corrected by what decisions cost."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The lowest corrected price; equals: the first in order."""
        digest = state.digest(tasks)
        plans = {name: self._planners[name].assign(state, tasks, digest) for name in self._names if name in candidates}
        raw = {name: self._price(name, state, tasks, plan) for name, plan in plans.items()}
        predicted = {name: price * float(self._ratio[self._names.index(name)]) for name, price in raw.items()}
        best = min(predicted, key=predicted.__getitem__)
        thinking_s = sum(_seconds(name, len(tasks)) for name in raw if name != best)
        return Choice(best, "BestPredicted", predicted, thinking_s, plans, note=raw)

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """See `Selector`. The note holds every candidate's price, uncorrected."""
        if choice.note is not None and candidate in choice.note:
            self._open[decision] = (self._names.index(candidate), choice.note[candidate])

    def _price(self, name: str, state: CloudState, tasks: Tasks, plan: Plan) -> float:
        outcome = preview(state, tasks, repair(state, tasks, plan), _seconds(name, len(tasks)))
        return self._divisors.share(self._weights, outcome)

    def learn(self, scored: Scored) -> None:
        """Moves the executed candidate's ratio of measured to predicted."""
        made = self._open.pop(scored.decision, None)
        if made is None or made[1] <= 0:
            return
        index, price = made
        ratio = min(max(scored.j / price, 1 / _RATIO_MAX), _RATIO_MAX)
        self._ratio[index] += (ratio - self._ratio[index]) / (_PRIOR + min(self._counts[index], _MEMORY))
        self._counts[index] += 1

    def forget(self, decision: int) -> None:
        """Forgets a decision that is never measured; implements `Selector.forget`."""
        self._open.pop(decision, None)

    def online_state(self) -> dict[str, FloatArray]:
        """Ratios, and decisions whose pods still run: a restart loses nothing."""
        rows = [(decision, index, price) for decision, (index, price) in self._open.items()]
        return {"ratio": self._ratio.copy(), "counts": self._counts.copy(), "open": np.array(rows, np.float64).reshape(-1, 3)}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """ArtifactRefused if it is of other candidates."""
        found = fitting(arrays, {**self.online_state(), "open": np.zeros((0, 3))})
        if ((found["open"][:, 1] < 0) | (found["open"][:, 1] >= len(self._names))).any():
            raise ArtifactRefused("CheckpointInvalid", "an open decision names a candidate that is not among these")
        self._ratio, self._counts = found["ratio"], found["counts"]
        self._open = {int(row[0]): (int(row[1]), float(row[2])) for row in found["open"]}


def _seconds(name: str, tasks: int) -> float:
    return _PER_POD_S if PLACEMENT.entry(name) is not None else scheduling_s(name, tasks)


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> LookAhead:
    """A selector over these candidates; planners with weights get the shipped ones."""
    return LookAhead(make_candidates(candidates), weights, divisors)

"""`preview`: every candidate's plan is made and priced in closed form; what was measured corrects the executed candidate's price.

It needs no training and knows any application and any host type, but it pays for all plans: use it among candidates that are cheap to run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tiphys_models.cloud.bill import scheduling_s
from tiphys_models.cloud.preview import preview
from tiphys_models.cloud.repair import repair
from tiphys_models.cloud.score import Divisors, Weights
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray
from tiphys_models.planners.per_pod import make_candidates
from tiphys_models.planners.protocol import Planner
from tiphys_models.policies.registry import PolicyName
from tiphys_models.selectors.checkpoint import fitting
from tiphys_models.selectors.protocol import Choice, Scored

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
        self._prices: tuple[int, Mapping[str, float]] = (-1, {})
        """Of the newest decision: every candidate's price, uncorrected."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The lowest corrected price; equals: the first in order."""
        digest = state.digest(tasks)
        raw = {name: self._price(name, state, tasks, digest) for name in self._names if name in candidates}
        predicted = {name: price * float(self._ratio[self._names.index(name)]) for name, price in raw.items()}
        best = min(predicted, key=predicted.__getitem__)
        self._open[decision], self._prices = (self._names.index(best), raw[best]), (decision, raw)
        thinking_s = sum(_seconds(name, len(tasks)) for name in raw if name != best)
        return Choice(best, "BestPredicted", predicted, thinking_s)

    def _price(self, name: str, state: CloudState, tasks: Tasks, digest: int) -> float:
        plan = repair(state, tasks, self._planners[name].assign(state, tasks, digest))
        return self._divisors.share(self._weights, preview(state, tasks, plan, _seconds(name, len(tasks))))

    def learn(self, scored: Scored) -> None:
        """Moves the executed candidate's ratio of measured to predicted."""
        made = self._open.pop(scored.decision, None)
        if made is None or made[1] <= 0:
            return
        index, price = made
        ratio = min(max(scored.j / price, 1 / _RATIO_MAX), _RATIO_MAX)
        self._ratio[index] += (ratio - self._ratio[index]) / (_PRIOR + min(self._counts[index], _MEMORY))
        self._counts[index] += 1

    def overruled(self, decision: int, candidate: str) -> None:
        """See `Overrulable`."""
        newest, raw = self._prices
        self._open.pop(decision, None)
        if newest == decision and candidate in raw:
            self._open[decision] = (self._names.index(candidate), raw[candidate])

    def forget(self, decision: int) -> None:
        """See `Selector`."""
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
    return _PER_POD_S if name in set(PolicyName) else scheduling_s(name, tasks)


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> LookAhead:
    """With the shipped weights of planners that have some."""
    return LookAhead(make_candidates(candidates), weights, divisors)

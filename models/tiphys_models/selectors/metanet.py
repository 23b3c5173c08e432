"""MetaNet, improved: predicted advantage over the fallback, from counterfactual training, corrected by what decisions really cost.

Weights and divisors enter after the prediction, as prices of its four components: any weights serve without training anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.cloud.bill import scheduling_s
from tiphys_models.cloud.preview import preview
from tiphys_models.cloud.repair import repair
from tiphys_models.cloud.score import Divisors, Weights
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray
from tiphys_models.planners.protocol import Planner
from tiphys_models.planners.registry import make_planners
from tiphys_models.selectors.checkpoint import fitting
from tiphys_models.selectors.choice import SwitchLimit, choose_with_margin
from tiphys_models.selectors.drift import Drift
from tiphys_models.selectors.encoding import encode_general
from tiphys_models.selectors.guard import Guard
from tiphys_models.selectors.protocol import Choice, Scored
from tiphys_models.selectors.surrogate import COMPONENTS, Prediction, Surrogate, components, load_surrogate, named, prices


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was predicted at the newest decision, until it is known whether its candidate decides."""

    decision: int
    tasks: float
    home: str
    predicted: Mapping[str, float]
    found: Prediction


_HEAD = 5
"""Of an open decision: interval, candidate, tasks, away from the fallback, promised advantage; then attributed costs, hidden layer."""


class MetaNet:
    """See `Selector`. `fallback`: a candidate, or the one that was cheapest under these weights in training.

    Never one that present predictions favour: the guard would then judge the model by itself.
    """

    name = "metanet"

    def __init__(
        self, surrogate: Surrogate, weights: Weights, divisors: Divisors, planners: Mapping[str, Planner],
        fallback: str | None = None, limit: SwitchLimit | None = None, frozen: bool = False,
    ) -> None:  # fmt: skip
        self._surrogate, self._prices = surrogate, prices(weights, divisors)
        self._planners = {name: planners[name] for name in surrogate.previewed}
        self._fallback, self._limit, self._frozen = fallback, limit, frozen
        hidden = surrogate.networks[0].layers[-1][0].shape[0] + 1
        self._drift, self._guard = Drift(len(surrogate.candidates), hidden), Guard()
        self._open: dict[int, FloatArray] = {}
        self._newest: _Seen | None = None

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The lowest predicted J if it beats the fallback's by the validated margin, and the guard has seen no promise broken."""
        s, count = self._surrogate, float(len(tasks))
        known = [name for name in s.candidates if name in candidates]
        if not known or not len(tasks):
            return Choice(self._fallback if self._fallback in candidates else candidates[0], "Fallback")
        previews = self._previews(state, tasks)
        found = s.predict(encode_general(state, tasks), previews, count)
        marginal = found.marginal + self._drift.correction(found.hidden, count)
        predicted = named(s.candidates, marginal @ self._prices, known)
        fallback = self._home(known)
        doubt = named(s.candidates, s.margin * found.doubt(self._prices, s.candidates.index(fallback)), known)
        choice = choose_with_margin(predicted, fallback, doubt)
        if self._guard.holds:
            choice = Choice(fallback, "Fallback", predicted)
        self._guard.decided()
        if self._limit is not None:
            choice = self._limit.hold(choice, state.time_s)
        self._newest = _Seen(decision, count, fallback, predicted, found)
        self._note(self._newest, choice.candidate)
        thinking_s = sum(scheduling_s(name, len(tasks)) for name in s.previewed if name != choice.candidate)
        return Choice(choice.candidate, choice.reason, choice.predicted, thinking_s)

    def _note(self, seen: _Seen, candidate: str) -> None:
        """This candidate decides: what was promised and expected of it."""
        taken = self._surrogate.candidates.index(candidate)
        promised = (seen.predicted[seen.home] - seen.predicted[candidate]) / seen.tasks
        head = (seen.decision, taken, seen.tasks, candidate != seen.home, promised)
        self._open[seen.decision] = np.concatenate([head, seen.found.attributed[taken], seen.found.hidden])

    def overruled(self, decision: int, candidate: str) -> None:
        """See `Overrulable`. Home stays home, and a decision of a pause is over once."""
        self._open.pop(decision, None)
        if self._limit is not None:
            self._limit.overruled(candidate)
        seen = self._newest
        if seen is not None and seen.decision == decision and candidate in seen.predicted:
            self._note(seen, candidate)

    def _previews(self, state: CloudState, tasks: Tasks) -> FloatArray:
        found, digest = np.zeros((len(self._planners), COMPONENTS)), state.digest(tasks)
        for row, (name, planner) in enumerate(self._planners.items()):
            plan = repair(state, tasks, planner.assign(state, tasks, digest))
            found[row] = components(preview(state, tasks, plan, scheduling_s(name, len(tasks))))
        return found

    def _home(self, known: list[str]) -> str:
        if self._fallback in known:
            return str(self._fallback)
        typical = named(self._surrogate.candidates, self._surrogate.typical @ self._prices, known)
        return min(typical, key=typical.__getitem__)

    def learn(self, scored: Scored) -> None:
        """Decisions that were not its own, or made before a restart that lost them, are passed over."""
        row = self._open.pop(scored.decision, None)
        if row is None:
            return
        _, taken, count, away, promised = row[:_HEAD]
        attributed, hidden = row[_HEAD : _HEAD + COMPONENTS], row[_HEAD + COMPONENTS :]
        missed = components(scored.outcome) - attributed
        corrected = missed - self._drift.correction(hidden, count)[int(taken)]
        self._guard.scored(bool(away), float(promised), float(corrected @ self._prices) / float(count))
        if not self._frozen:
            self._drift.step(int(taken), hidden, missed, float(count))

    def forget(self, decision: int) -> None:
        """See `Selector`."""
        self._open.pop(decision, None)

    def online_state(self) -> dict[str, FloatArray]:
        """Corrections, the guard's account, and decisions whose tasks still run: a restart loses nothing."""
        width = _HEAD + COMPONENTS + self._drift.weights.shape[2]
        return {
            "drift": self._drift.weights.copy(), "counts": self._drift.counts.copy(), "guard": self._guard.sums.copy(),
            "open": np.array(list(self._open.values()), np.float64).reshape(-1, width),
        }  # fmt: skip

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """ArtifactRefused if it is another model's."""
        like = {**self.online_state(), "open": np.zeros((0, _HEAD + COMPONENTS + self._drift.weights.shape[2]))}
        found = fitting(arrays, like)
        taken = found["open"][:, 1]
        if ((taken < 0) | (taken >= len(self._surrogate.candidates)) | (found["open"][:, 2] <= 0)).any():
            raise ArtifactRefused("CheckpointInvalid", "an open decision names a candidate that this model does not have")
        self._drift.weights, self._drift.counts = found["drift"], found["counts"]
        self._guard.sums = found["guard"]
        self._open = {int(row[0]): row for row in found["open"]}


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> MetaNet:
    """With the shipped weights; deterministic without a seed."""
    surrogate = load_surrogate(SHIPPED / "metanet.json")
    return MetaNet(surrogate, weights, divisors, make_planners(surrogate.previewed))

"""MetaNet, improved: predicted advantage over the fallback, from counterfactual training, corrected by what decisions really cost.

Weights and divisors enter after the prediction, as prices of its four components: any weights serve without training anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.preview import preview
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import make_planners
from tiphys_models.selection.selectors.checkpoint import fitting
from tiphys_models.selection.selectors.choice import choose_with_margin
from tiphys_models.selection.selectors.drift import Drift
from tiphys_models.selection.selectors.encoding import encode_general
from tiphys_models.selection.selectors.guard import Guard
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector, SelectorFactory
from tiphys_models.selection.selectors.surrogate import COMPONENTS, Prediction, Surrogate, components, named, prices, read_surrogate


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was predicted at a choice, for when it is known who decides."""

    tasks: float
    home: str
    predicted: Mapping[str, float]
    found: Prediction


_HEAD = 5
"""Numbers of an open decision: interval, candidate, tasks, away from fallback, promised advantage. Costs and hidden layer follow."""


class MetaNet:
    """See `Selector`. `fallback`: a candidate, or the one that was cheapest under these weights in training.

    Never one that present predictions favour: the guard would then judge the model by itself.
    """

    name = "metanet"

    def __init__(
        self, surrogate: Surrogate, weights: Weights, divisors: Divisors, planners: Mapping[str, Planner],
        fallback: str | None = None, frozen: bool = False,
    ) -> None:  # fmt: skip
        self._surrogate, self._prices = surrogate, prices(weights, divisors)
        self._planners = {name: planners[name] for name in surrogate.previewed}
        self._fallback, self._frozen = fallback, frozen
        hidden = surrogate.networks[0].layers[-1][0].shape[0] + 1
        self._drift, self._guard = Drift(len(surrogate.candidates), hidden), Guard()
        self._open: dict[int, FloatArray] = {}

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Does nothing: predictions are corrected by what decisions cost."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The lowest predicted J if it beats the fallback's by the validated margin, and the guard has seen no promise broken."""
        s, count = self._surrogate, float(len(tasks))
        known = [name for name in s.candidates if name in candidates]
        if not known or not len(tasks):
            return Choice(self._fallback if self._fallback in candidates else candidates[0], "Fallback")
        digest = state.digest(tasks)
        plans = {name: planner.assign(state, tasks, digest) for name, planner in self._planners.items()}
        previews = _previews(state, tasks, plans)
        found = s.predict(encode_general(state, tasks), previews, count)
        marginal = found.marginal + self._drift.correction(found.hidden, count)
        predicted = named(s.candidates, marginal @ self._prices, known)
        fallback = self._home(known)
        doubt = named(s.candidates, s.margin * found.doubt(self._prices, s.candidates.index(fallback)), known)
        choice = choose_with_margin(predicted, fallback, doubt)
        if self._guard.holds:
            choice = Choice(fallback, "Fallback", predicted)
        thinking_s = sum(scheduling_s(name, len(tasks)) for name in s.previewed if name != choice.candidate)
        return Choice(choice.candidate, choice.reason, choice.predicted, thinking_s, plans, _Seen(count, fallback, predicted, found))

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """See `Selector`. Home stays home, whoever decides, and a decision of a pause is over once."""
        seen: _Seen | None = choice.note
        if seen is None:
            return
        self._guard.decided()
        if candidate not in seen.predicted:
            return
        taken = self._surrogate.candidates.index(candidate)
        promised = (seen.predicted[seen.home] - seen.predicted[candidate]) / seen.tasks
        head = (decision, taken, seen.tasks, candidate != seen.home, promised)
        self._open[decision] = np.concatenate([head, seen.found.attributed[taken], seen.found.hidden])

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
        """Forgets a decision that is never measured; implements `Selector.forget`."""
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


def _previews(state: CloudState, tasks: Tasks, plans: Mapping[str, Plan]) -> FloatArray:
    found = np.zeros((len(plans), COMPONENTS))
    for row, (name, plan) in enumerate(plans.items()):
        found[row] = components(preview(state, tasks, repair(state, tasks, plan), scheduling_s(name, len(tasks))))
    return found


def load(parts: Parts) -> SelectorFactory:
    """Factory of selectors from a checked artifact; each is deterministic without a seed."""
    surrogate = read_surrogate(parts)
    try:
        planners = make_planners(surrogate.previewed)
    except InvalidInput as error:
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: previewed: {error}") from error

    def made(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> MetaNet:
        return MetaNet(surrogate, weights, divisors, planners)

    return made


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
    """A selector with the shipped weights."""
    return load(read_parts(SHIPPED / "metanet.json"))(candidates, weights, divisors, seed)

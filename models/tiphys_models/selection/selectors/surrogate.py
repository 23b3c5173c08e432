"""MetaNet's surrogate as it serves: what every candidate is expected to cost now, in four components, before any weights.

Two costs are predicted a candidate. *Marginal*: everything to completion with its plan, minus everything without the waiting tasks;
only simulators can measure it, and only it says which candidate is better. *Attributed*: what the executed decision will be found to
have cost, by CPU seconds of its tasks; it is what a running cluster measures. What online learning finds out about the second
corrects the first. Both start from previews: the closed form of plans that are so cheap that all of them can be made and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from tiphys_models.artifacts.card import Card, Finite, read_card
from tiphys_models.artifacts.files import Parts
from tiphys_models.artifacts.tensors import Tensors, check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.base.network import Network, network_of, shapes_of
from tiphys_models.selection.cloud.score import JOULES_PER_KWH, Divisors, Outcome, Weights
from tiphys_models.selection.selectors.encoding import GENERAL, GENERAL_NAMES
from tiphys_models.selection.selectors.protocol import MOST_CANDIDATES

COMPONENTS = 4
"""USD, joules, summed response, violations."""
UNITS = np.array([1e-4, 1e3, 10.0, 1.0])
"""Typical size of each component for one task: what inputs and errors are divided by."""
HIDDEN = 64
_CLIP = 6.0


def components(outcome: Outcome) -> FloatArray:
    """An outcome as the four numbers that have a price."""
    return np.array([outcome.usd, outcome.joules, outcome.response_s, outcome.violations])


def prices(weights: Weights, divisors: Divisors) -> FloatArray:
    """What one unit of each component adds to J."""
    w, d = weights, divisors
    return np.array([
        w.cost / d.cost_usd, w.energy / d.energy_kwh / JOULES_PER_KWH,
        w.response / d.response_s / d.tasks, w.violation / d.sla_violation / d.tasks,
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted costs of all candidates of the model, in its order; totals over the waiting tasks."""

    marginal: FloatArray
    opinions: FloatArray
    """Members x candidates x components: what each network says of `marginal`, their mean."""
    attributed: FloatArray
    hidden: FloatArray
    """The first network's last hidden layer and a constant: what online corrections are linear in."""

    def doubt(self, prices: FloatArray, home: int) -> FloatArray:
        """How much the networks disagree about each candidate's J against that of the candidate `home`: standard deviations."""
        j = self.opinions @ prices
        return np.asarray((j - j[:, home : home + 1]).std(axis=0))


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Some networks, and what their inputs and outputs mean."""

    candidates: tuple[str, ...]
    previewed: tuple[str, ...]
    margin: float
    """How many standard deviations of the networks' disagreement an advantage over the fallback has to exceed; validated."""
    networks: tuple[Network, ...]
    mean: FloatArray
    scale: FloatArray
    typical: FloatArray
    """Candidates x components: mean marginal costs of a decision in training."""

    def inputs(self, features: FloatArray, previews: FloatArray, tasks: float) -> FloatArray:
        """State features, then each previewed plan's components a task; normalised."""
        raw = np.concatenate([features, (previews / tasks / UNITS).ravel()])
        return np.clip((raw - self.mean) / self.scale, -_CLIP, _CLIP)

    def base(self, previews: FloatArray) -> FloatArray:
        """What predictions are relative to: a candidate's own preview, or the mean of all."""
        base = np.zeros((len(self.candidates), COMPONENTS)) + (previews.mean(axis=0) if len(previews) else 0.0)
        for row, name in enumerate(self.previewed):
            base[self.candidates.index(name)] = previews[row]
        return base

    def predict(self, features: FloatArray, previews: FloatArray, tasks: float) -> Prediction:
        """`previews`: previewed x components, totals."""
        inputs = self.inputs(features, previews, tasks)[None]
        activations = [network.activations(inputs) for network in self.networks]
        parts = np.array([a[-1].reshape(len(self.candidates), 2, COMPONENTS) for a in activations]) * UNITS * tasks
        opinions = self.base(previews) + parts[:, :, 0]
        attributed = self.base(previews) + parts[:, :, 1].mean(axis=0)
        return Prediction(opinions.mean(axis=0), opinions, attributed, np.append(activations[0][-2][0], 1.0))

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays of the surrogate by name, for an artifact."""
        nets = {name: array for i, network in enumerate(self.networks) for name, array in network.arrays(f"net{i}").items()}
        return {**nets, "mean": self.mean, "scale": self.scale, "typical": self.typical}


class SurrogateCard(Card):
    """What the card of a surrogate says besides."""

    candidates: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_CANDIDATES)]
    previewed: Annotated[tuple[str, ...], Field(max_length=MOST_CANDIDATES)] = ()
    margin: Finite = 0.0
    members: int = Field(default=1, ge=1, le=16)


def surrogate_shapes(candidates: int, previewed: int, members: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the surrogate's arrays."""
    width = len(GENERAL_NAMES) + previewed * COMPONENTS
    return {
        **{k: s for i in range(members) for k, s in shapes_of((width, HIDDEN, HIDDEN, candidates * 2 * COMPONENTS), f"net{i}").items()},
        "mean": (width,), "scale": (width,), "typical": (candidates, COMPONENTS),
    }  # fmt: skip


def read_surrogate(parts: Parts) -> Surrogate:
    """The surrogate read from an artifact, checked."""
    card = read_card(parts, SurrogateCard)
    if not set(card.previewed) <= set(card.candidates):
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: previewed planners must be candidates")
    shapes = surrogate_shapes(len(card.candidates), len(card.previewed), card.members)
    return surrogate_of(check_tensors(parts, GENERAL, shapes), card)


def surrogate_of(tensors: Tensors, card: SurrogateCard) -> Surrogate:
    """The surrogate made of arrays that were checked."""
    arrays: dict[str, FloatArray] = {name: array.astype(np.float64) for name, array in tensors.arrays.items()}
    if (arrays["scale"] <= 0).any():
        raise ArtifactRefused("ShapeMismatch", f"{card.name}: scales must be positive")
    networks = tuple(network_of(arrays, f"net{i}") for i in range(card.members))
    return Surrogate(card.candidates, card.previewed, card.margin, networks, arrays["mean"], arrays["scale"], arrays["typical"])


def named(candidates: Sequence[str], values: FloatArray, among: Sequence[str]) -> Mapping[str, float]:
    """The values of those candidates that are among the given ones, in the model's order."""
    return {name: float(value) for name, value in zip(candidates, values, strict=True) if name in among}

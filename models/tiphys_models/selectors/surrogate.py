"""MetaNet's surrogate as it serves: what every candidate is expected to cost now, in four components, before any weights.

Two costs are predicted a candidate. *Marginal*: everything to completion with its plan, minus everything without the waiting tasks;
only simulators can measure it, and only it says which candidate is better. *Attributed*: what the executed decision will be found to
have cost, by CPU seconds of its tasks; it is what a running cluster measures. What online learning finds out about the second
corrects the first. Both start from previews: the closed form of plans that are so cheap that all of them can be made and looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.tensors import TensorCard, Tensors, load_checked
from tiphys_models.cloud.score import JOULES_PER_KWH, Divisors, Outcome, Weights
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray
from tiphys_models.selectors.encoding import GENERAL, GENERAL_NAMES
from tiphys_models.selectors.network import Network, network_of, shapes_of

COMPONENTS = 4
"""USD, joules, summed response, violations."""
UNITS = np.array([1e-4, 1e3, 10.0, 1.0])
"""Of one task each, roughly: what inputs and errors are divided by."""
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
    """For all candidates of the model, in its order; totals over the waiting tasks."""

    marginal: FloatArray
    attributed: FloatArray
    hidden: FloatArray
    """The last hidden layer and a constant: what online corrections are linear in."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A network, and what its inputs and outputs mean."""

    candidates: tuple[str, ...]
    previewed: tuple[str, ...]
    margin: float
    """Share of the fallback's predicted cost by which another candidate has to be better; validated."""
    network: Network
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
        activations = self.network.activations(self.inputs(features, previews, tasks)[None])
        parts = activations[-1].reshape(len(self.candidates), 2, COMPONENTS) * UNITS * tasks
        base = self.base(previews)
        return Prediction(base + parts[:, 0], base + parts[:, 1], np.append(activations[-2][0], 1.0))


class SurrogateCard(TensorCard):
    """What the card of a surrogate says besides."""

    candidates: tuple[str, ...]
    previewed: tuple[str, ...] = ()
    margin: float = 0.0


def surrogate_shapes(candidates: int, previewed: int) -> dict[str, tuple[int, ...]]:
    """Of its arrays."""
    width = len(GENERAL_NAMES) + previewed * COMPONENTS
    return {
        **shapes_of((width, HIDDEN, HIDDEN, candidates * 2 * COMPONENTS)),
        "mean": (width,), "scale": (width,), "typical": (candidates, COMPONENTS),
    }  # fmt: skip


def load_surrogate(path: Path) -> Surrogate:
    """A checked artifact."""
    try:
        card = SurrogateCard.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactRefused("CardInvalid", f"{path.name}: {error}") from error
    if not set(card.previewed) <= set(card.candidates):
        raise ArtifactRefused("CardInvalid", f"{path.name}: previewed planners must be candidates")
    shapes = surrogate_shapes(len(card.candidates), len(card.previewed))
    return surrogate_of(load_checked(path, GENERAL, shapes), card)


def surrogate_of(tensors: Tensors, card: SurrogateCard) -> Surrogate:
    """From arrays that were checked."""
    arrays: dict[str, FloatArray] = {name: array.astype(np.float64) for name, array in tensors.arrays.items()}
    if (arrays["scale"] <= 0).any():
        raise ArtifactRefused("ShapeMismatch", f"{card.name}: scales must be positive")
    network = network_of({name: array for name, array in arrays.items() if name.startswith("net.")})
    return Surrogate(card.candidates, card.previewed, card.margin, network, arrays["mean"], arrays["scale"], arrays["typical"])


def named(candidates: Sequence[str], values: FloatArray, among: Sequence[str]) -> Mapping[str, float]:
    """The values of those candidates that are among the given ones, in the model's order."""
    return {name: float(value) for name, value in zip(candidates, values, strict=True) if name in among}

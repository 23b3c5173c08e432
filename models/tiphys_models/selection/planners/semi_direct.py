"""Semi-Direct: a natural-parameter network forecasts every host's utilisation with its uncertainty, a search plans on the forecast.

The network reads one host at a time, with shared weights: its last five utilisations and what is known of its running tasks. The
list of tasks says which hosts are busy far better than any series does; the series says how tasks differ from what is expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.hosts import THREADS
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.layers import Pair, natural_network, natural_shapes, natural_sigmoid
from tiphys_models.selection.planners.local_search import search
from tiphys_models.selection.planners.surrogate import seeds

SCHEMA = "host-series/1"
OBJECTIVE = Weights(cost=0.4, energy=0.3, response=0.0, violation=0.3)
WINDOW = 5
INPUTS = WINDOW + 5
HIDDEN = (32, 32)
CAUTION = 0.1
"""Standard deviations added to the mean."""
RANDOM_SHARE = 0.2
KICKS = 6


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the artifact's tensors."""
    return natural_shapes((INPUTS, *HIDDEN, 1))


def host_series(state: CloudState) -> FloatArray:
    """hosts x INPUTS: utilisations, oldest first; threads wanted and expected work per core; longest and shortest task left; size."""
    size, fleet = len(state.fleet), state.fleet
    past = np.zeros((WINDOW, size))
    recent = state.history[-WINDOW:]
    past[WINDOW - len(recent) :] = recent
    cores, capacity = fleet.column("cores"), fleet.column("cores") * state.interval_s
    at, left = state.running.host, state.running.remaining_core_s
    longest, shortest = np.zeros(size), np.full(size, np.inf)
    np.maximum.at(longest, at, left)
    np.minimum.at(shortest, at, left)
    per_thread = THREADS * state.interval_s
    return np.stack(
        [
            *past,
            np.minimum(THREADS * state.running_count() / cores, 3.0),
            np.minimum(np.bincount(at, left, size) / capacity, 3.0),
            np.minimum(longest / per_thread, 3.0),
            np.minimum(np.where(np.isinf(shortest), 0.0, shortest) / per_thread, 3.0),
            cores / 8,
        ],
        axis=1,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SemiDirect:
    """The planner Semi-Direct; the module says how it works."""

    weights: Mapping[str, FloatArray]
    name: str = "semi-direct"

    def forecast(self, state: CloudState) -> Pair:
        """Mean and variance of every host's utilisation in the coming interval, without new tasks."""
        (m, v), _ = natural_network(host_series(state), self.weights, len(HIDDEN) + 1)
        mean, variance = natural_sigmoid(m[:, 0], v[:, 0])
        return mean, variance

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        if not len(tasks):
            return Plan(np.empty(0, np.int64))
        mean, variance = self.forecast(state)
        expected = state.with_forecast(mean + CAUTION * np.sqrt(variance))
        rng = np.random.default_rng(seed)
        return search(expected, tasks, seeds(expected, tasks, OBJECTIVE), OBJECTIVE, rng, RANDOM_SHARE, KICKS)


def load(parts: Parts) -> SemiDirect:
    """The planner made of a checked artifact."""
    return SemiDirect(check_tensors(parts, SCHEMA, shapes()).arrays)


def make(card: Path = SHIPPED / "semi-direct.json") -> SemiDirect:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))

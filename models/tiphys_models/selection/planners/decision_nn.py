"""Decision-NN: a forecaster trained for the decisions that follow from it, not for its own error; then local search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import Tensors, check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.fillings import Fillings, Layout
from tiphys_models.selection.planners.moves import improve
from tiphys_models.selection.planners.search import OBJECTIVE, STARTS, seeds
from tiphys_models.selection.planners.seen import CHANNELS, FACTS, SCHEMA, WINDOW, HostRows, believe, look, sigmoid

NAME = "decision-nn"
WIDTH = 16
_RANDOM = 2
"""Random layouts beside the seeds."""
SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (WINDOW * CHANNELS + FACTS, WIDTH),
    "embed.bias": (WIDTH,),
    **{f"{part}.weight": (WIDTH, WIDTH) for part in ("query", "key", "value")},
    **{f"{part}.bias": (WIDTH,) for part in ("query", "key", "value")},
    "mix.weight": (2 * WIDTH, WIDTH),
    "mix.bias": (WIDTH,),
    "out.weight": (WIDTH + FACTS,),
    "out.bias": (1,),
}


def forecast(network: Tensors, seen: HostRows) -> FloatArray:
    """Utilisation of each seen host; all of them attend to each other."""
    if not len(seen.host):
        return np.empty(0)

    def layer(name: str, rows: FloatArray) -> FloatArray:
        return np.asarray(rows @ network[f"{name}.weight"] + network[f"{name}.bias"])

    inputs = np.concatenate([seen.series.reshape(len(seen.host), -1), seen.facts], axis=1)
    rows = np.maximum(layer("embed", inputs), 0)
    likeness = layer("query", rows) @ layer("key", rows).T / WIDTH**0.5
    attention = np.exp(likeness - likeness.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    mixed = np.maximum(layer("mix", np.concatenate([rows, attention @ layer("value", rows)], axis=1)), 0)
    return sigmoid(np.concatenate([mixed, seen.facts], axis=1) @ network["out.weight"] + network["out.bias"][0])


@dataclass(frozen=True, slots=True)
class DecisionNN:
    """Local search from several starts on a decision-focused forecast."""

    network: Tensors
    name: str = NAME

    def believed(self, state: CloudState) -> CloudState:
        """The state as its forecast has it."""
        seen = look(state)
        return believe(state, seen, forecast(self.network, seen))

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        fillings = Fillings(self.believed(state), tasks, OBJECTIVE)
        starts = sorted(seeds(fillings), key=lambda layout: layout.value)[:STARTS]
        if len(tasks) > 1:
            hosts = np.random.default_rng(seed).integers(0, len(state.fleet), (_RANDOM, len(tasks)))
            starts += [Layout.of(fillings, row) for row in hosts.tolist()]
        for layout in starts:
            improve(layout)
        return min(starts, key=lambda layout: layout.value).plan()


def load(parts: Parts) -> DecisionNN:
    """The planner made of a checked artifact."""
    return DecisionNN(check_tensors(parts, SCHEMA, SHAPES))


def make(card: Path = SHIPPED / f"{NAME}.json") -> DecisionNN:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))

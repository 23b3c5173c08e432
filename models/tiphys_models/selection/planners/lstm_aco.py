"""LSTM+ACO: the coming CPU of every busy host by an LSTM over its last five intervals, then an ant colony."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import Tensors, check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.colony import colony
from tiphys_models.selection.planners.fillings import Fillings
from tiphys_models.selection.planners.search import OBJECTIVE, seeds
from tiphys_models.selection.planners.seen import CHANNELS, FACTS, SCHEMA, HostRows, believe, look, sigmoid

NAME = "lstm-aco"
HIDDEN = 64
SHAPES: dict[str, tuple[int, ...]] = {
    "lstm.input": (CHANNELS, 4 * HIDDEN),
    "lstm.hidden": (HIDDEN, 4 * HIDDEN),
    "lstm.bias": (4 * HIDDEN,),
    "out.weight": (HIDDEN + FACTS,),
    "out.bias": (1,),
}


def forecast(network: Tensors, seen: HostRows) -> FloatArray:
    """Utilisation of each seen host; gates in torch's order: input, forget, cell, output."""
    hidden: FloatArray = np.zeros((len(seen.host), HIDDEN))
    cell: FloatArray = np.zeros_like(hidden)
    for step in range(seen.series.shape[1]):
        gates = seen.series[:, step] @ network["lstm.input"] + hidden @ network["lstm.hidden"] + network["lstm.bias"]
        enter, keep, new, leave = np.split(gates, 4, axis=1)
        cell = sigmoid(keep) * cell + sigmoid(enter) * np.tanh(new)
        hidden = sigmoid(leave) * np.tanh(cell)
    return sigmoid(np.concatenate([hidden, seen.facts], axis=1) @ network["out.weight"] + network["out.bias"][0])


@dataclass(frozen=True, slots=True)
class LstmAco:
    """An ant colony on a learned forecast."""

    network: Tensors
    name: str = NAME

    def believed(self, state: CloudState) -> CloudState:
        """The state as its forecast has it."""
        seen = look(state)
        return believe(state, seen, forecast(self.network, seen))

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        fillings = Fillings(self.believed(state), tasks, OBJECTIVE)
        return colony(fillings, seeds(fillings), seed).plan()


def load(parts: Parts) -> LstmAco:
    """The planner made of a checked artifact."""
    return LstmAco(check_tensors(parts, SCHEMA, SHAPES))


def make(card: Path = SHIPPED / f"{NAME}.json") -> LstmAco:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))

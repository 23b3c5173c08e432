"""What forecasters see of a state: the hosts that have tasks, their last intervals, and what the list of their tasks says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.selection.cloud.hosts import THREADS
from tiphys_models.selection.cloud.state import CloudState

SCHEMA = "host-series-5/1"
WINDOW = 5
"""Intervals; as the published LSTM."""
CHANNELS = 2
"""Channels of each interval: the host's utilisation, and the fleet's mean."""
FACTS = 3
"""Beside the series: logit of the expected utilisation, threads per core, cores."""
LARGEST_CORES = 8.0
_EDGE = 0.02
"""Expected utilisations are kept so far from 0 and 1 before their logit is taken."""


@dataclass(frozen=True, slots=True)
class HostRows:
    """One row a host with tasks; hosts without stay empty whatever a forecast says."""

    host: IntArray
    series: FloatArray
    """Hosts x WINDOW x CHANNELS, oldest first; zero before there was any history."""
    facts: FloatArray
    """Facts about each host's tasks, hosts x FACTS."""
    expected: FloatArray
    """Share of the cores that the present tasks are expected to use."""
    most: FloatArray
    """Share of the cores that they can use at all."""


def look(state: CloudState) -> HostRows:
    """Everything of it is known live, too."""
    host = np.unique(state.running.host)
    recent = state.history[-WINDOW:]
    past = np.zeros((WINDOW, len(state.fleet)))
    past[WINDOW - len(recent) :] = recent
    series = np.stack([past.T[host], np.broadcast_to(past.mean(axis=1), (len(host), WINDOW))], axis=2)
    cores = state.fleet.column("cores")[host]
    threads = THREADS * state.running_count()[host] / cores
    expected = state.expected_utilisation()[host]
    facts = np.stack([logit(expected), np.minimum(threads, 4.0) / 4.0, cores / LARGEST_CORES], axis=1)
    return HostRows(host, series, facts, expected, np.minimum(threads, 1.0))


def logit(share: FloatArray) -> FloatArray:
    """Log odds, with its argument kept off the edges."""
    kept = np.clip(share, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(kept / (1 - kept)))


def sigmoid(x: FloatArray) -> FloatArray:
    """The logistic function, computed without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def believe(state: CloudState, seen: HostRows, forecast: FloatArray) -> CloudState:
    """The state with remaining works as a forecast (one number a row of `seen`) has them."""
    utilisation = state.utilisation.copy()
    utilisation[seen.host] = np.minimum(forecast, seen.most)
    return state.with_forecast(utilisation)

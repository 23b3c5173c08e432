"""Arithmetic of constraints and policies: plain functions of arrays. Binders call them with numpy, the simulator compiles the same ones.

Arguments are named tuples, because numba knows those. Every array has one entry an offer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray
from tiphys_models.base.constants import number

CLOSEST, LOAD_BALANCING, FARTHEST, CHEAPER, RANDOM_LATENCY, RANDOM_LOAD, LEAST_IMPEDANCE, RELATIVE_LOAD, SCORE = range(9)
"""The paper's seven in its order, relative load balancing, the learned score."""
WEIGHTS = 20
"""Number of weights of the learned score."""
CROWD_QPS = 10.0
"""Unit of the load that other access sites may bring to an offer before they are heard of."""
QUICK_MS, NEAR_MS, TIGHT_MS = 15.0, 8.0, 8.0
"""Where the score's terms are down to a half: of processing, of the way, of what an offer leaves of the allowed delay."""
PRESSURE = 5.0
"""How steeply the will to decline rises with the use of all that would suit: at 60 % it is a thirteenth of what it is when all is taken."""
VARIABILITY = number("streams.variability")
"""Factor on the wait in a G/G/c queue that makes it that of periodic frames (`tiphys bench binding --calibrate`)."""
LEAST_LOAD_QPS = 1.0
"""Random-load divides by the load: less than this counts as this."""


class Columns(NamedTuple):
    """What offers are; loads and delays apart, which change."""

    capacity_qps: FloatArray
    delay_ms: FloatArray
    accuracy: FloatArray
    profiled_kb: FloatArray
    hashes: HashArray
    replicas: FloatArray
    """Replicas of each offer, which share a queue."""


class StreamNumbers(NamedTuple):
    """What a stream asks for, as plain numbers for compiled code."""

    rate_qps: float
    size_kb: float
    max_delay_ms: float
    slack_ms: float
    min_accuracy: float
    draw: np.uint64


class Candidates(NamedTuple):
    """One stream beside all offers."""

    network_ms: FloatArray
    """One way, mean and two deviations."""
    latency_ms: FloatArray
    """There and back, and processing: `lat` of the paper. Access and transmission are the same for every offer and left out."""
    capacity_qps: FloatArray
    load_qps: FloatArray
    """Load of every offer, as far as known."""
    added_qps: FloatArray
    """What this stream would add, in queries of the profiled size."""
    size: FloatArray
    """Size of one query, in queries of the profiled size."""
    processing_ms: FloatArray
    """Processing time of a query of the profiled size."""
    accuracy: FloatArray
    replicas: FloatArray
    draw: FloatArray
    """Uniform in (0, 1), from the stream's bits and the offer's."""
    max_delay_ms: float
    slack_ms: float
    """What of it is left for `latency_ms`."""
    min_accuracy: float


def draws(bits: np.uint64, hashes: HashArray) -> FloatArray:
    """The finaliser of splitmix64 over both: one number for each pair of stream and offer, in every process."""
    # no generator: replicas must agree, and a repeated request must get the same offer, in whatever order streams come (ADR 60)
    z = hashes ^ bits
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(11)) + 0.5) * 2.0**-53


def beside(columns: Columns, network_ms: FloatArray, load_qps: FloatArray, wish: StreamNumbers) -> Candidates:
    """Delay and load of a query grow linearly with its size."""
    size = wish.size_kb / columns.profiled_kb
    return Candidates(
        network_ms,
        2.0 * network_ms + columns.delay_ms * size,
        columns.capacity_qps,
        load_qps,
        wish.rate_qps * size,
        size,
        columns.delay_ms,
        columns.accuracy,
        columns.replicas,
        draws(wish.draw, columns.hashes),
        wish.max_delay_ms,
        wish.slack_ms,
        wish.min_accuracy,
    )


def suits(c: Candidates) -> BoolArray:
    """Constraints (3) and (4): in time, with two deviations to spare each way, and accurate enough."""
    return (c.latency_ms <= c.slack_ms) & (c.accuracy >= c.min_accuracy)


def fits(c: Candidates, ceiling: float) -> BoolArray:
    """Constraint (2), up to a share of the capacity."""
    return c.load_qps + c.added_qps <= ceiling * c.capacity_qps


def fits_empty(c: Candidates, ceiling: float) -> BoolArray:
    """Whether the stream is small enough for the offer at all."""
    return c.added_qps <= ceiling * c.capacity_qps


def preference(kind: int, c: Candidates, weights: FloatArray) -> FloatArray:
    """One number an offer, the highest is taken, minus infinity never. `weights` are the score's; the others have none."""
    if kind == CLOSEST:
        return -c.network_ms
    if kind == LOAD_BALANCING:
        return -c.load_qps
    if kind == FARTHEST:
        return c.network_ms + 0.0
    if kind == CHEAPER:
        return c.latency_ms + 0.0
    if kind == RANDOM_LATENCY:  # the largest weight / -log(uniform) falls on each with probability proportional to its weight
        by_latency: FloatArray = -1.0 / (c.latency_ms * np.log(c.draw))
        return by_latency
    if kind == RANDOM_LOAD:
        by_load: FloatArray = -c.capacity_qps / (np.maximum(c.load_qps, LEAST_LOAD_QPS) * np.log(c.draw))
        return by_load
    if kind == LEAST_IMPEDANCE:
        return -c.latency_ms
    spare = 1.0 - (c.load_qps + c.added_qps) / c.capacity_qps
    if kind == RELATIVE_LOAD:
        return spare
    return worth(c, spare, weights)


def worth(c: Candidates, spare: FloatArray, w: FloatArray) -> FloatArray:
    """The learned score: the share of the stream's queries that will be in time, minus what the capacity is worth to others.

    The price of a capacity rises with its use, and with how accurate, quick and near it is; large queries pay more than their load.
    Where it exceeds the chance, in proportion to the pressure on all that would suit, the offer is kept for others and the stream
    declined. The chance counts with some load that other access sites bring before they are heard of, which small offers feel most.
    The other terms rank only. `learned.TERMS` names the weights.
    """
    use, nearly_full = 1.0 - spare, 5.0 * np.maximum(0.2 - spare, 0.0)
    accurate = c.accuracy / 50.0
    quick = 1.0 / (1.0 + (c.processing_ms / QUICK_MS) ** 2)
    near = 1.0 / (1.0 + (c.network_ms / NEAR_MS) ** 2)
    fast = quick * near
    tight = 1.0 / (1.0 + (np.maximum(c.slack_ms - c.latency_ms, 0.0) / TIGHT_MS) ** 2)
    price = (w[0] + (w[1] + w[2] * accurate) * accurate + w[3] * quick + w[4] * fast) * use
    price += (w[5] + w[6] * quick + w[7] * fast) * nearly_full
    price *= 1.0 + w[9] * (c.size - 1.0)
    chance = 1.0 - w[8] * expected_late(c, spare - w[19] * CROWD_QPS / c.capacity_qps)
    able = suits(c)
    pressure = np.sum(np.where(able, c.load_qps, 0.0)) / (np.sum(np.where(able, c.capacity_qps, 0.0)) + 1e-9)
    ranked: FloatArray = (
        chance
        - price
        - (w[10] + w[11] * accurate) * accurate
        - w[12] * quick
        - w[13] * fast
        + w[14] * c.processing_ms / 100.0
        - w[15] * near
        + w[16] * tight
        + w[17] * np.minimum(c.latency_ms / c.max_delay_ms, 1.0)
    )
    kept: FloatArray = np.where(chance > w[18] * pressure**PRESSURE * price, ranked, -np.inf)
    return kept


def expected_late(c: Candidates, spare: FloatArray) -> FloatArray:
    """Share of the stream's queries that would wait longer than they may: an exponential tail, with the mean at the use after.

    The mean is Sakasegawa's for a queue that all replicas serve, as in the simulator.
    """
    left_ms = np.maximum(c.slack_ms - c.latency_ms, 0.0) + 0.1
    idle = np.maximum(spare, 0.02)
    steady = (1.0 - idle) ** (np.sqrt(2.0 * c.replicas + 2.0) - 1.0) / (idle * c.capacity_qps)
    late: FloatArray = np.exp(-left_ms / (1000.0 * VARIABILITY * steady + 1e-6))
    return late


def spare_qps(c: Candidates) -> FloatArray:
    """What decides between equals."""
    return c.capacity_qps - c.load_qps


def best(preferred: FloatArray, feasible: BoolArray, tie: FloatArray) -> int:
    """The feasible offer that is preferred; of equals the one with the highest `tie`, then the first by name; -1: none, or all declined."""
    wanted = feasible & (preferred > -np.inf)
    if not wanted.any():
        return -1
    ranked = np.where(wanted, preferred, -np.inf)
    return int(np.argmax(np.where(wanted & (ranked >= ranked.max()), tie, -np.inf)))

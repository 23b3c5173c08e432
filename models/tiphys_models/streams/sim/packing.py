"""What could be served if streams might move: at one moment, all of them bound anew, with the waits that follow. Bound streams never
move, so that a policy reaches this only by luck; the distance from relative load to it is what there is to win."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.streams.kernels import StreamNumbers, beside, suits
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, StreamEpisode
from tiphys_models.streams.sim.kernel import EdgeCloud, State, Streams
from tiphys_models.streams.sim.queues import late_share, steady_wait_ms
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO, StreamScenario

MOVES = 2000
"""Tried for every live stream."""
MOMENTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Moments that are looked at, as shares of an episode."""
_RELATIVE_LOAD = STATIC_ACTIONS[-1]
_WARMTH_QPS = 5.0
"""So much may be lost by a move at first; nothing at the end."""


class PackingMoment(NamedTuple):
    """Live streams beside all offers."""

    rate_qps: FloatArray
    added_qps: FloatArray
    """[streams, offers], with the others."""
    left_ms: FloatArray
    """Milliseconds that a query may wait if the network delay is its mean."""
    sigma_ms: FloatArray
    suits: BoolArray
    bound: IntArray
    """The offer of every stream, or -1."""


def moment_of(world: EdgeCloud, streams: Streams, state: State, at_s: float) -> PackingMoment:
    """The state of an episode at that time, as a packing problem."""
    live = np.flatnonzero((streams.start_s <= at_s) & (streams.end_s > at_s))
    access, size = streams.access[live], streams.size_kb[live, None] / world.columns.profiled_kb
    return PackingMoment(
        rate_qps=streams.rate_qps[live],
        added_qps=streams.rate_qps[live, None] * size,
        left_ms=streams.slack_ms[live, None] - 2.0 * world.mean_ms[access] - world.columns.delay_ms * size,
        sigma_ms=world.sigma_ms[access],
        suits=np.array([_suiting(world, streams, int(i)) for i in live], np.bool_).reshape(size.shape),
        bound=state.offer[live],
    )


def _suiting(world: EdgeCloud, streams: Streams, i: int) -> BoolArray:
    """Offers that would do for this stream if they were empty, as a binder judges."""
    s, idle = streams, np.zeros(len(world.columns.capacity_qps))
    wish = StreamNumbers(s.rate_qps[i], s.size_kb[i], s.max_delay_ms[i], s.slack_ms[i], s.min_accuracy[i], s.draw[i])
    return suits(beside(world.columns, world.network_ms[s.access[i]], idle, wish))


def what_moving_gains(
    world: EdgeCloud, streams: Streams, horizon_s: float, scenario: StreamScenario = DEFAULT_SCENARIO
) -> tuple[float, float, float]:
    """Queries a second, summed over MOMENTS of an episode of relative load: asked, served, served if all streams might move."""
    episode, rng = StreamEpisode(world, streams, scenario, horizon_s), np.random.default_rng(0)
    asked, bound, moved = 0.0, 0.0, 0.0
    for share in MOMENTS:
        while episode.now_s < share * horizon_s:
            episode.window(_RELATIVE_LOAD)
        moment = moment_of(world, streams, episode.state, episode.now_s)
        asked += float(moment.rate_qps.sum())
        bound += served_qps(world, moment, scenario)
        moved += repacked_qps(world, moment, scenario, rng)
    return asked, bound, moved


def served_qps(world: EdgeCloud, moment: PackingMoment, scenario: StreamScenario) -> float:
    """Queries a second in time, as these streams are bound."""
    return float(_served(world, moment, scenario.variability).sum())


def repacked_qps(world: EdgeCloud, moment: PackingMoment, scenario: StreamScenario, rng: np.random.Generator) -> float:
    """Queries a second in time after moving streams about, or rejecting them, by annealing."""
    mine = moment._replace(bound=moment.bound.copy())
    moves = MOVES * len(mine.rate_qps)
    _anneal(world, mine, scenario.ceiling, scenario.variability, moves, rng)
    return served_qps(world, mine, scenario)


class _Packing(NamedTuple):
    """Streams packed onto offers; every array is written in place."""

    load_qps: FloatArray
    served_qps: FloatArray
    members: IntArray
    """[offers, streams]: the first `size` of a row are bound to it."""
    size: IntArray
    place: IntArray
    """Place of every stream in its offer's row of `members`."""


@compiled
def _in_time_qps(world: EdgeCloud, moment: PackingMoment, stream: int, offer: int, load_qps: float, variability: float) -> float:
    wait_ms = steady_wait_ms(load_qps, world.columns.capacity_qps[offer], world.columns.replicas[offer], variability)
    late = late_share(moment.left_ms[stream, offer], moment.sigma_ms[stream, offer], wait_ms)
    return float(moment.rate_qps[stream] * (1.0 - late))


@compiled
def _served(world: EdgeCloud, moment: PackingMoment, variability: float) -> FloatArray:
    """Queries a second that are served in time by each offer."""
    load = np.zeros(len(world.columns.capacity_qps))
    for i in range(len(moment.bound)):
        if moment.bound[i] >= 0:
            load[moment.bound[i]] += moment.added_qps[i, moment.bound[i]]
    served = np.zeros(len(load))
    for i in range(len(moment.bound)):
        o = moment.bound[i]
        if o >= 0:
            served[o] += _in_time_qps(world, moment, i, o, load[o], variability)
    return served


@compiled
def _join(moment: PackingMoment, packing: _Packing, i: int, o: int) -> None:
    packing.load_qps[o] += moment.added_qps[i, o]
    packing.place[i] = packing.size[o]
    packing.members[o, packing.size[o]] = i
    packing.size[o] += 1
    moment.bound[i] = o


@compiled
def _leave(moment: PackingMoment, packing: _Packing, i: int, o: int) -> None:
    packing.load_qps[o] -= moment.added_qps[i, o]
    packing.size[o] -= 1
    last = packing.members[o, packing.size[o]]
    packing.members[o, packing.place[i]] = last
    packing.place[last] = packing.place[i]
    moment.bound[i] = -1


@compiled
def _others_qps(world: EdgeCloud, moment: PackingMoment, packing: _Packing, o: int, i: int, load_qps: float, variability: float) -> float:
    """What this offer's streams but `i` would be served under that load."""
    served = 0.0
    for k in range(packing.size[o]):
        j = packing.members[o, k]
        if j != i:
            served += _in_time_qps(world, moment, j, o, load_qps, variability)
    return served


@compiled
def _anneal(world: EdgeCloud, moment: PackingMoment, ceiling: float, variability: float, moves: int, rng: np.random.Generator) -> None:
    """A random stream to a random offer that suits it, or to none: kept if that gains, or loses little while it is warm."""
    count, offers = moment.added_qps.shape
    members, size, place = np.full((offers, count), -1), np.zeros(offers, np.int64), np.zeros(count, np.int64)
    packing = _Packing(np.zeros(offers), _served(world, moment, variability), members, size, place)
    for i in range(count):
        if moment.bound[i] >= 0:
            _join(moment, packing, i, moment.bound[i])
    for turn in range(moves):
        i = int(rng.integers(0, count))
        choices = np.flatnonzero(moment.suits[i])
        drawn, old = rng.integers(0, len(choices) + 1), moment.bound[i]
        to = choices[drawn] if drawn < len(choices) else -1
        if to == old or (to >= 0 and packing.load_qps[to] + moment.added_qps[i, to] > ceiling * world.columns.capacity_qps[to]):
            continue
        left = joined = gained = 0.0
        if old >= 0:
            left = _others_qps(world, moment, packing, old, i, packing.load_qps[old] - moment.added_qps[i, old], variability)
            gained += left - packing.served_qps[old]
        if to >= 0:
            load = packing.load_qps[to] + moment.added_qps[i, to]
            joined = _others_qps(world, moment, packing, to, i, load, variability) + _in_time_qps(world, moment, i, to, load, variability)
            gained += joined - packing.served_qps[to]
        if gained < 0.0 and rng.random() >= math.exp(gained / (_WARMTH_QPS * (1.0 - turn / moves))):
            continue
        if old >= 0:
            _leave(moment, packing, i, old)
            packing.served_qps[old] = left
        if to >= 0:
            _join(moment, packing, i, to)
            packing.served_qps[to] = joined

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.streams.sim.episode import STATIC_ACTIONS, StreamEpisode
from tiphys_models.streams.sim.packing import PackingMoment, moment_of, repacked_qps, served_qps, what_moving_gains
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.streams.sim.topology import make_topology
from tiphys_models.streams.sim.workloads import make_streams

WORLD = make_topology("full-edge").world
RELATIVE_LOAD = STATIC_ACTIONS[-1]


def moment(rate: float) -> PackingMoment:
    streams = make_streams("train", 0, rate, horizon_s=60.0)
    episode = StreamEpisode(WORLD, streams, horizon_s=60.0)
    while not episode.over:
        episode.window(RELATIVE_LOAD)
    return moment_of(WORLD, streams, episode.state, 59.0)


def test_what_is_served_at_a_moment_is_what_the_next_tick_counts() -> None:
    streams = make_streams("train", 0, 60.0, horizon_s=61.0)
    episode = StreamEpisode(WORLD, streams, horizon_s=61.0)
    while episode.now_s < 60.0:
        episode.window(RELATIVE_LOAD)
    found = moment_of(WORLD, streams, episode.state, 60.0)
    success = served_qps(WORLD, found, DEFAULT_SCENARIO) / float(found.rate_qps.sum())
    assert episode.window(RELATIVE_LOAD, 1.0).success == pytest.approx(success, abs=0.02)


def test_moving_streams_never_serves_less_and_under_load_serves_more() -> None:
    found, rng = moment(100.0), np.random.default_rng(0)
    before, bound = served_qps(WORLD, found, DEFAULT_SCENARIO), found.bound.copy()
    assert repacked_qps(WORLD, found, DEFAULT_SCENARIO, rng) > 1.02 * before
    assert (found.bound == bound).all()  # what was looked at is as it was


def test_where_little_is_asked_there_is_nothing_to_gain() -> None:
    asked, bound, moved = what_moving_gains(WORLD, make_streams("train", 0, 2.0, horizon_s=60.0), 60.0)
    assert bound > 0.99 * asked
    assert bound - 0.001 * asked < moved <= asked


def test_a_moment_without_streams_asks_for_nothing() -> None:
    streams = make_streams("train", 0, 2.0, horizon_s=60.0)
    none = moment_of(WORLD, streams, StreamEpisode(WORLD, streams, horizon_s=60.0).state, -1.0)
    assert repacked_qps(WORLD, none, DEFAULT_SCENARIO, np.random.default_rng(0)) == served_qps(WORLD, none, DEFAULT_SCENARIO) == 0.0

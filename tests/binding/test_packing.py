from __future__ import annotations

import pytest

pytest.importorskip("numba")

from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Fixed, play
from tiphys_models.sim.binding.packing import packed_share
from tiphys_models.sim.binding.topology import make_topology
from tiphys_models.sim.binding.workloads import make_streams


def test_perfect_packing_serves_all_while_little_is_asked_and_fills_every_capacity_at_most() -> None:
    world = make_topology("full-edge").world
    assert packed_share(world, make_streams("train", 0, 2.0, horizon_s=60.0), [50.0], 0.9) == pytest.approx(1.0)
    streams = make_streams("train", 0, 20.0, horizon_s=60.0)
    live = (streams.start_s <= 50.0) & (streams.end_s > 50.0)
    room_qps = 0.02 * float(world.columns.capacity_qps.sum())
    served_qps = packed_share(world, streams, [50.0], 0.02) * float(streams.rate_qps[live].sum())
    assert 0.5 * room_qps < served_qps < room_qps / 0.8  # the smallest queries have 0.8 of the profiled size


def test_no_policy_serves_more_than_perfect_packing() -> None:
    world, streams = make_topology("full-edge").world, make_streams("train", 1, 60.0, horizon_s=120.0)
    success = play(world, streams, Fixed(STATIC_ACTIONS[-1]), horizon_s=120.0).outcome.success
    assert success < packed_share(world, streams, [30.0, 60.0, 90.0], 0.9) + 0.01

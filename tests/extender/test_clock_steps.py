"""A wall clock that is set by two hours moves no reservation and makes no reading older or younger."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.builders import policy_object
from tests.extender.binder_harness import Binder, node_object
from tests.extender.harness import arguments
from tiphys_extender.placement.objects import node_objects, policy_objects
from tiphys_extender.server import Parts
from tiphys_extender.settings import Settings
from tiphys_extender.ticker import Ticker
from tiphys_models.base.clock import ManualClock, SteadyClock

NAMES = ["n0", "n1"]
BOTH = pytest.mark.parametrize("step_s", [7200.0, -7200.0])


class Process:
    """An extender as its process wires it, without sockets."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.parts = parts = Parts(Settings(reservation_ttl_s=10), self.clock)
        nodes, policies = node_objects(parts.world), policy_objects(parts.world, parts.metrics)
        for name in NAMES:
            nodes.put(node_object(name))
        policies.put(policy_object(mode="Active", policy="least-connections"))
        parts.world.synced = True
        self._ticker = Ticker(
            parts.world, parts.decisions, parts.metrics, parts.models, parts.answerer, parts.watchdog, parts._clock
        )  # as in Parts.run

    def ask(self, uid: str) -> None:
        self.parts.answerer.prioritize(json.dumps(arguments(NAMES, uid=uid)).encode())
        self.parts.answerer.settle()

    async def reservations_after(self, seconds: float) -> int:
        self.clock.advance(seconds)
        await self._ticker.tick()
        return self.parts.world.state.reservations


@BOTH
async def test_a_reservation_lasts_as_long_as_without_the_step(step_s: float) -> None:
    process = Process()
    process.ask("a")
    process.clock.set_forward(step_s)
    assert await process.reservations_after(8) == 1
    process.ask("b")
    assert await process.reservations_after(3) == 1, "a's time is over, b's is not"
    assert await process.reservations_after(8) == 0


@BOTH
async def test_readings_grow_old_as_fast_as_without_the_step(step_s: float) -> None:
    process = Process()
    state, steady = process.parts.world.state, process.parts._clock
    state.put_readings(NAMES, np.ones((2, 21), np.float32), np.full(2, steady.now_s()))
    process.clock.set_forward(step_s)
    await process.reservations_after(state.limits.max_reading_age_s - 1)
    assert not np.isnan(state.nodes.read_at_s[:2]).any()
    await process.reservations_after(2)
    assert np.isnan(state.nodes.read_at_s[:2]).all()


@BOTH
def test_a_placement_of_a_call_ends_by_the_clock_that_nobody_sets(step_s: float) -> None:
    binder = Binder(lease_s=60)
    placed = binder.place()
    binder.clock.set_forward(step_s)
    binder.clock.advance(59)
    binder.placer.tick()
    assert binder.leases.get(placed["id"]) is not None
    binder.clock.advance(2)
    binder.placer.tick()
    assert binder.leases.get(placed["id"]) is None


def test_a_steady_clock_begins_at_the_wall_and_goes_on_by_itself() -> None:
    clock = ManualClock(1000.0)
    clock.set_forward(50.0)
    steady = SteadyClock(clock)
    assert steady.now_s() == 1050.0
    clock.set_forward(-7200.0)
    clock.advance(5)
    assert steady.now_s() == 1055.0

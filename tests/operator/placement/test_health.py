"""When the operator counts as alive and ready."""

from __future__ import annotations

from tests.operator.placement.harness import Loop
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.kube.leases import Lease
from tiphys_operator.runtime.health import Health


def health(clock: ManualClock, lease: Lease) -> Health:
    return Health(clock, lease, dead_after_s=150)


async def test_a_standby_is_alive_without_any_event(loop: Loop) -> None:
    clock = ManualClock()
    standby = health(clock, loop.lease)
    clock.advance(5)
    assert standby.dead() == []
    clock.advance(3600)
    standby.beat_s = clock.monotonic_s()
    assert standby.dead() == []


async def test_a_leader_that_cannot_list_is_dead_after_its_limit(loop: Loop) -> None:
    clock = ManualClock()
    leader = health(clock, loop.lease)
    leader.leading_since_s = leader.listed_s = clock.monotonic_s()
    clock.advance(149)
    leader.beat_s = clock.monotonic_s()
    assert leader.dead() == []
    clock.advance(2)
    leader.beat_s = clock.monotonic_s()
    assert "could not be listed" in leader.dead()[0]


async def test_a_loop_that_hangs_is_dead(loop: Loop) -> None:
    clock = ManualClock()
    hung = health(clock, loop.lease)
    clock.advance(11)
    assert "event loop" in hung.dead()[0]


async def test_a_leader_is_ready_once_it_reconciled(loop: Loop) -> None:
    loop.health.leading_since_s = SystemClock().monotonic_s()
    assert loop.health.unready() != []
    await loop.reconciler.reconcile()
    assert loop.health.unready() == []

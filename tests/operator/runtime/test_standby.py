from __future__ import annotations

from typing import Any, cast

import pytest

from tiphys_models.base.clock import ManualClock
from tiphys_models.kube.leases import Lease
from tiphys_operator.runtime.health import Health


class SeenLease:
    """A Lease that somebody else holds, and that was just read."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    @property
    def observed_s(self) -> float:
        return self._clock.monotonic_s()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def standby(clock: ManualClock) -> Health:
    return Health(clock, cast("Lease", cast("Any", SeenLease(clock))), dead_after_s=60.0)


def test_a_standby_whose_loop_stands_still_is_not_ready_and_lives(standby: Health, clock: ManualClock) -> None:
    """Readiness of either opener decides whether anybody is held: that of a standby, too."""
    standby.loops.expect("gates", 10.0)
    assert standby.unready() == []
    clock.advance(11.0)
    standby.beat_s = clock.monotonic_s()
    assert standby.unready() == ["gates has done nothing for 11 s"]
    assert standby.dead() == []
    standby.loops.beat("gates")
    assert standby.unready() == []


def test_a_standby_without_loops_waits_for_the_lease_and_is_ready(standby: Health) -> None:
    assert standby.unready() == []
    assert standby.dead() == []

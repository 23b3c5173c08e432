"""What a guard lets through, what it keeps, and what it says."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.guard import named
from tiphys_models.kube.leases import LeaseLost
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.object_guard import ObjectGuard


@pytest.mark.parametrize("error", [LeaseLost("over"), Unavailable("down"), KeyboardInterrupt()])
def test_a_lost_lease_or_a_silent_server_is_no_objects_doing(error: BaseException) -> None:
    def step() -> None:
        with ObjectGuard(CollectorRegistry()).over("Pod", "a/b", "1"):
            raise error

    with pytest.raises(type(error)):
        step()


@pytest.mark.parametrize("error", [OverflowError("inf"), RecursionError(), MemoryError(), AssertionError(), Exception("x" * 10**6)])
def test_whatever_else_a_step_raises_ends_there(error: Exception) -> None:
    def step() -> None:
        raise error

    with ObjectGuard(CollectorRegistry()).over("Pod", "a/b", "1") as trip:
        step()
    assert type(error).__name__ in trip.message
    assert "test_object_guard.py:" in trip.message
    assert len(trip.message) < 500


def test_each_version_of_an_object_is_said_once_and_every_trip_counted(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    guard = ObjectGuard(registry)
    with caplog.at_level(logging.WARNING):
        for version in ("1", "1", "2", "2", "2"):
            with guard.over("Node", "/n1", version):
                raise ValueError("odd")
    assert len(caplog.records) == 2
    assert registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "Node"}) == 5
    assert registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "Pod"}) == 0


def test_what_was_said_is_not_remembered_without_end() -> None:
    guard = ObjectGuard(CollectorRegistry())
    for number in range(5000):
        guard.tripped("Pod", f"a/{number}", "1", "odd")
    assert len(guard._said) == 4096


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": None}}])
def test_an_object_without_a_name_can_be_named(obj: dict[str, object]) -> None:
    assert named(obj) == ("/", "")


def test_the_age_of_each_loop_is_a_metric_that_moves_by_itself() -> None:
    clock, metrics = ManualClock(), OperatorMetrics()
    beats = Heartbeats(clock)
    metrics.show_loops(beats)
    beats.expect("scaling", 100.0)
    clock.advance(30.0)
    assert metrics.registry.get_sample_value("tiphys_operator_loop_age_seconds", {"loop": "scaling"}) == 30.0
    beats.beat("scaling")
    assert metrics.registry.get_sample_value("tiphys_operator_loop_age_seconds", {"loop": "scaling"}) == 0.0
    beats.forget("scaling")
    assert "loop_age_seconds{" not in metrics.render().decode()

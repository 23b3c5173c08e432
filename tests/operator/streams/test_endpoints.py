from __future__ import annotations

from prometheus_client import CollectorRegistry

from tests.operator.streams.small import endpoint_slice
from tiphys_models.kube.guard import GuardedSink
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.streams.endpoints import SliceSink


class Told:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def test_ready_endpoints_of_all_slices_of_a_service_count() -> None:
    sink = SliceSink(Told())
    sink.put(endpoint_slice("s1", "yolo", "10.0.0.2", "10.0.0.1", ready=True))
    sink.put(endpoint_slice("s2", "yolo", "10.0.0.3"))
    sink.put(endpoint_slice("s3", "yolo", "10.0.0.4", ready=False))
    sink.put(endpoint_slice("s4", "other", "10.0.0.5"))
    assert sink.ready("n", "yolo") == ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"), "a condition that is not set counts as ready"
    assert sink.ready("elsewhere", "yolo") == ()


def test_pods_with_two_addresses_count_once() -> None:
    sink = SliceSink(Told())
    sink.put(endpoint_slice("v4", "yolo", "10.0.0.1", "10.0.0.2"))
    sink.put(endpoint_slice("v6", "yolo", "fd00::1", "fd00::2", family="IPv6"))
    assert len(sink.ready("n", "yolo")) == 2


def test_a_port_is_shown_where_there_is_one() -> None:
    sink = SliceSink(Told())
    sink.put(endpoint_slice("s", "yolo", "fd00::1", family="IPv6"))
    sink.put(endpoint_slice("t", "two-ports", "10.0.0.1", ports=2))
    assert sink.ready("n", "yolo") == ("[fd00::1]:8000",)
    assert sink.ready("n", "two-ports") == ("10.0.0.1",)


def test_whatever_changes_endpoints_is_told_and_the_same_again_is_not() -> None:
    told = Told()
    sink = SliceSink(told)
    sink.put(endpoint_slice("s", "yolo", "10.0.0.1"))
    sink.put(endpoint_slice("s", "yolo", "10.0.0.1"))
    assert told.times == 1
    sink.put(endpoint_slice("s", "yolo", "10.0.0.1", ready=False))
    assert (told.times, sink.ready("n", "yolo")) == (2, ())


def test_slices_that_moved_went_or_cannot_be_read_leave_nothing_behind() -> None:
    sink = SliceSink(Told())
    sink.put(endpoint_slice("moved", "yolo", "10.0.0.1"))
    sink.put(endpoint_slice("moved", "other", "10.0.0.1"))
    assert sink.ready("n", "yolo") == ()
    sink.drop(endpoint_slice("moved", "other"))
    assert sink.ready("n", "other") == ()
    sink.put(endpoint_slice("broken", "yolo", "10.0.0.1"))
    guarded = GuardedSink("EndpointSlice", sink, ObjectGuard(CollectorRegistry()))
    guarded.put(endpoint_slice("broken", "yolo") | {"endpoints": [{}]})
    assert sink.ready("n", "yolo") == ()
    sink.put(endpoint_slice("gone", "yolo", "10.0.0.1"))
    sink.listed({"another"})
    assert sink.ready("n", "yolo") == ()

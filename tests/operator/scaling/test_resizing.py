"""The state machine of in-place resizes."""

from __future__ import annotations

import pytest

from tests.operator.scaling.small import NOW_S, pod, resizing
from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.resizing import DEFERRED_MAX_S, IN_PROGRESS_MAX_S, Sizing, sizing
from tiphys_operator.scaling.shape import Shape

SHAPE = Shape("main", 100, 50)


def sized(*pods: ScaledPod, wanted: int = 200, shrink: bool = True) -> Sizing:
    return sizing(pods, SHAPE, wanted, NOW_S, shrink=shrink)


def steps(found: Sizing) -> list[tuple[str, int, int]]:
    return [(c.pod.name, c.limit_m, c.request_m) for c in found.changes]


def test_request_and_limit_move_together() -> None:
    assert steps(sized(pod("a"), pod("b", cpu="200m"))) == [("a", 200, 100)]


def test_a_pod_that_has_not_started_waits_for_its_start() -> None:
    assert steps(sized(pod("a", actual=None))) == []


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    assert steps(sized(pod("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))) == []


def test_shrinking_can_be_put_off_and_growing_cannot() -> None:
    assert steps(sized(pod("a"), wanted=50, shrink=False)) == []
    assert steps(sized(pod("a"), wanted=200, shrink=False)) == [("a", 200, 100)]


@pytest.mark.parametrize(
    ("kind", "reason", "limit_s"),
    [("PodResizePending", "Deferred", DEFERRED_MAX_S), ("PodResizeInProgress", "", IN_PROGRESS_MAX_S)],
)
def test_a_resize_is_waited_for_and_then_taken_back(kind: str, reason: str, limit_s: float) -> None:
    waiting = pod("a", cpu="200m", actual="100m", conditions=resizing(kind, reason, NOW_S - limit_s + 10))
    assert steps(sized(waiting)) == []
    stuck = pod("a", cpu="200m", actual="100m", conditions=resizing(kind, reason, NOW_S - limit_s - 10))
    found = sized(stuck)
    assert steps(found) == [("a", 100, 50)]
    assert found.too_large == (100, MaskReason.NODE_CAPACITY)


def test_what_never_fits_is_taken_back_at_once() -> None:
    found = sized(pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Infeasible")))
    assert steps(found) == [("a", 100, 50)]
    assert found.too_large == (100, MaskReason.NODE_CAPACITY)


def test_between_windows_nothing_is_taken_back_because_only_a_window_can_mask_it() -> None:
    stuck = pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Infeasible"))
    assert steps(sized(stuck, shrink=False)) == []


def test_an_error_is_the_kubelets_to_retry_however_long_it_takes() -> None:
    failing = pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizeInProgress", "Error", NOW_S - 10 * IN_PROGRESS_MAX_S))
    found = sized(failing)
    assert (steps(found), found.too_large, found.counts.failing) == ([], None, 1)


def test_a_deferred_pod_may_be_made_smaller_but_not_larger() -> None:
    deferred = pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Deferred"))
    assert steps(sized(deferred, wanted=300)) == []
    assert steps(sized(deferred, wanted=150)) == [("a", 150, 75)]


def test_a_driver_that_rounds_is_no_resize_for_ever() -> None:
    assert steps(sized(pod("a", cpu="200m", actual="201m"))) == []


def test_states_are_counted() -> None:
    counts = sized(
        pod("a", cpu="200m"),
        pod("b", cpu="200m", conditions=resizing("PodResizeInProgress", "")),
        pod("c", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Deferred")),
        pod("d", status={"conditions": []}),
    ).counts
    assert (counts.total, counts.ready, counts.sized, counts.deferred, counts.in_progress) == (4, 3, 2, 1, 1)

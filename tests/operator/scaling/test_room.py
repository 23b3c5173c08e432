"""Bounds and masks: what an agent may not do, it is told before it decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.operator.scaling.small import NOW_S, host, pod, policy, resizing, target, window
from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_models.api.scaling_status import Blocked
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.room import Place, Room, node_limit, quota_cpu, quota_pods, room
from tiphys_operator.scaling.shape import Shape
from tiphys_operator.scaling.workload import Target

SHAPE = Shape("main", 100, 50)
FREE = Place({"n1": host("n1", 8000)}, {"n1": 100})


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"spec": spec, "status": {"hard": hard, "used": used}}


def found(
    pods: Sequence[ScaledPod] = (), place: Place = FREE, blocked: Sequence[Blocked] = (), of: Target | None = None, late: float | None = 0.0,
    silent: Sequence[str] = (), **spec: Any,
) -> Room:  # fmt: skip
    wanted = policy(**spec).spec
    assert wanted is not None
    there = pods or (pod("a"), pod("b"))
    return room(wanted, of or target(), SHAPE, there, 100, place, blocked, window(late=late), silent, NOW_S)


def test_with_room_everywhere_the_bounds_are_those_of_the_spec() -> None:
    free = found()
    assert (free.bounds.min_replicas, free.bounds.max_replicas, free.bounds.min_cpu_m, free.bounds.max_cpu_m) == (1, 10, 50, 400)
    assert (free.mask.replicas_up, free.mask.replicas_down, free.mask.cpu_up, free.mask.cpu_down) == (True,) * 4
    assert free.masked == ()


def test_a_dimension_that_the_policy_leaves_alone_has_one_value() -> None:
    assert found(horizontal=None).bounds.min_replicas == found(horizontal=None).bounds.max_replicas == 2
    assert found(vertical=None).bounds.min_cpu_m == found(vertical=None).bounds.max_cpu_m == 100


@pytest.mark.parametrize(
    ("hard", "used", "more"),
    [
        ({"pods": "5"}, {"pods": "2"}, 3),
        ({"count/pods": "2"}, {"count/pods": "2"}, 0),
        ({"limits.cpu": "1"}, {"limits.cpu": "200m"}, 8),
        ({"requests.cpu": "200m"}, {"requests.cpu": "100m"}, 2),
        ({"cpu": "200m"}, {"cpu": "100m"}, 2),
        ({"requests.memory": "300Mi"}, {"requests.memory": "128Mi"}, 2),
        ({"limits.memory": "300Mi", "pods": "9"}, {"limits.memory": "256Mi", "pods": "2"}, 0),
        ({"limits.cpu": "100m"}, {"limits.cpu": "300m"}, 0),
        ({"services": "1"}, {"services": "1"}, None),
        ({}, {}, None),
    ],
)
def test_quotas_say_how_many_more_pods_there_may_be(hard: dict[str, str], used: dict[str, str], more: int | None) -> None:
    assert quota_pods([quota(hard, used)], target(), SHAPE, 100) == more


def test_a_new_pod_will_be_brought_to_the_size_of_the_others() -> None:
    full = [quota({"limits.cpu": "1"}, {"limits.cpu": "400m"})]
    assert quota_pods(full, target(), SHAPE, 200) == 3
    assert quota_pods(full, target(), SHAPE, 50) == 6, "it starts at the template's size"


def test_of_several_quotas_the_tightest_counts_and_one_for_other_pods_does_not() -> None:
    tight = quota({"limits.cpu": "300m"}, {"limits.cpu": "200m"})
    assert quota_cpu([tight, quota({"limits.cpu": "9"}, {})], SHAPE, 2) == 50
    assert quota_cpu([quota({"requests.cpu": "150m"}, {"requests.cpu": "100m"})], SHAPE, 2) == 50
    assert quota_cpu([quota({"limits.cpu": "1m"}, {}, scopes=["BestEffort"])], SHAPE, 2) is None
    assert quota_cpu([quota({"limits.cpu": "soon"}, {})], SHAPE, 2) is None


def test_a_used_up_quota_narrows_both_bounds_and_is_named() -> None:
    narrow = found(place=Place(FREE.nodes, FREE.used_m, [quota({"limits.cpu": "200m"}, {"limits.cpu": "200m"})]))
    assert (narrow.bounds.max_replicas, narrow.bounds.max_cpu_m) == (2, 100)
    assert narrow.masked == ("replicas-up: Quota", "cpu-up: Quota")


def test_pods_grow_no_further_than_their_fullest_node_allows() -> None:
    place = Place({"n1": host("n1", 1000), "n2": host("n2", 1000)}, {"n1": 900, "n2": 100})
    three = [pod("a"), pod("b"), pod("c", node="n2")]
    # 100 free requests on n1 for two pods: 50 more each, which are 100 of limit
    assert node_limit(place, three, SHAPE, 100) == 200
    full = Place({"n1": host("n1", 1000)}, {"n1": 1200})
    assert node_limit(full, three, SHAPE, 100) == 100, "an overfull node takes nothing away"
    assert node_limit(Place({}, {}), three, SHAPE, 100) is None
    assert found(pods=three, place=place).masked == ("cpu-up: NodeCapacity",)


@pytest.mark.parametrize(
    ("changes", "masked"),
    [
        ({"late": 0.2}, {"replicas-down: ObjectiveMissed", "cpu-down: ObjectiveMissed"}),
        ({"late": 0.1}, set()),
        ({"late": None}, set()),
        ({"silent": ("a",)}, {"replicas-down: MetricsPartial", "cpu-down: MetricsPartial"}),
        ({"of": target(status={"replicas": 3, "updatedReplicas": 1})}, {"replicas-down: RollingOut", "cpu-down: RollingOut"}),
        ({"pods": [pod("a", conditions=[{"type": "PodScheduled", "reason": "Unschedulable"}])]}, {"replicas-up: PodsUnschedulable"}),
        ({"pods": [pod("a", conditions=resizing("PodResizePending", "Deferred"))]}, {"cpu-up: ResizePending"}),
        ({"blocked": [Blocked(move="replicas-up", bound=2, reason="Quota", until=NOW_S + 1)]}, {"replicas-up: Quota"}),
        ({"blocked": [Blocked(move="cpu-up", bound=100, reason="LimitRange", until=NOW_S + 1)]}, {"cpu-up: LimitRange"}),
        ({"blocked": [Blocked(move="cpu-down", bound=100, reason="LimitRange", until=NOW_S + 1)]}, {"cpu-down: LimitRange"}),
        (
            {"blocked": [Blocked(move="replicas-down", bound=2, reason="RefusedByServer", until=NOW_S + 1)]},
            {"replicas-down: RefusedByServer"},
        ),
        ({"blocked": [Blocked(move="cpu-up", bound=100, reason="LimitRange", until=NOW_S)]}, set()),
    ],
)
def test_every_reason_masks_its_moves_and_no_other(changes: dict[str, Any], masked: set[str]) -> None:
    assert set(found(**changes).masked) == masked


def test_pods_that_were_never_created_may_be_given_up_even_when_the_objective_is_missed() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    starved = target(replicas=5, status={"conditions": [failure]})
    blocked = [Blocked(move="replicas-up", bound=2, reason=str(MaskReason.QUOTA), until=NOW_S + 60)]
    there = found(of=starved, late=0.9, blocked=blocked)
    assert (there.bounds.min_replicas, there.bounds.max_replicas, there.mask.replicas_down) == (2, 2, True)


def test_an_entry_in_a_status_takes_no_more_than_a_pod_really_lacks() -> None:
    forged = [Blocked(move="cpu-up", bound=0, reason=str(MaskReason.QUOTA), until=NOW_S + 60)]
    vertical = {"minCpuMilli": 100, "maxCpuMilli": 200}
    whole = [pod("a", cpu="100m"), pod("b", cpu="100m", actual="60m")]
    assert found(pods=whole, blocked=forged, vertical=vertical).bounds.max_cpu_m == 100, "the spec's least holds"
    stuck = [pod("a", cpu="100m"), pod("b", cpu="100m", actual="60m", conditions=resizing("PodResizePending", "Infeasible"))]
    assert found(pods=stuck, blocked=forged, vertical=vertical).bounds.max_cpu_m == 60

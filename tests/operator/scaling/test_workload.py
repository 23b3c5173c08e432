"""Workloads and pods as the API server sends them."""

from __future__ import annotations

import pytest

from tests.operator.scaling.small import NOW_S, deployment, pod, pod_object, resizing, target
from tiphys_models.api.scaling_policy import Vertical
from tiphys_operator.cluster.scaled import Resize, pod_of
from tiphys_operator.scaling.shape import Shape, shape_of, size_in_force
from tiphys_operator.scaling.workload import target_of


def test_a_workload_owns_its_pods_and_not_those_labelled_alike() -> None:
    found = target()
    assert found.owns(pod())
    assert not found.owns(pod(metadata={"ownerReferences": [{"kind": "ReplicaSet", "name": "other-abc", "controller": True}]}))
    assert not found.owns(pod(metadata={"labels": {"app": "canary"}}))
    assert not found.owns(pod(metadata={"namespace": "elsewhere"}))
    stateful = target_of(deployment(), "StatefulSet")
    assert stateful.owns(pod(metadata={"ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": True}]}))


def test_a_finished_pod_is_none() -> None:
    assert pod_of(pod_object(status={"phase": "Succeeded"})) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], Resize.NONE),
        (resizing("PodResizePending", "Deferred"), Resize.DEFERRED),
        (resizing("PodResizePending", "Infeasible"), Resize.INFEASIBLE),
        (resizing("PodResizeInProgress", ""), Resize.IN_PROGRESS),
        (resizing("PodResizeInProgress", "Error"), Resize.ERROR),
        ([{"type": "PodResizePending", "status": "False"}], Resize.NONE),
    ],
)
def test_conditions_say_where_a_resize_stands(conditions: list[dict[str, str]], expected: Resize) -> None:
    found = pod(conditions=conditions)
    assert found.resize is expected
    assert found.resize_since_s == (NOW_S if expected is not Resize.NONE else None)


def test_what_counts_on_a_node_is_the_larger_of_asked_and_held() -> None:
    assert pod(cpu="100m", actual="300m").request_m == 150
    assert pod(cpu="300m", actual="100m").request_m == 150


def test_who_set_replicas_last_and_why_pods_are_missing() -> None:
    fields = [
        {"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "argocd", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "kcm", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}},
    ]
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods "web" is forbidden: exceeded quota: q'}
    found = target(metadata={"managedFields": fields}, status={"conditions": [failure]})
    assert found.manager == "argocd"
    assert "exceeded quota" in found.not_created
    assert not found.rolling_out
    assert target(status={"replicas": 3, "updatedReplicas": 1}).rolling_out


def test_requests_keep_the_ratio_of_the_template_and_the_class_of_service() -> None:
    half = shape_of(target(), Vertical())
    assert half == Shape("main", 100, 50)
    assert [half.request(m) for m in (10, 50, 200)] == [5, 25, 100]
    equal = Shape("main", 100, 100)
    assert equal.request(70) == 70
    almost = Shape("main", 100, 99)
    assert almost.request(10) == 9, "equal to the limit would make the pod Guaranteed, which is refused"


def test_without_a_limit_there_is_nothing_to_resize_but_replicas_can_still_follow_the_request() -> None:
    obj = deployment()
    del obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    bare = target_of(obj, "Deployment")
    assert isinstance(shape_of(bare, Vertical()), str)
    assert shape_of(bare, None) == Shape("main", 50, 50)
    assert shape_of(target(), Vertical(container="other")) == "the pod template has no container other"


def test_the_size_in_force_is_that_of_most_pods() -> None:
    shape = Shape("main", 100, 50)
    assert size_in_force([], shape) == 100
    assert size_in_force([pod("a", cpu="200m"), pod("b", cpu="200m"), pod("c", cpu="100m")], shape) == 200
    assert size_in_force([pod("a", cpu="200m"), pod("c", cpu="100m")], shape) == 200


@pytest.mark.parametrize(
    ("strategy", "updated", "expected"),
    [
        ({}, 2, True),
        ({}, 5, False),
        ({"type": "OnDelete"}, 0, False),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}, 2, False),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}, 1, True),
        ({"type": "RollingUpdate", "rollingUpdate": {"partition": 99}}, 0, False),
        ({"type": "RollingUpdate", "rollingUpdate": None}, 2, True),
    ],
)
def test_a_stateful_set_that_keeps_two_revisions_on_purpose_is_not_rolling_out(
    strategy: dict[str, object], updated: int, *, expected: bool
) -> None:
    obj = deployment(5, status={"updatedReplicas": updated})
    obj["spec"]["updateStrategy"] = strategy
    assert target_of(obj, "StatefulSet").rolling_out is expected


def test_a_setter_of_replicas_without_a_name_is_nobody() -> None:
    fields: list[dict[str, object]] = [{"fieldsV1": {"f:spec": {"f:replicas": {}}}, "time": None}]
    assert target(metadata={"managedFields": fields}).manager == ""

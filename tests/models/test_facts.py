from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.facts import function_of, image_name, node_facts, pod_facts, pod_requests
from tiphys_models.base.quantity import cpu_milli, memory_bytes, quantity, timestamp_s


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("2", 2),
        ("1.5", 1.5),
        ("128Mi", 128 * 2**20),
        ("1G", 1e9),
        ("1e3", 1000),
        ("12E6", 12e6),
        ("1E", 1e18),
        ("3n", 3e-9),
        (4, 4),
    ],
)
def test_quantities_read_as_kubernetes_reads_them(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "m", "abc", "1x", "1 Gi", "--1", "0x10"])
def test_a_bad_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="such as 500m"):
        quantity(text)


@given(st.integers(0, 10**9))
def test_milli_cores_survive_the_round_trip(milli: int) -> None:
    assert cpu_milli(f"{milli}m") == milli


def test_times_of_the_api_server_are_seconds() -> None:
    assert timestamp_s("1970-01-01T00:01:00Z") == 60
    assert timestamp_s(None) is None
    with pytest.raises(InvalidInput):
        timestamp_s("yesterday")


@pytest.mark.parametrize(
    ("metadata", "function"),
    [
        ({"namespace": "a", "labels": {"tiphys.io/function": "f"}}, "a/f"),
        (
            {"namespace": "a", "labels": None, "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}]},
            "a/ReplicaSet/r",
        ),
        ({"namespace": "a", "ownerReferences": [{"kind": "X", "name": "r"}]}, ""),
        ({}, ""),
    ],
)
def test_a_function_is_the_label_else_the_controlling_owner(metadata: dict[str, object], function: str) -> None:
    assert function_of(metadata) == function


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1", "docker.io/library/nginx:1"),
        ("team/app", "docker.io/team/app:latest"),
        ("ghcr.io/team/app:2", "ghcr.io/team/app:2"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("app@sha256:ab", "docker.io/library/app@sha256:ab"),
    ],
)
def test_images_are_named_as_the_kubelet_reports_them(image: str, full: str) -> None:
    assert image_name(image) == full


def container(cpu: str, memory: str, **more: object) -> dict[str, object]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def test_requests_are_what_the_scheduler_counts() -> None:
    spec = {
        "containers": [container("100m", "1Mi"), container("200m", "2Mi")],
        "initContainers": [container("1", "1Mi"), container("50m", "4Mi", restartPolicy="Always")],
        "overhead": {"cpu": "10m"},
    }
    assert pod_requests(spec) == (1010, 7 * 2**20)  # cpu: the init container is larger; memory: containers and sidecar


def test_a_pod_with_nothing_in_it_is_still_a_pod() -> None:
    facts = pod_facts({"metadata": {"name": "p"}, "spec": {"containers": None}, "status": {}})
    assert (facts.namespace, facts.name, facts.memory_bytes, facts.in_flight) == ("default", "p", 0, False)


def test_only_unfinished_function_pods_are_in_flight() -> None:
    base = {"metadata": {"uid": "u", "namespace": "a", "labels": {"tiphys.io/function": "f"}}, "spec": {"nodeName": "n"}, "status": {}}
    assert pod_facts(base).in_flight
    assert not pod_facts({**base, "status": {"phase": "Succeeded"}}).in_flight
    assert not pod_facts(
        {**base, "metadata": {"uid": "u", "ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}}
    ).in_flight


def test_a_cordoned_or_unready_node_is_not_schedulable() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "memory": "1Gi"}}
    assert node_facts({"metadata": {"name": "n"}, "status": ready}).schedulable
    assert not node_facts({"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": ready}).schedulable
    assert not node_facts({"metadata": {"name": "n"}, "status": {}}).schedulable
    assert memory_bytes("1Gi") == 2**30

"""Which nodes can take a pod: what is understood of it, labels, taints and room."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import pod, request
from tests.extender.gates.house import House, gated, node_json
from tiphys_extender.gates.needs import is_understood, needs_of
from tiphys_models.placement.gate import GATE


def names(house: House, cpu_milli: int = 100, memory_bytes: int = 1, **spec: Any) -> set[str]:
    """Names of the nodes that take a pod with this spec."""
    rows = house.shapes.that_take(needs_of(spec), cpu_milli, memory_bytes)
    return {house.state.nodes.names[row] for row in rows.tolist()}


def required(*expressions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), **fields}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def house(**nodes: dict[str, Any]) -> House:
    made = House(nodes=0, busy=False)
    for name, changes in nodes.items():
        made.nodes.put(node_json(name, **changes))
    return made


def test_a_node_that_is_full_cordoned_or_not_ready_takes_nobody() -> None:
    made = house(n0={"cpu": "1"}, n1={"memory": "1Mi"}, n2={"pods": "1"}, n3={"unschedulable": True}, n4={})
    sick = node_json("n5")
    sick["status"]["conditions"][0]["status"] = "False"
    made.nodes.put(sick)
    made.state.bound(pod("a", node="n0", cpu_milli=950), 0.0)
    made.state.bound(pod("b", node="n2"), 0.0)
    assert names(made, 100, 2**21) == {"n4"}
    assert names(made, 0, 2**21) == {"n0", "n4"}, "who asks for no cores fits beside those that have them all"
    made.state.finished("b")
    assert names(made, 100, 2**21) == {"n2", "n4"}


def test_reservations_take_room_as_bound_pods_do() -> None:
    made = house(n0={"pods": "1"}, n1={})
    made.state.decided(request("u"), "n0", made.clock.now_s())
    assert names(made) == {"n1"}
    made.state.withdraw("u")
    assert names(made) == {"n0", "n1"}


@pytest.mark.parametrize(
    ("spec", "takes"),
    [
        ({}, {"a", "b", "c"}),
        ({"nodeSelector": {"zone": "1"}}, {"a", "b"}),
        ({"nodeSelector": {"zone": "1", "disk": "ssd"}}, {"a"}),
        ({"affinity": required({"key": "zone", "operator": "In", "values": ["2", "3"]})}, {"c"}),
        ({"affinity": required({"key": "zone", "operator": "NotIn", "values": ["2"]})}, {"a", "b"}),
        ({"affinity": required({"key": "disk", "operator": "Exists"})}, {"a"}),
        ({"affinity": required({"key": "disk", "operator": "DoesNotExist"})}, {"b", "c"}),
        ({"affinity": required({"key": "cores", "operator": "Gt", "values": ["8"]})}, {"b"}),
        ({"affinity": required({"key": "cores", "operator": "Lt", "values": ["8"]})}, set()),
        ({"affinity": required(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["c"]}])}, {"c"}),
        ({"affinity": required()}, set()),
        ({"affinity": required({"key": "zone", "operator": "Exists"}), "nodeSelector": {"disk": "ssd"}}, {"a"}),
    ],
)
def test_labels_choose_nodes_as_the_schedulers_own_filter_does(spec: dict[str, Any], takes: set[str]) -> None:
    made = house(
        a={"labels": {"zone": "1", "disk": "ssd", "cores": "8"}}, b={"labels": {"zone": "1", "cores": "16"}}, c={"labels": {"zone": "2"}}
    )
    assert names(made, **spec) == takes


@pytest.mark.parametrize(
    ("tolerations", "takes"),
    [
        ([], {"soft", "free"}),
        ([{"operator": "Exists"}], {"hard", "gone", "soft", "free"}),
        ([{"key": "team", "operator": "Exists"}], {"hard", "soft", "free"}),
        ([{"key": "team", "value": "red"}], {"hard", "soft", "free"}),
        ([{"key": "team", "value": "blue"}], {"soft", "free"}),
        ([{"key": "team", "value": "red", "effect": "NoExecute"}], {"soft", "free"}),
        ([{"key": "gone", "operator": "Exists", "effect": "NoExecute"}], {"gone", "soft", "free"}),
        ([{"key": "team", "operator": "Gt", "value": "1"}], {"soft", "free"}),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(tolerations: list[dict[str, Any]], takes: set[str]) -> None:
    made = house(
        hard={"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]},
        gone={"taints": [{"key": "gone", "effect": "NoExecute"}]},
        soft={"taints": [{"key": "team", "value": "red", "effect": "PreferNoSchedule"}]},
        free={},
    )
    assert names(made, tolerations=tolerations) == takes


def test_a_node_that_changes_comes_or_goes_is_judged_anew() -> None:
    made = house(n0={"labels": {"zone": "1"}})
    wanted: dict[str, Any] = {"nodeSelector": {"zone": "1"}}
    assert names(made, **wanted) == {"n0"}
    made.nodes.put(node_json("n1", labels={"zone": "1"}))
    assert names(made, **wanted) == {"n0", "n1"}
    made.nodes.put(node_json("n0", labels={"zone": "2"}))
    assert names(made, **wanted) == {"n1"}
    made.nodes.drop(node_json("n1"))
    assert names(made, **wanted) == set()
    for number in range(100):  # the table grows
        made.nodes.put(node_json(f"m{number}", labels={"zone": "1"}))
    assert len(names(made, **wanted)) == 100


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
        {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        {"initContainers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}]},
        {"containers": [{"name": "c", "resources": {"claims": [{"name": "x"}]}}]},
        {"resourceClaims": [{"name": "x"}]},
        {"resources": {"requests": {"cpu": "1"}}},
        {"a-field-of-tomorrow": 1},
        {"schedulingGates": [{"name": GATE}, {"name": "example.com/other"}]},
    ],
)
def test_what_this_filter_does_not_know_is_not_understood(spec: dict[str, Any]) -> None:
    assert is_understood(gated("u")["spec"])
    assert not is_understood(gated("u", spec=spec)["spec"] | spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "t", "projected": {"sources": []}}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "serviceAccountName": "a", "restartPolicy": "Never"},
        {"overhead": {"cpu": "100m"}, "runtimeClassName": "small"},
    ],
)
def test_wishes_and_what_is_the_same_everywhere_are_understood(spec: dict[str, Any]) -> None:
    assert is_understood(gated("u")["spec"] | spec)

"""Pods behind the scheduling gate, on a real API server with a stock scheduler: held where that pays, and let go by the extender alone."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from e2e.conftest import wait_until
from e2e.live import Inputs, Lane, lane, make_inputs, nodes_of
from tiphys_cli.support.explain import Explanation, explanation
from tiphys_cli.support.extenders import ask_extenders
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.gate import GATE, MAY_WAIT
from tiphys_testbed.bench.service import fetch
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import POOL_LABEL, delete_nodes

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

NODES = 12
BOUND_S = 4.0
FUNCTIONS = ("f", "f0", "f1", "f2", "f3")
PROFILE = {"warm_seconds": 1.0, "cold_seconds": 9.0, "warm_core_seconds": 1.0, "cold_core_seconds": 1.0, "parallelism": 1.0}
OVERDUE_S = 2.5
"""After so long the rest of a cold call, six and a half seconds, is shorter than the eight that warmth saves."""
SLACK_S = 5.0
"""What the bound may be missed by, whatever happens; with nothing broken it is missed by the second that creation times are cut down by."""


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, NODES, "gates")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


@contextmanager
def patient_lane(
    local: LocalCluster, namespace: str, inputs: Inputs, bound_s: float = BOUND_S, policy: str = "warm-first-waits"
) -> Iterator[Lane]:
    """A lane whose extender holds pods, with a policy that may wait and functions whose starts are dear; no runtime reports who is idle."""
    lines = [line for line in map(orjson.loads, inputs.readings.read_bytes().splitlines()) if not line.keys() & {"idle", "profile"}]
    functions = [{"function": f"{namespace}/{function}", **PROFILE} for function in FUNCTIONS]
    readings = inputs.readings.with_name(f"readings-{namespace}")
    readings.write_bytes(b"\n".join(map(orjson.dumps, [*lines, *({"profile": function} for function in functions)])) + b"\n")
    inputs = replace(inputs, readings=readings)
    settings = {"DEADLINE_MS": "500", "GATES_ENABLED": "true", "GATES_LONGEST_WAIT_S": str(bound_s)}
    with lane(local, namespace, inputs, settings=settings, http_timeout_s=2.0) as tiphys:
        tiphys.policy(policy=policy)
        wait_until(lambda: opener(tiphys)[0] == 200, 10, "the extender opens gates")
        yield tiphys


def opener(tiphys: Lane) -> tuple[int, bytes]:
    return fetch(f"{tiphys.extender.status_url}/openers/ready", 5.0)


def make(
    tiphys: Lane, name: str, function: str, gates: tuple[str, ...] = (GATE,), labels: dict[str, str] | None = None, **spec: Any
) -> str:
    """A pod of a function, with the gate on as admission would put it on."""
    container = {"name": "main", "image": "registry.example/f:1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    pod = {
        "metadata": {"name": name, "labels": {FUNCTION_LABEL: function, MAY_WAIT: "true", **(labels or {})}},
        "spec": {
            "schedulerName": "tiphys",
            "schedulingGates": [{"name": gate} for gate in gates],
            "nodeSelector": {POOL_LABEL: tiphys.inputs.pool},
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        },
    }
    tiphys.cluster.api.create(pods_of(tiphys), pod)
    return name


def pods_of(tiphys: Lane) -> str:
    return f"/api/v1/namespaces/{tiphys.namespace}/pods"


def gates_of(tiphys: Lane, name: str) -> list[str]:
    return [gate["name"] for gate in tiphys.cluster.api.get(f"{pods_of(tiphys)}/{name}")["spec"].get("schedulingGates") or []]


def bound_within(tiphys: Lane, names: list[str], deadline_s: float) -> dict[str, str]:
    found: dict[str, str] = {}

    def all_bound() -> bool:
        found.update(nodes_of(tiphys.cluster, tiphys.namespace))
        return all(found.get(name) for name in names)

    wait_until(all_bound, deadline_s, f"{names[:5]} … bound", poll_s=0.05)
    return {name: found[name] for name in names}


def finish(tiphys: Lane, name: str) -> None:
    """The pod has run to its end."""
    tiphys.cluster.api.patch(f"{pods_of(tiphys)}/{name}/status", {"status": {"phase": "Succeeded"}})


def total(tiphys: Lane, name: str, **labels: str) -> float:
    return tiphys.extender.metrics().total(f"tiphys_extender_{name}", **labels)


def busy_instance(tiphys: Lane, function: str = "f", name: str = "busy") -> str:
    """The node of a pod of the function that has run so long that its instance is expected back soon."""
    node = bound_within(tiphys, [make(tiphys, name, function, gates=())], 20)[name]
    time.sleep(OVERDUE_S)
    return node


def explained(tiphys: Lane, name: str) -> Explanation:
    api, namespace = tiphys.cluster.api, tiphys.namespace
    pod = api.get(f"{pods_of(tiphys)}/{name}")
    record, where = ask_extenders(api, tiphys.cluster.kubeconfig, tiphys.extender.explain_url, "", namespace, name, pod)
    return explanation(namespace, name, pod, record, where, "tiphys")


def held(tiphys: Lane, count: int = 1) -> Callable[[], bool]:
    return lambda: total(tiphys, "held_pods_total") >= count


def test_a_pod_waits_for_the_busy_instance_and_lands_on_its_node(
    local: LocalCluster, inputs: Inputs, namespace: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    with patient_lane(local, namespace, inputs, bound_s=30.0) as tiphys:
        node = busy_instance(tiphys)
        waits = make(tiphys, "waits", "f")
        wait_until(held(tiphys), 5, "the pod is told to wait")
        assert gates_of(tiphys, waits) == [GATE]
        while_held = explained(tiphys, waits)
        assert "is held" in while_held.headline
        assert "an instance of its function is expected for it" in " ".join(while_held.because)
        ended_s = time.monotonic()
        finish(tiphys, "busy")
        assert bound_within(tiphys, [waits], 5)[waits] == node
        took_s = time.monotonic() - ended_s
        assert total(tiphys, "held_ended_total", how="warm") == 1
        assert total(tiphys, "gates_opened_total", reason="warm") == 1
        wait_until(lambda: tiphys.decisions()[-1]["chosen"] == node, 5, "the bind is joined to the decision")
        assert tiphys.decisions()[-1]["held"]["reason"] == "warm"
        assert "It was held" in " ".join(explained(tiphys, waits).because)
        finish(tiphys, waits)
        record_testsuite_property("seconds from the end of the busy pod to the bind of the one that waited", round(took_s, 3))


def test_what_is_never_held_goes_at_once(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with patient_lane(local, namespace, inputs, bound_s=30.0) as tiphys:
        busy_instance(tiphys)
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
        never: dict[str, tuple[str, dict[str, Any]]] = {
            "urgent": ("priority", {"priorityClassName": "system-cluster-critical"}),
            "elsewhere": ("other-scheduler", {"schedulerName": "default-scheduler"}),
            "apart": ("not-understood", {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            "huge": ("fits-nowhere", {"nodeSelector": {POOL_LABEL: tiphys.inputs.pool, "no-such": "label"}}),
        }
        for name, (reason, spec) in never.items():
            make(tiphys, name, "f", **spec)
            wait_until(lambda name=name: gates_of(tiphys, name) == [], 3, f"{name} is let go")  # type: ignore[misc]
            assert total(tiphys, "gates_opened_total", reason=reason) == 1
        two = make(tiphys, "two-gates", "f", gates=("example.com/other", GATE))
        wait_until(lambda: gates_of(tiphys, two) == ["example.com/other"], 3, "ours is taken off, the other one stays")
        tiphys.policy("Shadow", "warm-first-waits")
        make(tiphys, "shadowed", "f")
        wait_until(lambda: total(tiphys, "gates_opened_total", reason="not-obeyed") == 1, 3, "nobody is held in Shadow")
        tiphys.policy("Active", "warm-first")
        make(tiphys, "impatient", "f")
        wait_until(lambda: total(tiphys, "gates_opened_total", reason="not-patient") == 1, 3, "nobody is held by a policy that never waits")
        assert total(tiphys, "held_pods_total") == 0
        bound_within(tiphys, ["urgent", "elsewhere", "apart", "shadowed", "impatient"], 10)
        conditions = tiphys.cluster.api.get(f"{pods_of(tiphys)}/huge")["status"].get("conditions") or []
        wait_until(
            lambda: any(c.get("reason") == "Unschedulable" for c in unscheduled(tiphys, "huge")), 10, f"autoscalers see it: {conditions}"
        )


def unscheduled(tiphys: Lane, name: str) -> list[dict[str, Any]]:
    conditions = tiphys.cluster.api.get(f"{pods_of(tiphys)}/{name}")["status"].get("conditions") or []
    return [c for c in conditions if c["type"] == "PodScheduled"]


def test_the_bound_holds_where_nothing_ends_and_who_opts_out_goes_at_once(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with patient_lane(local, namespace, inputs) as tiphys:
        busy_instance(tiphys)
        began_s = time.monotonic()
        waits, leaves = make(tiphys, "waits", "f"), make(tiphys, "leaves", "f")
        wait_until(held(tiphys), 3, "told to wait")
        if gates_of(tiphys, leaves):
            tiphys.cluster.api.patch(f"{pods_of(tiphys)}/{leaves}", {"metadata": {"labels": {MAY_WAIT: None}}})
        bound_within(tiphys, [leaves], 2)
        bound_within(tiphys, [waits], BOUND_S + SLACK_S)
        assert time.monotonic() - began_s >= BOUND_S - 1.0
        assert total(tiphys, "gates_opened_total", reason="bound") == 1
        wait_until(lambda: total(tiphys, "gated_pods") == 0, 5, "nobody is held any more")


def test_an_extender_that_starts_anew_lets_go_of_what_its_predecessor_held(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with patient_lane(local, namespace, inputs, bound_s=30.0) as tiphys:
        busy_instance(tiphys)
        waits = make(tiphys, "waits", "f")
        wait_until(held(tiphys), 5, "told to wait")
        tiphys.extender.process.kill()
        time.sleep(1.0)
        assert gates_of(tiphys, waits) == [GATE], "a gate has no end of its own"
    with patient_lane(local, namespace, inputs, bound_s=BOUND_S) as tiphys:
        bound_within(tiphys, [waits], BOUND_S + SLACK_S)


def test_a_burst_of_200_waits_no_longer_than_the_bound_and_all_are_placed(
    local: LocalCluster, inputs: Inputs, namespace: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    with patient_lane(local, namespace, inputs) as tiphys:
        for function in range(4):
            busy_instance(tiphys, f"f{function}", f"busy-{function}")
        created_s: dict[str, float] = {}

        def create(number: int) -> None:
            name = f"burst-{number:03d}"
            created_s[name] = time.monotonic()
            make(tiphys, name, f"f{number % 4}")

        local.api.each(create, range(200))
        finish(tiphys, "busy-0")
        waited_s: dict[str, float] = {}

        def all_let_go() -> bool:
            now_s, pods = time.monotonic(), local.api.items(pods_of(tiphys))
            for pod in pods:
                name = pod["metadata"]["name"]
                if name in created_s and not pod["spec"].get("schedulingGates"):
                    waited_s.setdefault(name, now_s - created_s[name])
            return len(waited_s) == 200

        wait_until(all_let_go, BOUND_S + 2 * SLACK_S, "200 pods let go")
        assert max(waited_s.values()) <= BOUND_S + SLACK_S
        bound_within(tiphys, sorted(created_s), 30)
        reasons = Counter({r: total(tiphys, "gates_opened_total", reason=r) for r in ("warm", "cold", "bound")})
        assert sum(reasons.values()) == 200
        record_testsuite_property("longest wait of 200", round(max(waited_s.values()), 2))
        record_testsuite_property("why 200 were let go", dict(reasons))


def test_an_extender_without_gates_is_no_opener(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with lane(local, namespace, inputs) as tiphys:
        assert opener(tiphys) == (503, b"gates are not enabled")

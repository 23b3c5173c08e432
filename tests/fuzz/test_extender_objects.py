"""Whatever the API server may store, nothing on the extender's and binder's side ends or stalls by it, and the next healthy object counts."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from tests.builders import policy_object
from tests.extender.binder_harness import PLATFORM, Binder, node_object
from tests.extender.gates.house import House
from tests.extender.harness import Extender, check_contract, pod_json
from tests.extender.streams.builders import KEYS, shipped_models
from tests.extender.streams.test_objects import obj as stream_object
from tests.extender.streams.test_objects import policy as stream_policy
from tests.extender.streams.test_objects import site as stream_site
from tests.fuzz.feeding import BATCH, SEED, case, objects, survives
from tiphys_extender.calls.requests import PlaceCall
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.placement.objects import PodSink, node_objects, policy_objects, switch_objects
from tiphys_extender.placement.plans import PlanObjects
from tiphys_extender.placement.pod_cpu import PodCpu
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse as parse_body
from tiphys_extender.serve.wire import BadRequest, parse_call
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Chooser, Weights
from tiphys_extender.streams.metrics import POLICIES, SITES, VARIANTS, StreamMetrics
from tiphys_extender.streams.objects import StreamObjects
from tiphys_extender.watches import watch_troubles
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.quantity import MOST_BYTES, MOST_MILLI
from tiphys_models.kube.guard import GuardedSink
from tiphys_models.kube.reflector import CountingSink
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.encoder import encode, encode_outlook
from tiphys_models.placement.gate import GATE

NOBODY: Any = None
"""In the place of a client: nothing is fetched while objects come in."""


# ---- sinks: the hostile one, then a healthy one ------------------------------------------------------------------------


def hostile_then_healthy(kind: str, guarded: GuardedSink, sink: CountingSink, healthy: Callable[[int], bool]) -> None:
    """Puts, drops and lists; `healthy(number)` puts a healthy object and says whether it was taken."""
    random = Random(f"{SEED}/steps/{kind}")
    listed: set[str] = set()
    for number, (what, obj) in enumerate(objects(kind)):
        survives(what, lambda obj=obj: guarded.put(obj))  # type: ignore[misc]
        listed.add(obj["metadata"]["uid"])
        if random.random() < 0.3:
            survives(what, lambda obj=obj: guarded.drop(obj))  # type: ignore[misc]
        if random.random() < 0.01:
            survives(what, lambda: guarded.listed(set(random.sample(sorted(listed), len(listed) // 2))))
        assert healthy(number), f"after {what} a healthy object was not taken"
    guarded.listed(set())
    assert len(sink) == 0, "something was left that no list holds"


@pytest.mark.parametrize("kind", [case("Pod")])
async def test_a_hostile_pod_behind_the_gate_is_held_or_let_go_and_healthy_ones_are_looked_at(kind: str) -> None:
    house = House()
    guarded = GuardedSink("gated-pods", house.keeper, watch_troubles(house.metrics))
    for what, obj in objects(kind):
        spec = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        gated_one = obj | {"spec": {**spec, "schedulingGates": [{"name": GATE}]}}
        survives(what, lambda gated_one=gated_one: guarded.put(gated_one))  # type: ignore[misc]
    assert house.counted("watch_errors_total", kind="gated-pods", reason="bad-object") == 0, "each is held or let go"
    await house.keeper.round()
    assert len(house.keeper) > 0
    house.comes("healthy")
    await house.keeper.round()
    assert (house.keeper.story("healthy", "", "") or {})["state"] == "held"
    guarded.listed(set())
    assert house.counted("gated_pods") == len(house.keeper), "all of them are to be let go"


@pytest.mark.parametrize("kind", [case("Node")])
def test_nodes_reach_the_extender(kind: str) -> None:
    extender = Extender(nodes=0)
    sink = node_objects(extender.world)

    def healthy(number: int) -> bool:
        obj = node_object(f"healthy-{number % 7}", cpu=f"{number % 5 + 1}")
        guarded.put(obj)
        row = extender.state.nodes.row_of[f"healthy-{number % 7}"]
        return row >= 0 and extender.state.nodes.cores[row] == number % 5 + 1

    guarded = GuardedSink("nodes", sink, watch_troubles(extender.metrics))
    hostile_then_healthy(kind, guarded, sink, healthy)


def finite_but_for_readings(extender: Extender, names: list[str]) -> bool:
    rows = extender.state.nodes.rows(names)
    shown = extender.state.view(PlacementRequest("x", "shop", "shop/f", MOST_MILLI, MOST_BYTES), rows)
    unmeasured = {*range(21), 23, 25}  # readings, idle instances and start times that nobody reported
    columns = [column for column in range(26) if column not in unmeasured]
    return bool(np.isfinite(encode(shown)[:, columns]).all() and not np.isinf(encode_outlook(shown)).any())


@pytest.mark.parametrize("kind", [case("Pod")])
def test_pods_reach_the_extender_and_leave_no_trace(kind: str) -> None:
    extender = Extender(nodes=3)
    cpu = PodCpu(extender.world, extender.metrics)
    sink = PodSink(extender.world, extender.decisions, extender.clock, cpu)
    guarded = GuardedSink("pods", sink, watch_troubles(extender.metrics))

    def healthy(number: int) -> bool:
        mine = pod_json("healthy")
        mine["spec"]["nodeName"] = "n1"
        before = extender.state.nodes.numbers.copy()
        guarded.put(mine)
        counted = extender.state.nodes.numbers[extender.state.nodes.row_of["n1"]] - before[extender.state.nodes.row_of["n1"]]
        fine = counted.tolist()[2:] == [256 * 2**20, 100, 1, 256 * 2**20]
        guarded.drop(mine)
        if number % BATCH == 0:
            fine &= finite_but_for_readings(extender, ["n0", "n1", "n2"])
        return fine and bool((extender.state.nodes.numbers == before).all())

    hostile_then_healthy(kind, guarded, sink, healthy)
    assert not extender.state.nodes.numbers[:, 2:].any()
    assert extender.state.kept["functions"] <= 2_000
    assert len(cpu.pods) == 0


@pytest.mark.parametrize("kind", [case("Node")])
def test_nodes_reach_the_pool_of_the_binder(kind: str) -> None:
    binder = Binder(nodes=0)
    guarded = GuardedSink("nodes", binder.nodes, watch_troubles(binder.metrics))

    def healthy(number: int) -> bool:
        guarded.put(node_object("healthy"))
        return "healthy" in binder.pool.matching(binder.pool.selector)

    hostile_then_healthy(kind, guarded, binder.nodes, healthy)
    assert not binder.pool.labels
    assert not binder.pool.outside


@pytest.mark.parametrize("kind", [case("Pod")])
def test_pods_reach_the_binder(kind: str) -> None:
    binder = Binder(nodes=2)
    guarded = GuardedSink("pods", binder.pods, watch_troubles(binder.metrics))

    def healthy(number: int) -> bool:
        mine = pod_json("healthy", spec={"nodeName": "n1"})
        guarded.put(mine)
        counts = "healthy" in binder.pool.foreign
        guarded.drop(mine)
        if number % BATCH == 0:
            placed = binder.place()
            counts &= placed["reserved"]
            binder.placer.finished(PLATFORM, placed["id"])
        return counts and "healthy" not in binder.pool.foreign

    hostile_then_healthy(kind, guarded, binder.pods, healthy)
    assert binder.pool.foreign == {}


@pytest.mark.parametrize("kind", [case("SchedulingPolicy")])
def test_policies_reach_the_router(kind: str) -> None:
    extender = Extender(nodes=1, policies=[])
    sink = policy_objects(extender.world, extender.metrics)
    guarded = GuardedSink("policies", sink, watch_troubles(extender.metrics))

    def healthy(number: int) -> bool:
        guarded.put(policy_object("healthy", namespace="ours", mode="Active" if number % 2 else "Shadow"))
        route = extender.world.router.route("ours", {})
        return route is not None and route.spec.mode == ("Active" if number % 2 else "Shadow")

    hostile_then_healthy(kind, guarded, sink, healthy)
    assert list(extender.world.router) == []


@pytest.mark.parametrize("kind", [case("PlacementPlan")])
def test_plans_reach_the_world(kind: str) -> None:
    extender = Extender(nodes=1)
    sink = PlanObjects(extender.world)
    guarded = GuardedSink("plans", sink, watch_troubles(extender.metrics))

    def healthy(number: int) -> bool:
        spec = {"policyUid": "u", "policyGeneration": number, "planner": "gobi", "interval": 1, "validUntil": "2026-01-01T00:00:00Z"}
        guarded.put({"metadata": {"name": "healthy", "namespace": "ours", "uid": "healthy"}, "spec": spec})
        return extender.world.plans["ours/healthy"].policy_generation == number

    hostile_then_healthy(kind, guarded, sink, healthy)
    assert not extender.world.plans


@pytest.mark.parametrize("kind", [case("ConfigMap")])
def test_the_kill_switch_obeys_after_anything(kind: str) -> None:
    extender = Extender(nodes=1)
    guarded = GuardedSink("switch", switch_objects(extender.world, extender.metrics, "switch"), watch_troubles(extender.metrics))
    for number, (what, obj) in enumerate(objects(kind)):
        obj["metadata"]["name"] = "switch"
        survives(what, lambda obj=obj: guarded.put(obj))  # type: ignore[misc]
        wanted = number % 2 == 0
        guarded.put({"metadata": {"name": "switch", "uid": "own"}, "data": {"enabled": str(wanted).lower()}})
        assert extender.world.enabled is wanted, what


@pytest.mark.parametrize("kind", [case("LearnedModel")])
async def test_learned_models_are_wanted_or_refused(kind: str) -> None:
    extender = Extender(nodes=1)
    sink = LearnedModels(NOBODY, extender.models, extender.metrics, "ours", None)
    guarded = GuardedSink("models", sink, watch_troubles(extender.metrics))
    weights = {"configMap": {"name": "w"}}

    def healthy(number: int) -> bool:
        spec = {"policy": "faasrank", "weights": weights, "sha256": f"{number:064x}", "featureSchema": "faasrank-42/1"}
        guarded.put({"metadata": {"name": "healthy", "namespace": "ours", "uid": "healthy"}, "spec": spec})
        return sink._wanted["healthy"].spec.sha256 == f"{number:064x}" and "healthy" in sink._pending

    hostile_then_healthy(kind, guarded, sink, healthy)
    assert extender.models.describe() == []


@pytest.mark.parametrize("kind", [case("InferenceSite"), case("ModelVariant"), case("StreamPolicy")])
async def test_stream_objects_reach_the_stream_binder(kind: str) -> None:
    binder = StreamBinder(
        "site-a", "n", lambda: KEYS, Chooser(Weights(shipped_models()).load), StreamMetrics(CollectorRegistry()), ManualClock()
    )
    binder.activate(lambda: True, recover=False)
    metrics, tripped = Metrics(), 0

    def trip(_: str) -> None:
        nonlocal tripped
        tripped += 1

    stream = StreamObjects(binder, ManualClock(), trip)
    for each in stream.sinks.values():
        each.listed(set())
    which = {"InferenceSite": SITES, "ModelVariant": VARIANTS, "StreamPolicy": POLICIES}[kind]
    metrics.watch_errors[which, "bad-object"] = metrics.watch_errors["nodes", "bad-object"]  # the extender's own has no such kinds
    guarded = {name: GuardedSink(which, sink, watch_troubles(metrics)) for name, sink in stream.sinks.items()}
    variant = {
        "task": "detect", "model": "m", "site": "site-a", "accuracy": 40, "delayMs": 5, "capacityQps": 10, "profiledKb": 100,
        "endpoint": {"url": "http://10.0.0.1"},
    }  # fmt: skip
    for number, (what, obj) in enumerate(objects(kind)):
        if kind == "ModelVariant" and isinstance(obj.get("spec"), dict):
            obj["metadata"]["name"] += f"-{number}"  # two of one name cannot be in one namespace
        if kind == "InferenceSite":
            obj["metadata"]["name"] += f"-{number}"
        survives(what, lambda obj=obj: guarded[which].put(obj))  # type: ignore[misc]
        if number % BATCH == 0:
            capacity = number + 1
            guarded[SITES].put(_site("site-a"))
            guarded[VARIANTS].put(stream_object("ModelVariant", "healthy", variant | {"capacityQps": capacity}))
            guarded[POLICIES].put(stream_policy("healthy", "2000-01-01T00:00:00Z", accessSite="site-a"))
            with np.errstate(over="ignore"):
                stream.compile()
            offer = binder.system.offer("site-a/healthy")
            assert offer is not None, what
            assert offer.capacity_qps == capacity, what
            assert binder.ready.is_set(), what
            survives(what, binder.tick)
            survives(what, binder.turn)
            survives(what, binder.summary)
            guarded[which].listed({obj["metadata"]["uid"], "ModelVariant-healthy", "InferenceSite-site-a", "StreamPolicy-healthy"})
    assert tripped == 0


def _site(name: str) -> dict[str, Any]:
    found = copy.deepcopy(stream_site(name))
    found["spec"]["delays"] = [{"from": name, "meanMs": 1}]
    return found


# ---- what comes over HTTP ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [case("Pod")])
def test_calls_with_hostile_pods_are_answered_by_the_contract(kind: str) -> None:
    extender = Extender(nodes=4, policies=[policy_object("all", namespace=name, mode="Active") for name in ("shop", "default")])
    names = list(extender.state.nodes.row_of)
    for number, (what, obj) in enumerate(objects(kind)):
        obj.setdefault("spec", {})
        if isinstance(obj["spec"], dict) and number % 3:
            obj["spec"]["schedulerName"] = "tiphys"
        body = json.dumps({"Pod": obj, "Nodes": None, "NodeNames": names}).encode()
        survives(what, lambda body=body: parse_call(body), BadRequest)  # type: ignore[misc]
        answer = extender.answerer.prioritize(body)
        survives(what, extender.answerer.settle)
        check_contract(answer, names)
        if number % BATCH == 0:
            healthy = extender.ask(f"healthy-{number}")
            assert max(healthy.values()) == 10, f"after {what} a healthy pod got a neutral answer"
            extender.state.finished(f"healthy-{number}")


@pytest.mark.parametrize("kind", [case("Pod")])
def test_calls_of_the_binder_with_hostile_fields_are_refused_or_placed(kind: str) -> None:
    for what, obj in objects(kind):
        spec = obj.get("spec") if isinstance(obj.get("spec"), dict) else {}
        requests = _first_requests(spec or {})
        body = {
            "namespace": obj["metadata"]["namespace"],
            "function": "f",
            "selector": {},
            "labels": obj["metadata"].get("labels"),
            **requests,
        }
        raw = json.dumps(body).encode()
        if survives(what, lambda raw=raw: parse_body(PlaceCall, raw), Refused):  # type: ignore[misc]
            call = parse_body(PlaceCall, raw)
            assert 0 <= call.cpu <= 2**50, what
            assert 0 <= call.memory <= 2**50, what


def _first_requests(spec: dict[str, Any]) -> dict[str, Any]:
    for container in spec.get("containers") or ():
        if isinstance(container, dict) and isinstance(requests := (container.get("resources") or {}).get("requests"), dict):
            return {key: requests[key] for key in ("cpu", "memory") if key in requests}
    return {}

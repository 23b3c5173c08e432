"""Every way an object takes into the operator, fed with what the API server's grammar allows.

`TIPHYS_FUZZ_OBJECTS` is how many objects all cases here make together; `TIPHYS_FUZZ_SEED` is where they begin. A failure names its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from tests.fuzz.grammar import GRAMMAR, HEALTHY
from tests.operator.scaling.harness import World
from tests.operator.scaling.small import NOW_S
from tests.operator.scaling.small import policy as scaling_policy
from tests.operator.scaling.small import target as healthy_target
from tests.operator.streams.test_verdicts import SUMMARY
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.api.stream_summary import StreamSummary
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.base.quantity import MOST_MILLI
from tiphys_models.kube.client import ApiError
from tiphys_models.kube.guard import GuardedSink, attempted
from tiphys_models.kube.kinds import INFERENCE_SITES, MODEL_VARIANTS, STREAM_POLICIES
from tiphys_models.kube.reflector import Sink
from tiphys_operator.cluster.instances import REVISION_LABEL
from tiphys_operator.cluster.observed import NodeSink, ObservedCluster, PodSink
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.decision_reader import Cursor, tally
from tiphys_operator.placement.observation import Observation, PodGroup, model_seen, policy_seen
from tiphys_operator.placement.plan import plan
from tiphys_operator.runtime.kopf_watch import SeenVersions
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.conflicts import OtherScalers, conflict
from tiphys_operator.scaling.controller import _LONGEST_S
from tiphys_operator.scaling.metrics import ScalingMetrics
from tiphys_operator.scaling.room import quota_cpu, quota_pods
from tiphys_operator.scaling.running import Case, Running
from tiphys_operator.scaling.seen import scaling_seen
from tiphys_operator.scaling.shape import Shape, shape_of, size_in_force
from tiphys_operator.scaling.verdicts import Finding, events, status_of
from tiphys_operator.scaling.workload import target_of
from tiphys_operator.selection.prices import PriceTable
from tiphys_operator.streams.cluster import BindingCluster
from tiphys_operator.streams.endpoints import SliceSink
from tiphys_operator.streams.metrics import BindingMetrics
from tiphys_operator.streams.rounds import Rounds
from tiphys_operator.streams.verdicts import failed_policy, failed_site, failed_variant, policy_status, site_status, variant_status

SEED = int(os.environ.get("TIPHYS_FUZZ_SEED", "1"))
_CASES = 20
EACH = max(20, int(os.environ.get("TIPHYS_FUZZ_OBJECTS", "48000")) // _CASES)
OURS = ("SchedulingPolicy", "LearnedModel", "ScalingPolicy", "InferenceSite", "ModelVariant", "StreamPolicy")


def hostile(kind: str, count: int = EACH) -> Iterator[tuple[str, dict[str, Any]]]:
    """Objects with the seed that makes each."""
    for number in range(SEED, SEED + count):
        yield f"{kind} of Random('{kind} {number}')", GRAMMAR[kind](Random(f"{kind} {number}"))


def healthy(kind: str, number: int) -> dict[str, Any]:
    obj = HEALTHY[kind](Random(f"healthy {kind} {number % 50}"))
    obj["metadata"] |= {"uid": f"healthy-{number % 50}", "resourceVersion": str(10**6 + number)}
    return obj


def errors(registry: CollectorRegistry, kind: str) -> float:
    return registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": kind}) or 0.0


def fed(kind: str, sink: Sink, works: Callable[[dict[str, Any]], bool]) -> None:
    """Put, change, list and drop hostile objects; after each a healthy one still gets through, and no healthy one trips anything."""
    registry = CollectorRegistry()
    guarded = GuardedSink(kind, sink, ObjectGuard(registry))
    for number, (seed, obj) in enumerate(hostile(kind)):
        try:
            guarded.put(obj)
            if number % 3 == 0:
                guarded.drop(obj)
            if number % 97 == 0:
                guarded.listed({f"healthy-{n}" for n in range(50)})
            before, good = errors(registry, kind), healthy(kind, number)
            guarded.put(good)
            assert errors(registry, kind) == before, "a healthy object tripped"
            assert works(good), "a healthy object did not get through"
        except Exception as error:
            raise AssertionError(f"{seed}: {error!r}") from error


class PodsOfRevisions(PodSink):
    """Every pod that it is shown is one of a revision of Knative, whatever else it is."""

    def put(self, obj: dict[str, Any]) -> None:
        """The label is put on, and the pod goes where all pods go."""
        labels = obj["metadata"].get("labels")
        obj["metadata"]["labels"] = {**(labels if isinstance(labels, dict) else {}), REVISION_LABEL: "r", FUNCTION_LABEL: "f"}
        super().put(obj)


def test_pods_that_are_instances_into_the_observed_cluster() -> None:
    cluster, found = ObservedCluster(ManualClock()), 0
    cluster.keeps_instances = True

    def works(pod: dict[str, Any]) -> bool:
        nonlocal found
        found += bool(cluster.instances)
        return cluster.instances.keys() <= cluster.pods.keys()

    fed("Pod", PodsOfRevisions(cluster), works)
    assert found > 0
    assert all(instance.node and instance.function and instance.address for instance in cluster.instances.values())
    for uid in cluster.pod_uids():
        cluster.drop_pod(uid)
    assert cluster.instances == {}


def test_pods_into_the_observed_cluster() -> None:
    cluster = ObservedCluster(ManualClock())
    cluster.keeps_instances = True
    cluster.keeps_finished = True
    policies = ScalingCluster(cluster)
    for number, namespace in enumerate(("shop", "default")):  # pods of their targets are kept whole
        policy = healthy("ScalingPolicy", number)
        policy["metadata"]["namespace"] = namespace
        policies.store.put(policy)

    def works(pod: dict[str, Any]) -> bool:
        return pod["status"]["phase"] in ("Succeeded", "Failed") or pod["metadata"]["uid"] in cluster.pods

    fed("Pod", PodSink(cluster), works)
    assert all(type(used_m) is int and 0 <= used_m < MOST_MILLI * 100_000 for used_m in cluster.used_m.values())
    assert all(0 <= pod.cores < 2**40 and 0 <= pod.ram_mib < 2**40 for pod in cluster.pods.values())
    for uid in cluster.pod_uids():
        cluster.drop_pod(uid)
    assert cluster.instances == {}
    assert (cluster.used_m, cluster.pods, cluster.pods_kept()) == ({}, {}, 0), "what pods used is given back exactly"


def test_nodes_into_the_observed_cluster_and_their_prices() -> None:
    cluster, prices = ObservedCluster(), PriceTable()
    fed("Node", NodeSink(cluster), lambda node: bool(prices.host_types([cluster.nodes[node["metadata"]["name"]]])))
    assert all(0 <= node.allocatable_m <= MOST_MILLI for node in cluster.nodes.values())


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_workloads_are_read_or_refused_alone(kind: str) -> None:
    read = 0
    for number, (seed, obj) in enumerate(hostile(kind)):
        found, _ = attempted(lambda obj=obj: target_of(obj, kind))  # type: ignore[misc]
        if found is not None:
            read += 1
            assert isinstance(found.manager, str), seed
            assert all(0 <= amount < 2**70 for amount in found.template_requests.values()), seed
            shape = shape_of(found, None)
            assert isinstance(shape, str) or size_in_force((), shape) > 0, seed
        if number % 10 == 0:
            assert target_of(healthy(kind, number), kind).kind == kind, seed
    assert read > EACH / 3, "most hostile workloads are read all the same"


def test_quotas_leave_room_or_say_nothing() -> None:
    target, shape = healthy_target(), Shape("main", 100, 50)
    for seed, obj in hostile("ResourceQuota"):
        rooms = quota_pods([obj], target, shape, 100), quota_cpu([obj], shape, 2)
        assert all(room is None or (type(room) is int and room >= 0) for room in rooms), seed
        both = quota_pods([obj, healthy("ResourceQuota", 1)], target, shape, 100)
        assert both is None or type(both) is int, seed


@pytest.mark.parametrize("part", ["hpas", "vpas", "scaled_objects"])
def test_others_autoscalers_are_a_conflict_or_none(part: str) -> None:
    policy = scaling_policy()
    for seed, obj in hostile("HorizontalPodAutoscaler", EACH // 3):
        found, trip = attempted(lambda obj=obj: conflict(policy, OtherScalers(**{part: [obj]}), [policy], 0, ""))  # type: ignore[misc]
        assert trip.error is None, f"{seed}: {trip.message}"
        assert found is None or found.message, seed
        ours = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}}
        assert part != "hpas" or conflict(policy, OtherScalers(hpas=[obj, ours]), [policy], 0, "") is not None, seed


def test_endpoint_slices_into_binding() -> None:
    sink = SliceSink(lambda: None)
    fed("EndpointSlice", sink, lambda obj: isinstance(sink.ready(obj["metadata"]["namespace"], "web"), tuple))


def test_scheduling_policies_with_any_status_are_planned_for() -> None:
    for seed, obj in hostile("SchedulingPolicy"):
        seen = policy_seen(obj)
        other = policy_seen(healthy("SchedulingPolicy", 3))
        pods = {seen.key: (PodGroup({"app": "web"}, ours=True, count=3),), other.key: (PodGroup({"app": "web"}, ours=True, count=1),)}
        planned = plan(Observation(NOW_S, policies=(seen, other), pods=pods), "tiphys-system", "tiphys")
        assert not planned.trips, f"{seed}: {planned.trips}"
        assert other.uid in {write.policy.uid for write in planned.statuses} or other.deleting, seed
        for write in planned.statuses:
            json.dumps(write.status.model_dump(by_alias=True, mode="json"), allow_nan=False)


def test_learned_models_with_any_status_are_planned_for() -> None:
    for seed, obj in hostile("LearnedModel"):
        seen = model_seen(obj)
        other = model_seen(healthy("LearnedModel", 3))
        planned = plan(Observation(NOW_S, learned=(seen, other)), "tiphys-system", "tiphys")
        assert not planned.trips, f"{seed}: {planned.trips}"
        assert other.uid in {write.model.uid for write in planned.models} or other.deleting, seed


def test_scaling_policies_with_any_status_are_read_and_told() -> None:
    cluster = ScalingCluster()
    registry = CollectorRegistry()
    guarded = GuardedSink("ScalingPolicy", cluster.store, ObjectGuard(registry))

    for number, (seed, made) in enumerate(hostile("ScalingPolicy")):
        obj = orjson.loads(json.dumps(made))  # as it comes over the wire
        guarded.put(obj)
        seen, trip = attempted(lambda obj=obj: scaling_seen(obj))  # type: ignore[misc]
        assert seen is not None, f"{seed}: {trip.message}"
        status = status_of(seen, Finding(ScalingReason.INTERNAL_ERROR, "odd"), NOW_S)
        events(seen, status)
        assert seen.spec is None or isinstance(Case(seen, seen.spec, Running()).looks, bool), seed
        good = healthy("ScalingPolicy", number)
        guarded.put(good)
        assert good["metadata"]["uid"] in cluster.policies, seed
    assert errors(registry, "ScalingPolicy") == 0
    metrics = OperatorMetrics().part(ScalingMetrics)
    for policy in cluster.policies.values():
        if policy.status.last_decision is not None:
            metrics.sizes([policy.status.last_decision], ())


def test_whole_windows_end_with_a_status_whatever_stands_in_policy_workload_and_quota() -> None:
    asyncio.run(_windows(max(20, EACH // 12)))


async def _windows(count: int) -> None:
    world = World()
    guard, tripped = ObjectGuard(CollectorRegistry()), 0
    for number in range(SEED, SEED + count):
        random = Random(f"window {number}")
        kube = world.kube
        policy = GRAMMAR["ScalingPolicy"](random)
        policy["metadata"] |= {"name": "web", "namespace": "default", "uid": "p", "resourceVersion": "7"}
        if random.random() < 0.5:
            policy["spec"] = world_spec
        kube.policy = policy
        kube.deployment = GRAMMAR["Deployment"](random) if random.random() < 0.5 else json.loads(json.dumps(good_deployment))
        kube.deployment["metadata"] |= {"name": "web", "namespace": "default", "resourceVersion": "10"}
        kube.lists = {
            "horizontalpodautoscalers": [GRAMMAR["HorizontalPodAutoscaler"](random)],
            "resourcequotas": [GRAMMAR["ResourceQuota"](random)],
        }
        life = world.life()
        try:
            with guard.over("ScalingPolicy", "default/web", str(number)) as trip, contextlib.suppress(Unavailable):
                life.look()
                await asyncio.wait_for(life.runner.run(scaling_seen(kube.policy), life.running), _LONGEST_S)
        except Exception as error:
            raise AssertionError(f"window {number}: {error!r}") from error
        tripped += trip.error is not None
    assert tripped < count / 2
    fresh = World()
    await fresh.life().window()
    assert fresh.reason("Ready") == "Active"


world_spec = World().kube.policy["spec"]
good_deployment = World().kube.deployment


@pytest.mark.parametrize("kind", ["InferenceSite", "ModelVariant", "StreamPolicy"])
def test_objects_of_binding_with_any_status_are_judged_and_shown(kind: str) -> None:
    cluster, metrics = BindingCluster(lambda: None), OperatorMetrics().part(BindingMetrics)
    objects: Any = {"InferenceSite": cluster.site_store, "ModelVariant": cluster.variant_store, "StreamPolicy": cluster.policy_store}[kind]
    rounds, registry = Rounds(), CollectorRegistry()
    guarded = GuardedSink(kind, objects, ObjectGuard(registry))
    site = INFERENCE_SITES.read(healthy("InferenceSite", 1))
    for number, (seed, obj) in enumerate(hostile(kind)):
        guarded.put(obj)
        guarded.put(healthy(kind, number))
        assert errors(registry, kind) == 0, seed
        _, trip = attempted(lambda obj=obj: _judge(kind, obj, site, rounds))  # type: ignore[misc]
        assert trip.error is None, f"{seed}: {trip.message}"
        if number % 50 == 0:
            metrics.show(cluster.sites(), cluster.variants(), cluster.policies())
            cluster.governors()
            cluster.needs_slices()
            objects.listed({f"healthy-{n}" for n in range(50)})


def _judge(kind: str, obj: dict[str, Any], site: Any, rounds: Rounds) -> None:
    if kind == "InferenceSite":
        one = INFERENCE_SITES.read(obj)
        rounds.answered(3.0, NOW_S)
        made: Any = (site_status(one, rounds, "here", NOW_S), site_status(one, None, "", NOW_S), failed_site(one, "odd", NOW_S))
    elif kind == "ModelVariant":
        variant = MODEL_VARIANTS.read(obj)
        made = (
            variant_status(variant, site, ("10.0.0.1:80",), NOW_S),
            variant_status(variant, None, None, NOW_S),
            failed_variant(variant, "odd", NOW_S),
        )
    else:
        policy = STREAM_POLICIES.read(obj)
        made = (
            policy_status(policy, site, None, StreamSummary.model_validate(SUMMARY | {"policy": policy.name}), NOW_S),
            policy_status(policy, None, None, None, NOW_S),
            failed_policy(policy, "odd", NOW_S),
        )
    for status in made:
        json.dumps(status.model_dump(by_alias=True, mode="json"), allow_nan=False)


@pytest.mark.parametrize("kind", ["SchedulingPolicy", "LearnedModel"])
def test_the_watch_takes_any_version_of_any_object(kind: str) -> None:
    clock = ManualClock()
    seen = SeenVersions(clock)
    for number, (seed, obj) in enumerate(hostile(kind, EACH // 2)):
        _, trip = attempted(lambda obj=obj, n=number: seen.event(("ADDED", "MODIFIED", "DELETED", None)[n % 4], obj))  # type: ignore[misc]
        assert trip.error is None, f"{seed}: {trip.message}"
        seen.listed({f"u{n}": str(number) for n in range(3)})
        clock.advance(1)
    assert seen.event("ADDED", healthy(kind, 1))


def test_pages_of_decisions_are_counted_or_refused_alone() -> None:
    odd: tuple[Any, ...] = (None, "", "x", -1, 2**80, 1e308, [], {}, [None], True, "Shadow", "scored", "fallback")
    refused = 0
    for number in range(SEED, SEED + EACH):
        random = Random(f"page {number}")

        def some(*usual: Any, random: Random = random) -> Any:
            return random.choice(odd) if random.random() < 0.1 else random.choice(usual)

        names = {
            "policy": ("a/p", "a/q"),
            "outcome": ("scored", "fallback"),
            "mode": ("Shadow", "Active"),
            "would": ("n1",),
            "chosen": ("n1",),
        }
        items = [{"seq": some(n, n + 5), "at": some(NOW_S)} | {key: some(*values) for key, values in names.items()} for n in range(1, 6)]
        cursor = Cursor()
        _, trip = attempted(lambda items=items, cursor=cursor: tally({"items": items}, cursor, 0.0, 0.0))  # type: ignore[misc]
        refused += trip.error is not None
        good = tally({"items": [{"seq": 1, "policy": "a/p", "outcome": "scored", "at": NOW_S}]}, Cursor(), 0.0, 0.0)
        assert good.answers["a/p"].scored == 1, number
    assert refused < EACH / 2


def test_an_api_error_is_no_trip() -> None:
    with pytest.raises(ApiError), ObjectGuard(CollectorRegistry()).over("Pod", "a/b", "1"):
        raise ApiError(500, "InternalError", "on purpose")

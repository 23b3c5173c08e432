"""Hostile objects and statuses that an ordinary API server accepts, by name: what no part of Tiphys may stumble over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tiphys_cli.kube.api import MERGE_PATCH, ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_testbed.plane.objects import CALLS, RELEASE_NAMESPACE, SELECT, SHOP, WEB

HOSTILE = "hostile"
SMALL_TIME = "2026-01-01T00:00:00Z"
_CALLED = {"labels": {"tiphys.io/function": "thousands"}}
HUGE, FAR, SMALL_Z = 2**62, "9999-12-31T23:59:59Z", "2026-11-19T10:00:00z"
OUR_GROUP = "tiphys.io/v1alpha1"
_API = {"v1": "/api/v1", "apps/v1": "/apis/apps/v1", OUR_GROUP: f"/apis/{OUR_GROUP}", "autoscaling/v2": "/apis/autoscaling/v2"}
_API["discovery.k8s.io/v1"] = "/apis/discovery.k8s.io/v1"
_PLURALS = {"StreamPolicy": "streampolicies", "SchedulingPolicy": "schedulingpolicies", "ScalingPolicy": "scalingpolicies"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One request: an object to create, or a part of one to change; `sub` is `/status` or empty."""

    obj: Json
    sub: str = ""
    change: bool = False
    content_type: str = MERGE_PATCH

    @property
    def collection(self) -> str:
        """Path of the object's kind in its namespace."""
        namespace = self.obj["metadata"].get("namespace")
        kind = self.obj["kind"]
        plural = _PLURALS.get(kind, f"{kind.lower()}s")
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{_API[self.obj['apiVersion']]}{scope}/{plural}"

    def send(self, api: ApiClient) -> None:
        """Have the API server take it."""
        if not self.change:
            api.create(self.collection, self.obj)
            return
        api.patch(f"{self.collection}/{self.obj['metadata']['name']}{self.sub}", self.obj, self.content_type)


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile thing and what must name it afterwards."""

    name: str
    steps: tuple[Step, ...]
    restores: bool = False
    """A status or plan of a healthy object was spoilt: it must be mended, and there is nothing to name."""
    named: tuple[str, str] = field(default=("", ""))
    """Namespace and name to look for; default: those of the first step."""

    @property
    def where(self) -> tuple[str, str]:
        """Namespace and name of what must be named."""
        metadata = self.steps[0].obj["metadata"]
        return self.named if self.named[1] else (metadata.get("namespace", ""), metadata["name"])

    def send(self, api: ApiClient) -> str:
        """Send all steps; why the API server refused one, if it did."""
        for step in self.steps:
            try:
                step.send(api)
            except RequestRefused as error:
                return str(error)
        return ""


def _obj(api_version: str, kind: str, name: str, namespace: str = HOSTILE, metadata: Json | None = None, **parts: Any) -> Json:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **parts}


def pod(name: str, requests: Json, namespace: str = HOSTILE, metadata: Json | None = None, **spec: Any) -> Json:
    """A pod that requests this and that no scheduler of ours is asked about, unless `spec` says so."""
    container = {"name": "main", "image": "registry.example/x:1", "resources": {"requests": requests}}
    wanted = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return _obj("v1", "Pod", name, namespace, metadata, spec=wanted)


def _node(name: str, allocatable: Json, metadata: Json | None = None, **status: Any) -> Json:
    return _obj("v1", "Node", name, "", metadata, status={"allocatable": allocatable, "capacity": allocatable, **status})


def _status(obj: Json, status: Json) -> Step:
    return Step(obj | {"status": status}, "/status", change=True)


def _deployment(name: str, resources: Json, kind: str = "Deployment", metadata: Json | None = None, **spec: Any) -> Json:
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example/x:1", "resources": resources}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    more = {"serviceName": name} if kind == "StatefulSet" else {}
    wanted = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template, **more, **spec}
    return _obj("apps/v1", kind, name, HOSTILE, metadata, spec=wanted)


def _scaling(name: str, target: str, namespace: str = HOSTILE, kind: str = "Deployment", **spec: Any) -> Json:
    wanted = {
        "targetRef": {"kind": kind, "name": target},
        "mode": "Active",
        "objective": {"latencyMilliseconds": 400},
        "horizontal": {"minReplicas": 1, "maxReplicas": 4},
        "vertical": {"minCpuMilli": 50, "maxCpuMilli": 400},
        "intervalSeconds": 5,
    }
    return _obj(OUR_GROUP, "ScalingPolicy", name, namespace, spec=wanted | spec)


def _like(kind: str, name: str, namespace: str) -> Json:
    """A reference to a healthy object whose status is spoilt."""
    return _obj(OUR_GROUP, kind, name, namespace)


_ORDINARY = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}
_ABSURD_LIMITS = {"requests": {"cpu": "50m"}, "limits": {"cpu": "1e400", "memory": "128Mi"}}
_BIG_ANNOTATION = {"annotations": {"example.com/notes": "x" * 250_000}}
_OWNERS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o" * 200, "uid": f"00000000-0000-0000-0000-{n:012d}"} for n in range(200)]


def pods() -> Iterator[Case]:
    """Pods: quantities, owners, annotations, times."""
    for name, requests in (
        ("cpu-1e400", {"cpu": "1e400"}),
        ("cpu-1e20", {"cpu": "1e20"}),
        ("memory-9ei", {"memory": "9223372036854775807"}),
    ):
        yield Case(f"pending pod, {name}", (Step(pod(f"pending-{name}", requests)),))
        yield Case(f"bound pod, {name}", (Step(pod(f"bound-{name}", requests, nodeName="nope")),))
    yield Case("a pod of 1e20 cores on a healthy node", (Step(pod("on-a-healthy-node", {"cpu": "1e20"}, nodeName="plane-0000")),))
    yield Case("an absurd pod under the policy that selects", (Step(pod("absurd-call", {"cpu": "1e400"}, CALLS, schedulerName="tiphys")),))
    init = [{"name": "init", "image": "x:1", "resources": {"requests": {"cpu": "10e399"}}}]
    yield Case("an absurd init container", (Step(pod("init", {"cpu": "1"}, initContainers=init)),))
    yield Case("an annotation of 250 kB", (Step(pod("annotated", {"cpu": "1"}, metadata=_BIG_ANNOTATION)),))
    yield Case("200 owners", (Step(pod("owned", {"cpu": "1"}, metadata={"ownerReferences": _OWNERS})),))
    odd = pod("odd-times", {"cpu": "1e300"})
    times = [
        {"type": "Ready", "status": "True", "lastTransitionTime": FAR},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "0001-01-01T00:00:01Z"},
    ]
    yield Case("a pod with times of other ages", (Step(odd), _status(pod("odd-times", {}), {"conditions": times, "startTime": FAR})))


def nodes() -> Iterator[Case]:
    """Nodes: sizes, prices, images."""
    yield Case("a node of 1e400 cores", (Step(_node("node-1e400", {"cpu": "1e400", "memory": "9Ei", "pods": "1e18"})),))
    priced = {"annotations": {"tiphys.io/price-usd-per-hour": "1e400"}, "labels": {"node.kubernetes.io/instance-type": "x" * 63}}
    yield Case("a node at an infinite price", (Step(_node("node-price", {"cpu": "4", "memory": "8Gi"}, priced)),))
    nan = {"annotations": {"tiphys.io/price-usd-per-hour": "NaN"}}
    yield Case("a node at no number", (Step(_node("node-nan", {"cpu": "4", "memory": "8Gi"}, nan)),))
    yield Case("a node with 250 kB of notes", (Step(_node("node-notes", {"cpu": "1e30", "memory": "8Gi"}, _BIG_ANNOTATION)),))
    images = [{"names": [f"registry.example/{'i' * 100}:{n}-{k}" for k in range(5)], "sizeBytes": HUGE} for n in range(300)]
    yield Case("a node with 1,500 names of images", (Step(_node("node-images", {"cpu": "10e399", "memory": "8Gi"}, images=images)),))
    sizes = {"ready-huge": {"cpu": "1e400", "memory": "9Ei"}, "ready-crumb": {"cpu": "1m", "memory": "1Mi"}, "ready-nothing": {"cpu": "0"}}
    work = [pod(f"thousands-of-cores-{n}", {"cpu": "4k", "memory": "1Gi"}, CALLS, _CALLED, schedulerName="tiphys") for n in range(8)]
    crumbs = [Step(_ready(name, size)) for name, size in sizes.items()]
    yield Case("the largest and the smallest node, and pods of thousands of cores", (*crumbs, *map(Step, work)))


def _ready(name: str, size: Json) -> Json:
    """A node that takes pods: kwok keeps it so."""
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "", "lastHeartbeatTime": FAR, "lastTransitionTime": SMALL_TIME}
    looks = {"labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return _node(name, {"pods": "110", **size}, looks, conditions=[ready])


def targets() -> Iterator[Case]:
    """Workloads that a ScalingPolicy names, and what stands beside them."""
    nobody = _deployment("no-manager", _ORDINARY)
    fields = [{"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}, "operation": "Update"}]
    disowned = nobody | {"metadata": nobody["metadata"] | {"managedFields": fields}}
    yield Case(
        "a field of nobody",
        (Step(nobody), Step(_scaling("no-manager", "no-manager")), Step(_only_metadata(disowned), change=True)),
        named=(HOSTILE, "no-manager"),
    )
    yield Case("a limit of 1e400 cores", (Step(_scaling("limit-1e400", "limit-1e400")), Step(_deployment("limit-1e400", _ABSURD_LIMITS))))
    yield Case("a target without limits", (Step(_scaling("unlimited", "unlimited")), Step(_deployment("unlimited", {}))))
    yield Case("a target that is not there", (Step(_scaling("missing", "m" * 253)),))
    partition = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2**31 - 1}}}
    stateful = _deployment("absurd-set", _ABSURD_LIMITS, "StatefulSet", **partition)
    yield Case("a StatefulSet that never rolls out", (Step(_scaling("absurd-set", "absurd-set", kind="StatefulSet")), Step(stateful)))
    quota = _obj(
        "v1", "ResourceQuota", "absurd-quota", SHOP, spec={"hard": {"requests.cpu": "1e400", "limits.cpu": "1e30", "pods": "1e18"}}
    )
    used = {"hard": {"requests.cpu": "1e400"}, "used": {"requests.cpu": "10e399", "pods": "1e18"}}
    yield Case("a quota without an end", (Step(quota), _status(quota, used)))
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1e400"}, "min": {"cpu": "1n"}}]}
    yield Case("a LimitRange without an end", (Step(_obj("v1", "LimitRange", "absurd-range", SHOP, spec=limits)),), restores=True)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    hpa = _obj("autoscaling/v2", "HorizontalPodAutoscaler", "absurd-hpa", SHOP, spec={"scaleTargetRef": target, "maxReplicas": 2**31 - 1})
    yield Case("an HPA of something else", (Step(hpa), _status(hpa, {"desiredReplicas": 2**31 - 1, "lastScaleTime": FAR})), restores=True)


def _only_metadata(obj: Json) -> Json:
    return {key: obj[key] for key in ("apiVersion", "kind", "metadata")}


def scaling() -> Iterator[Case]:
    """ScalingPolicies and their statuses."""
    web = _like("ScalingPolicy", WEB, SHOP)
    decision = {"number": 3, "at": SMALL_Z, "phase": "Intended", "from": {"replicas": 2}, "applied": {"replicas": 9999, "cpuMilli": HUGE}}
    yield Case("a forged intent, small z", (_status(web, {"lastDecision": decision}),), restores=True)
    nothing = decision | {"at": FAR, "applied": {"replicas": 0, "cpuMilli": 0}}
    yield Case("a forged intent of nothing", (_status(web, {"lastDecision": nothing}),), restores=True)
    points = [{"at": 1.7e308, "value": HUGE}, {"at": -1.7e308, "value": -HUGE}]
    memory = {
        "replicas": {"lowest": points, "highest": points, "changes": points},
        "requestCpuMicroseconds": -HUGE,
        "blocked": [{"move": "up", "bound": HUGE, "reason": "x", "until": 1.7e308, "tries": HUGE}],
        "overridden": [1.7e308, -1.7e308],
        "rolledBack": {"digest": "x", "at": 1.7e308, "retry": "y", "message": "z"},
    }
    yield Case("a memory that nobody has", (_status(web, {"memory": memory}),), restores=True)
    yield Case("numbers without an end", (_status(web, {"lastDecision": {"number": HUGE, "at": "0001-01-01T00:00:00Z"}}),), restores=True)
    forged = _scaling("forged", "forged")
    yield Case("a forged intent of a policy without a target", (Step(forged), _status(forged, {"lastDecision": decision})))
    touched = [_only_metadata(_obj(OUR_GROUP, "ScalingPolicy", WEB, SHOP, {"annotations": {"example.com/n": str(n)}})) for n in range(100)]
    yield Case("a policy that somebody touches in a loop", tuple(Step(each, change=True) for each in touched), restores=True)
    victim = {"histogram": "apiserver_request_duration_seconds_bucket", "matchers": {"namespace": RELEASE_NAMESPACE, "__name__": "up"}}
    peeking = _scaling("peeking", "unlimited", objective={"latencyMilliseconds": 1, "percentile": 99, "metrics": victim})
    yield Case("a policy that reads others' series", (Step(peeking),))
    steep = {
        "stabilizationWindowSeconds": 3600,
        "selectPolicy": "Disabled",
        "policies": [{"type": "Percent", "value": 100000, "periodSeconds": 1}],
    }
    wide = {"minReplicas": 1, "maxReplicas": 10000, "behavior": {"scaleUp": steep, "scaleDown": steep}}
    yield Case("extremes of everything", (Step(_scaling("extremes", "limit-1e400-2", horizontal=wide)),))


def placing() -> Iterator[Case]:
    """SchedulingPolicies, plans, models."""
    expressions = [{"key": f"k{n}", "operator": "NotIn", "values": [f"v{m}" for m in range(64)]} for n in range(64)]
    policy = _obj(
        OUR_GROUP,
        "SchedulingPolicy",
        "wide-selector",
        spec={"mode": "Active", "policy": "warm-first", "selector": {"matchExpressions": expressions}},
    )
    garbage = {
        "activePolicy": "gobi",
        "selection": {
            "interval": HUGE,
            "plan": "x" * 253,
            "measuredCost": 1.7e308,
            "lastSwitch": {"from": "", "to": "gobi", "reason": "x", "message": "", "at": SMALL_Z},
            "switches": HUGE,
        },
        "decisions": {"scored": HUGE},
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": SMALL_Z}],
    }
    yield Case("a selector of 4,096 values", (Step(policy), _status(policy, garbage)), restores=True)
    yield Case("a status of the policy that selects", (_status(_like("SchedulingPolicy", SELECT, CALLS), garbage),), restores=True)
    lone = {"select": {"by": "ucb", "among": ["gobi", "gosh"], "intervalSeconds": 2, "weights": {}}, "mode": "Active"}
    absent = {"matchLabels": {"nobody": "has"}}
    yield Case(
        "a selection of nobody's pods",
        (Step(_obj(OUR_GROUP, "SchedulingPolicy", "selects-nothing", spec=lone | {"selector": absent})),),
        restores=True,
    )
    lines = [{"function": f"f{n}", "nodes": [{"node": f"n{m}", "slots": 1} for m in range(256)]} for n in range(20)]
    long = {"policyUid": "x", "policyGeneration": 1, "planner": "p", "interval": 1, "validUntil": FAR, "functions": lines}
    yield Case("a plan of five thousand lines", (Step(_obj(OUR_GROUP, "PlacementPlan", "long", spec=long)),))
    model = {"mode": "Active", "policy": "faasrank", "model": "no-such-model"}
    yield Case("a model that is not there", (Step(_obj(OUR_GROUP, "SchedulingPolicy", "no-model", spec=model)),))
    functions = [{"function": "f" * 512, "nodes": [{"node": "n" * 253, "slots": 10000}] * 50} for _ in range(20)]
    plan = {
        "policyUid": "x" * 64,
        "policyGeneration": HUGE,
        "planner": "p",
        "interval": HUGE,
        "validUntil": SMALL_Z,
        "functions": functions,
    }
    yield Case("a plan of nobody", (Step(_obj(OUR_GROUP, "PlacementPlan", "nobodys", spec=plan)),))
    yield Case(
        "the plan in force, spoilt",
        (
            Step(
                _obj(OUR_GROUP, "PlacementPlan", SELECT, CALLS, spec={"validUntil": FAR, "interval": HUGE, "functions": functions}),
                change=True,
            ),
        ),
        restores=True,
    )
    weights = {"card.json": "[" * 10_000}
    config = _obj("v1", "ConfigMap", "broken-weights", RELEASE_NAMESPACE, data=weights, binaryData={"weights.safetensors": "//////////8="})
    wanted = {
        "policy": "faasrank",
        "stage": "active",
        "weights": {"configMap": "broken-weights"},
        "sha256": "0" * 64,
        "featureSchema": "faasrank-26/1",
    }
    learned = _obj(OUR_GROUP, "LearnedModel", "broken", RELEASE_NAMESPACE, spec=wanted)
    yield Case("weights that nobody can read", (Step(learned), Step(config)))


def streaming() -> Iterator[Case]:
    """Sites, variants and stream policies, where the healthy ones are."""
    own = RELEASE_NAMESPACE
    probe = {"probe": {"url": "http://127.0.0.1:1/", "intervalSeconds": 1, "timeoutSeconds": 1}}
    site = _obj(
        OUR_GROUP,
        "InferenceSite",
        "dead",
        own,
        spec={"layer": "cloud", **probe, "delays": [{"from": "edge", "meanMs": 60000, "sigmaMs": 60000}]},
    )
    measured = [{"from": "edge", "meanMs": 1.7e308, "sigmaMs": 1.7e308, "samples": HUGE, "measuredAt": SMALL_Z}]
    yield Case("a site that nobody reaches", (Step(site), _status(site, {"delays": measured})))
    lies = {
        "delays": measured,
        "conditions": [{"type": "Reachable", "status": "False", "reason": "x", "message": "", "lastTransitionTime": FAR}],
    }
    yield Case("a healthy site's status", (_status(_like("InferenceSite", "cloud", own), lies),), restores=True)
    metadata_service = {"probe": {"url": "http://169.254.169.254/latest/meta-data", "intervalSeconds": 1, "timeoutSeconds": 1}}
    yield Case(
        "a probe of the metadata service",
        (Step(_obj(OUR_GROUP, "InferenceSite", "metadata", own, spec={"layer": "cloud", **metadata_service})),),
    )
    numbers = {"accuracy": 0, "delayMs": 3600000, "capacityQps": 1000000, "profiledKb": 1000000, "cost": 1000000}
    variant = {"task": "detect", "model": "m", "site": "nowhere", **numbers, "endpoint": {"service": {"name": "none", "port": 1}}}
    lone = _obj(OUR_GROUP, "ModelVariant", "nowhere", own, spec=variant)
    yield Case("a variant at no site", (Step(lone), _status(lone, {"replicas": HUGE, "endpoints": ["x" * 600] * 32})))
    yield Case(
        "a healthy variant's status",
        (_status(_like("ModelVariant", "at-cloud", own), {"replicas": HUGE, "endpoints": ["x" * 600]}),),
        restores=True,
    )
    second = _obj(OUR_GROUP, "StreamPolicy", "second", own, spec={"accessSite": "edge", "mode": "Active", "policy": "relative-load"})
    yield Case("a second policy of one access site", (Step(second),))
    yield Case(
        "a healthy stream policy's status",
        (_status(_like("StreamPolicy", "streams", own), {"conditions": lies["conditions"]}),),
        restores=True,
    )
    endpoints = [{"addresses": [f"10.9.{n // 250}.{n % 250 + 1}"], "conditions": {}} for n in range(1000)]
    slice_ = _obj(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "many",
        own,
        {"labels": {"kubernetes.io/service-name": "none"}},
        addressType="IPv4",
        endpoints=endpoints,
        ports=[{"port": 0}],
    )
    yield Case("a thousand endpoints", (Step(slice_),), restores=True)


def all_cases() -> list[Case]:
    """Every case, in an order in which what is named exists before it is used."""
    return [*pods(), *nodes(), *targets(), *scaling(), *placing(), *streaming()]

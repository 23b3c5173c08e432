"""What Tiphys keeps of a node and of a pod: the few facts a decision reads, and never environment or secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any

from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import cpu_milli, memory_bytes, timestamp_s

FUNCTION_LABEL = "tiphys.io/function"
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
PRICE_ANNOTATION = "tiphys.io/price-usd-per-hour"
DO_NOT_DISRUPT, SAFE_TO_EVICT = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as a candidate."""

    name: str
    cpu_milli: int
    memory_bytes: int
    schedulable: bool
    instance_type: str
    images: tuple[str, ...]
    """Names of images that it holds, each once. One string stands for a name on all nodes: thousands of nodes hold the same images."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod as load on a node, or as a request for one."""

    uid: str
    namespace: str
    name: str
    function: str
    """Identity of what it runs: the label `tiphys.io/function`, else the controlling owner, else empty."""
    node: str
    """Name of the pod's node; empty until it is bound."""
    scheduler_name: str
    cpu_milli: int
    memory_bytes: int
    finished: bool
    from_daemon_set: bool
    images: tuple[str, ...]
    scheduled_s: float | None
    ready_s: float | None
    started_s: float | None = None
    """When its first container started, as far as shown."""
    failed: bool = False
    """Finished, and not as it should."""
    protected: bool = False
    """Node autoscalers must not evict it, so its node stays as long as it does."""

    @property
    def computing_since_s(self) -> float | None:
        """When its start was over: its main container runs, or at the latest when it was ready."""
        return self.ready_s if self.started_s is None else self.started_s

    @property
    def in_flight(self) -> bool:
        """Whether it counts as an unfinished invocation on its node: daemon sets are part of the machine."""
        return bool(self.node) and not self.finished and bool(self.function) and not self.from_daemon_set


def function_of(metadata: Mapping[str, Any]) -> str:
    """`namespace/label` or `namespace/Kind/name` of the controlling owner; a pod of nobody has no function."""
    namespace = metadata.get("namespace") or "default"
    label = (metadata.get("labels") or {}).get(FUNCTION_LABEL)
    if label:
        return f"{namespace}/{label}"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{namespace}/{owner.get('kind', '')}/{owner.get('name', '')}"
    return ""


@lru_cache(maxsize=4096)
def image_name(image: str) -> str:
    """The name the kubelet reports for an image: registry, `library/` and tag made explicit."""
    name, at, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif "." not in first and ":" not in first and first != "localhost":
        name = f"docker.io/{first}/{rest}"
    if not at and ":" not in name.rpartition("/")[2]:
        name += ":latest"
    return name + at + digest


def pod_requests(spec: Mapping[str, Any]) -> tuple[int, int]:
    """(milli-cores, bytes) the scheduler counts: containers and sidecars, or the largest init container, plus overhead."""
    cpu = memory = peak_cpu = peak_memory = 0
    for container in spec.get("initContainers") or ():
        need_cpu, need_memory = _requests(container)
        peak_cpu, peak_memory = max(peak_cpu, cpu + need_cpu), max(peak_memory, memory + need_memory)
        if container.get("restartPolicy") == "Always":  # a sidecar keeps running beside the containers
            cpu, memory = cpu + need_cpu, memory + need_memory
    for container in spec.get("containers") or ():
        need_cpu, need_memory = _requests(container)
        cpu, memory = cpu + need_cpu, memory + need_memory
    cpu, memory = max(cpu, peak_cpu), max(memory, peak_memory)
    if overhead := spec.get("overhead"):
        return cpu + cpu_milli(overhead.get("cpu", 0)), memory + memory_bytes(overhead.get("memory", 0))
    return cpu, memory


def _requests(container: Mapping[str, Any]) -> tuple[int, int]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return cpu_milli(requests.get("cpu", 0)), memory_bytes(requests.get("memory", 0))


def pod_facts(pod: Mapping[str, Any]) -> PodFacts:
    """Facts of a pod as the API server or the scheduler sends it; absent and null parts are taken as empty."""
    metadata = pod.get("metadata") or {}
    spec = pod.get("spec") or {}
    status = pod.get("status") or {}
    cpu, memory = pod_requests(spec)
    times = {c.get("type"): _time_s(c.get("lastTransitionTime")) for c in status.get("conditions") or () if c.get("status") == "True"}
    return PodFacts(
        uid=metadata.get("uid") or f"{metadata.get('namespace')}/{metadata.get('name')}",
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "",
        function=intern(function_of(metadata)),  # tens of thousands of pods share a few thousand of these
        node=intern(str(spec.get("nodeName") or "")),
        scheduler_name=spec.get("schedulerName") or "default-scheduler",
        cpu_milli=cpu,
        memory_bytes=memory,
        finished=status.get("phase") in ("Succeeded", "Failed"),
        from_daemon_set=any(o.get("kind") == "DaemonSet" for o in metadata.get("ownerReferences") or ()),
        images=tuple(image_name(c["image"]) for c in spec.get("containers") or () if c.get("image")),
        scheduled_s=times.get("PodScheduled"),
        ready_s=times.get("Ready"),
        started_s=_started_s(spec, status),
        failed=status.get("phase") == "Failed",
        protected=_protected(metadata.get("annotations") or {}),
    )


def _protected(annotations: Mapping[str, Any]) -> bool:
    """Protected for good or, by a duration, from its start on: who is protected so long as it is expected to run holds its node, too."""
    return annotations.get(DO_NOT_DISRUPT, "false") != "false" or annotations.get(SAFE_TO_EVICT) == "false"


def _started_s(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """When the first container started; statuses come in an order of their own."""
    first = next((c.get("name") for c in spec.get("containers") or ()), None)
    for container in status.get("containerStatuses") or ():
        if container.get("name") == first:
            state = container.get("state") or {}
            return _time_s((state.get("running") or state.get("terminated") or {}).get("startedAt"))
    return None


def _time_s(text: str | None) -> float | None:
    """A time that cannot be read spoils itself only: the pod's load counts all the same."""
    try:
        return timestamp_s(text)
    except InvalidInput:
        return None


def node_facts(node: Mapping[str, Any]) -> NodeFacts:
    """Facts of a node as the API server sends it."""
    metadata = node.get("metadata") or {}
    status = node.get("status") or {}
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    return NodeFacts(
        name=intern(str(metadata.get("name") or "")),
        cpu_milli=cpu_milli(allocatable.get("cpu", 0)),
        memory_bytes=memory_bytes(allocatable.get("memory", 0)),
        schedulable=ready and not (node.get("spec") or {}).get("unschedulable", False),
        instance_type=(metadata.get("labels") or {}).get(INSTANCE_TYPE_LABEL, ""),
        images=tuple(dict.fromkeys(intern(str(name)) for i in status.get("images") or () for name in i.get("names") or ())),
    )

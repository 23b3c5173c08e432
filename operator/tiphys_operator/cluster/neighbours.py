"""Workloads, other autoscalers and quotas as watches show them: a window reads them here instead of asking the API server each time.

Only what its watch certainly tells is answered; of anything else, and without the right to watch, None says that it must be asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.objects import ObjectLimits, Objects
from tiphys_operator.cluster.observed import ObservedCluster
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.watches import Watch, Watches

log = logging.getLogger(__name__)

LOOP = "neighbours"
WORKLOADS = {"Deployment": "/apis/apps/v1/deployments", "StatefulSet": "/apis/apps/v1/statefulsets"}
OTHERS = {
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "VerticalPodAutoscaler": "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
    "ScaledObject": "/apis/keda.sh/v1alpha1/scaledobjects",
    "ResourceQuota": "/api/v1/resourcequotas",
}
_LIMITS = ObjectLimits(objects=20_000, total_bytes=0)
Workload = TypeVar("Workload")
_Kept = dict[str, Any]


class _Wanted(Generic[Workload]):
    """Workloads of one kind; those that no policy names are let go of."""

    def __init__(self, kind: str, observed: ObservedCluster, read: Callable[[Mapping[str, Any], str], Workload]) -> None:
        self._kind, self._observed = kind, observed
        self.store: Objects[Workload] = Objects(lambda obj: read(obj, kind), keep_last=False, limits=_LIMITS)
        self.drops = 0
        """How many went so far: what was asked for meanwhile may be one of them."""

    def put(self, obj: dict[str, Any]) -> None:
        """The watch shows a new or changed object: it is stored if a policy scales it, else forgotten."""
        if self._wants(obj):
            self.store.put(obj)
        else:
            self.store.forget(obj["metadata"]["uid"])

    def answered(self, obj: dict[str, Any]) -> None:
        """The object as a request was answered with it."""
        if self._wants(obj):
            self.store.answered(obj)

    def listing(self) -> None:
        """A whole list begins."""
        self.store.listing()

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that the object was deleted."""
        self.drops += 1
        self.store.drop(obj)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for _ in self.sweep(uids):
            pass

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """The same as `listed`, slice by slice."""
        self.drops += 1
        yield from self.store.sweep(uids)

    def _wants(self, obj: Mapping[str, Any]) -> bool:
        metadata = obj["metadata"]
        return self._observed.wants(str(metadata.get("namespace")), self._kind, str(metadata.get("name")))


class _ByNamespace:
    """A few parts of all objects of one kind."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, _Kept]] = {}
        self.store: Objects[_Kept] = Objects(_reduced, self._changed, keep_last=False, limits=_LIMITS)

    def _changed(self, former: _Kept | None, now: _Kept | None) -> None:
        if former is not None:
            namespace = former["metadata"]["namespace"]
            self.of[namespace].pop(former["metadata"]["uid"], None)
            if not self.of[namespace]:
                del self.of[namespace]
        if now is not None:
            self.of.setdefault(now["metadata"]["namespace"], {})[now["metadata"]["uid"]] = now


class Neighbours(Generic[Workload]):
    """Workloads, other autoscalers and quotas, watched from the first ScalingPolicy on."""

    def __init__(
        self, client: KubeClient, clock: Clock, metrics: OperatorMetrics, beats: Heartbeats,
        observed: ObservedCluster, read: Callable[[Mapping[str, Any], str], Workload],
    ) -> None:  # fmt: skip
        """`read` makes of a workload what a window needs."""
        self._clock = clock
        self._watches = Watches(LOOP, client, clock, metrics, beats, self._failed, lambda: None)
        self._workloads = {kind: _Wanted(kind, observed, read) for kind in WORKLOADS}
        self._others = {kind: _ByNamespace() for kind in OTHERS}
        self._watching: dict[str, Watch] = {}

    def start(self) -> None:
        """The watches start, unless they run already."""
        if self._watching:
            return
        for kind, path in WORKLOADS.items():
            self._watching[kind] = self._watches.start(kind, path, self._workloads[kind])
        for kind, path in OTHERS.items():
            self._watching[kind] = self._watches.start(kind, path, self._others[kind].store)

    def workload(self, namespace: str, kind: str, name: str) -> Workload | None:
        """A workload; None if it must be asked for."""
        return self._workloads[kind].store.named(namespace, name) if self._tells(kind) else None

    def drops(self, kind: str) -> int:
        """A number that is another one once a workload of this kind has gone."""
        return self._workloads[kind].drops

    def asked(self, kind: str, obj: dict[str, Any], drops: int) -> None:
        """A workload that was asked for: its watch tells what becomes of it from now on, unless it went while it was asked for."""
        if self._tells(kind) and drops == self._workloads[kind].drops:
            self._workloads[kind].answered(obj)

    def others(self, kind: str, namespace: str) -> list[_Kept] | None:
        """Autoscalers or quotas of a namespace; None if they must be asked for."""
        found = self._others[kind]
        return list(found.of.get(namespace, {}).values()) if self._tells(kind) and not found.store.aside else None

    def check(self) -> None:
        """Raise what ended a watch for good."""
        self._watches.check()

    async def close(self) -> None:
        """All of the watches stop."""
        await self._watches.close()

    def _tells(self, kind: str) -> bool:
        watch = self._watching.get(kind)
        return watch is not None and watch.tells(self._clock.monotonic_s())

    def _failed(self, path: str, error: Unavailable) -> None:
        # kinds that are not installed, rights that a role does not give: then each window asks, and counts that it did
        log.debug("not watched: windows ask instead", extra={"fields": {"path": path, "error": str(error)}})


def _reduced(obj: dict[str, Any]) -> _Kept:
    """Name, spec, and a quota's use: what a window reads of them."""
    metadata = {part: str(obj["metadata"].get(part) or "") for part in ("namespace", "name", "uid")}
    kept: _Kept = {"metadata": metadata, "spec": obj.get("spec")}
    status = obj.get("status")
    if isinstance(status, dict) and "used" in status:
        kept["status"] = {part: status.get(part) for part in ("hard", "used")}
    return kept

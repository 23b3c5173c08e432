"""Hints, written: looks at pods that have changed, now and then at all of them, and writes on a few of them a second.

The leader's alone. What is written is decided when it is written, from the pod as it was last seen, and refused if the pod is another by
then. Nothing is listed: the one watch on pods shows what has become of a write.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiohttp

from tiphys_models.api.routing import Router
from tiphys_models.api.scheduling_policy import Hints
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.backoff import Backoff
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.placement.hints import ANNOTATIONS, MARK, Hint, changes, standing
from tiphys_models.seats.shares import in_share
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.hints.metrics import HintMetrics, Refusal
from tiphys_operator.hints.pods import HintedPod, HintedPods
from tiphys_operator.hints.run_times import RunTimes
from tiphys_operator.hints.wanted import NodeStays, deletion_cost, stays_of, wanted_hints
from tiphys_operator.metrics import ErrorReason, OperatorMetrics
from tiphys_operator.placement.observation import HintRights, PolicySeen
from tiphys_operator.platforms.counting import Calls
from tiphys_operator.runtime.permissions import WRITE_HINTS, PermissionCheck
from tiphys_operator.runtime.writer import FIELD_MANAGER, Writer

log = logging.getLogger(__name__)

LOOP = "hints"
LATE_S = 240.0
_ROUND_S, _LOOK_AT_ALL_S = 1.0, 30.0
_PACE_S = 0.1
"""Ten writes a second at the most."""
_OF_A_ROUND = 20
_MOST_DUE = 1_000
_PATCH_S = 3.0
_AGAIN_S, _REFUSED_AGAIN_S = 60.0, 600.0
"""So long a pod that was written on is left alone, and one that may not be written on."""
_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 60.0
_A_SLICE = 200
_REFUSALS: Mapping[int, Refusal] = {
    400: Refusal.REFUSED, 403: Refusal.FORBIDDEN, 404: Refusal.GONE, 409: Refusal.CHANGED, 413: Refusal.REFUSED, 422: Refusal.REFUSED,
}  # fmt: skip


class HintsController:
    """That of one leader."""

    def __init__(
        self, client: KubeClient, writer: Writer, watch: ClusterWatch, permissions: PermissionCheck, metrics: OperatorMetrics, clock: Clock,
        beats: Heartbeats, *, own_namespace: str, scheduler_name: str, namespaces: Collection[str] = (),
        calls_of: Callable[[str, float], Calls] = lambda uid, now_s: Calls.UNKNOWN,
    ) -> None:  # fmt: skip
        """`namespaces`: where hints may be written, everywhere if none is named. `calls_of`: what is known of an instance's calls."""
        self._client, self._writer, self._watch, self._permissions = client, writer, watch, permissions
        self._metrics, self._clock, self._beats = metrics, clock, beats
        self._own_namespace, self._scheduler_name, self._namespaces = own_namespace, scheduler_name, frozenset(namespaces)
        self._calls_of, self._told = calls_of, metrics.part(HintMetrics)
        self._run_times = RunTimes()
        self._pods = HintedPods(clock, self._run_times)
        watch.observed.followers.append(self._pods)  # before anybody begins to watch pods
        self._router, self._seen = Router(()), frozenset[tuple[str, int]]()
        self._asking = frozenset[str]()
        """Namespaces in which some policy asks for hints."""
        self._due: dict[str, None] = {}
        self._not_before_s: dict[str, float] = {}
        self._look_at_all_s = -math.inf
        self._asked = asyncio.Event()
        self._rights = HintRights()
        """As of the last round, as is what keeps nodes: a round looks at many pods of one."""
        self._stays: dict[str, NodeStays] = {}
        self._rests: dict[str, tuple[float, Backoff]] = {}
        """Until when nothing is written in a namespace: somebody's webhook there may be what does not answer."""

    def see(self, policies: Sequence[PolicySeen]) -> None:
        """Take the policies there are now."""
        there = [p for p in policies if p.route is not None and not p.deleting]
        seen = frozenset((p.uid, p.generation) for p in there)
        if seen == self._seen:
            return
        self._seen, self._look_at_all_s = seen, -math.inf
        self._not_before_s.clear()  # what is wanted no longer goes at once
        self._router = Router([p.route for p in there if p.route is not None], self._own_namespace)
        self._asking = frozenset(p.namespace for p in there if p.route is not None and p.route.spec.hints.any)
        if self._asking:
            self._asked.set()

    def rights(self) -> HintRights:
        """Where hints may be written, as far as anybody has asked the API server."""
        denied = (place for place in self._namespaces or {""} if not self._permissions.allows(replace(WRITE_HINTS, namespace=place)))
        return HintRights(self._namespaces, frozenset(denied))

    async def run(self) -> None:
        """Hints are written until the task is cancelled or the Lease is lost; nothing is done before a policy has once asked for them."""
        await self._asked.wait()
        self._beats.expect(LOOP, LATE_S)
        try:
            await self._watch.ready()
            while True:
                await self.round()
                self._beats.beat(LOOP)
                await asyncio.sleep(0 if self._due else _ROUND_S)
        finally:
            self._beats.forget(LOOP)

    async def round(self) -> None:
        """Look at what has changed, and write on a few of those who wait."""
        self._rights = self.rights()
        self._stays.clear()
        if self._watch.is_complete:
            await self._look()
        await self._write()

    async def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        everybody = now_s >= self._look_at_all_s
        if everybody:
            self._look_at_all_s = now_s + _LOOK_AT_ALL_S
            self._not_before_s = {uid: at_s for uid, at_s in self._not_before_s.items() if uid in self._pods}
            # a namespace may be gone for good
            self._rests = {name: rest for name, rest in self._rests.items() if rest[0] > now_s - _BACKOFF_MAX_S}
        changed = self._pods.changed()
        carrying = dict.fromkeys(Hint, 0)
        for number, uid in enumerate(self._pods.uids() if everybody else changed, 1):
            if (pod := self._pods.get(uid)) is not None:
                for hint in standing(pod.annotations) if everybody else ():
                    carrying[hint] += 1
                if self._change(pod):
                    self._enqueue(uid)
            if number % _A_SLICE == 0:
                await asyncio.sleep(0)
        if everybody:
            for hint, count in carrying.items():
                self._told.pods.labels(hint).set(count)
            self._told.applications.set(len(self._run_times))
        self._told.due.set(len(self._due))

    def _enqueue(self, uid: str) -> None:
        if uid in self._due or self._not_before_s.get(uid, -math.inf) > self._clock.monotonic_s():
            return
        if len(self._due) >= _MOST_DUE:
            self._told.refused.labels(Refusal.NO_ROOM).inc()
            return
        self._due[uid] = None

    def _change(self, pod: HintedPod) -> dict[str, str | None]:
        """What is to be written on the pod now; whatever it makes us trip over, nothing."""
        asked = pod.namespace in self._asking and (pod.ends_by_itself or pod.of_replica_set)
        if pod.deleting or not (asked or MARK in pod.annotations) or not self._may_write(pod.namespace):
            return {}
        found: dict[str, str | None] = {}
        with self._metrics.objects.over("Pod", pod.key, pod.version):
            now_s = self._clock.now_s()
            wanted = wanted_hints(pod, self._asks(pod), self._run_times.of(pod.application), lambda: self._cost(pod, now_s), now_s)
            found.update(changes(pod.annotations, wanted))
        return found

    def _may_write(self, namespace: str) -> bool:
        place = namespace if self._namespaces else ""
        return (not place or place in self._namespaces) and place not in self._rights.denied

    def _asks(self, pod: HintedPod) -> Hints | None:
        """What the policy asks for that is obeyed for this pod."""
        live = self._watch.observed.pods.get(pod.uid)
        if live is None or live.scheduler_name != self._scheduler_name:
            return None
        route = self._router.route(pod.namespace, live.labels)
        if route is None or not route.spec.hints.any:
            return None
        spec = route.spec
        obeyed = spec.mode == "Active" or (spec.mode == "Canary" and spec.canary is not None and in_share(pod.uid, spec.canary.percent))
        return spec.hints if obeyed else None

    def _cost(self, pod: HintedPod, now_s: float) -> str:
        if (stays := self._stays.get(pod.node)) is None:
            stays = self._stays[pod.node] = stays_of(self._pods.on_node(pod.node), self._run_times.of, now_s)
        return deletion_cost(self._calls_of(pod.uid, self._clock.monotonic_s()), stays.without(pod.uid))

    async def _write(self) -> None:
        for _ in range(min(_OF_A_ROUND, len(self._due))):
            uid = next(iter(self._due))
            del self._due[uid]
            pod = self._pods.get(uid)
            if pod is None or self._rests.get(pod.namespace, (-math.inf, None))[0] > self._clock.monotonic_s():
                continue  # a later look at all of them finds it again
            if change := self._change(pod):
                await self._send(pod, change)
                await asyncio.sleep(_PACE_S)

    async def _send(self, pod: HintedPod, change: Mapping[str, str | None]) -> None:
        """One merge patch with the pod's uid and version, so that it changes the pod that was seen, or none."""
        body = {"metadata": {"uid": pod.uid, "resourceVersion": pod.version, "annotations": change}}
        try:
            await self._writer.fenced(self._patch(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", body))
        except Unavailable as error:
            self._not_written(pod, error)
            return
        self._rests.pop(pod.namespace, None)
        self._not_before_s[pod.uid] = self._clock.monotonic_s() + _AGAIN_S
        self._metrics.writes.labels("hint").inc()
        for hint, name in ANNOTATIONS.items():
            if name in change:
                (self._told.removed if change[name] is None else self._told.written).labels(hint).inc()

    async def _patch(self, path: str, body: Any) -> Any:
        return await self._client.request(
            "PATCH", path, body=body, content_type="application/merge-patch+json", params={"fieldManager": FIELD_MANAGER},
            deadline=aiohttp.ClientTimeout(total=_PATCH_S),
        )  # fmt: skip

    def _not_written(self, pod: HintedPod, error: Unavailable) -> None:
        reason = _REFUSALS.get(error.status, Refusal.API) if isinstance(error, ApiError) else Refusal.API
        self._told.refused.labels(reason).inc()
        if reason in (Refusal.CHANGED, Refusal.GONE):
            return  # the watch shows what has become of it
        now_s = self._clock.monotonic_s()
        if reason is Refusal.API:
            _, backoff = self._rests.get(pod.namespace, (0.0, Backoff(_BACKOFF_S, _BACKOFF_MAX_S)))
            self._rests[pod.namespace] = now_s + backoff.next_s(error), backoff
        else:
            self._not_before_s[pod.uid] = now_s + _REFUSED_AGAIN_S
        self._metrics.error(ErrorReason.FORBIDDEN if reason is Refusal.FORBIDDEN else ErrorReason.API)
        log.warning("a hint was not written", extra={"fields": {"pod": pod.key, "error": str(error)}})

"""The kubelets of the simulated nodes: they take up pods, tell their containers' state, and let deleted pods go.

Between the watch that shows pods and the patches that report on them stands the pure `RuntimeFleet`, which decides what happens when.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.reflector import Reflector
from tiphys_models.placement.sim.functions import FunctionModel
from tiphys_models.placement.sim.invoker import CallStep, Event
from tiphys_testbed.cluster.pods import finished_status
from tiphys_testbed.demo.fleet import RuntimeFleet
from tiphys_testbed.demo.records import CallRecord

MERGE_PATCH = "application/merge-patch+json"
PUBLISH_S = 0.25
"""How often the nodes' readings are brought up to date; Prometheus looks once a second."""
RETRY_DEADLINE_S = 15.0
_RETRY_S = 0.1
_REPORTS_AT_ONCE = 64
_GONE = (404, 409)
_ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Pod:
    obj: dict[str, Any]
    record: CallRecord | None
    function: FunctionModel | None
    wanted: str = ""
    """The phase to report: empty, Running, Succeeded."""
    reported: str = ""
    reporting: bool = False

    @property
    def node(self) -> str:
        return str(self.obj["spec"]["nodeName"])

    @property
    def path(self) -> str:
        metadata = self.obj["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


@dataclass(slots=True)
class Kubelets:
    """Runs every pod of the fleet's nodes until cancelled: function pods as calls, others as containers that never end."""

    client: KubeClient
    fleet: RuntimeFleet
    functions: Mapping[str, FunctionModel]
    records: dict[tuple[str, str], CallRecord] = field(default_factory=dict)
    """Calls of the current replay by (namespace, pod name)."""
    start_s: float = 0.0
    """Monotonic time that the records count from."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the pods that are there are known."""
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_REPORTS_AT_ONCE))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Watch pods and keep the nodes' clocks going; sets `ready` once the first list was read."""
        reflector = Reflector(self.client, "/api/v1/pods", self, SystemClock())
        watching = asyncio.ensure_future(reflector.run())  # never ends by itself, whatever the API server does
        try:
            await reflector.synced.wait()
            self.ready.set()
            await self._keep_time()
        finally:
            for task in (watching, *self._tasks):
                task.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    # ---- what the watch shows (a reflector's sink) ---------------------------------------------------------------

    def put(self, obj: dict[str, Any]) -> None:
        """A pod was added or changed."""
        metadata, status = obj["metadata"], obj.get("status") or {}
        uid, node = metadata["uid"], obj["spec"].get("nodeName") or ""
        record = self.records.get((metadata["namespace"], metadata["name"]))
        if record is not None:
            self._follow_binding(record, obj["spec"], node)
        if status.get("phase") == "Failed" and record is not None and not record.settled:
            record.problem = f"failed: {status.get('reason') or status.get('message') or 'no reason given'}"
        if not self.fleet.has(node):
            return
        known = self._pods.get(uid)
        if metadata.get("deletionTimestamp"):
            self._later(self._let_go(known or _Pod(obj, record, None)))
        elif known is not None:
            known.obj = obj
        elif status.get("phase") not in _ENDED:
            self._take_up(uid, _Pod(obj, record, self.functions.get((metadata.get("labels") or {}).get(FUNCTION_LABEL, ""))))

    def _follow_binding(self, record: CallRecord, spec: Mapping[str, Any], node: str) -> None:
        """When the pod's gate was opened, and when it got its node."""
        seen_s = time.monotonic() - self.start_s
        if spec.get("schedulingGates"):
            record.gated = True
        elif record.gated and record.opened_s is None:
            record.opened_s = seen_s
        if node and record.bound_s is None:
            record.bound_s, record.node = seen_s, node

    def drop(self, obj: dict[str, Any]) -> None:
        """A pod was deleted."""
        metadata = obj["metadata"]
        record = self.records.get((metadata["namespace"], metadata["name"]))
        if record is not None and not record.settled:
            record.problem = "its pod was deleted before it was done"
        self._forget(metadata["uid"])

    def listed(self, uids: set[str]) -> None:
        """A whole list was read: other pods are gone."""
        for uid in self._pods.keys() - uids:
            self._forget(uid)

    # ---- pods ----------------------------------------------------------------------------------------------------

    def _take_up(self, uid: str, pod: _Pod) -> None:
        self._pods[uid] = pod
        if pod.function is None:
            self._report(pod, "Running")
            return
        now_s, noise = time.monotonic(), 1.0
        if pod.record is not None:
            pod.record.taken_s, noise = now_s - self.start_s, pod.record.noise
        self._follow(self.fleet.submit(pod.node, uid, pod.function, now_s, noise))
        self._wake.set()

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.function is not None and pod.wanted != "Succeeded":
            self._follow(self.fleet.cancel(pod.node, uid, time.monotonic()))
            self._wake.set()

    def _follow(self, events: Sequence[Event]) -> None:
        """Report what happened on the nodes. Pods stay known until they are deleted: old news of them may still be on its way."""
        for event in events:
            pod = self._pods.get(event.call)
            if pod is None:
                continue
            at_s = event.at_s - self.start_s
            if event.step is CallStep.READY:
                if pod.record is not None:
                    pod.record.ready_s, pod.record.cold, pod.record.begun_s = at_s, event.cold, event.begun_s - self.start_s
                self._report(pod, "Running")
            else:
                if pod.record is not None:
                    pod.record.finished_s = at_s
                self._report(pod, "Succeeded")

    def _report(self, pod: _Pod, phase: str) -> None:
        pod.wanted = phase
        if not pod.reporting:
            pod.reporting = True
            self._later(self._tell(pod))

    async def _tell(self, pod: _Pod) -> None:
        """Report the phase that is wanted by now: a call may be over before its start could be told."""
        while pod.reported != pod.wanted:
            async with self._slots:
                phase = pod.wanted
                body = {"metadata": {"uid": pod.obj["metadata"]["uid"]}, "status": _status(pod.obj, phase)}
                patch = partial(self.client.request, "PATCH", f"{pod.path}/status", body=body, content_type=MERGE_PATCH)
                try:
                    await persist(patch)
                except Unavailable as error:
                    if pod.record is not None and not pod.record.settled:
                        pod.record.problem = f"phase {phase} could not be reported: {error}"
                pod.reported = phase
        pod.reporting = False
        if pod.reported == "Succeeded" and pod.record is not None and not pod.record.problem:
            pod.record.done_s = time.monotonic() - self.start_s

    async def _let_go(self, pod: _Pod) -> None:
        """The last word on a deleted pod is its kubelet's."""
        try:
            await persist(partial(self.client.request, "DELETE", pod.path, params={"gracePeriodSeconds": "0"}))
        except ApiError as error:
            if error.status not in _GONE:
                raise

    # ---- time ----------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        publish_s = time.monotonic()
        while True:
            wait_s = min(self.fleet.next_event_s, publish_s) - time.monotonic()
            if wait_s > 0:
                self._wake.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass  # nothing woke us: the time has come
            now_s = time.monotonic()
            self._follow(self.fleet.advance(now_s))
            if now_s >= publish_s:
                self._follow(self.fleet.publish(now_s))
                publish_s = max(publish_s + PUBLISH_S, now_s)
            self._raise_failures()
            await asyncio.sleep(0)

    def _later(self, work: Any) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def _raise_failures(self) -> None:
        """Look after the reports under way: one that failed for a reason nobody foresaw ends the run."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()


def running_status(pod: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    """The status of a pod whose containers have just started: what a kubelet would report."""
    when = now.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    conditions = [c for c in (pod.get("status") or {}).get("conditions") or () if c["type"] not in kinds]
    conditions += [{"type": kind, "status": "True", "lastTransitionTime": when} for kind in kinds]
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"simulated://{container['image']}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": when}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Running", "startTime": when, "conditions": conditions, "containerStatuses": containers}


def _status(pod: dict[str, Any], phase: str) -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC)
    return running_status(pod, now) if phase == "Running" else finished_status(pod, now)


async def persist(request: Callable[[], Awaitable[Any]], deadline_s: float = RETRY_DEADLINE_S) -> Any:
    """Repeat a request that failed for a passing reason. An object that exists already, from a try whose answer was lost, is fine."""
    end_s = time.monotonic() + deadline_s
    tries = 0
    while True:
        tries += 1
        try:
            return await request()
        except ApiError as error:
            if error.status == 409 and error.reason == "AlreadyExists" and tries > 1:
                return None
            if error.status in _GONE or error.status < 429 or time.monotonic() > end_s:
                raise
        except Unavailable:
            if time.monotonic() > end_s:
                raise
        await asyncio.sleep(_RETRY_S * tries)

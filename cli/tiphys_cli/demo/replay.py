"""The hands of a replay: pods are created when they are due, run on simulated nodes, and ended when their work is done."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiphys_cli.cluster.pods import finished_status
from tiphys_cli.demo.fleet import Fleet
from tiphys_cli.demo.functions import FunctionProfile
from tiphys_cli.demo.lanes import Lane, pod_manifest
from tiphys_cli.demo.records import CallRecord
from tiphys_cli.demo.runtime import Finished
from tiphys_cli.demo.workload import Call
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.clients.reflector import Reflector
from tiphys_models.domain.clock import SystemClock
from tiphys_models.domain.errors import Unavailable
from tiphys_models.domain.facts import FUNCTION_LABEL

MERGE_PATCH = "application/merge-patch+json"
PUBLISH_S = 0.25
"""How often the nodes' readings are brought up to date; Prometheus looks once a second."""
RETRY_DEADLINE_S = 15.0
_RETRY_S = 0.1
_CALLS_AT_ONCE = 64
_GONE = (404, 409)


@dataclass(slots=True)
class _Pod:
    namespace: str
    name: str
    function: FunctionProfile
    node: str
    obj: dict[str, Any]
    record: CallRecord | None
    ending: bool = False


@dataclass(slots=True)
class Playground:
    """Plays the function runtime of all nodes for whatever function pods the API server has, until cancelled."""

    client: KubeClient
    fleet: Fleet
    functions: Mapping[str, FunctionProfile]
    records: dict[tuple[str, str], CallRecord] = field(default_factory=dict)
    """Calls of the current replay by (namespace, pod name)."""
    start_s: float = 0.0
    """Monotonic time that the records count from."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the pods that are there are known."""
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _over: set[str] = field(default_factory=set)
    """Pods whose end was reported: an older event of theirs may still be on its way to us."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CALLS_AT_ONCE))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Watch pods and keep the nodes' clocks going; sets `ready` once the first list was read."""
        reflector = Reflector(self.client, "/api/v1/pods", self, SystemClock(), params={"labelSelector": FUNCTION_LABEL})
        watching = asyncio.ensure_future(reflector.run())  # never ends by itself, whatever the API server does
        try:
            await reflector.synced.wait()
            self.ready.set()
            await self._keep_time()
        finally:
            watching.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    # ---- what the watch shows (a reflector's sink) ---------------------------------------------------------------

    def put(self, obj: dict[str, Any]) -> None:
        """A pod was added or changed."""
        metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        uid, node, phase = metadata["uid"], spec.get("nodeName") or "", status.get("phase")
        record = self.records.get((metadata["namespace"], metadata["name"]))
        if record is not None and node and record.bound_s is None:
            record.bound_s, record.node = self._since_start(), node
        function = self.functions.get(metadata["labels"][FUNCTION_LABEL])
        if phase == "Failed" and record is not None and not record.settled:
            record.problem = f"failed: {status.get('reason') or status.get('message') or 'no reason given'}"
        if phase != "Running" or function is None or not self.fleet.has(node) or metadata.get("deletionTimestamp") or uid in self._over:
            return
        known = self._pods.get(uid)
        if known is not None:
            known.obj = obj
            return
        self._pods[uid] = _Pod(metadata["namespace"], metadata["name"], function, node, obj, record)
        if record is not None:
            record.running_s = self._since_start()
        self._ended(self.fleet.submit(node, uid, function, time.monotonic()))
        self._wake.set()

    def drop(self, obj: dict[str, Any]) -> None:
        """A pod was deleted."""
        metadata = obj["metadata"]
        record = self.records.get((metadata["namespace"], metadata["name"]))
        if record is not None and not record.settled:
            record.problem = "its pod was deleted before it was done"
        self._forget(metadata["uid"])

    def listed(self, uids: set[str]) -> None:
        """A whole list was read: other pods are gone."""
        for uid in (self._pods.keys() | self._over) - uids:
            self._forget(uid)

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
            self._ended(self.fleet.advance(now_s))
            if now_s >= publish_s:
                self._ended(self.fleet.publish(now_s))
                publish_s = max(publish_s + PUBLISH_S, now_s)
            await asyncio.sleep(0)

    def _ended(self, ended: Sequence[Finished]) -> None:
        for call in ended:
            pod = self._pods.get(call.call)
            if pod is None or pod.ending:
                continue
            pod.ending = True
            if pod.record is not None:
                pod.record.finished_s, pod.record.cold = call.at_s - self.start_s, call.cold
            task = asyncio.get_running_loop().create_task(self._end(call.call, pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _end(self, uid: str, pod: _Pod) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = {"metadata": {"uid": uid}, "status": finished_status(pod.obj, dt.datetime.now(dt.UTC))}
        async with self._slots:
            try:
                await persist(lambda: self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH))
            except Unavailable as error:
                if pod.record is not None and not pod.record.settled:
                    pod.record.problem = f"its end could not be reported: {error}"
            else:
                if pod.record is not None and not pod.record.problem:
                    pod.record.done_s = self._since_start()
        self._over.add(uid)
        self._pods.pop(uid, None)

    def _forget(self, uid: str) -> None:
        self._over.discard(uid)
        pod = self._pods.get(uid)
        if pod is None or pod.ending:
            return
        del self._pods[uid]
        self._ended(self.fleet.cancel(pod.node, uid, time.monotonic()))
        self._wake.set()

    def _since_start(self) -> float:
        return time.monotonic() - self.start_s


async def replay(
    playground: Playground,
    lanes: Sequence[Lane],
    calls: Sequence[Call],
    *,
    run: str,
    drain_deadline_s: float,
    progress: Callable[[float], None],
) -> list[CallRecord]:
    """Send the same calls through all lanes at once and wait until all are done, or the deadline after the last one.

    `progress` is called a few times a second with the seconds since the start; the records show the rest.
    """
    names = {call.name: f"{run}-{call.name}" for call in calls}
    records = {
        (lane.namespace, names[call.name]): CallRecord(lane.name, names[call.name], call.function, call.due_s)
        for lane in lanes
        for call in calls
    }
    playground.records, playground.start_s = records, time.monotonic()
    slots = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def create(lane: Lane, call: Call) -> None:
        record = records[lane.namespace, names[call.name]]
        manifest = pod_manifest(lane, record.pod, playground.functions[call.function], run)
        async with slots:
            try:
                await persist(lambda: playground.client.request("POST", f"/api/v1/namespaces/{lane.namespace}/pods", body=manifest))
            except Unavailable as error:
                record.problem = f"not created: {error}"
            else:
                record.created_s = time.monotonic() - playground.start_s

    async with asyncio.TaskGroup() as group:
        for number, call in enumerate(calls):
            await _sleep_until(playground.start_s + call.due_s, lambda: progress(time.monotonic() - playground.start_s))
            first = number % len(lanes)  # no lane is always the first to be served
            for lane in (*lanes[first:], *lanes[:first]):
                group.create_task(create(lane, call))
    end_s = time.monotonic() + drain_deadline_s
    while not all(record.settled for record in records.values()):
        if time.monotonic() > end_s:
            for record in records.values():
                if not record.settled:
                    record.problem = _where_it_hangs(record, drain_deadline_s)
            break
        await _sleep_until(time.monotonic() + 0.2, lambda: progress(time.monotonic() - playground.start_s))
    progress(time.monotonic() - playground.start_s)
    return list(records.values())


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


async def _sleep_until(at_s: float, meanwhile: Callable[[], None], step_s: float = 0.25) -> None:
    while (left_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(min(left_s, step_s) if math.isfinite(left_s) else step_s)
        if left_s > step_s:
            meanwhile()
    meanwhile()


def _where_it_hangs(record: CallRecord, deadline_s: float) -> str:
    if record.created_s is None:
        return f"not created within {deadline_s:.0f} s of the last call"
    if not record.node:
        return f"not bound within {deadline_s:.0f} s of the last call; see `kubectl describe pod` and the scheduler's log"
    if record.running_s is None:
        return f"bound to {record.node}, but not running within {deadline_s:.0f} s of the last call"
    return f"still running on {record.node} {deadline_s:.0f} s after the last call"

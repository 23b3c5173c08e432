"""When which ScalingPolicy has its window. It runs while the Lease is held, and is the only one that writes their statuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from tiphys_models.api.scaling_policy import SCALING_PATH
from tiphys_models.clients.kube import KubeClient
from tiphys_models.clients.leases import LeaseLost
from tiphys_models.clients.prometheus import PrometheusClient
from tiphys_models.clients.reflector import Reflector
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import TiphysError, Unavailable
from tiphys_models.domain.quantity import timestamp_s
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.agents import AgentShelf, models_path
from tiphys_operator.scaling.cluster import NodeSink, PodSink, PolicySink, ScalingCluster
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import ScalingError
from tiphys_operator.scaling.raising import look_every_s
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.window import Running, WindowRunner, looks
from tiphys_operator.writer import Writer

log = logging.getLogger(__name__)

_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_IDLE_S = 60.0
_AGAIN_S = 1.0
_SETTLE_S = 0.2
"""Pods come in bunches: one look for all of them."""
_AT_ONCE = 8
_MODELS_S = 5.0


class ScalingLoop:
    """Watches policies from the start, pods and nodes once there is a policy: nobody else needs those rights."""

    def __init__(
        self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, shelf: AgentShelf, transitions: TransitionLog,
        prometheus: PrometheusClient | None = None, keys: IntentKeys | None = None,
    ) -> None:  # fmt: skip
        self._metrics, self._clock = metrics.scaling, clock
        self._cluster = ScalingCluster()
        on_policy, on_pod = PolicySink(self._cluster, self._policy_changed), PodSink(self._cluster, self._pod_changed)
        self._policies = Reflector(client, SCALING_PATH, on_policy, clock, on_error=self._watch_failed)
        self._pods = Reflector(client, "/api/v1/pods", on_pod, clock, params=_UNFINISHED, on_error=self._watch_failed)
        self._nodes = Reflector(client, "/api/v1/nodes", NodeSink(self._cluster), clock, on_error=self._watch_failed)
        self._models = Reflector(client, models_path(shelf.namespace), shelf, clock, on_error=self._watch_failed)
        self._runner = WindowRunner(
            Hands(client, writer, metrics, clock), writer, self._cluster, prometheus, self._metrics, clock, shelf, transitions,
            self._cluster.put_policy, keys or IntentKeys(),
        )  # fmt: skip
        self._running: dict[str, Running] = {}
        self._due_s: dict[str, float] = {}
        self._look_s: dict[str, float] = {}
        """When each policy is looked at between its windows."""
        self._touched: set[str] = set()
        self._changed = asyncio.Event()
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled, or until the Lease is lost."""
        watches = [asyncio.create_task(self._policies.run())]
        try:
            while not self._cluster.policies:
                await self._sleep(_IDLE_S, watches)
            watches += [asyncio.create_task(watch.run()) for watch in (self._pods, self._nodes, self._models)]
            for synced in (self._pods.synced, self._nodes.synced):
                await synced.wait()
            with contextlib.suppress(TimeoutError):  # without the kind or the right, what was decided with last, or what ships, decides
                await asyncio.wait_for(self._models.synced.wait(), _MODELS_S)
            while True:
                await self._round()
                await self._sleep(self._next_s(), watches)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _round(self) -> None:
        now_s = self._clock.monotonic_s()
        for uid in set(self._running) - set(self._cluster.policies):
            del self._running[uid]
            self._due_s.pop(uid, None)
            self._look_s.pop(uid, None)
        policies = {uid: policy for uid, policy in self._cluster.policies.items() if not policy.deleting}
        due = [uid for uid, policy in policies.items() if self._due_s.setdefault(uid, self._first_s(policy)) <= now_s]
        touched, self._touched = self._touched, set()
        near = [uid for uid, policy in policies.items() if uid not in due and policy.namespace in touched]
        glanced = [uid for uid, at_s in self._look_s.items() if at_s <= now_s and uid in policies and uid not in due]
        await _all(self._window(uid, policies[uid]) for uid in due)
        await _all(self._between(uid, self._runner.look) for uid in glanced)
        await _all(self._between(uid, self._runner.align) for uid in near)
        for uid in (*due, *glanced):
            self._look_again(uid)
        if due:
            self._report()

    async def _window(self, uid: str, policy: ScalingSeen) -> None:
        interval_s = float(policy.spec.interval_seconds) if policy.spec is not None else _IDLE_S
        now_s = self._clock.monotonic_s()
        self._due_s[uid] = max(self._due_s[uid] + interval_s, now_s + interval_s / 2)
        async with self._limit:
            try:
                await self._runner.run(policy, self._running.setdefault(uid, Running()))
            except TiphysError as error:
                self._failed(policy, error)
                self._due_s[uid] = self._clock.monotonic_s() + _AGAIN_S
            else:
                self._said.pop(policy.key, None)

    async def _between(self, uid: str, step: Callable[[ScalingSeen, Running], Awaitable[None]]) -> None:
        running, policy = self._running.get(uid), self._cluster.policies.get(uid)
        if running is None or policy is None:
            return
        async with self._limit:
            try:
                await step(policy, running)
            except TiphysError as error:
                self._failed(policy, error)

    def _look_again(self, uid: str) -> None:
        self._look_s.pop(uid, None)
        policy = self._cluster.policies.get(uid)
        if policy is not None and policy.spec is not None and looks(policy, policy.spec):
            self._look_s[uid] = self._clock.monotonic_s() + look_every_s(policy.spec)

    def _failed(self, policy: ScalingSeen, error: TiphysError) -> None:
        if isinstance(error, LeaseLost):
            raise error
        self._metrics.errors.labels(ScalingError.API).inc()
        if self._said.get(policy.key) != str(error):  # once: every try would say the same
            log.warning("a window failed, trying again", extra={"fields": {"policy": policy.key, "error": str(error)}})
            self._said[policy.key] = str(error)

    def _first_s(self, policy: ScalingSeen) -> float:
        """A new leader goes on in its predecessor's rhythm: no second decision within one window."""
        now_s, last = self._clock.monotonic_s(), policy.status.last_decision
        if last is None or policy.spec is None or last.phase == "Intended" or policy.status.observed_generation != policy.generation:
            return now_s
        age_s = max(self._clock.now_s() - (timestamp_s(last.at) or 0.0), 0.0)
        return now_s + max(policy.spec.interval_seconds - age_s, 0.0)

    def _next_s(self) -> float:
        if self._touched:
            return 0.0
        now_s = self._clock.monotonic_s()
        return max(min((due - now_s for due in (*self._due_s.values(), *self._look_s.values())), default=_IDLE_S), 0.0)

    async def _sleep(self, at_most_s: float, watches: Iterable[asyncio.Task[None]]) -> None:
        for watch in watches:
            if watch.done():
                watch.result()  # never but by a mistake: it ends the process
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_S)
        self._changed.clear()

    def _policy_changed(self, uid: str) -> None:
        self._due_s.pop(uid, None)
        self._changed.set()

    def _pod_changed(self, namespace: str) -> None:
        if any(policy.namespace == namespace for policy in self._cluster.policies.values()):
            self._touched.add(namespace)
            self._changed.set()

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.errors.labels(ScalingError.WATCH).inc()
        if self._said.get(path) != str(error):
            log.warning("scaling cannot watch, trying again", extra={"fields": {"path": path, "error": str(error)}})
            self._said[path] = str(error)

    def _report(self) -> None:
        states, conflicts, decisions, latencies, rolled_back = [], [], [], [], 0
        for policy in self._cluster.policies.values():
            conditions = {c.type: c for c in policy.status.conditions}
            ready, conflict = conditions.get("Ready"), conditions.get("Conflict")
            states.append((policy.spec.mode if policy.spec is not None else "Invalid", ready.status if ready is not None else "Unknown"))
            if conflict is not None and conflict.status != "False":
                conflicts.append(conflict.reason)
            rolled_back += policy.status.memory.rolled_back is not None
            last = policy.status.last_decision
            if last is not None and policy.spec is not None and policy.spec.mode != "Off":
                decisions.append(last)
                if last.window is not None and last.window.latency_milliseconds is not None:
                    latencies.append(last.window.latency_milliseconds / policy.spec.objective.latency_milliseconds)
        self._metrics.count(states, conflicts)
        self._metrics.sizes(decisions, latencies)
        self._metrics.rolled_back.set(rolled_back)


async def _all(jobs: Iterable[Awaitable[None]]) -> None:
    """Side by side; one that fails lets the others end first."""
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result

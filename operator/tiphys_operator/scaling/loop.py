"""Begins each ScalingPolicy's windows when due. It runs while the Lease is held, and is the only one that writes their statuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from tiphys_models.api.reasons import ScalingReason
from tiphys_models.api.scaling_policy import SCALING_PATH
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.clients.prometheus import PrometheusClient
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import InvalidInput, Unavailable
from tiphys_models.domain.heartbeats import Heartbeats
from tiphys_models.domain.quantity import timestamp_s
from tiphys_operator.guard import Trip
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.agents import AgentShelf, models_path
from tiphys_operator.scaling.cluster import NodeSink, PodSink, PolicySink, ScalingCluster
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import ScalingError
from tiphys_operator.scaling.raising import look_every_s
from tiphys_operator.scaling.reach import Reach
from tiphys_operator.scaling.schedule import Schedule
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.window import Running, WindowRunner, looks
from tiphys_operator.turns import Turns
from tiphys_operator.watches import Watches
from tiphys_operator.writer import Writer

log = logging.getLogger(__name__)

LOOP = "scaling"
LATE_S = 180.0
"""Rounds come every minute at the latest, and wait for nobody."""
_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_IDLE_S = 60.0
_SETTLE_S = 0.2
"""Pods come in bunches: one look for all of them."""
_AT_ONCE, _OF_ONE_NAMESPACE = 12, 8
_LONGEST_S = 120.0
"""Of a window. What it has not finished by then its intent tells the next one."""
_MODELS_S = 5.0
_READ_AGAIN_S = 5.0
_SAID_MAX = 1024
_REFUSED_CONTENT = (400, 413, 422)
"""What the API server says of a body that it cannot take: the object's fault, not the server's."""


class ScalingLoop:
    """Watches policies from the start, pods and nodes once there is a policy: nobody else needs those rights."""

    def __init__(
        self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, shelf: AgentShelf, transitions: TransitionLog,
        prometheus: PrometheusClient | None = None, reach: Reach | None = None, keys: IntentKeys | None = None, *,
        beats: Heartbeats | None = None, rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        self._client, self._all_metrics, self._metrics, self._clock = client, metrics, metrics.scaling, clock
        self._beats = beats if beats is not None else Heartbeats(clock)
        self._cluster, self._shelf = ScalingCluster(), shelf
        self._changed = asyncio.Event()
        self._pod_sink = PodSink(self._cluster, self._pod_changed)
        self._watches = Watches(LOOP, client, clock, metrics, self._beats, self._watch_failed, self._changed.set)
        self._runner = WindowRunner(
            Hands(client, writer, metrics, clock), writer, self._cluster, prometheus, self._metrics, clock, shelf, transitions,
            self._cluster.put_policy, reach or Reach(shelf.namespace), keys or IntentKeys(),
        )  # fmt: skip
        self._running: dict[str, Running] = {}
        self._rng = rng if rng is not None else random.Random()  # noqa: S311 - jitter
        self._schedule = Schedule(clock, self._rng)
        self._turns = Turns(_AT_ONCE, _OF_ONE_NAMESPACE, self._changed.set)
        self._unaligned: set[str] = set()
        """Policies near which a pod has changed."""
        self._said: OrderedDict[str, str] = OrderedDict()
        self._metrics.overdue.set_function(lambda: self._schedule.late()[0])
        self._metrics.overdue_s.set_function(lambda: self._schedule.late()[1])
        metrics.pods_kept.labels(LOOP).set_function(self._cluster.pods_kept)

    async def run(self) -> None:
        """Until cancelled, or until the Lease is lost."""
        self._beats.expect(LOOP, LATE_S)
        self._watches.start("ScalingPolicy", SCALING_PATH, PolicySink(self._cluster, self._policy_changed, self._recovered))
        try:
            while not self._cluster.policies:
                await self._sleep(_IDLE_S)
            pods = self._watches.start("Pod", "/api/v1/pods", self._pod_sink, _UNFINISHED)
            nodes = self._watches.start("Node", "/api/v1/nodes", NodeSink(self._cluster))
            models = self._watches.start("LearnedModel", models_path(self._shelf.namespace), self._shelf)
            await self._watches.synced(pods, nodes)
            # without the kind or the right, what was decided with last, or what ships, decides
            await self._watches.synced(models, at_most_s=_MODELS_S)
            self._beats.expect(LOOP, LATE_S, fatal=True)
            while True:
                self._round()
                await self._sleep(self._next_s())
        finally:
            await self._turns.close()
            await self._watches.close()
            self._beats.forget(LOOP)

    def _round(self) -> None:
        """Begin what is due; nobody waits for anybody else's window."""
        with self._all_metrics.objects.over("Metrics", LOOP, ""):
            self._report()
        policies = {uid: policy for uid, policy in self._cluster.policies.items() if not policy.deleting}
        for uid in self._schedule.uids() - set(policies):
            self._running.pop(uid, None)
            self._schedule.forget(uid)
        for uid, policy in policies.items():
            interval_s = float(policy.spec.interval_seconds) if policy.spec is not None else _IDLE_S
            first_s = 0.0 if self._schedule.knows(uid) else self._first_in_s(policy)
            self._schedule.expect(uid, first_s, interval_s)
        unread = self._cluster.unread()
        for namespace in unread:
            self._turns.start(f"pods of {namespace}", namespace, partial(self._read_pods, namespace))
        for uid in [uid for uid in self._schedule.due() if policies[uid].namespace not in unread]:
            self._turns.start(uid, policies[uid].namespace, partial(self._window, uid))
        for uid in self._schedule.looks_due():
            if not self._turns.busy(uid):
                self._schedule.look_in(uid, None)
                self._turns.start(uid, policies[uid].namespace, partial(self._between, uid, self._runner.look))
        self._unaligned &= set(policies)
        for uid in [uid for uid in self._unaligned if not self._turns.busy(uid)]:
            self._unaligned.discard(uid)
            self._turns.start(uid, policies[uid].namespace, partial(self._between, uid, self._runner.align))

    async def _window(self, uid: str) -> None:
        policy = self._cluster.policies.get(uid)
        if policy is None:
            return
        self._schedule.began(uid)
        self._unaligned.discard(uid)
        trip = await self._step(policy, self._runner.run)
        if trip is not None and trip.error is not None:
            await self._show(policy, trip)
        self._look_again(policy)

    async def _read_pods(self, namespace: str) -> None:
        """A namespace's pods, once: until it had a policy, only their load was kept."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            async with asyncio.timeout(_LONGEST_S), contextlib.aclosing(self._client.pages(path, _UNFINISHED)) as pages:
                async for page in pages:
                    for obj in page.get("items") or ():
                        with self._all_metrics.objects.over_object("Pod", obj):
                            self._pod_sink.read(obj)
        except (Unavailable, TimeoutError) as error:
            self._metrics.errors.labels(ScalingError.API).inc()
            self._say(path, error)
            await asyncio.sleep(_READ_AGAIN_S * self._rng.uniform(1.0, 1.25))
        else:
            self._cluster.have_read(namespace)

    async def _between(self, uid: str, step: Callable[[ScalingSeen, Running], Awaitable[None]]) -> None:
        policy = self._cluster.policies.get(uid)
        if policy is not None and uid in self._running:
            await self._step(policy, step, window=False)
            self._look_again(policy)

    async def _step(
        self, policy: ScalingSeen, step: Callable[[ScalingSeen, Running], Awaitable[None]], *, window: bool = True
    ) -> Trip | None:
        """A step on one policy, of which nobody else hears; None if others failed it."""
        uid = policy.uid
        running = self._running.setdefault(uid, Running())
        try:
            async with asyncio.timeout(_LONGEST_S):
                with self._all_metrics.objects.over(policy.kind, policy.key, policy.version) as trip:
                    try:
                        await step(policy, running)
                    except ApiError as error:
                        if error.status in _REFUSED_CONTENT:
                            raise InvalidInput(str(error)) from error
                        raise
        except (Unavailable, TimeoutError) as error:
            self._failed(policy, error, window=window)
            return None
        if trip.error is not None:
            running.begin_anew()
            if window:
                self._schedule.failed(uid)
        else:
            self._said.pop(policy.key, None)
            if window:
                self._schedule.ended(uid)
        return trip

    async def _show(self, policy: ScalingSeen, trip: Trip) -> None:
        """Say in its status what a window tripped over; if even that fails, the metric and the log have it."""
        now = self._cluster.policies.get(policy.uid, policy)
        with self._all_metrics.objects.over(policy.kind, policy.key, policy.version):
            try:
                await self._runner.tell(now, self._running.setdefault(policy.uid, Running()), ScalingReason.INTERNAL_ERROR, trip.message)
            except Unavailable as error:
                self._say(policy.key, error)

    def _look_again(self, policy: ScalingSeen) -> None:
        now = self._cluster.policies.get(policy.uid, policy)
        in_s = None
        with self._all_metrics.objects.over(now.kind, now.key, now.version):
            in_s = look_every_s(now.spec) if now.spec is not None and looks(now, now.spec) else None
        self._schedule.look_in(policy.uid, in_s)

    def _failed(self, policy: ScalingSeen, error: Exception, *, window: bool) -> None:
        self._metrics.errors.labels(ScalingError.API).inc()
        if isinstance(error, TimeoutError):
            error = TimeoutError(f"it took longer than {_LONGEST_S:.0f} s")
            self._running.setdefault(policy.uid, Running()).begin_anew()
        if window:
            self._schedule.failed(policy.uid, getattr(error, "retry_after_s", None))
        self._say(policy.key, error)

    def _say(self, key: str, error: Exception) -> None:
        if self._said.get(key) != str(error):  # once: every try would say the same
            log.warning("a window failed, trying again", extra={"fields": {"policy": key, "error": str(error)}})
            self._said[key] = str(error)
            if len(self._said) > _SAID_MAX:
                self._said.popitem(last=False)

    def _first_in_s(self, policy: ScalingSeen) -> float:
        """A new leader goes on in its predecessor's rhythm: no second decision within one window."""
        last = policy.status.last_decision
        if last is None or policy.spec is None or last.phase == "Intended" or policy.status.observed_generation != policy.generation:
            return 0.0
        try:
            age_s = max(self._clock.now_s() - (timestamp_s(last.at) or 0.0), 0.0)
        except InvalidInput:
            return 0.0
        return max(policy.spec.interval_seconds - age_s, 0.0)

    def _next_s(self) -> float:
        unread = self._cluster.unread()
        waiting = [uid for uid, policy in self._cluster.policies.items() if policy.namespace in unread]
        return self._schedule.next_s((*self._turns.engaged(), *waiting), _IDLE_S)

    async def _sleep(self, at_most_s: float) -> None:
        self._watches.check()
        self._turns.check()
        self._beats.beat(LOOP)
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_S)
        self._changed.clear()

    def _policy_changed(self, uid: str) -> None:
        self._schedule.changed(uid)
        self._changed.set()

    def _recovered(self) -> None:
        self._schedule.recovered()
        self._changed.set()

    def _pod_changed(self, namespace: str) -> None:
        if near := self._cluster.uids_in(namespace):
            self._unaligned.update(near)
            self._changed.set()

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.errors.labels(ScalingError.WATCH).inc()
        if self._said.get(path) != str(error):
            log.warning("scaling cannot watch, trying again", extra={"fields": {"path": path, "error": str(error)}})
            self._said[path] = str(error)

    def _report(self) -> None:
        states, conflicts, decisions, latencies, rolled_back, partial = [], [], [], [], 0, 0
        for policy in self._cluster.policies.values():
            conditions = {c.type: c for c in policy.status.conditions}
            ready, conflict = conditions.get("Ready"), conditions.get("Conflict")
            states.append((policy.spec.mode if policy.spec is not None else "Invalid", ready.status if ready is not None else "Unknown"))
            if conflict is not None and conflict.status != "False":
                conflicts.append(conflict.reason)
            rolled_back += policy.status.memory.rolled_back is not None
            measured = conditions.get("MetricsAvailable")
            partial += measured is not None and measured.reason == ScalingReason.METRICS_PARTIAL
            last = policy.status.last_decision
            if last is not None and policy.spec is not None and policy.spec.mode != "Off":
                decisions.append(last)
                if last.window is not None and last.window.latency_milliseconds is not None:
                    latencies.append(last.window.latency_milliseconds / policy.spec.objective.latency_milliseconds)
        self._metrics.count(states, conflicts)
        self._metrics.sizes(decisions, latencies)
        self._metrics.rolled_back.set(rolled_back)
        self._metrics.partial.set(partial)

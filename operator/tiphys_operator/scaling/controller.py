"""Begins each ScalingPolicy's windows when due. It runs while the Lease is held, and is the only one that writes their statuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from tiphys_models.api.scaling_policy import SCALING_PATH
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.guard import Trip
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_operator.cluster.neighbours import Neighbours
from tiphys_operator.cluster.observed import Owner
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.records import Records
from tiphys_operator.runtime.turns import Turns
from tiphys_operator.runtime.watches import Watches
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.agents import AgentShelf, models_path
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import ScalingError, ScalingMetrics
from tiphys_operator.scaling.raising import look_every_s
from tiphys_operator.scaling.reach import Reach
from tiphys_operator.scaling.running import Case, Running
from tiphys_operator.scaling.schedule import Schedule
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.window import WindowRunner
from tiphys_operator.scaling.workload import Target, target_of

log = logging.getLogger(__name__)

LOOP = "scaling"
LATE_S = 180.0
"""Rounds come every minute at the latest, and wait for nobody."""
_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_IDLE_S = 60.0
_SETTLE_S = 0.2
"""Pods come in bunches: one look for all of them."""
_AT_ONCE, _OF_ONE_NAMESPACE = 32, 16
"""Windows side by side. Nearly all of a window is waiting for Prometheus and the API server: a thousand policies with windows of 15 s
need 67 a second, and with so many places each may take half a second."""
_REPORT_S = 1.0
"""Between two sums over all policies, for the metrics."""
_LONGEST_S = 120.0
"""The longest that a window's work may take. What it has not finished by then, its recorded intent tells the next window."""
_MODELS_S = 5.0
_READ_AGAIN_S = 5.0
_RHYTHM_S = 30 * 86_400.0
"""What was decided before that says nothing about when the next window is due."""
_SAID_MAX = 1024
_REFUSED_CONTENT = (400, 413, 422)
"""What the API server says of a body that it cannot take: the object's fault, not the server's."""


class ScalingController:
    """Watches policies from the start, pods and nodes once there is a policy: nobody else needs those rights."""

    def __init__(
        self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, shelf: AgentShelf, transitions: TransitionLog,
        prometheus: PrometheusClient | None = None, reach: Reach | None = None, keys: IntentKeys | None = None, *,
        beats: Heartbeats | None = None, rng: random.Random | None = None, watch: ClusterWatch | None = None,
        records: Records | None = None,
    ) -> None:  # fmt: skip
        self._client, self._all_metrics, self._metrics, self._clock = client, metrics, metrics.part(ScalingMetrics), clock
        self._beats = beats if beats is not None else Heartbeats(clock)
        self._owns_watch = watch is None
        self._watch = watch or ClusterWatch(client, clock, metrics, self._beats)
        self._cluster, self._shelf = ScalingCluster(self._watch.observed), shelf
        self._changed = asyncio.Event()
        self._cluster.on_change, self._cluster.on_listed = self._policy_changed, self._recovered
        self._cluster.observed.on_pod.append(self._pod_changed)
        self._watch.on_error.append(self._watch_failed)
        self._watch.on_end.append(self._changed.set)
        self._watches = Watches(LOOP, client, clock, metrics, self._beats, self._watch_failed, self._changed.set)
        reach = reach or Reach(shelf.namespace)
        self._neighbours: Neighbours[Target] | None = None
        if not reach.allowed:  # the right to look into a few namespaces is no right to watch them all
            self._neighbours = Neighbours(client, clock, metrics, self._beats, self._cluster.observed, target_of)
        hands = Hands(client, writer, metrics, clock, self._neighbours)
        self._runner = WindowRunner(
            hands, writer, self._cluster, prometheus, self._metrics, clock, shelf, transitions, self._cluster.policy_written, reach,
            keys or IntentKeys(), records,
        )  # fmt: skip
        self._running: dict[str, Running] = {}
        self._rng = rng if rng is not None else random.Random()  # noqa: S311 - jitter
        self._schedule = Schedule(clock, self._rng)
        self._turns = Turns(_AT_ONCE, _OF_ONE_NAMESPACE, self._changed.set)
        self._unaligned: set[str] = set()
        """Policies near which a pod has changed."""
        self._said: OrderedDict[str, str] = OrderedDict()
        self._report_s, self._unreported = -math.inf, False
        """When the sums may be made again, and whether something has happened since."""
        self._metrics.overdue.set_function(lambda: self._schedule.late()[0])
        self._metrics.overdue_s.set_function(lambda: self._schedule.late()[1])
        metrics.pods_kept.labels(LOOP).set_function(self._cluster.observed.pods_kept)

    async def run(self) -> None:
        """Windows are run until the task is cancelled or the Lease is lost."""
        self._beats.expect(LOOP, LATE_S)
        self._watches.start("ScalingPolicy", SCALING_PATH, self._cluster.store)
        try:
            while not self._cluster.policies:
                await self._sleep(_IDLE_S)
            models = self._watches.start("LearnedModel", models_path(self._shelf.namespace), self._shelf)
            if self._neighbours is not None:
                self._neighbours.start()
            await self._watch.ready()
            # without the kind or the right, what was decided with last, or what ships, decides
            await self._watches.synced(models, at_most_s=_MODELS_S)
            self._beats.expect(LOOP, LATE_S, fatal=True)
            while True:
                self._round()
                await self._sleep(self._next_s())
        finally:
            await self._turns.close()
            await self._watches.close()
            if self._neighbours is not None:
                await self._neighbours.close()
            if self._owns_watch:
                await self._watch.close()
            self._beats.forget(LOOP)

    def _round(self) -> None:
        """Begin what is due; nobody waits for anybody else's window."""
        self._unreported = self._clock.monotonic_s() < self._report_s
        if not self._unreported:
            self._report_s = self._clock.monotonic_s() + _REPORT_S
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
        unread = self._cluster.observed.unread()
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
                            self._cluster.observed.read(obj)
        except (Unavailable, TimeoutError) as error:
            self._metrics.errors.labels(ScalingError.API).inc()
            self._say(path, error)
            await asyncio.sleep(_READ_AGAIN_S * self._rng.uniform(1.0, 1.25))
        else:
            self._cluster.observed.have_read(namespace)

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
            in_s = look_every_s(now.spec) if now.spec is not None and Case(now, now.spec, Running()).looks else None
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
        if age_s > _RHYTHM_S:
            return 0.0
        # the windows since had nothing new to tell: their rhythm goes on
        return float(policy.spec.interval_seconds - age_s % policy.spec.interval_seconds)

    def _next_s(self) -> float:
        unread = self._cluster.observed.unread()
        waiting = [uid for uid, policy in self._cluster.policies.items() if policy.namespace in unread]
        next_s = self._schedule.next_s((*self._turns.engaged(), *waiting), _IDLE_S)
        return min(next_s, _REPORT_S) if self._unreported else next_s

    async def _sleep(self, at_most_s: float) -> None:
        self._watches.check()
        self._watch.check()
        if self._neighbours is not None:
            self._neighbours.check()
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
        self._watch.has_said(LOOP)
        self._schedule.recovered()
        self._changed.set()

    def _pod_changed(self, owner: Owner) -> None:
        if near := self._cluster.uids_of(owner):
            self._unaligned.update(near)
            self._changed.set()

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.errors.labels(ScalingError.WATCH).inc()
        if self._said.get(path) != str(error):
            log.warning("scaling cannot watch, trying again", extra={"fields": {"path": path, "error": str(error)}})
            self._said[path] = str(error)

    def _report(self) -> None:
        states, conflicts, decisions, latencies, rolled_back, partial = [], [], [], [], 0, 0
        for seen in self._cluster.policies.values():
            policy = self._running[seen.uid].unwritten.latest(seen) if seen.uid in self._running else seen
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

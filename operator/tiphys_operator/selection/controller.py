"""The controller of the interval loop: watches, clock, checkpoint, plans. The candidate is chosen in `interval`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tiphys_models.api.learned_model import PLURAL as MODELS
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.routing import Route, Router
from tiphys_models.api.selection import SelectionStatus, SelectorName, SelectSpec
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import ArtifactRefused, TiphysError, Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.guard import said
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.seats.record import ended
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.metrics import OperatorMetrics, SelectionError
from tiphys_operator.placement.observation import PolicySeen, SelectionSeen
from tiphys_operator.records import Records, make_records
from tiphys_operator.runtime.pace import SoonAgain, again_in_s
from tiphys_operator.runtime.thinking import Thinking
from tiphys_operator.runtime.turns import Turns
from tiphys_operator.runtime.watches import Watches
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.selection.checkpoint import Checkpoint
from tiphys_operator.selection.chooser import Chooser, chooser_key
from tiphys_operator.selection.interval import Result, View, run_interval
from tiphys_operator.selection.memory import Memory
from tiphys_operator.selection.prices import PriceTable
from tiphys_operator.selection.publisher import Publisher
from tiphys_operator.selection.records import record_of
from tiphys_operator.selection.weights import names_in, weights_for
from tiphys_operator.served_models import ServedModels, models_path

log = logging.getLogger(__name__)

LOOP = "selection"
LATE_S = 180.0
_IDLE_S = 60.0
_MODELS_S = 5.0
_AGAIN_S = 1.0
_AT_ONCE = 3
"""Intervals that think side by side: planners fill a core each."""
_LONGEST_S, _LONGEST_QUICK_S = 60.0, 4.0
"""The longest that one interval's computing may take. Planners take milliseconds to seconds; one that takes longer is ended."""
_QUICK_S, _FADING, _REST_TIMES = 1.0, 0.9, 4.0
"""A policy that computes longer shares a place with all that do, and rests in proportion; that fades over some ten quick intervals."""
_NOT_FOUND = 404
_RECORDED_MAX = 128
"""Decisions whose end is waited for; after ninety intervals they are settled as they stand."""
_LEARNED = (SelectorName.METANET, SelectorName.DQN)
_JUDGED = set(ChoiceReason) - {ChoiceReason.FIRST, ChoiceReason.NOTHING_TO_PLACE, ChoiceReason.NO_USABLE_NODE}


@dataclass(slots=True)
class _Policy:
    """One policy with `select`, between its intervals."""

    seen: PolicySeen
    route: Route
    due_s: float
    """The monotonic time of the next interval."""
    memory: Memory | None = None
    chooser: Chooser | None = None
    told: SelectionSeen | None = None
    """What may be said: the last choice whose plan is published."""
    problem: str = ""
    """Why the last interval came to nothing."""
    failures: int = 0
    """Failed intervals in a row."""
    thinks_s: float = _LONGEST_S
    """Seconds of a core that intervals took of late."""
    recorded: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Numbers in the log of decisions whose pods may still run."""
    proven: bool = False
    """Whether an interval has ended: nobody is quick before it has shown that it is."""

    @property
    def slow(self) -> bool:
        """Whether others should not wait for it."""
        return self.thinks_s > _QUICK_S


class SelectionController:
    """Runs while the Lease is held."""

    def __init__(
        self, client: KubeClient, writer: Writer, checkpoint: Checkpoint, prices: PriceTable, metrics: OperatorMetrics, clock: Clock,
        *, own_namespace: str, scheduler_name: str, prometheus: PrometheusClient | None = None,
        beats: Heartbeats | None = None, rng: random.Random | None = None, watch: ClusterWatch | None = None,
        models: ServedModels | None = None,
        records: Records | None = None,
    ) -> None:  # fmt: skip
        self._models = models
        self._records = records if records is not None else make_records()
        self._publisher, self._checkpoint, self._prices = Publisher(client, writer, metrics), checkpoint, prices
        self._metrics, self._clock, self._scheduler_name = metrics, clock, scheduler_name
        self._own_namespace, self._prometheus = own_namespace, prometheus
        self._beats = beats if beats is not None else Heartbeats(clock)
        self._soon, self._rng = SoonAgain(clock), rng if rng is not None else random.Random()  # noqa: S311 - jitter
        self._router = Router((), own_namespace)
        self._changed = asyncio.Event()
        self._owns_watch = watch is None
        self._watch = watch or ClusterWatch(client, clock, metrics, self._beats)
        self._cluster = self._watch.observed
        self._watch.on_error.append(self._watch_failed)
        self._watch.on_end.append(self._changed.set)
        self._watches = Watches(LOOP, client, clock, metrics, self._beats, self._watch_failed, self._changed.set)
        self._turns = Turns(_AT_ONCE, 1, self._changed.set)
        # rests are this controller's own: slow policies share a place
        self._thinking = Thinking(LOOP, clock, _LONGEST_S, rest_times=0.0)
        self._blocked = ""
        """Why no interval can begin."""
        self._policies: dict[str, _Policy] = {}
        self._living: set[str] = set()
        """All policies there are: one that is Off for a while forgets nothing."""
        metrics.selection_overdue.set_function(self.overdue_s)
        metrics.pods_kept.labels(LOOP).set_function(lambda: len(self._cluster.pods))
        self.on_news: Callable[[], None] = lambda: None
        """Called when a status should be written."""

    def see(self, policies: Sequence[PolicySeen]) -> None:
        """The policies there are now; another spec is chosen for at once."""
        self._router = Router([p.route for p in policies if p.route is not None], self._own_namespace)
        self._living = {p.uid for p in policies}
        wanted = {
            p.uid: p for p in policies if p.route is not None and p.route.spec.select is not None and not p.deleting and p.mode != "Off"
        }
        for uid in set(self._policies) - set(wanted):
            del self._policies[uid]
        for uid, seen in wanted.items():
            known, route = self._policies.get(uid), seen.route
            if route is None:
                continue
            if known is None:
                self._policies[uid] = _Policy(seen, route, self._clock.monotonic_s())
                self._changed.set()
            else:
                if known.route.generation != route.generation:
                    known.due_s = self._clock.monotonic_s()
                    self._changed.set()
                known.seen, known.route = seen, route

    def found(self) -> Mapping[str, SelectionSeen]:
        """What statuses should say, by policy key."""
        return {p.seen.key: self._found(p) for p in self._policies.values()}

    def _found(self, policy: _Policy) -> SelectionSeen:
        told, select = policy.told, policy.route.spec.select
        if told is None or select is None:
            return SelectionSeen("", 0, None, policy.problem or self._blocked)
        types = {node.instance_type for node in self._cluster.nodes.values() if node.usable}
        unpriced = tuple(sorted(kind or "without a type" for kind in types if not self._prices.knows(kind)))
        return replace(told, problem=policy.problem, frozen=select.freeze, unpriced=unpriced, unjudged=_unjudged(select, told.status))

    async def run(self) -> None:
        """Intervals are run until the task is cancelled or the Lease is lost."""
        self._beats.expect(LOOP, LATE_S)
        try:
            while not self._policies:
                await self._sleep(_IDLE_S)
            await self._checkpoint_read()
            # only now: without `select` nobody needs the right to watch pods and nodes
            await self._watch.ready(finished=True)
            if self._models is not None:
                published = self._watches.start("LearnedModel", models_path(self._models.namespace), self._models)
                # not for ever: without the kind or the right, what ships decides. An interval before would forget what was learned beside
                # published weights
                await self._watches.synced(published, at_most_s=_MODELS_S)
            self._beats.expect(LOOP, LATE_S, fatal=True)
            while True:
                self._due()
                await self._sleep(self._next_s())
        finally:
            await self._turns.close()
            await self._watches.close()
            if self._owns_watch:
                await self._watch.close()
            self._beats.forget(LOOP)

    def overdue_s(self) -> float:
        """How long the interval that should have begun first has been waiting, or running."""
        now_s = self._clock.monotonic_s()
        return max((now_s - p.due_s for p in self._policies.values()), default=0.0)

    def _next_s(self) -> float:
        now_s = self._clock.monotonic_s()
        times = (p.due_s - now_s for uid, p in self._policies.items() if not self._turns.busy(uid))
        return max(min(min(times, default=_IDLE_S), _IDLE_S), 0.0)

    def _due(self) -> None:
        now_s = self._clock.monotonic_s()
        for uid, policy in sorted(self._policies.items(), key=lambda item: item[1].due_s):
            if policy.due_s <= now_s:
                self._turns.start(uid, policy.route.namespace, partial(self._turn, uid, policy), slow=policy.slow)
        self._metrics.active_candidates([p.memory.active for p in self._policies.values() if p.memory is not None])
        self._metrics.selection_failing.set(sum(bool(p.problem) for p in self._policies.values()))

    async def _turn(self, uid: str, policy: _Policy) -> None:
        """One interval of one policy; no other policy notices its failures."""
        now_s, select = self._clock.monotonic_s(), policy.route.spec.select
        if select is None or self._policies.get(uid) is not policy:
            return
        policy.due_s = max(policy.due_s + select.interval_seconds, now_s + select.interval_seconds / 2)
        result: Result | None = None
        failure: Exception | None = None
        try:
            with self._metrics.objects.over(policy.seen.kind, policy.seen.key, policy.seen.version) as trip:
                try:
                    result = await self._interval(uid, policy)
                except (ArtifactRefused, TimeoutError) as error:
                    failure = error  # no object's doing: weights, or a planner
            failure = trip.error if trip.error is not None else failure
        except Unavailable as error:
            failure = error
        if result is None or failure is not None:
            self._fail(policy, select, failure)
        else:
            policy.problem, policy.failures = _selector_problem(result), 0
            with self._metrics.objects.over(policy.seen.kind, policy.seen.key, policy.seen.version):
                self._count(result)
                self._record(policy, select, result)
        self.on_news()

    async def _interval(self, uid: str, policy: _Policy) -> Result:
        route, select = policy.route, policy.route.spec.select
        if select is None:
            raise ValueError("a policy without select has no interval")
        busy = await self._busy_cores()
        try:
            async with asyncio.timeout(_LONGEST_S if policy.slow else _LONGEST_QUICK_S):
                memory, result = await self._think(uid, policy, route, select, busy)
        except BaseException as error:
            if isinstance(error, TimeoutError):
                policy.thinks_s, policy.proven = _LONGEST_S, True
            # half of an interval may be in them, and a thread that ran away still writes: what was saved last counts
            policy.memory = policy.chooser = None
            raise
        if self._policies.get(uid) is not policy:
            return result  # deleted, or selects no more: nothing of it is to be found again
        # first what must survive, then what others obey: killed in between, the next leader knows of the decision
        await self._save(uid, memory)
        if result.plan is not None:
            await self._publisher.publish(policy.seen, result.plan)
        policy.told = SelectionSeen(memory.active, route.generation, memory.status)
        return result

    async def _think(self, uid: str, policy: _Policy, route: Route, select: SelectSpec, busy: Mapping[str, float]) -> tuple[Memory, Result]:
        """One interval's computing, in threads because the Lease must be renewed meanwhile."""
        memory = policy.memory if policy.memory is not None else self._checkpoint.memory(uid)
        policy.memory = memory
        if self._models is not None:
            await self._models.refresh(names_in(select))
        weights = weights_for(self._models, select, route.spec.mode)
        asked = f"{route.namespace}/{route.name} of generation {route.generation}"  # of another spec others may be asked
        key = chooser_key(select, weights)
        if policy.chooser is None or policy.chooser.key != key:
            learned = memory.learned if memory.chooser == key else ""
            policy.chooser = (await self._thinking.ask(uid, asked, partial(Chooser, select, learned, weights))).found
        policy.chooser.models = weights
        nodes, pods = dict(self._cluster.nodes), dict(self._cluster.pods)
        view = View(nodes, pods, self._prices.host_types(nodes.values()), self._router, busy)
        now_s, chooser = self._clock.now_s(), policy.chooser
        work = partial(run_interval, memory, route, select, self._scheduler_name, chooser, view, now_s)
        thought = await self._thinking.ask(uid, asked, work)
        # one quick interval is enough to begin with; who was slow among them stays so for a while
        former_s = policy.thinks_s * _FADING if policy.proven else 0.0
        policy.thinks_s, policy.proven = max(thought.cpu_s, former_s), True
        if policy.slow:
            policy.due_s = max(policy.due_s, self._clock.monotonic_s() + _REST_TIMES * thought.cpu_s)
        return memory, thought.found

    async def _busy_cores(self) -> Mapping[str, float]:
        """Empty while Prometheus does not answer: then what pods request counts."""
        if self._prometheus is None:
            return {}
        try:
            return await self._prometheus.busy_cores()
        except Unavailable as error:
            self._metrics.selection_error(SelectionError.PROMETHEUS)
            log.debug("CPU use could not be read", extra={"fields": {"error": str(error)}})
            return {}

    async def _save(self, uid: str, memory: Memory) -> None:
        try:
            await self._checkpoint.save(uid, memory, self._living)
        except Unavailable as error:
            self._metrics.selection_error(SelectionError.CHECKPOINT)
            log.warning("what selection has learned could not be saved", extra={"fields": {"error": str(error)}})

    async def _checkpoint_read(self) -> None:
        while True:
            try:
                await self._checkpoint.read()
            except Unavailable as error:
                if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                    return
                self._metrics.selection_error(SelectionError.CHECKPOINT)
                self._blocked = f"what was learned cannot be read: {error}"
                log.warning("what selection has learned could not be read, trying again", extra={"fields": {"error": str(error)}})
                self.on_news()
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _sleep(self, at_most_s: float) -> None:
        self._watches.check()
        self._watch.check()
        self._turns.check()
        self._beats.beat(LOOP)
        try:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def _count(self, result: Result) -> None:
        m = self._metrics
        m.selection_intervals.labels(str(result.reason)).inc()
        m.selection_switches.inc(int(result.switched))
        m.selection_usd.inc(result.spent.usd)
        m.selection_joules.inc(result.spent.joules)
        m.selection_pods.inc(result.spent.ended)
        m.selection_late.inc(result.spent.late)
        for promised, measured in result.learned:
            m.selection_learned.inc()
            if promised is not None:
                m.selection_predicted.inc(max(promised, 0.0))
                m.selection_measured.inc(max(measured, 0.0))

    def _record(self, policy: _Policy, select: SelectSpec, result: Result) -> None:
        """What was decided goes into the log, and how former decisions have ended."""
        for ending in result.endings:
            if (seq := policy.recorded.pop(ending.decision, None)) is not None:
                ended(self._records, seq, ending.how)
            if ending.cost is not None:
                self._metrics.selection_seat.ended(ending.group, ending.cost)
        record = record_of(policy.route, select, result, self._clock.now_s())
        if record is None or (chosen := result.decision.chosen) is None:
            return
        answered = chosen.answered
        self._metrics.selection_seat.answered(answered.outcome, answered.group, answered.reason, same=result.decision.agreed)
        self._metrics.selection_seat.weights(answered.by, answered.digest, record.at_s)
        if answered.missing:
            self._metrics.selection_error(SelectionError.CHOICE)
        policy.recorded[result.memory.interval] = self._records.append(record)
        while len(policy.recorded) > _RECORDED_MAX:
            policy.recorded.popitem(last=False)

    def _fail(self, policy: _Policy, select: SelectSpec, failure: Exception | None) -> None:
        outside = isinstance(failure, Unavailable)
        self._metrics.selection_error(SelectionError.API if outside else SelectionError.CHOICE)
        why = (
            f"{type(failure).__name__}: {failure}" if isinstance(failure, TiphysError | TimeoutError) else said(failure or ValueError())
        )[:500]
        if policy.problem != why:  # once: every interval would say the same
            log.warning("no choice in this interval", extra={"fields": {"policy": policy.seen.key, "error": why}})
        policy.problem = why
        policy.failures += 1
        retry_after_s: float | None = getattr(failure, "retry_after_s", None)
        pause_s = again_in_s(policy.failures, float(select.interval_seconds), retry_after_s, self._soon, self._rng)
        policy.due_s = self._clock.monotonic_s() + pause_s

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.selection_error(SelectionError.WATCH)
        if not path.endswith(f"/{MODELS}"):  # without those, what ships decides
            self._blocked = f"{path}: {error}; the operator needs list and watch on nodes and pods"
        log.warning("selection cannot watch, trying again", extra={"fields": {"path": path, "error": str(error)}})


def _selector_problem(result: Result) -> str:
    """Why the rule's candidate decides although it was the selector's turn; empty: it does not."""
    chosen = result.decision.chosen
    if chosen is None or not chosen.answered.missing:
        return ""
    return f"the selector failed ({chosen.answered.missing}), the rule's candidate decides; the operator's log names the kind of error"


def _unjudged(select: SelectSpec, status: SelectionStatus | None) -> tuple[str, ...]:
    """Candidates of which a learned selector says nothing. Others need time for all of them, or say something of any."""
    if status is None or select.by not in _LEARNED or status.reason not in _JUDGED:
        return ()
    judged = {predicted.candidate for predicted in status.predicted_cost}
    return tuple(name for name in select.among if name not in judged)

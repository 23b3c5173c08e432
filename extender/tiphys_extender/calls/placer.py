"""Places calls: the extender's decision, reserved under a lease until the caller says that the call is over."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from tiphys_extender.calls.functions import FunctionNames
from tiphys_extender.calls.leases import CallLease, Leases
from tiphys_extender.calls.pool import Pool, with_room
from tiphys_extender.calls.requests import Ended, PlaceCall, Report
from tiphys_extender.calls.waiting_room import ASK_AGAIN_S, Ticket, WaitingRoom
from tiphys_extender.placement.answer import Answerer, AnswerLimits
from tiphys_extender.placement.decide import Decision, Ranking, World, decide
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.explain import explain
from tiphys_extender.placement.patience import wanted_wait
from tiphys_extender.serve.caller_metrics import CallerMetrics
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.serve.wire import segments
from tiphys_models.api.reasons import NeutralReason
from tiphys_models.base.clock import Clock
from tiphys_models.base.facts import FUNCTION_LABEL, PodFacts
from tiphys_models.placement.placed import UNSEEN, CallEnd
from tiphys_models.placement.waiting import LONGEST_S, NotYet

_log = logging.getLogger(__name__)
_UID = re.compile(r"call-[0-9a-f]{32}")

NO_OPINION = (
    "Tiphys has no opinion on this call and has reserved nothing: place it as you would without Tiphys. "
    "To have it counted, say where it runs: POST started with node, namespace, function, cpu and memory."
)
UNKNOWN = (
    "no such placement is open: its lease ran out, or the binder has restarted. "
    "To have the call counted again, send node, namespace, function, cpu and memory with it."
)
NOT_YET = "not-yet"
"""Outcome of a call that had better wait."""
WAIT = (
    "An instance of this function is expected to be free sooner than one could be started. Send the same request again, with the same "
    "idempotencyKey, after askAgainSeconds: the call keeps its place. Send it without waitSeconds to get a node at once."
)
NOT_KEPT = "Its decision is no longer kept, or another process took it; the call is counted as its caller reported it."
LARGER = "the call asks for more cpu or memory than the node has in all: nothing is booked"
SHARE = "this tenant's open calls would take more than its share of the pool's {}: finish some, or wait until their leases run out"


def new_uid() -> str:
    """Never a pod's uid: calls and pods live in one table."""
    return f"call-{token_hex(16)}"


class Placer:
    """All that callers may ask. Runs on the event loop, one call after the other."""

    def __init__(
        self,
        world: World,
        answerer: Answerer,
        decisions: DecisionLog,
        pool: Pool,
        leases: Leases,
        metrics: CallerMetrics,
        clock: Clock,
        limits: AnswerLimits,
        make_uid: Callable[[], str] = new_uid,
    ) -> None:
        self._world, self._answerer, self._decisions = world, answerer, decisions
        self._pool, self._leases, self._metrics, self._clock, self._limits = pool, leases, metrics, clock, limits
        self._make_uid = make_uid
        self._functions = FunctionNames()
        self._room = WaitingRoom()
        self._unsized: dict[str, str] = {}
        """Node by uid, of open calls on nodes that nobody has shown yet."""
        self.owned: Callable[[], bool] = lambda: True
        """Whether this process answers for the pool: it holds its Lease, or there is none."""

    def admit(self) -> None:
        """Refused while another process answers."""
        if not self.owned():
            raise Refused("standby", "another process places the calls of this pool: try again there, or here later", retry_after_s=1)

    def stand_by(self) -> None:
        """Another process answers: what this one has booked is old from now on, and callers tell the other one."""
        self.owned = lambda: False
        self._unsized.clear()
        self._room.clear()
        for lease in self._leases.forget():
            self._world.state.finished(lease.uid)

    def place(self, tenant: Tenant, call: PlaceCall) -> dict[str, Any]:
        """Decide and reserve; a neutral outcome reserves nothing, and neither does "not yet"."""
        _check(tenant, call.namespace)
        clock = self._clock
        began_s = clock.monotonic_s()
        ticket = self._room.find(tenant.name, call.idempotency_key)
        uid = self._make_uid() if ticket is None else ticket.uid
        names, left_out = self._candidates(call)
        able = self._pool.sizes.holding(names, call.cpu, call.memory)
        names = list(able) or names
        decision = self._decide(uid, call, names, began_s + self._limits.deadline_s)
        ranking = decision.ranking
        reserved = ranking is not None and decision.reserves
        function = f"{call.namespace}/{call.function}"
        if reserved:
            if not able:
                raise Refused("larger-than-node", LARGER)
            if (wait := self._wait(tenant, call, ticket, decision, began_s)) is not None:
                return self._held(uid, tenant, call, ticket, decision, wait, began_s)
            self._allow(tenant, function, call.cpu, call.memory)
        waited = {} if ticket is None else {"waitedSeconds": self._let_go(ticket, call, decision)}
        self._metrics.outside_pool.inc(left_out)
        self._answerer.conclude(decision, clock.monotonic_s() - began_s)
        answer = _described(uid, decision, left_out)
        answer |= waited
        if ranking is None or not reserved:
            return answer | {"reserved": False, "node": None, "nodes": [], "message": NO_OPINION}
        node = names[ranking.best_first[0]]
        lease = CallLease(uid, tenant.name, call.namespace, function, call.cpu, call.memory, node)
        self._bind(lease)
        self._leases.add(lease, clock.monotonic_s())
        return answer | {"reserved": True, "node": node, "nodes": _ranked(ranking, names, call.limit), "leaseSeconds": self._leases.lease_s}

    def _wait(self, tenant: Tenant, call: PlaceCall, ticket: Ticket | None, decision: Decision, now_s: float) -> NotYet | None:
        """What waiting is expected to bring this call; None if it goes now."""
        ranking, request = decision.ranking, decision.request
        longest_s = min(call.wait_seconds, LONGEST_S)
        if ranking is None or request is None or not longest_s or (ticket is not None and now_s - ticket.since_s >= longest_s):
            return None
        if ticket is None and not self._room.has_room(tenant.name, request.function, tenant.caps.max_open):
            return None
        try:
            return wanted_wait(self._world, request, ranking, self._room.before(request.function, ticket))
        except Exception as error:  # noqa: BLE001 - a call goes now where nobody can say whether it had better wait
            _log.error("policy failed", extra={"fields": {"policy": ranking.policy.name, "error": type(error).__name__}})
            return None

    def _held(
        self, uid: str, tenant: Tenant, call: PlaceCall, ticket: Ticket | None, decision: Decision, wait: NotYet, now_s: float
    ) -> dict[str, Any]:
        if ticket is None:
            ticket = self._room.enter(tenant.name, call.idempotency_key or "", uid, f"{call.namespace}/{call.function}", now_s)
            self._metrics.held.inc()
        ticket.asked_s = now_s
        return _described(uid, decision, 0) | {
            "outcome": NOT_YET,
            "reserved": False,
            "node": None,
            "nodes": [],
            "awaitedSeconds": round(wait.awaited_s, 3),
            "savesSeconds": round(wait.saved_s, 3),
            "waitedSeconds": round(now_s - ticket.since_s, 3),
            "askAgainSeconds": ASK_AGAIN_S,
            "message": WAIT,
        }

    def _let_go(self, ticket: Ticket, call: PlaceCall, decision: Decision) -> float:
        """A call that has waited goes, before it is reserved; how long it has waited."""
        waited_s = self._clock.monotonic_s() - ticket.since_s
        self._room.leave(ticket.tenant, call.idempotency_key or "")
        self._metrics.held_s.inc(waited_s)
        ranking, request = decision.ranking, decision.request
        warm = False
        if ranking is not None and request is not None and decision.reserves:
            warm = bool(self._world.state.beliefs.books.warm(request.function, ranking.rows[ranking.best_first[:1]])[0])
        self._metrics.held_ended["warm" if warm else "cold"].inc()
        return round(waited_s, 3)

    def report(self, tenant: Tenant, uid: str, report: Report) -> dict[str, Any]:
        """The call still runs, or runs there: its lease starts anew. What was forgotten is learnt again from the report."""
        lease, now_s = self._own(tenant, uid), self._clock.monotonic_s()
        relearnt = lease is None
        if lease is None:
            lease = self._relearn(tenant, uid, report)
        elif report.node is not None and report.node != lease.node:
            self._fits(report.node, lease.cpu_milli, lease.memory_bytes)
            lease.node = report.node
            self._bind(lease)
        self._decisions.bound(uid, lease.node)
        self._leases.renew(lease, now_s)
        self._functions.renewed(lease.tenant, lease.function, now_s)
        return {"id": uid, "node": lease.node, "relearnt": relearnt, "leaseSeconds": self._leases.lease_s}

    def finished(self, tenant: Tenant, uid: str, ended: Ended | None = None) -> dict[str, Any]:
        """The call is over, and was like this. Saying so twice, or of a call that is not known, does no harm."""
        lease = self._own(tenant, uid)
        released = lease is not None
        if lease is not None:
            self._decisions.bound(uid, lease.node)
            self._world.state.ran(uid, self._clock.now_s(), UNSEEN if ended is None else _seen(ended))
        if _UID.fullmatch(uid) and (released or self._leases.get(uid) is None):
            self._leases.finish(tenant.name, uid)
        self._metrics.finished["released" if released else "unknown"].inc()
        return {"id": uid, "released": released}

    def explain(self, tenant: Tenant, uid: str) -> dict[str, Any]:
        """Why this node, and whether it still counts there."""
        lease = self._own(tenant, uid)
        records = self._decisions.of_uid(uid)
        if lease is None and not (records and tenant.may(records[-1].namespace)):
            raise Refused("unknown-placement", "nothing is kept about this placement")
        left_s = lease.expires_s - self._clock.monotonic_s() if lease is not None else None
        return {
            "id": uid,
            "open": lease is not None,
            "node": lease.node if lease is not None else None,
            "leaseSecondsLeft": None if left_s is None else round(max(left_s, 0.0), 1),
            **(explain(self._decisions, records, 0.0) if records else {"asked": False, "message": NOT_KEPT}),
        }

    def tick(self) -> None:
        """Leases run out, gauges are set."""
        now_s = self._clock.monotonic_s()
        over = self._leases.expire(now_s)
        for lease in over:
            self._world.state.finished(lease.uid)
        self._unsized = {uid: node for uid, node in self._unsized.items() if self._leases.get(uid) is not None}
        self._cut_to_size()
        self._functions.tick(now_s)
        if over:
            self._metrics.expired.inc(len(over))
            _log.warning("leases ran out", extra={"fields": {"placements": len(over), "one": over[0].uid}})
        self._metrics.open.set(len(self._leases))
        self._metrics.held_ended["gone"].inc(self._room.silent(now_s))
        self._metrics.waiting.set(len(self._room))
        self._metrics.active.set(self.owned())
        self._metrics.pool_nodes.set(len(self._pool.labels))
        self._metrics.both_doors.set(self._pool.touched_by_both())

    def _candidates(self, call: PlaceCall) -> tuple[list[str], int]:
        """Names to judge, and how many were left out because they are not in the pool."""
        if call.selector is not None:
            return with_room(self._world, self._pool.matching(call.selector.compiled()), call.cpu, call.memory), 0
        names = self._pool.within(call.candidates or ())
        return names, len(set(call.candidates or ())) - len(names)

    def _decide(self, uid: str, call: PlaceCall, names: list[str], deadline_s: float) -> Decision:
        if len(names) > self._limits.max_names:
            return Decision("neutral", NeutralReason.TOO_MANY_NAMES, None, None, None, names, None)
        clock = self._clock
        try:
            pod = _as_pod(uid, call, self._world.scheduler_name)
            now_s = clock.now_s()
            self._world.state.tick(now_s)  # some policies look at the age of what they see
            return decide(self._world, pod, names, now_s, lambda: clock.monotonic_s() < deadline_s)
        except Exception as error:  # noqa: BLE001 - no opinion beats no answer, whatever went wrong
            _log.error("decision failed", extra={"fields": {"namespace": call.namespace, "error": type(error).__name__}})
            return Decision("neutral", NeutralReason.INTERNAL_ERROR, None, None, None, names, None)

    def _own(self, tenant: Tenant, uid: str) -> CallLease | None:
        """The open placement, unless it is somebody else's: to strangers it does not exist."""
        lease = self._leases.get(uid)
        return lease if lease is not None and tenant.may(lease.namespace) else None

    def _relearn(self, tenant: Tenant, uid: str, report: Report) -> CallLease:
        if self._leases.was_finished(tenant.name, uid):
            raise Refused("finished", "this placement was finished; a new call needs a new placement")
        complete = report.node is not None and report.namespace is not None and report.function is not None
        if not complete or not _UID.fullmatch(uid) or self._leases.get(uid) is not None:
            raise Refused("unknown-placement", UNKNOWN)
        namespace = report.namespace or ""
        _check(tenant, namespace)
        node, function = report.node or "", f"{namespace}/{report.function}"
        self._fits(node, report.cpu, report.memory)
        self._allow(tenant, function, report.cpu, report.memory)
        lease = CallLease(uid, tenant.name, namespace, function, report.cpu, report.memory, node)
        self._bind(lease)
        self._leases.add(lease, self._clock.monotonic_s())
        self._metrics.relearned.inc()
        return lease

    def _fits(self, node: str, cpu_milli: int, memory_bytes: int) -> None:
        if not self._pool.sizes.holds(node, cpu_milli, memory_bytes):
            raise Refused("larger-than-node", LARGER)

    def _allow(self, tenant: Tenant, function: str, cpu_milli: int, memory_bytes: int) -> None:
        """Whether this tenant may open one more, of this function and size."""
        caps, sizes, now_s = tenant.caps, self._pool.sizes, self._clock.monotonic_s()
        if self._leases.full_for(tenant.name, caps.max_open):
            raise Refused("too-many-open", "too many placements are open: finish some, or wait until their leases run out", retry_after_s=1)
        held = self._leases.held_by(tenant.name)
        if caps.share is not None and sizes.cpu_milli:  # without any node known yet nobody knows what a share is
            if cpu_milli and held.cpu_milli + cpu_milli > caps.share * sizes.cpu_milli:
                raise Refused("too-many-cores", SHARE.format("cores"), retry_after_s=1)
            if memory_bytes and held.memory_bytes + memory_bytes > caps.share * sizes.memory_bytes:
                raise Refused("too-much-memory", SHARE.format("memory"), retry_after_s=1)
        self._functions.use(tenant, function, now_s)

    def _cut_to_size(self) -> None:
        """What was learnt before its node was known takes no more than the node has."""
        for uid in [uid for uid, node in self._unsized.items() if self._pool.sizes.of(node) is not None]:
            del self._unsized[uid]
            lease = self._leases.get(uid)
            if lease is None or self._pool.sizes.holds(lease.node, lease.cpu_milli, lease.memory_bytes):
                continue
            cpu, memory = self._pool.sizes.of(lease.node) or (0, 0)
            self._leases.resize(lease, min(lease.cpu_milli, cpu), min(lease.memory_bytes, memory))
            self._bind(lease)

    def _bind(self, lease: CallLease) -> None:
        """What a pod seen bound is, this is: it counts on its node until it is finished."""
        facts = PodFacts(
            uid=lease.uid,
            namespace=lease.namespace,
            name=lease.uid,
            function=lease.function,
            node=lease.node,
            scheduler_name=self._world.scheduler_name,
            cpu_milli=lease.cpu_milli,
            memory_bytes=lease.memory_bytes,
            finished=False,
            from_daemon_set=False,
            images=(),
            scheduled_s=None,
            ready_s=None,
        )
        self._world.state.bound(facts, self._clock.now_s())
        if self._pool.sizes.of(lease.node) is None:
            self._unsized[lease.uid] = lease.node
        else:
            self._unsized.pop(lease.uid, None)


def _seen(ended: Ended) -> CallEnd:
    start_s, core_seconds = (math.nan if value is None else value for value in (ended.start_seconds, ended.core_seconds))
    return CallEnd(start_s, core_seconds, ended.cold)


def _check(tenant: Tenant, namespace: str) -> None:
    if not tenant.may(namespace):
        raise Refused("namespace-forbidden", "this token may not place calls of that namespace")


def _as_pod(uid: str, call: PlaceCall, scheduler_name: str) -> dict[str, Any]:
    """The pod that would run this call: routing, canary and decision are then the very same."""
    images: list[str | None] = [*call.images] or [None]
    containers: list[dict[str, Any]] = [{"image": image} for image in images]
    containers[0]["resources"] = {"requests": {"cpu": f"{call.cpu}m", "memory": call.memory}}
    labels = {**call.labels, FUNCTION_LABEL: call.function}
    return {
        "metadata": {"uid": uid, "namespace": call.namespace, "name": uid, "labels": labels},
        "spec": {"schedulerName": scheduler_name, "containers": containers},
    }


def _described(uid: str, decision: Decision, left_out: int) -> dict[str, Any]:
    route, ranking = decision.route, decision.ranking
    return {
        "id": uid,
        "outcome": decision.outcome,
        "reason": str(decision.reason),
        "policy": route.key if route is not None else "",
        "mode": route.spec.mode if route is not None else "",
        "policyName": ranking.policy.name if ranking is not None else "",
        "modelDigest": ranking.policy.digest if ranking is not None else "",
        "candidates": len(decision.names),
        "outsidePool": left_out,
    }


def _ranked(ranking: Ranking, names: list[str], limit: int) -> list[dict[str, Any]]:
    best = ranking.best_first[:limit].tolist()
    levels = [score for first, end, score in segments(len(ranking.best_first)) for _ in range(first, min(end, limit))]
    raw = [float(ranking.scores[i]) for i in best]
    return [
        {"node": names[i], "score": level, "raw": None if math.isnan(score) else score + 0.0}  # no -0.0
        for i, level, score in zip(best, levels, raw, strict=True)
    ]

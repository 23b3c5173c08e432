"""Answers to kube-scheduler: from a request body to the bytes of the answer, and what has to be remembered of it."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from tiphys_extender.placement.decide import Decision, Ranking, World, decide
from tiphys_extender.placement.decisions import TOP, DecisionLog, Detail, Record
from tiphys_extender.placement.patience import wanted_wait
from tiphys_extender.placement.waited import Gates
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.wire import Call, encode_neutral, encode_ranked, parse_call, segments
from tiphys_models.api.reasons import NeutralReason
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.clock import Clock
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.glimpse import Glimpse
from tiphys_models.placement.protocol import patient
from tiphys_models.placement.table import UNKNOWN
from tiphys_models.placement.waiting import NotYet
from tiphys_models.seats.seat import CONTROL, SHADOW

_log = logging.getLogger(__name__)
_RECENT = 1000
_SEAT_REASONS = {str(NeutralReason.SHADOW): SHADOW, str(NeutralReason.CANARY): CONTROL}


_NAMES_KEPT = 20


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What an answer may cost."""

    deadline_s: float = 0.020
    max_names: int = 6_000


class Answerer:
    """Decides and answers; reserves and remembers afterwards."""

    def __init__(self, world: World, decisions: DecisionLog, metrics: Metrics, clock: Clock, limits: AnswerLimits) -> None:
        self._world = world
        self._decisions = decisions
        self._metrics = metrics
        self._clock = clock
        self._limits = limits
        self._recent: deque[str] = deque(maxlen=_RECENT)
        # thousands of short strings that are given back after every call make the next request's slower to allocate, by a twentieth
        self._newest_names: deque[Sequence[str]] = deque(maxlen=_NAMES_KEPT)
        self._unsettled: deque[tuple[Decision, float]] = deque()
        self.gates: Gates | None = None
        """Pods that wait behind a gate; None where this process opens none."""

    def prioritize(self, body: bytes) -> bytes:
        """The answer to a prioritize call; BadRequest if its candidates cannot be read. `settle` it once it has been sent."""
        self.settle()
        started_s = self._clock.monotonic_s()
        call = parse_call(body)
        try:
            decision, answer = self._decide(call, started_s + self._limits.deadline_s)
        except Exception as error:  # noqa: BLE001 - an answer that makes no difference beats none, whatever went wrong
            _log.error(
                "decision failed", extra={"fields": {"pod": _pod_name(call.pod), "error": type(error).__name__, "where": _where(error)}}
            )
            decision = Decision("neutral", NeutralReason.INTERNAL_ERROR, None, None, None, call.names, None)
            answer = encode_neutral(call.names, plain=call.plain)
        self._unsettled.append((decision, self._clock.monotonic_s() - started_s))
        return answer

    def settle(self) -> None:
        """Reserve and log what has been answered. It costs half as much as an answer, so the scheduler does not wait for it;
        the next decision does, so that it always sees every reservation."""
        while self._unsettled:
            self._conclude(*self._unsettled.popleft())

    def conclude(self, decision: Decision, took_s: float) -> None:
        """Reserve and log a decision that was answered elsewhere."""
        self._conclude(decision, took_s)

    def floor(self, body: bytes) -> bytes:
        """What any answer costs: the same decoding, checks and encoding, and no decision."""
        call = parse_call(body)
        return encode_neutral(call.names, plain=call.plain)

    @property
    def busiest_share(self) -> float:
        """Share of the most chosen node in the last decisions."""
        if not self._recent:
            return 0.0
        return Counter(self._recent).most_common(1)[0][1] / len(self._recent)

    def _decide(self, call: Call, deadline_s: float) -> tuple[Decision, bytes]:
        clock = self._clock
        names = call.names
        if len(names) > self._limits.max_names:
            decision = Decision("neutral", NeutralReason.TOO_MANY_NAMES, None, None, None, names, None)
            return decision, encode_neutral(names, plain=call.plain)
        now_s = clock.now_s()
        self._world.state.tick(now_s)  # some policies look at the age of what they see
        if self.gates is not None and self.gates.is_awaited(uid := _uid(call.pod)):
            self._world.state.withdraw(uid)  # let go by us a moment ago: it does not stand in its own way
        decision = decide(self._world, call.pod, names, now_s, lambda: clock.monotonic_s() < deadline_s)
        ranking = decision.ranking
        if ranking is None or not decision.reserves:
            return decision, encode_neutral(names, plain=call.plain)
        # itemgetter gives a tuple for two and more, and is three times as fast as a comprehension
        best_first = itemgetter(*ranking.best_first.tolist())(names) if len(names) > 1 else names
        return decision, encode_ranked(best_first, plain=call.plain)

    def _conclude(self, decision: Decision, took_s: float) -> None:
        ranking, request = decision.ranking, decision.request
        seen: Glimpse | None = None
        wait: NotYet | None = None
        if ranking is not None and request is not None:
            seen = self._glance(request, ranking)  # before the reservation changes it
            estimate, wait = self._expected(request, ranking)
            if estimate is not None:
                seen = seen._replace(estimate=estimate)
            if decision.reserves:
                self._tell_gates(request, ranking)
                self._world.state.decided(request, decision.names[ranking.best_first[0]], self._clock.now_s())
        self._remember(decision, seen, wait, took_s)

    def _tell_gates(self, request: PlacementRequest, ranking: Ranking) -> None:
        row = ranking.rows[ranking.best_first[:1]]
        if self.gates is not None and row[0] != UNKNOWN and self._world.state.beliefs.books.warm(request.function, row)[0]:
            self.gates.goes_warm(request.uid, request.function)

    def _remember(self, decision: Decision, seen: Glimpse | None, wait: NotYet | None, took_s: float) -> None:
        """Counters and the decision log: nothing here may cost an answer."""
        metrics = self._metrics
        metrics.duration.observe(took_s)
        metrics.answers[decision.outcome].inc()
        metrics.candidates.observe(len(decision.names))
        if decision.outcome == "neutral":
            metrics.neutral[decision.reason].inc()
        ranking = decision.ranking
        if decision.outcome != "neutral" and ranking is not None:
            if decision.outcome == "fallback":
                metrics.fallback[decision.reason].inc()
            metrics.answered_by(ranking.policy.name)
            self._recent.append(decision.names[ranking.best_first[0]])
        if ranking is not None:
            metrics.score_stddev.observe(_deviation(ranking))
            if (unknown := int((ranking.rows == UNKNOWN).sum())) > 0:
                metrics.unknown_nodes.inc(unknown)
        metrics.would_wait.inc(wait is not None)
        if decision.pod is not None:
            record = self._record(decision, took_s)
            record.wait = wait
            record.held = self.gates.waited(record.uid) if self.gates is not None else None
            self._decisions.append(record, _detail(decision, seen))
            self._newest_names.append(decision.names)
            if (seat := record.seat) is not None:
                reason = record.reason if seat == "fallback" else _SEAT_REASONS.get(record.reason, "")
                metrics.seat.answered(seat, record.group, reason, same=None, later=record.mode == "Shadow")
                metrics.seat.weights(record.policy_name, record.model_digest, record.at_s)

    def _record(self, decision: Decision, took_s: float) -> Record:
        pod, route, ranking = decision.pod, decision.route, decision.ranking
        if pod is None:
            raise ValueError("a decision about no pod is not recorded")
        return Record(
            at_s=self._clock.now_s(),
            uid=pod.uid,
            namespace=pod.namespace,
            pod=pod.name,
            function=pod.function,
            attempt=self._decisions.attempts(pod.uid) + 1,
            outcome=decision.outcome,
            reason=str(decision.reason),
            policy=route.key if route is not None else "",
            mode=route.spec.mode if route is not None else "",
            policy_name=ranking.policy.name if ranking is not None else "",
            model_digest=ranking.policy.digest if ranking is not None else "",
            candidates=len(decision.names),
            top=_top(decision, ranking) if ranking is not None else (),
            duration_ms=took_s * 1000,
            fallback_reason=str(ranking.fallback or "") if ranking is not None else "",
        )

    def _glance(self, request: PlacementRequest, ranking: Ranking) -> Glimpse:
        best = ranking.best_first[:TOP]
        return self._world.state.glimpse(request, ranking.rows[best])._replace(inputs=ranking.inputs_of(best))

    def _expected(self, request: PlacementRequest, ranking: Ranking) -> tuple[FloatArray | None, NotYet | None]:
        """What the best candidates were expected to cost, and whether the policy would rather have waited.

        kube-scheduler cannot be told to wait: the best node is answered all the same.
        """
        policy = ranking.policy
        if patient(policy) is None:
            return None, None
        try:
            wait = wanted_wait(self._world, request, ranking)
            return ranking.costs_of(ranking.best_first[:TOP]), wait
        except Exception as error:  # noqa: BLE001 - a remark about an answer that has been given must not cost the reservation
            _log.error("policy failed", extra={"fields": {"policy": policy.name, "error": type(error).__name__}})
            return None, None


def _detail(decision: Decision, seen: Glimpse | None) -> Detail | None:
    ranking = decision.ranking
    if ranking is None or seen is None:
        return None
    best = [decision.names[i] if ranking.rows[i] != UNKNOWN else None for i in ranking.best_first[:TOP].tolist()]
    return Detail.of(decision.names, ranking.best_first, ranking.scores, best, seen)


def _top(decision: Decision, ranking: Ranking) -> tuple[tuple[str, int, float | None], ...]:
    best = ranking.best_first[:TOP].tolist()
    levels = [score for first, end, score in segments(len(ranking.best_first))[:TOP] for _ in range(min(end - first, TOP))]
    raw = ranking.scores
    return tuple(
        (decision.names[i], level, None if math.isnan(score := float(raw[i])) else round(score, 6))
        for i, level in zip(best, levels, strict=False)
    )


def _deviation(ranking: Ranking) -> float:
    scores = ranking.scores
    total = float(scores.sum())
    if math.isnan(total):
        scores = scores[scores == scores]
        total = float(scores.sum())
    count = len(scores)
    if not count:
        return 0.0
    centred = scores - total / count
    return math.sqrt(float(centred @ centred) / count)


def _uid(pod: object) -> str:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _pod_name(pod: object) -> str:
    """namespace/name as far as it can be read."""
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    return f"{metadata.get('namespace')}/{metadata.get('name')}" if isinstance(metadata, dict) else ""


def _where(error: Exception) -> str:
    """File and line, without the message: that may quote what the pod holds."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""

"""The extender's decision log, compared with what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.api.reasons import NeutralReason
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.peers import Peers
from tiphys_models.seats.pages import Cursor, RecordReader
from tiphys_testbed.demo.records import CallRecord

_PAGES_MAX = 1_000
_TIMEOUT_S = 10.0
BEST = 10


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One answer of the extender, as far as the demo reads it."""

    seq: int
    namespace: str
    pod: str
    outcome: str
    """`scored`, `fallback` or `neutral`; in Shadow what it would have been."""
    reason: str
    candidates: int
    best: str
    """The node that was answered 10; in Shadow the one that would have been."""
    duration_ms: float


@dataclass(frozen=True, slots=True)
class LaneDecisions:
    """How the calls of one lane were decided: the last answer counts, for a pod may be asked about again."""

    scored: int = 0
    fallback: int = 0
    neutral: int = 0
    not_asked: int = 0
    """Pods with a single candidate: the scheduler asks nobody about those."""
    best_bound: int = 0
    """Pods that were bound to the node that had been answered 10; in Shadow: where the policy agrees with the default plugins."""
    best_other: int = 0
    """Pods that were bound elsewhere."""
    reasons: Mapping[str, int] | None = None
    """Fallback and neutral answers by reason."""
    mean_candidates: float = 0.0
    mean_ms: float = 0.0


class DecisionTail:
    """Reads new decisions over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._cursor = Cursor()
        self.lost = 0

    async def skip(self) -> None:
        """Everything so far is none of our business."""
        await self.read()
        self.lost = 0

    async def read(self) -> list[LoggedDecision]:
        """All decisions since the last call."""
        try:
            return await self._read()
        except (Unavailable, TimeoutError, KeyError, TypeError, ValueError) as error:
            raise ClusterError(f"the extender's decision log at {self._url} cannot be read: {error or type(error).__name__}") from error

    async def _read(self) -> list[LoggedDecision]:
        found: list[LoggedDecision] = []
        async with asyncio.timeout(_TIMEOUT_S), aiohttp.ClientSession() as session:
            peers = Peers(session, lambda: self._token)

            async def fetch(after: int, limit: int) -> dict[str, Any]:
                return await peers.get_object(self._url, "/v1/decisions", {"after": str(after), "limit": str(limit)})

            async for page in RecordReader(fetch, most_pages=_PAGES_MAX, cursor=self._cursor).read():
                self.lost += page.lost
                found += [parse_decision(item) for item in page.new]
        return found


def parse_decision(item: Mapping[str, Any]) -> LoggedDecision:
    """The decision in one record of `/v1/decisions`."""
    top = item.get("top") or []
    best = next((entry["node"] for entry in top if entry.get("score") == BEST), "")
    outcome, reason = str(item["outcome"]), str(item.get("reason") or "")
    if reason == NeutralReason.SHADOW:
        reason = str(item.get("fallbackReason") or "")
        outcome = "fallback" if reason else "scored"
    return LoggedDecision(
        seq=int(item["seq"]),
        namespace=str(item["namespace"]),
        pod=str(item["pod"]),
        outcome=outcome,
        reason=reason,
        candidates=int(item.get("candidates") or 0),
        best=best if outcome != "neutral" else "",
        duration_ms=float(item.get("durationMs") or 0.0),
    )


def compare(namespace: str, records: Iterable[CallRecord], decisions: Sequence[LoggedDecision]) -> LaneDecisions:
    """What the extender said about the calls of one namespace, beside what became of them."""
    last = {decision.pod: decision for decision in decisions if decision.namespace == namespace}
    counts = {"scored": 0, "fallback": 0, "neutral": 0, "not_asked": 0, "best_bound": 0, "best_other": 0}
    reasons: dict[str, int] = {}
    answered: list[LoggedDecision] = []
    for record in records:
        decision = last.get(record.pod)
        if decision is None:
            counts["not_asked"] += 1
            continue
        answered.append(decision)
        counts[decision.outcome] += 1
        if decision.reason and decision.outcome != "scored":
            reasons[decision.reason] = reasons.get(decision.reason, 0) + 1
        if decision.best and record.node:
            counts["best_bound" if decision.best == record.node else "best_other"] += 1
    number = max(len(answered), 1)
    return LaneDecisions(
        **counts,
        reasons=reasons,
        mean_candidates=sum(d.candidates for d in answered) / number,
        mean_ms=sum(d.duration_ms for d in answered) / number,
    )

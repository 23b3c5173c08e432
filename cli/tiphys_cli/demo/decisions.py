"""The extender's decision log, compared with what happened."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson

from tiphys_cli.cluster.errors import ClusterError
from tiphys_cli.demo.records import CallRecord
from tiphys_models.api.reasons import NeutralReason

_PAGE = 1000
_TIMEOUT_S = 10.0
BEST = 10


@dataclass(frozen=True, slots=True)
class Decision:
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


class DecisionLog:
    """Reads new decisions over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._after = 0
        self.lost = 0

    def skip(self) -> None:
        """Everything so far is none of our business."""
        self.read()
        self.lost = 0

    def read(self) -> list[Decision]:
        """All decisions since the last call."""
        found: list[Decision] = []
        end_s = time.monotonic() + _TIMEOUT_S
        while True:
            page = self._get(f"{self._url}/v1/decisions?after={self._after}&limit={_PAGE}")
            items = page["items"]
            self.lost += int(page.get("lost") or 0)
            found += [parse_decision(item) for item in items]
            if not items:
                return found
            self._after = int(items[-1]["seq"])
            if time.monotonic() > end_s:
                raise ClusterError(f"the extender's decisions could not be read within {_TIMEOUT_S:.0f} s")

    def _get(self, url: str) -> dict[str, Any]:
        request = Request(url, headers={"Authorization": f"Bearer {self._token}"})  # noqa: S310 - our own loopback address
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                page: dict[str, Any] = orjson.loads(answer.read())
        except (URLError, TimeoutError, orjson.JSONDecodeError) as error:
            raise ClusterError(f"the extender's decision log at {self._url} cannot be read: {error}") from error
        return page


def parse_decision(item: Mapping[str, Any]) -> Decision:
    """From one record of `/v1/decisions`."""
    top = item.get("top") or []
    best = next((entry["node"] for entry in top if entry.get("score") == BEST), "")
    outcome, reason = str(item["outcome"]), str(item.get("reason") or "")
    if reason == NeutralReason.SHADOW:
        reason = str(item.get("fallbackReason") or "")
        outcome = "fallback" if reason else "scored"
    return Decision(
        seq=int(item["seq"]),
        namespace=str(item["namespace"]),
        pod=str(item["pod"]),
        outcome=outcome,
        reason=reason,
        candidates=int(item.get("candidates") or 0),
        best=best if outcome != "neutral" else "",
        duration_ms=float(item.get("durationMs") or 0.0),
    )


def compare(namespace: str, records: Iterable[CallRecord], decisions: Sequence[Decision]) -> LaneDecisions:
    """What the extender said about the calls of one namespace, beside what became of them."""
    last = {decision.pod: decision for decision in decisions if decision.namespace == namespace}
    counts = {"scored": 0, "fallback": 0, "neutral": 0, "not_asked": 0, "best_bound": 0, "best_other": 0}
    reasons: dict[str, int] = {}
    answered: list[Decision] = []
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

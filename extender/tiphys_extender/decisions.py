"""What was decided: a bounded ring, found by sequence number, uid or name, completed when the pod is seen bound.

Nothing of a pod is kept but its identity: no environment, no annotations, no labels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tiphys_extender.metrics import Metrics
from tiphys_models.features.arrays import FloatArray
from tiphys_models.placement.glimpse import Glimpse

TOP = 3
_DETAIL_CANDIDATES = 100_000  # about 8 MB of names and scores


@dataclass(slots=True)
class Record:
    """One answer. `chosen` is filled in later; everything else stays."""

    at_s: float
    uid: str
    namespace: str
    pod: str
    function: str
    attempt: int
    outcome: str
    reason: str
    policy: str
    mode: str
    policy_name: str
    model_digest: str
    candidates: int
    top: tuple[tuple[str, int, float | None], ...]
    """(node, score 0..10, raw) of the best."""
    duration_ms: float
    fallback_reason: str = ""
    """In Shadow: why the rule would have answered."""
    chosen: str | None = None
    seq: int = 0

    @property
    def would(self) -> str | None:
        """The node that was, or would have been, ranked first."""
        return self.top[0][0] if self.top else None

    def as_json(self) -> dict[str, Any]:
        """As the decision log shows it."""
        return {
            "seq": self.seq,
            "at": round(self.at_s, 6),
            "uid": self.uid,
            "namespace": self.namespace,
            "pod": self.pod,
            "function": self.function,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "reason": self.reason,
            "policy": self.policy,
            "mode": self.mode,
            "policyName": self.policy_name,
            "modelDigest": self.model_digest,
            "candidates": self.candidates,
            "top": [{"node": node, "score": score, "raw": raw} for node, score, raw in self.top],
            "would": self.would,
            "chosen": self.chosen,
            "durationMs": round(self.duration_ms, 3),
            "fallbackReason": self.fallback_reason,
        }

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Record:
        """What `as_json` wrote; KeyError or TypeError for anything else."""
        return cls(
            at_s=item["at"], uid=item["uid"], namespace=item["namespace"], pod=item["pod"], function=item["function"],
            attempt=item["attempt"], outcome=item["outcome"], reason=item["reason"], policy=item["policy"], mode=item["mode"],
            policy_name=item["policyName"], model_digest=item["modelDigest"], candidates=item["candidates"],
            top=tuple((t["node"], t["score"], t["raw"]) for t in item["top"]), duration_ms=item["durationMs"],
            fallback_reason=item.get("fallbackReason", ""), chosen=item["chosen"], seq=item["seq"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detail:
    """What explain shows beyond the record; kept for the newest decisions only."""

    names: Sequence[str]
    best_first: Sequence[int]
    scores: FloatArray
    best: Sequence[str | None]
    """The first TOP nodes; None for one that no watch has shown."""
    seen: Glimpse
    """What they looked like at the time of the decision."""


class DecisionLog:
    """The last decisions; older ones are forgotten and counted as lost for a reader that comes too late."""

    def __init__(self, capacity: int, metrics: Metrics, restored: Sequence[Record] = ()) -> None:
        self._capacity = capacity
        self._metrics = metrics
        self._records: deque[Record] = deque()
        self._by_uid: dict[str, list[Record]] = {}
        self._uid_of: dict[tuple[str, str], str] = {}
        self._details: dict[int, Detail] = {}
        self._detail_candidates = 0
        self.last = 0
        self.changed: list[Record | tuple[int, str]] = []
        """New records, and (seq, chosen) of old ones: what a file does not have yet."""
        for record in restored:
            self._insert(record)
            self.last = record.seq

    @property
    def first(self) -> int:
        """Oldest sequence number still kept; one more than `last` if there is none."""
        return self._records[0].seq if self._records else self.last + 1

    def __len__(self) -> int:
        return len(self._records)

    def attempts(self, uid: str) -> int:
        """How often this pod has been asked about, as far as kept."""
        return len(self._by_uid.get(uid, ()))

    def append(self, record: Record, detail: Detail | None = None) -> int:
        """Keep a decision; its sequence number."""
        self.last += 1
        record.seq = self.last
        self._insert(record)
        self.changed.append(record)
        if detail is not None:
            self._details[record.seq] = detail
            self._detail_candidates += len(detail.names)
            while self._detail_candidates > _DETAIL_CANDIDATES and len(self._details) > 1:
                self._detail_candidates -= len(self._details.pop(next(iter(self._details))).names)
        return record.seq

    def bound(self, uid: str, node: str) -> None:
        """A pod was seen on a node: its newest decision now knows how it ended."""
        records = self._by_uid.get(uid)
        if not records or records[-1].chosen is not None:
            return
        record = records[-1]
        record.chosen = node
        self.changed.append((record.seq, node))
        if record.would is not None:
            self._metrics.choices["same" if record.would == node else "other", record.mode].inc()

    def after(self, seq: int, limit: int) -> dict[str, Any]:
        """Up to `limit` decisions after a sequence number, oldest first."""
        first = self.first
        start = max(seq + 1, first)
        # sequence numbers have no gaps, so the position is known
        items = [record.as_json() for record in islice(self._records, start - first, start - first + limit)]
        return {"first": first, "last": self.last, "lost": max(0, first - seq - 1), "items": items}

    def of_uid(self, uid: str) -> Sequence[Record]:
        """All kept attempts of a pod, oldest first."""
        return self._by_uid.get(uid, ())

    def of_name(self, namespace: str, pod: str) -> Sequence[Record]:
        """The same by name: the newest pod that had it."""
        return self.of_uid(self._uid_of.get((namespace, pod), ""))

    def detail(self, seq: int) -> Detail | None:
        """What explain shows beyond the record, while kept."""
        return self._details.get(seq)

    def take_changes(self) -> list[Record | tuple[int, str]]:
        """What has not been written to a file yet; it counts as taken."""
        changes, self.changed = self.changed, []
        return changes

    def _insert(self, record: Record) -> None:
        if len(self._records) >= self._capacity:
            self._evict()
        self._records.append(record)
        self._by_uid.setdefault(record.uid, []).append(record)
        self._uid_of[record.namespace, record.pod] = record.uid

    def _evict(self) -> None:
        old = self._records.popleft()
        if old.would is not None and old.chosen is None and old.mode in ("Shadow", "Canary", "Active"):
            self._metrics.choices["unknown", old.mode].inc()
        records = self._by_uid[old.uid]
        records.pop(0)
        if not records:
            del self._by_uid[old.uid]
            if self._uid_of.get((old.namespace, old.pod)) == old.uid:
                del self._uid_of[old.namespace, old.pod]
        if (detail := self._details.pop(old.seq, None)) is not None:
            self._detail_candidates -= len(detail.names)

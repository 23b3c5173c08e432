"""What was decided: a bounded ring, found by sequence number, uid or name, completed when the pod is seen bound.

Nothing of a pod is kept but its identity: no environment, no annotations, no labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from tiphys_extender.placement.waited import Waited
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.api.reasons import NeutralReason
from tiphys_models.api.scheduling_policy import KIND
from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.placement.glimpse import Glimpse
from tiphys_models.placement.waiting import NotYet
from tiphys_models.seats.record import RecordLog
from tiphys_models.seats.seat import Group, Outcome

TOP = 3
SCHEDULER = "kube-scheduler"
"""Name of the decider where our answer makes no difference."""
_WANTED = frozenset({NeutralReason.MODE_OFF, NeutralReason.SHADOW, NeutralReason.CANARY})
"""Neutral answers that follow from the policy's mode; any other is a fallback."""
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
    """Reason why the rule would have answered; only in mode Shadow."""
    chosen: str | None = None
    seq: int = 0
    wait: NotYet | None = None
    """What waiting for a warm instance was expected to bring; None where it was not expected to pay, or nobody can say."""
    held: Waited | None = None
    """How the pod came past its scheduling gate; None if it had none, or nobody remembers."""

    @property
    def subject(self) -> str:
        """The pod or call decided about, by uid."""
        return self.uid

    @property
    def seat(self) -> Outcome | None:
        """Whose turn it was. Beside a policy that is not obeyed the rule is kube-scheduler; None where no policy had a say."""
        if self.outcome == "scored":
            return "learned" if self.model_digest else "rule"
        if self.outcome == "fallback":
            return "fallback"
        if self.reason in _WANTED:
            return "rule"
        return "fallback" if self.policy else None

    @property
    def group(self) -> Group:
        """The pod's group in Canary."""
        if self.mode != "Canary":
            return ""
        return "control" if self.reason == NeutralReason.CANARY else "treated"

    @property
    def would(self) -> str | None:
        """The node that was, or would have been, ranked first."""
        return self.top[0][0] if self.top else None

    def as_json(self) -> dict[str, Any]:
        """The record as pages show it: what every record has stands beside the fields that this log has always had. `outcome` is how
        the pod was answered, `seat` whose turn it was, `would` the node ranked first."""
        neutral = self.outcome == "neutral"
        return self.stored() | {
            "system": "placement",
            "kind": KIND,
            "name": self.policy.partition("/")[2],
            "subject": self.uid,
            "group": self.group,
            "seat": self.seat,
            "by": SCHEDULER if neutral else self.policy_name,
            "digest": "" if neutral else self.model_digest,
            "answer": "" if neutral else self.would or "",
            "ended": self.chosen or "",
        }

    def stored(self) -> dict[str, Any]:
        """The record as the file holds it."""
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
            "wait": None if self.wait is None else {"seconds": round(self.wait.awaited_s, 3), "saves": round(self.wait.saved_s, 3)},
            "held": None if self.held is None else self.held.as_json(),
        }

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Record:
        """The record that `stored` wrote; KeyError or TypeError for anything else."""
        return cls(
            at_s=item["at"], uid=item["uid"], namespace=item["namespace"], pod=item["pod"], function=item["function"],
            attempt=item["attempt"], outcome=item["outcome"], reason=item["reason"], policy=item["policy"], mode=item["mode"],
            policy_name=item["policyName"], model_digest=item["modelDigest"], candidates=item["candidates"],
            top=tuple((t["node"], t["score"], t["raw"]) for t in item["top"]), duration_ms=item["durationMs"],
            fallback_reason=item.get("fallbackReason", ""), chosen=item["chosen"], seq=item["seq"],
            wait=NotYet(wait["seconds"], wait["saves"]) if (wait := item.get("wait")) else None,
            held=Waited(held["seconds"], held["reason"]) if (held := item.get("held")) else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detail:
    """What explain shows beyond the record; kept for the newest decisions only.

    Each request brings strings of its own for the names of its candidates. As one text they are small from the start, they come and
    go at once, and the collector has no list to look through.
    """

    packed_names: bytes
    best_first: IntArray
    """int32: half of what a sort gives."""
    scores: FloatArray
    best: Sequence[str | None]
    """The first TOP nodes; None for one that no watch has shown."""
    seen: Glimpse
    """Columns of the best candidates at the time of the decision."""

    @classmethod
    def of(cls, names: Sequence[str], best_first: IntArray, scores: FloatArray, best: Sequence[str | None], seen: Glimpse) -> Detail:
        """The detail of candidates in the order in which they were sent, made small."""
        return cls(orjson.dumps(names), best_first.astype(np.int32), scores, best, seen)

    @property
    def names(self) -> list[str]:
        """Names of the candidates, in the order in which they were sent."""
        names: list[str] = orjson.loads(self.packed_names)
        return names

    @property
    def candidates(self) -> int:
        """How many there were."""
        return len(self.best_first)


class DecisionLog(RecordLog[Record]):
    """The last decisions, found by pod as well, and completed when a pod is seen bound."""

    def __init__(self, capacity: int, metrics: Metrics, restored: Sequence[Record] = ()) -> None:
        self._metrics = metrics
        self._uid_of: dict[tuple[str, str], str] = {}
        self._details: dict[int, Detail] = {}
        self._detail_candidates = 0
        self.changed: list[Record | tuple[int, str]] = []
        """New records, and (seq, chosen) of old ones: what a file does not have yet."""
        super().__init__(capacity, restored, self._forget)

    def attempts(self, uid: str) -> int:
        """How often this pod has been asked about, as far as kept."""
        return len(self.of_subject(uid))

    def append(self, record: Record, detail: Detail | None = None) -> int:
        """Keep a decision; its sequence number."""
        seq = super().append(record)
        self.changed.append(record)
        if detail is not None:
            self._details[seq] = detail
            self._detail_candidates += detail.candidates
            while self._detail_candidates > _DETAIL_CANDIDATES and len(self._details) > 1:
                self._detail_candidates -= self._details.pop(next(iter(self._details))).candidates
        return seq

    def bound(self, uid: str, node: str) -> None:
        """A pod was seen on a node: its newest decision now knows how it ended."""
        records = self.of_subject(uid)
        if not records or records[-1].chosen is not None:
            return
        record = records[-1]
        record.chosen = node
        self.changed.append((record.seq, node))
        if record.would is not None:
            same = record.would == node
            self._metrics.choices["same" if same else "other", record.mode].inc()
            if record.mode == "Shadow":
                self._metrics.seat.compared(same=same)

    def of_uid(self, uid: str) -> Sequence[Record]:
        """All kept attempts of a pod, oldest first."""
        return self.of_subject(uid)

    def of_name(self, namespace: str, pod: str) -> Sequence[Record]:
        """All kept attempts of the newest pod that had this name, oldest first."""
        return self.of_subject(self._uid_of.get((namespace, pod), ""))

    def detail(self, seq: int) -> Detail | None:
        """What explain shows beyond the record, while kept."""
        return self._details.get(seq)

    def take_changes(self) -> list[Record | tuple[int, str]]:
        """What has not been written to a file yet; it counts as taken."""
        changes, self.changed = self.changed, []
        return changes

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self._uid_of[record.namespace, record.pod] = record.uid

    def _forget(self, old: Record) -> None:
        if old.would is not None and old.chosen is None and old.mode in ("Shadow", "Canary", "Active"):
            self._metrics.choices["unknown", old.mode].inc()
        if not self.of_subject(old.uid) and self._uid_of.get((old.namespace, old.pod)) == old.uid:
            del self._uid_of[old.namespace, old.pod]
        if (detail := self._details.pop(old.seq, None)) is not None:
            self._detail_candidates -= detail.candidates

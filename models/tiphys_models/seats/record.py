"""One shape for what was decided, whatever decided it, and a bounded log of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, get_args

from tiphys_models.seats.modes import Mode
from tiphys_models.seats.seat import Answer, Answered, Group

System = Literal["placement", "selection", "scaling", "streams"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)


@dataclass(slots=True, kw_only=True)
class Record:
    """One decision. `ended` is filled in later; everything else stays."""

    at_s: float
    system: System
    kind: str
    """Kind, namespace and name of the policy object."""
    namespace: str
    name: str
    subject: str
    """The thing decided about: a pod or call by uid, a stream by id, a workload, an interval."""
    mode: Mode
    group: Group = ""
    outcome: str
    reason: str = ""
    by: str
    digest: str = ""
    answer: str
    """The answer as a short text."""
    would: str = ""
    """The other decider's answer; empty if it was not asked or has nothing to say."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Inputs, candidates, sizes: JSON scalars, or small lists of them."""
    ended: str = ""
    """How it ended: the node bound, a window kept; empty until that is known."""
    seq: int = 0

    def as_json(self) -> dict[str, Any]:
        """The record as pages show it."""
        return {
            "seq": self.seq,
            "at": round(self.at_s, 6),
            "system": self.system,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "subject": self.subject,
            "mode": self.mode,
            "group": self.group,
            "outcome": self.outcome,
            "reason": self.reason,
            "by": self.by,
            "digest": self.digest,
            "answer": self.answer,
            "would": self.would,
            "detail": dict(self.detail),
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Record:
        """The record that `as_json` wrote; KeyError or TypeError for anything else."""
        return cls(
            at_s=item["at"], system=item["system"], kind=item["kind"], namespace=item["namespace"], name=item["name"],
            subject=item["subject"], mode=item["mode"], group=item["group"], outcome=item["outcome"], reason=item["reason"],
            by=item["by"], digest=item["digest"], answer=item["answer"], would=item["would"], detail=item["detail"],
            ended=item["ended"], seq=item["seq"],
        )  # fmt: skip


def recorded(
    answered: Answered[Answer],
    text: Callable[[Answer], str],
    *,
    at_s: float,
    system: System,
    policy: tuple[str, str, str],
    subject: str,
    mode: Mode,
    detail: Mapping[str, Any],
) -> Record:
    """The record of a seat's answer; `policy` is kind, namespace and name of its object, `text` makes an answer short and readable."""
    kind, namespace, name = policy
    return Record(
        at_s=at_s, system=system, kind=kind, namespace=namespace, name=name, subject=subject, mode=mode, group=answered.group,
        outcome=answered.outcome, reason=answered.reason, by=answered.by, digest=answered.digest, answer=text(answered.answer),
        would=text(answered.would) if answered.would is not None else "", detail=detail,
    )  # fmt: skip


class Kept(Protocol):
    """Anything that a log can keep."""

    seq: int

    @property
    def subject(self) -> str:
        """The thing decided about."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The record as pages show it."""
        ...


R = TypeVar("R", bound=Kept)


class RecordLog(Generic[R]):
    """The last records, numbered without gaps. Older ones are forgotten; a reader that comes too late is told how many it lost."""

    def __init__(self, capacity: int, restored: Sequence[R] = (), on_drop: Callable[[R], None] | None = None) -> None:
        self._capacity = capacity
        self._on_drop = on_drop
        self._records: deque[R] = deque()
        self._by_subject: dict[str, list[R]] = {}
        self.last = 0
        for record in restored[-capacity:]:
            self._insert(record)
            self.last = record.seq

    @property
    def first(self) -> int:
        """Oldest sequence number still kept; one more than `last` if there is none."""
        return self._records[0].seq if self._records else self.last + 1

    def __len__(self) -> int:
        return len(self._records)

    def append(self, record: R) -> int:
        """Keep a record; its sequence number."""
        self.last += 1
        record.seq = self.last
        self._insert(record)
        return record.seq

    def get(self, seq: int) -> R | None:
        """A record by its number, while it is kept."""
        place = seq - self.first
        return self._records[place] if 0 <= place < len(self._records) else None

    def after(self, seq: int, limit: int) -> dict[str, Any]:
        """Up to `limit` records after a sequence number, oldest first, and how many of them were forgotten."""
        first = self.first
        start = max(seq + 1, first)
        # sequence numbers have no gaps, so the position is known
        items = [record.as_json() for record in islice(self._records, start - first, start - first + limit)]
        return {"first": first, "last": self.last, "lost": max(0, first - seq - 1), "items": items}

    def of_subject(self, subject: str) -> Sequence[R]:
        """All kept records about something, oldest first."""
        return self._by_subject.get(subject, ())

    def newest(self, limit: int, wanted: Callable[[R], bool]) -> list[R]:
        """The newest records that are wanted, oldest of them first."""
        return list(islice(filter(wanted, reversed(self._records)), limit))[::-1]

    def _insert(self, record: R) -> None:
        if len(self._records) >= self._capacity:
            self._drop()
        self._records.append(record)
        self._by_subject.setdefault(record.subject, []).append(record)

    def _drop(self) -> None:
        old = self._records.popleft()
        records = self._by_subject[old.subject]
        records.pop(0)
        if not records:
            del self._by_subject[old.subject]
        if self._on_drop is not None:
            self._on_drop(old)


def ended(log: RecordLog[Record], seq: int, how: str) -> bool:
    """Say how a decision ended; False if its record is no longer kept."""
    if (record := log.get(seq)) is None:
        return False
    record.ended = how
    return True

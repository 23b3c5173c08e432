"""What the trainer may learn from: the last transitions of all policies, by sequence number. Memory only: an epoch tells a new log."""

from __future__ import annotations

from collections import deque
from itertools import islice
from secrets import token_hex
from typing import NamedTuple

from tiphys_models.scaling.transition import LoggedTransition, Transition

CAPACITY = 20_000
"""Three and a half days of one policy, or as many hours of twenty-four, at 15 s."""


class _Kept(NamedTuple):
    """One transition, encoded as it will be sent: that takes a third of the object's memory."""

    seq: int
    policy: str
    entry: bytes


class TransitionLog:
    """The transitions of one process; only the leader appends to it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.epoch = token_hex(8)
        self._kept: deque[_Kept] = deque(maxlen=capacity)
        self.last = 0

    @property
    def first(self) -> int:
        """Oldest number that is kept; one more than `last` if there is none."""
        return self._kept[0].seq if self._kept else self.last + 1

    def append(self, transition: Transition) -> None:
        """The oldest goes when it is full: who asks for it later is told so."""
        self.last += 1
        entry = LoggedTransition(seq=self.last, transition=transition)
        self._kept.append(_Kept(self.last, transition.policy, entry.model_dump_json(by_alias=True).encode()))

    def page(self, after: int, limit: int, policy: str = "") -> bytes:
        """A `TransitionPage` with up to `limit` after a number, of one policy or of all; `lost` counts those of all policies."""
        first, read, items = self.first, after, list[bytes]()
        # numbers have no gaps, so the position is known
        for kept in islice(self._kept, max(after + 1 - first, 0), None):
            if len(items) == limit:
                break
            read = kept.seq
            if not policy or kept.policy == policy:
                items.append(kept.entry)
        head = f'{{"epoch":"{self.epoch}","first":{first},"last":{self.last},"lost":{max(0, first - after - 1)},"next":{read},"items":['
        return head.encode() + b",".join(items) + b"]}"

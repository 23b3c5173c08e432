"""What the trainer may learn from: the last transitions of all policies, by sequence number. Memory only: an epoch tells a new log."""

from __future__ import annotations

from collections import deque
from itertools import islice
from secrets import token_hex

from tiphys_models.api.scaling_transition import Entry, Transition, TransitionPage

CAPACITY = 50_000
"""A week of one policy, or eight hours of twenty-five, at 15 s; about 75 MB when full."""


class TransitionLog:
    """Of one process; only the leader appends."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.epoch = token_hex(8)
        self._entries: deque[Entry] = deque(maxlen=capacity)
        self.last = 0

    @property
    def first(self) -> int:
        """Oldest number that is kept; one more than `last` if there is none."""
        return self._entries[0].seq if self._entries else self.last + 1

    def append(self, transition: Transition) -> None:
        """The oldest goes when it is full: who asks for it later is told so."""
        self.last += 1
        self._entries.append(Entry(seq=self.last, transition=transition))

    def after(self, seq: int, limit: int, policy: str = "") -> TransitionPage:
        """Up to `limit` after a number, of one policy or of all; `lost` counts those of all policies."""
        first, read, items = self.first, seq, list[Entry]()
        # numbers have no gaps, so the position is known
        for entry in islice(self._entries, max(seq + 1 - first, 0), None):
            if len(items) == limit:
                break
            read = entry.seq
            if not policy or entry.transition.policy == policy:
                items.append(entry)
        return TransitionPage(epoch=self.epoch, first=first, last=self.last, lost=max(0, first - seq - 1), next=read, items=items)

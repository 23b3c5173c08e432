"""When each ScalingPolicy has its next window, its next look, and how late windows are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

from tiphys_models.base.clock import Clock
from tiphys_operator.runtime.pace import SoonAgain, again_in_s

LEAST_BETWEEN_S = 1.0
"""Between two windows of one policy, however often its spec is edited."""


@dataclass(slots=True)
class _Turn:
    """One policy's times, all monotonic."""

    due_s: float
    good_by_s: float
    """When a window should have ended well."""
    interval_s: float
    began_s: float = -math.inf
    look_s: float = math.inf
    failures: int = 0
    not_before_s: float = -math.inf
    """The time before which the server that failed asked not to be called again."""


class Schedule:
    """The times of all policies, by uid."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock, self._rng, self._soon = clock, rng, SoonAgain(clock)
        self._turns: dict[str, _Turn] = {}

    def expect(self, uid: str, first_in_s: float, interval_s: float) -> None:
        """A policy whose first window is due then; nothing changes for one that is known."""
        if uid not in self._turns:
            due_s = self._clock.monotonic_s() + first_in_s
            self._turns[uid] = _Turn(due_s, due_s + interval_s, interval_s)
        self._turns[uid].interval_s = interval_s

    def knows(self, uid: str) -> bool:
        """Whether windows of this policy are scheduled."""
        return uid in self._turns

    def forget(self, uid: str) -> None:
        """The policy is gone and has no more windows."""
        self._turns.pop(uid, None)

    def uids(self) -> set[str]:
        """Uids of all policies with scheduled windows."""
        return set(self._turns)

    def changed(self, uid: str) -> None:
        """Another spec: the next window is due at once, but not more often than windows may come."""
        if (turn := self._turns.get(uid)) is not None:
            turn.due_s = max(self._clock.monotonic_s(), turn.began_s + LEAST_BETWEEN_S)

    def due(self) -> list[str]:
        """Policies whose window should begin now, the longest overdue first."""
        now_s = self._clock.monotonic_s()
        return sorted((uid for uid, turn in self._turns.items() if turn.due_s <= now_s), key=lambda uid: self._turns[uid].due_s)

    def looks_due(self) -> list[str]:
        """Policies whose look between two windows is due now."""
        now_s = self._clock.monotonic_s()
        return [uid for uid, turn in self._turns.items() if turn.look_s <= now_s]

    def began(self, uid: str) -> None:
        """A window begins: the next one is due an interval after this one was."""
        if (turn := self._turns.get(uid)) is not None:
            now_s = self._clock.monotonic_s()
            turn.due_s = max(turn.due_s + turn.interval_s, now_s + turn.interval_s / 2)
            turn.began_s = now_s

    def ended(self, uid: str) -> None:
        """A window ended well."""
        if (turn := self._turns.get(uid)) is not None:
            turn.failures, turn.good_by_s = 0, self._clock.monotonic_s() + turn.interval_s

    def failed(self, uid: str, retry_after_s: float | None = None) -> None:
        """A window came to nothing: the next one comes later and later."""
        if (turn := self._turns.get(uid)) is not None:
            turn.failures += 1
            pause_s = again_in_s(turn.failures, turn.interval_s, retry_after_s, self._soon, self._rng)
            now_s = self._clock.monotonic_s()
            turn.due_s = now_s + pause_s
            turn.not_before_s = -math.inf if retry_after_s is None else turn.due_s

    def recovered(self) -> None:
        """The API server lists again after a while: what failed comes back within its interval, spread over it."""
        now_s = self._clock.monotonic_s()
        for turn in self._turns.values():
            if turn.failures:
                soon_s = now_s + turn.interval_s * self._rng.uniform(0.25, 1.0)
                turn.due_s = min(turn.due_s, max(soon_s, turn.not_before_s))

    def look_in(self, uid: str, in_s: float | None) -> None:
        """When to look at it next; None: not before its window."""
        if (turn := self._turns.get(uid)) is not None:
            turn.look_s = math.inf if in_s is None else self._clock.monotonic_s() + in_s

    def next_s(self, busy: Iterable[str], idle_s: float) -> float:
        """How long until anything is due for somebody who is not busy."""
        now_s, engaged = self._clock.monotonic_s(), set(busy)
        times = (min(turn.due_s, turn.look_s) for uid, turn in self._turns.items() if uid not in engaged)
        return max(min(min(times, default=math.inf) - now_s, idle_s), 0.0)

    def late(self) -> tuple[int, float]:
        """How many windows are late by more than an interval, and how many seconds the latest should have ended ago."""
        now_s = self._clock.monotonic_s()
        late = [(now_s - turn.good_by_s, turn.interval_s) for turn in self._turns.values()]
        return sum(by_s > interval_s for by_s, interval_s in late), max((by_s for by_s, _ in late), default=0.0)

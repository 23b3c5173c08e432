"""When each loop of a process last did its work: what probes, metrics and alerts ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiphys_models.base.clock import Clock


@dataclass(slots=True)
class _Loop:
    last_s: float
    limit_s: float
    fatal: bool


class Heartbeats:
    """Loops by name. A loop that has not finished a round of its work within its limit is late; `fatal` ones make the process dead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: dict[str, _Loop] = {}

    def expect(self, loop: str, limit_s: float, *, fatal: bool = False) -> None:
        """Register a loop that must beat every `limit_s`; registering it again only changes the limit."""
        if (known := self._loops.get(loop)) is not None:
            known.limit_s, known.fatal = limit_s, fatal
            return
        self._loops[loop] = _Loop(self._clock.monotonic_s(), limit_s, fatal)

    def beat(self, loop: str) -> None:
        """The loop has just done a round of its work."""
        if (known := self._loops.get(loop)) is not None:
            known.last_s = self._clock.monotonic_s()

    def forget(self, loop: str) -> None:
        """Nothing is expected of the loop any more: it is switched off, or another process leads."""
        self._loops.pop(loop, None)

    def late(self, *, fatal_only: bool = False) -> list[str]:
        """What to say of each loop that is late; empty while all do their work."""
        now_s = self._clock.monotonic_s()
        return [
            f"{name} has done nothing for {now_s - loop.last_s:.0f} s"
            for name, loop in self._loops.items()
            if now_s - loop.last_s > loop.limit_s and (loop.fatal or not fatal_only)
        ]

    def ages_s(self) -> Mapping[str, float]:
        """Seconds since each loop last did its work, for the metric."""
        now_s = self._clock.monotonic_s()
        return {name: now_s - loop.last_s for name, loop in self._loops.items()}

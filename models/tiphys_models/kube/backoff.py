"""How long to wait before asking again: longer every time, never in step with others, and at least as long as the server wants."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tiphys_models.base.errors import Unavailable

RETRY_AFTER_MAX_S = 60.0
"""A server that wants more, or a proxy that says nonsense, is asked again all the same."""
_THROTTLED, _UNAVAILABLE, _GATEWAY_TIMEOUT = 429, 503, 504
_AGAIN = (_THROTTLED, 500, 502, _UNAVAILABLE, _GATEWAY_TIMEOUT)

T = TypeVar("T")


def parse_retry_after(value: str | None, now_s: float) -> float | None:
    """The wait that a Retry-After header asks for, in seconds or until a date; None for one that is absent or cannot be read."""
    if value is None:
        return None
    try:
        wait_s = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
            wait_s = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() - now_s
        except (ValueError, OverflowError, OSError):
            return None
    return None if math.isnan(wait_s) else min(max(wait_s, 0.0), RETRY_AFTER_MAX_S)


def wall_s() -> float:
    """Seconds since the epoch: a date in a header means nothing else."""
    return datetime.now(UTC).timestamp()


class Backoff:
    """Doubles from try to try up to a limit."""

    def __init__(self, start_s: float, max_s: float, rng: random.Random | None = None) -> None:
        self._start_s, self._max_s = start_s, max_s
        self._next_s = start_s
        self._rng = rng or random.Random()  # noqa: S311 - not to be in step with others

    def next_s(self, error: Unavailable | None = None) -> float:
        """The wait after one more failure: between half and all of the next step, or a little more than the server asked for."""
        step_s, self._next_s = self._next_s, min(self._next_s * 2, self._max_s)
        wanted_s = retry_after_s(error)
        own_s = step_s * self._rng.uniform(0.5, 1.0)
        # whoever was told the same number of seconds comes back within a fifth of them, not at once
        return own_s if wanted_s is None else max(own_s, wanted_s * self._rng.uniform(1.0, 1.2))

    def reset(self) -> None:
        """The next wait is the shortest again, after a success."""
        self._next_s = self._start_s


def retry_after_s(error: BaseException | None) -> float | None:
    """What the server asked for, where it is the server that refused."""
    found = getattr(error, "retry_after_s", None)
    return found if isinstance(found, float) else None


async def patiently(
    ask: Callable[[], Awaitable[T]], within_s: float, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep, start_s: float = 0.5
) -> T:
    """The answer, asked for again while the server is throttling or away and the time lasts; then its last error."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    backoff = Backoff(start_s, 10.0)
    while True:
        try:
            return await ask()
        except Unavailable as error:
            wait_s = backoff.next_s(error)
            if getattr(error, "status", _UNAVAILABLE) not in _AGAIN or loop.time() + wait_s > end_s:
                raise
            await sleep(wait_s)

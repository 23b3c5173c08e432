"""Threads that think for policies: told to end, they end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tiphys_operator.selection.thinking import Thought


async def test_a_thought_that_runs_away_is_ended_and_its_thread_is_gone() -> None:
    threads: list[threading.Thread] = []

    def for_ever() -> None:
        threads.append(threading.current_thread())
        while True:
            try:
                for _ in range(10**9):
                    pass
            except Exception:  # noqa: BLE001, S110 - a planner may catch what it likes
                pass

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await Thought(for_ever, "runaway").result()
    end_s = time.monotonic() + 2.0
    while threads[0].is_alive() and time.monotonic() < end_s:  # noqa: ASYNC110 - the end of a thread is no event
        await asyncio.sleep(0.01)
    assert not threads[0].is_alive()


async def test_what_a_thought_finds_or_raises_comes_back_with_the_time_it_took() -> None:
    thought = Thought(lambda: sum(range(100_000)), "sum")
    assert await thought.result() == sum(range(100_000))
    assert thought.cpu_s > 0

    def breaks() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await Thought(breaks, "breaks").result()

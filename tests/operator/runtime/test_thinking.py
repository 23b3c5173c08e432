"""Threads that think for policies: told to end, they end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tiphys_models.base.clock import ManualClock
from tiphys_operator.runtime import thinking
from tiphys_operator.runtime.thinking import Overdue, Thinking, Thought


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
    end_s = time.monotonic() + 10.0
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


class Sleeper:
    """Work that no exception from outside ends: it waits within one call."""

    def __init__(self) -> None:
        self.woken, self.begun = threading.Event(), 0

    def __call__(self) -> None:
        self.begun += 1
        self.woken.wait()


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sleeper]:
    monkeypatch.setattr(thinking, "_LONGEST_END_S", 0.05)
    made = Sleeper()
    yield made
    made.woken.set()


async def test_threads_that_nothing_ends_do_not_pile_up_however_many_objects_ask(sleeper: Sleeper) -> None:
    clock = ManualClock(0.0)
    asked = Thinking("test", clock, 0.02, rest_times=0.0)
    for question in range(60):
        key = f"object-{question % 20}"
        with pytest.raises(Overdue):
            await asked.ask(key, "sleeps", sleeper)
    assert asked.left() == sleeper.begun == 2, "after the first, those that it has not answered ask one at a time"


async def test_objects_that_were_answered_before_leave_a_bounded_number_of_threads_too(sleeper: Sleeper) -> None:
    asked = Thinking("test", ManualClock(0.0), 10.0)
    for n in range(30):
        assert (await asked.ask(f"object-{n}", "sleeps", lambda: 1)).found == 1
    asked = _with_deadline(asked, 0.02)
    for question in range(90):
        with pytest.raises(Overdue):
            await asked.ask(f"object-{question % 30}", "sleeps", sleeper)
    assert asked.left() == sleeper.begun == 8
    assert (await asked.ask("object-1", "another", lambda: 2)).found == 2, "others are asked for the same objects"
    sleeper.woken.set()
    end_s = time.monotonic() + 10.0
    while asked.left() and time.monotonic() < end_s:  # noqa: ASYNC110 - the end of a thread is no event
        await asyncio.sleep(0.01)
    assert (await _with_deadline(asked, 10.0).ask("object-29", "sleeps", lambda: 3)).found == 3, "threads that end by themselves make room"


async def test_an_object_that_is_answered_in_time_notices_nothing_of_one_for_which_the_decider_ran_away(sleeper: Sleeper) -> None:
    clock = ManualClock(0.0)
    asked = Thinking("test", clock, 10.0, rest_times=0.5)
    await asked.ask("good", "theirs", lambda: 1)
    with pytest.raises(Overdue):
        await _with_deadline(asked, 0.02).ask("bad", "theirs", sleeper)
    assert (await _with_deadline(asked, 10.0).ask("good", "theirs", lambda: 2)).found == 2
    with pytest.raises(Overdue):
        await asked.ask("new", "theirs", lambda: 3)
    clock.advance(10.0)
    assert (await asked.ask("new", "theirs", lambda: 3)).found == 3
    found = await asyncio.gather(*(asked.ask(f"newer-{n}", "theirs", lambda: 4) for n in range(5)))
    assert [one.found for one in found] == [4] * 5, "once it has answered whoever suspected it, those that come are asked for side by side"


async def test_an_error_that_comes_in_time_is_the_works_own() -> None:
    asked = Thinking("test", ManualClock(0.0), 5.0)

    def breaks() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await asked.ask("object", "breaks", breaks)
    assert (await asked.ask("object", "breaks", lambda: 1)).found == 1


def _with_deadline(asked: Thinking, longest_s: float) -> Thinking:
    asked._longest_s = longest_s
    return asked

"""How often what fails is tried again."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from tiphys_models.base.clock import ManualClock
from tiphys_operator.runtime.pace import SoonAgain, again_in_s
from tiphys_operator.runtime.turns import Turns
from tiphys_operator.scaling.schedule import LEAST_BETWEEN_S, Schedule


def tried(policies: int, interval_s: float, for_s: float, retry_after_s: float | None = None, seed: int = 0) -> int:
    """Windows begun while every one of them fails."""
    clock = ManualClock()
    schedule = Schedule(clock, random.Random(seed))
    for number in range(policies):
        schedule.expect(str(number), 0.0, interval_s)
    begun, until_s = 0, clock.monotonic_s() + for_s
    while clock.monotonic_s() < until_s:
        for uid in schedule.due():
            schedule.began(uid)
            schedule.failed(uid, retry_after_s)
            begun += 1
        clock.advance(max(schedule.next_s((), 60.0), 0.01))
    return begun


@pytest.mark.parametrize("seed", range(5))
def test_twenty_policies_against_a_failing_server_ask_no_more_often_than_working_ones(seed: int) -> None:
    assert tried(20, 15.0, 20.0, seed=seed) <= 27
    assert tried(20, 15.0, 300.0, seed=seed) <= 20 * 300 / 15


def test_a_server_that_asks_for_thirty_seconds_gets_them() -> None:
    assert tried(20, 15.0, 29.0, retry_after_s=30.0) == 20


def test_after_an_outage_everybody_is_back_within_an_interval_and_not_in_one_instant() -> None:
    clock = ManualClock()
    schedule = Schedule(clock, random.Random(6))
    for number in range(50):
        schedule.expect(str(number), 0.0, 15.0)
        for _ in range(6):
            schedule.began(str(number))
            schedule.failed(str(number), 200.0 if number == 7 else None)
    schedule.recovered()
    clock.advance(5.0)
    assert 3 <= len(schedule.due()) <= 25
    clock.advance(10.0)
    assert len(schedule.due()) == 49
    assert "7" not in schedule.due(), "it was asked to wait"


def test_one_failure_alone_is_made_good_within_seconds() -> None:
    clock = ManualClock()
    schedule = Schedule(clock, random.Random(1))
    schedule.expect("a", 0.0, 300.0)
    schedule.began("a")
    schedule.failed("a")
    assert schedule.next_s((), 60.0) < 2.0


@pytest.mark.parametrize("interval_s", [1.0, 15.0, 300.0])
def test_pauses_grow_to_the_interval_or_a_minute_whichever_is_longer_and_differ(interval_s: float) -> None:
    rng, soon = random.Random(2), SoonAgain(ManualClock())
    longest_s = max(interval_s, 60.0)
    for failures in (2, 3, 50, 10**6):
        pauses = {again_in_s(failures, interval_s, None, soon, rng) for _ in range(50)}
        assert len(pauses) == 50
        assert all(0.75 * min(interval_s * 2.0 ** min(failures, 16), longest_s) <= pause <= 1.25 * longest_s for pause in pauses)


@pytest.mark.parametrize("asked_s", [math.inf, -math.inf, math.nan, -5.0, 0.0, 1e18])
def test_no_retry_after_whatever_makes_anybody_wait_for_ever_or_not_at_all(asked_s: float) -> None:
    pause_s = again_in_s(1, 15.0, asked_s, SoonAgain(ManualClock()), random.Random(3))
    assert 15.0 <= pause_s <= 375.0


def test_a_spec_that_is_edited_all_the_time_has_no_more_windows_than_one_a_second() -> None:
    clock = ManualClock()
    schedule = Schedule(clock, random.Random(4))
    schedule.expect("a", 0.0, 15.0)
    begun = 0
    for _ in range(1000):
        schedule.changed("a")
        for uid in schedule.due():
            schedule.began(uid)
            schedule.ended(uid)
            begun += 1
        clock.advance(0.01)
    assert begun <= 10 / LEAST_BETWEEN_S + 1


def test_windows_that_come_to_nothing_are_late_however_often_they_are_tried() -> None:
    clock = ManualClock()
    schedule = Schedule(clock, random.Random(5))
    for uid in ("good", "bad"):
        schedule.expect(uid, 0.0, 10.0)
    for _ in range(10):
        for uid in schedule.due():
            schedule.began(uid)
            schedule.failed(uid) if uid == "bad" else schedule.ended(uid)
        clock.advance(10.0)
    count, seconds = schedule.late()
    assert count == 1
    assert seconds == pytest.approx(90.0)
    schedule.forget("bad")
    assert schedule.late()[0] == 0


async def test_no_namespace_takes_all_places_and_no_object_has_two_jobs() -> None:
    ended = asyncio.Event()
    turns, begun, go_on = Turns(4, 2, ended.set), list[str](), asyncio.Event()

    async def job(name: str) -> None:
        begun.append(name)
        await go_on.wait()

    for number in range(6):
        turns.start(f"hog-{number}", "hog", lambda n=number: job(f"hog-{n}"))  # type: ignore[misc]
    turns.start("web", "shop", lambda: job("web"))
    turns.start("web", "shop", lambda: job("web again"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == ["hog-0", "hog-1", "web"]
    assert turns.busy("web")
    go_on.set()
    async with asyncio.timeout(2):
        while turns.engaged():  # noqa: ASYNC110 - the jobs under test have no event of ours
            await asyncio.sleep(0.01)
    assert len(begun) == 7
    turns.check()


async def test_what_a_job_raises_is_heard_by_the_loop() -> None:
    woken = asyncio.Event()
    turns = Turns(1, 1, woken.set)

    async def fails() -> None:
        raise ZeroDivisionError

    turns.start("a", "n", fails)
    await asyncio.wait_for(woken.wait(), 2)
    with pytest.raises(ZeroDivisionError):
        turns.check()
    await turns.close()

"""Calls that had better wait for a warm instance: told so if they wish, in order, within a bound, and never lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import policy_object
from tests.extender.binder_harness import PLATFORM, Binder, call, calling, refused
from tiphys_extender.calls import waiting_room
from tiphys_extender.calls.waiting_room import ASK_AGAIN_S, GONE_S, MOST_OF_A_FUNCTION
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.waiting import LONGEST_S

SLOW_START = FunctionProfile(0.5, 5.5, 1.0, 1.0, 2.0)


class BusyPool(Binder):
    """A pool with calls of function f that have run for a while on new instances and are about to end."""

    def __init__(self, policy: str = "estimator", mode: str = "Active", busy: int = 1) -> None:
        super().__init__(policies=[policy_object("active", mode=mode, policy=policy)])
        self.state.put_profiles({"default/f": SLOW_START})
        self.running = [self.place()["id"] for _ in range(busy)]
        self.clock.advance(5.0)

    def end_one(self) -> None:
        """The call that has run longest is over."""
        self.placer.finished(PLATFORM, self.running.pop(0))


def ask(made: BusyPool, key: str = "a", wait: float = 10.0, **changes: Any) -> dict[str, Any]:
    return made.place(idempotencyKey=key, waitSeconds=wait, **changes)


def test_who_does_not_wish_to_wait_gets_a_node() -> None:
    made = BusyPool()
    assert made.place()["reserved"]
    assert made.counted("calls_held_total") == 0


def test_who_wishes_to_is_told_to_wait_and_nothing_is_reserved() -> None:
    made = BusyPool()
    before = made.inflight()
    answer = ask(made)
    assert (answer["outcome"], answer["reserved"], answer["node"], answer["askAgainSeconds"]) == ("not-yet", False, None, ASK_AGAIN_S)
    assert 0 < answer["awaitedSeconds"] < 5.0
    assert answer["savesSeconds"] > 0
    assert made.inflight() == before
    assert made.counted("calls_held_total") == 1


def test_it_goes_to_the_warm_instance_as_soon_as_there_is_one() -> None:
    made = BusyPool()
    first = ask(made)
    node = next(iter(made.inflight()))
    made.clock.advance(0.4)
    made.end_one()
    answer = ask(made)
    assert (answer["id"], answer["node"], answer["waitedSeconds"]) == (first["id"], node, pytest.approx(0.4))
    assert made.counted("calls_held_ended_total", how="warm") == 1
    assert made.counted("calls_held_seconds_total") == pytest.approx(0.4)


@pytest.mark.parametrize(("wish_s", "bound_s"), [(2.0, 2.0), (60.0, LONGEST_S)])
def test_nobody_waits_for_longer_than_wished_nor_than_the_bound(wish_s: float, bound_s: float) -> None:
    made, waited_s = BusyPool(), 0.0  # the call that runs is always about to end, and never does
    while (answer := ask(made, wait=wish_s))["outcome"] == "not-yet":
        made.clock.advance(ASK_AGAIN_S)
        made.placer.tick()
        waited_s += ASK_AGAIN_S
        assert waited_s < 100
    assert answer["reserved"]
    assert waited_s == pytest.approx(bound_s, abs=ASK_AGAIN_S)
    assert made.counted("calls_held_ended_total", how="cold") == 1


def test_each_waits_for_an_instance_of_its_own_and_the_first_come_is_the_first_served() -> None:
    made = BusyPool(busy=1)
    assert ask(made, "a")["outcome"] == "not-yet"
    late = ask(made, "b")
    assert late["reserved"], "one call runs, and its instance is the other's: the second one starts one now"
    made.end_one()
    early = ask(made, "c")
    assert early["outcome"] == "not-yet", "what is idle belongs to the one in front"
    assert ask(made, "a")["reserved"]


def test_a_caller_that_falls_silent_has_gone_and_nobody_waits_behind_it() -> None:
    made = BusyPool()
    ask(made, "a")
    made.placer.tick()
    assert made.counted("calls_waiting") == 1
    made.clock.advance(GONE_S + 0.1)
    made.placer.tick()
    assert made.counted("calls_waiting") == 0
    assert made.counted("calls_held_ended_total", how="gone") == 1
    made.end_one()
    assert ask(made, "b")["reserved"]


def test_when_there_are_too_many_the_next_one_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_room, "MOST_OF_A_FUNCTION", 1)
    assert MOST_OF_A_FUNCTION > 1
    made = BusyPool(busy=3)
    assert ask(made, "a")["outcome"] == "not-yet"
    assert ask(made, "b")["reserved"]


@pytest.mark.parametrize("mode", ["Off", "Shadow"])
def test_where_the_policy_is_not_obeyed_nobody_waits(mode: str) -> None:
    assert ask(BusyPool(mode=mode))["outcome"] == "neutral"


@pytest.mark.parametrize("policy", ["warm-first", "least-connections", "warm-first-books"])
def test_a_policy_that_cannot_wait_answers_at_once(policy: str) -> None:
    assert ask(BusyPool(policy))["reserved"]


def test_a_wait_that_cannot_be_judged_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    made = BusyPool()
    monkeypatch.setattr("tiphys_models.placement.patient.Estimator.not_yet", fails)
    assert ask(made)["reserved"]


def test_who_stands_by_forgets_who_waits() -> None:
    made = BusyPool()
    ask(made)
    made.placer.stand_by()
    made.placer.tick()
    assert made.counted("calls_waiting") == 0


def test_waiting_needs_a_key_to_be_known_by() -> None:
    with refused("invalid"):
        BusyPool().place(waitSeconds=5)


async def test_over_http_the_same_request_is_sent_again_until_it_has_a_node(tmp_path: Path) -> None:
    made = BusyPool()
    body = call(idempotencyKey="a", waitSeconds=5)
    async with calling(made, tmp_path) as caller:
        status, told = await caller.post("", body)
        assert (status, told["outcome"]) == (200, "not-yet")
        made.end_one()
        _, placed = await caller.post("", body)
        assert placed["reserved"]
        _, again = await caller.post("", body)
        assert again == placed, "a node that was given is given again, not another one"
    assert json.loads(body)["waitSeconds"] == 5

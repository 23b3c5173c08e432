"""Gates are taken off whatever the API server answers, and nobody waits for one that does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.extender.gates.house import House, at_work, gated
from tests.extender.harness import first
from tiphys_extender.gates import opening
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError
from tiphys_models.placement.gate import GATE

PRIORITY: dict[str, Any] = {"spec": {"priority": 1}}
"""Whoever has one goes at once, without a look."""


def refused(status: int, **more: float) -> ApiError:
    return ApiError(status, "Reason", "no", **more)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (refused(429, retry_after_s=0.1), "throttled"),
        (refused(500), "other"),
        (Unavailable("reset"), "unreachable"),
        (refused(403), "forbidden"),
        (refused(409), "changed"),
    ],
)
async def test_a_patch_that_fails_is_tried_again(fault: Exception, reason: str) -> None:
    async with at_work(House()) as house:
        house.server.faults.append(fault)
        house.comes("u", **PRIORITY)
        await house.until(lambda: house.opened(reason="priority") == 1)
        assert house.counted("gate_patches_failed_total", reason=reason) == 1
        assert house.server.gates("u") == []


async def test_a_pod_that_is_gone_needs_no_patch() -> None:
    async with at_work(House(busy=False)) as house:
        house.keeper.put(gated("u"))  # the server knows of none
        await house.until(lambda: house.counted("gated_pods") == 0)
        assert house.opened(reason="cold") == house.state.reservations == 0


async def test_a_gate_that_somebody_else_has_taken_off_is_no_error() -> None:
    async with at_work(House()) as house:
        house.comes("u", **PRIORITY)
        for pod in house.server.pods.values():
            pod["spec"]["schedulingGates"] = []
        await house.until(lambda: house.counted("gated_pods") == 0)
        assert house.opened(reason="priority") == 0
        assert [method for method, _ in house.server.asked] == ["PATCH", "GET"]


async def test_a_pod_whose_other_gate_went_meanwhile_is_looked_at_anew() -> None:
    async with at_work(House()) as house:
        house.comes("u", spec={"schedulingGates": [{"name": "example.com/other"}, {"name": GATE}]})
        for pod in house.server.pods.values():
            pod["spec"]["schedulingGates"] = [{"name": GATE}]
        await house.until(lambda: house.opened(reason="not-understood") == 1)
        assert house.server.gates("u") == []


async def test_another_pod_of_the_same_name_is_left_alone() -> None:
    async with at_work(House()) as house:
        house.comes("u", **PRIORITY)
        for pod in house.server.pods.values():
            pod["metadata"]["uid"] = "another"
        await house.until(lambda: house.counted("gated_pods") == 0)
        assert house.server.gates("another") == [GATE]


async def test_an_answer_that_nobody_foresaw_keeps_no_other_pod_waiting() -> None:
    async with at_work(House()) as house:
        house.server.faults.append(KeyError("metadata"))
        house.comes("odd", **PRIORITY)
        house.comes("u", **PRIORITY)
        await house.until(lambda: house.opened(reason="priority") == 2)


async def test_a_server_that_does_not_answer_holds_up_neither_looks_nor_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "DEADLINE_S", 0.2)
    async with at_work(House()) as house:
        house.server.hold.clear()
        for number in range(20):
            house.comes(f"u{number}", **PRIORITY)
        await house.until(lambda: house.server.in_flight == opening.AT_ONCE)
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        assert max(house.ask("stranger").values()) == 10
        await house.until(lambda: house.counted("gate_patches_failed_total", reason="unreachable") >= 20)
        house.server.hold.set()
        await house.until(lambda: house.opened(reason="priority") == 20)
        assert house.server.most_in_flight == opening.AT_ONCE


async def test_who_may_not_patch_is_no_opener_until_it_may() -> None:
    async with at_work(House()) as house:
        await house.until(lambda: house.keeper.problem() == "")
        house.server.faults += [refused(403)] * 3
        house.comes("u", **PRIORITY)
        await house.until(lambda: "right to patch" in house.keeper.problem())
        await house.until(lambda: house.opened(reason="priority") == 1)
        await house.until(lambda: house.keeper.problem() == "")


async def test_an_opener_whose_right_was_mended_elsewhere_is_tried_again_after_a_while() -> None:
    async with at_work(House()) as house:
        house.server.faults.append(refused(403))
        house.comes("u", **PRIORITY)
        await house.until(lambda: "right to patch" in house.keeper.problem())
        for pod in house.server.pods.values():
            pod["spec"]["schedulingGates"] = []
        await house.until(lambda: house.counted("gated_pods") == 0)
        house.time.advance(61.0)
        await house.until(lambda: house.keeper.problem() == "")


async def test_an_opener_says_why_it_is_none() -> None:
    house = House()
    assert "has done nothing" in house.keeper.problem(), "its loop does not run"
    async with at_work(house):
        await house.until(lambda: house.keeper.problem() == "")
        house.doubt = "watches fail: gated-pods"
        assert house.keeper.problem() == "watches fail: gated-pods"


async def test_what_is_shown_late_of_a_pod_that_was_let_go_is_no_news() -> None:
    async with at_work(House()) as house:
        house.comes("u", **PRIORITY)
        await house.until(lambda: house.opened(reason="priority") == 1)
        house.keeper.put(gated("u", **PRIORITY))  # as it was before our patch
        assert house.counted("gated_pods") == 0


async def test_what_was_being_opened_when_the_loop_failed_is_opened_by_the_next_one() -> None:
    house = House()
    house.server.hold.clear()
    async with at_work(house):
        house.comes("u", **PRIORITY)
        await house.until(lambda: house.server.in_flight == 1)
    house.server.hold.set()
    async with at_work(house):
        await house.until(lambda: house.opened(reason="priority") == 1)


async def test_explain_tells_of_a_pod_while_it_is_held_and_after() -> None:
    async with at_work(House()) as house:
        house.comes("first")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        told = house.keeper.story("first", "", "") or {}
        assert (told["state"], told["rank"], told["function"]) == ("held", 0, "default/f")
        assert told["until"] - told["since"] == pytest.approx(10.0)
        assert told["awaitedSeconds"] > 0
        assert told["savesSeconds"] > 0
        assert house.keeper.story("", "default", "pod-first") == told
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        after = house.keeper.story("first", "", "") or {}
        assert (after["state"], after["reason"]) == ("opened", "warm")
        assert house.keeper.story("", "default", "pod-first") == after
        assert house.keeper.story("nobody", "", "") is None
        assert first(house.ask("first")) == "n2"
        assert house.last["held"] == {"seconds": after["seconds"], "reason": "warm"}
        house.ask("stranger")
        assert house.last["held"] is None


async def test_a_pod_that_the_scheduler_asks_about_before_our_patch_is_answered_has_waited_all_the_same() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.server.hold.clear()
        house.ends()
        await house.until(lambda: house.server.in_flight == 1)
        assert first(house.ask("next")) == "n2"
        assert house.last["held"]["reason"] == "warm"
        house.server.hold.set()
        await asyncio.sleep(0)

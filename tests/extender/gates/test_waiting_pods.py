"""Pods behind the gate: told to wait where that pays, let go in order, and never held for longer than the bound."""

from __future__ import annotations

import pytest

from tests.extender.gates.house import House, at_work, bound
from tests.extender.harness import first
from tiphys_models.api.reasons import OpenReason

WAITING = ("warm-first-waits", "rule-6", "estimator")


@pytest.mark.parametrize("policy", WAITING)
async def test_a_pod_that_would_start_cold_waits_and_goes_where_the_busy_instance_was(policy: str) -> None:
    async with at_work(House(policy)) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        assert house.server.gates("next") == ["tiphys.io/not-yet"]
        assert house.state.reservations == 0
        assert house.counted("held_expected_seconds_total") > 0
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        assert house.server.gates("next") == []
        assert house.counted("held_ended_total", how="warm") == 1
        assert first(house.ask("next")) == "n2"
        assert house.last["held"]["reason"] == "warm"


async def test_what_is_freed_is_kept_for_the_pod_that_waited_for_it() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        assert house.state.reservations == 1
        assert first(house.ask("stranger")) != "n2", "it is taken"
        assert first(house.ask("next")) == "n2", "its own reservation does not stand in its way"
        assert house.state.unfinished("default/f")["n2"] == 1


async def test_nobody_waits_longer_than_the_bound_where_nothing_ends() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.time.advance(9.8)
        await house.looked()
        await house.until(lambda: house.opened(reason="bound") + house.opened(reason="cold") == 1)
        assert house.server.gates("next") == []


async def test_the_bound_holds_for_a_pod_whose_policy_would_wait_for_ever() -> None:
    house = House(bound_s=0.8)
    async with at_work(house):
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        for _ in range(3):
            await house.looked()
        assert house.opened(reason="bound") == 0
        await house.looked()
        await house.until(lambda: house.opened(reason="bound") == 1)
        assert house.counted("held_ended_total", how="bound") == 1
        assert house.state.reservations == 1


async def test_a_pod_that_was_created_long_ago_has_waited_already() -> None:
    async with at_work(House()) as house:
        house.comes("old", metadata={"name": "old", "creationTimestamp": "2023-11-14T22:13:00Z", "labels": {"tiphys.io/function": "f"}})
        await house.until(lambda: house.opened(reason="bound") == 1)
        assert house.counted("held_pods_total") == 0


async def test_a_wall_clock_that_runs_behind_does_not_make_the_wait_longer() -> None:
    async with at_work(House(bound_s=1.0)) as house:
        labels = {"tiphys.io/function": "f"}
        house.comes("next", metadata={"name": "next", "creationTimestamp": "2033-11-14T22:13:00Z", "labels": labels})
        await house.until(lambda: house.counted("held_pods_total") == 1)
        for _ in range(5):
            await house.looked()
        await house.until(lambda: house.opened(reason="bound") == 1)


async def test_the_first_who_came_goes_first_and_others_wait_for_instances_of_their_own() -> None:
    async with at_work(House()) as house:
        for uid in ("first", "second", "third"):
            house.comes(uid)
        await house.until(lambda: house.counted("gate_looks_total") >= 3)
        held = house.counted("held_pods_total")
        assert held >= 1
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        assert house.server.gates("first") == []
        assert house.counted("held_overtaken_total") == 0


async def test_a_pod_without_a_gate_that_takes_an_instance_from_one_who_waits_is_counted() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.server.hold.clear()
        house.state.ran("busy", house.clock.now_s())  # the keeper has not heard of it
        assert first(house.ask("stranger")) == "n2"
        assert house.counted("held_overtaken_total") == 1
        house.server.hold.set()


async def test_a_pod_for_which_an_instance_is_idle_goes_at_once() -> None:
    async with at_work(House()) as house:
        house.ends()
        house.comes("next")
        await house.until(lambda: house.opened(reason="warm") == 1)
        assert house.counted("held_pods_total") == 0
        assert house.counted("gate_seconds_count") == 1


async def test_a_pod_of_which_nobody_expects_an_instance_goes_cold_at_once() -> None:
    async with at_work(House(busy=False)) as house:
        house.comes("next")
        await house.until(lambda: house.opened(reason="cold") == 1)
        assert house.state.reservations == 1


async def test_what_waiting_brought_is_counted_when_the_pod_has_run() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.time.advance(0.3)
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        house.pods.put(bound("next", "n2"))
        house.time.advance(0.5)
        house.ends("next")
        assert house.counted("held_gain_seconds_total") == pytest.approx(5.5 - 0.8, abs=0.3)
        assert house.counted("held_lost_seconds_total") == 0


async def test_a_pod_that_ran_longer_than_expected_is_counted_as_a_loss_and_a_failed_one_as_nothing() -> None:
    async with at_work(House()) as house:
        for uid in ("slow", "fails"):
            house.comes(uid)
        await house.until(lambda: house.counted("gate_looks_total") >= 2)
        house.ends()
        await house.until(lambda: house.opened(reason="warm") == 1)
        house.pods.put(bound("slow", "n2"))
        house.time.advance(30.0)
        await house.until(lambda: len(house.keeper) == 0)
        house.ends("fails", phase="Failed")
        assert house.counted("held_gain_seconds_total") == house.counted("held_lost_seconds_total") == 0
        house.ends("slow")
        assert house.counted("held_lost_seconds_total") == pytest.approx(30.0 - 5.5, abs=1.0)


async def test_a_pod_that_is_deleted_while_it_waits_is_gone() -> None:
    async with at_work(House()) as house:
        house.comes("next")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        (path,) = house.server.pods
        pod = house.server.pods.pop(path)
        house.keeper.drop(pod)
        await house.until(lambda: house.counted("held_ended_total", how="gone") == 1)
        assert house.counted("gated_pods") == 0
        assert house.state.reservations == 0


async def test_a_burst_is_looked_at_whole_and_let_go_by_the_bound() -> None:
    async with at_work(House(bound_s=2.0)) as house:
        for number in range(200):
            house.comes(f"u{number}")
        await house.until(lambda: house.counted("gate_looks_total") >= 200)
        house.time.advance(2.0)
        await house.until(lambda: house.counted("gated_pods") == 0)
        assert sum(house.opened(reason=str(reason)) for reason in OpenReason) == 200
        assert house.server.most_in_flight <= 8

from __future__ import annotations

from typing import Any

import pytest

from tiphys_models.base.clock import ManualClock
from tiphys_models.base.quantity import rfc3339
from tiphys_models.placement.gate import GATE
from tiphys_operator.gates.ledger import HeldPods, wait_left_s

LONGEST_S = 13.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def held(clock: ManualClock) -> HeldPods:
    return HeldPods(clock, LONGEST_S)


def a_pod(uid: str, created_s: float, gates: tuple[str, ...] = (GATE,), **metadata: Any) -> dict[str, Any]:
    named = {"name": uid, "namespace": "d", "uid": uid, "creationTimestamp": rfc3339(created_s)}
    return {"metadata": named | metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates], "containers": [{"image": "i"}]}}


def uids(held: HeldPods) -> list[str]:
    return [one.uid for one in held.due()]


def test_a_pod_is_due_when_it_has_been_held_for_as_long_as_anybody_may_wait(held: HeldPods, clock: ManualClock) -> None:
    held.put(a_pod("new", clock.now_s()))
    clock.advance(LONGEST_S - 0.1)
    assert uids(held) == []
    clock.advance(0.2)
    assert uids(held) == ["new"]


def test_a_pod_that_waited_before_we_came_is_due_by_its_creation(held: HeldPods, clock: ManualClock) -> None:
    held.put(a_pod("old", clock.now_s() - 60))
    held.put(a_pod("older", clock.now_s() - 600))
    held.put(a_pod("half", clock.now_s() - 6))
    assert set(uids(held)) == {"old", "older"}
    clock.advance(7.1)
    assert "half" in uids(held)


@pytest.mark.parametrize("behind_s", [3600.0, -0.5])
def test_a_clock_that_is_behind_the_api_servers_keeps_nobody_longer_than_we_have_seen_them_held(
    held: HeldPods, clock: ManualClock, behind_s: float
) -> None:
    held.put(a_pod("p", clock.now_s() + behind_s))
    clock.advance(LONGEST_S + 0.1)
    assert uids(held) == ["p"]


def test_a_clock_that_is_set_back_while_a_pod_is_held_does_not_keep_it(held: HeldPods, clock: ManualClock) -> None:
    held.put(a_pod("p", clock.now_s()))
    clock.set_forward(-3600)
    held.put(a_pod("p", clock.now_s() + 3600, annotations={"changed": "yes"}))
    clock.advance(LONGEST_S + 0.1)
    assert uids(held) == ["p"]


@pytest.mark.parametrize("created", ["", None, "yesterday", 7])
def test_a_creation_that_cannot_be_read_counts_from_when_the_pod_was_seen(held: HeldPods, clock: ManualClock, created: Any) -> None:
    held.put(a_pod("p", clock.now_s(), creationTimestamp=created))
    assert uids(held) == []
    clock.advance(LONGEST_S + 0.1)
    assert uids(held) == ["p"]


def test_who_is_let_go_deleted_or_held_by_others_only_is_none_of_ours(held: HeldPods, clock: ManualClock) -> None:
    for uid in ("opened", "leaving"):
        held.put(a_pod(uid, 0.0))
    held.put(a_pod("opened", 0.0, gates=("example.com/quota",)))
    held.put(a_pod("leaving", 0.0, deletionTimestamp=rfc3339(clock.now_s())))
    assert len(held) == 0


def test_a_pod_that_lost_its_label_is_let_go_at_once(held: HeldPods, clock: ManualClock) -> None:
    """A watch by label shows it as deleted; if it was, the try to open it says so."""
    held.put(a_pod("p", clock.now_s()))
    held.put(a_pod("q", clock.now_s()))
    held.drop(a_pod("p", clock.now_s()))
    assert uids(held) == ["p"]
    held.listed({"elsewhere"})
    assert uids(held) == ["p", "q"]
    held.opened("p")
    held.drop(a_pod("p", clock.now_s()))
    assert uids(held) == ["q"]


def test_after_a_failure_a_pod_is_due_again_later_and_still_known_as_old(held: HeldPods, clock: ManualClock) -> None:
    held.put(a_pod("p", 0.0))
    clock.advance(5)
    held.failed("p", 2.0)
    assert uids(held) == []
    clock.advance(2.1)
    (again,) = held.due()
    assert again.failures == 1
    assert held.oldest_s() == pytest.approx(7.1)


def test_who_is_overdue_longest_comes_first_and_who_is_being_opened_not_again(held: HeldPods, clock: ManualClock) -> None:
    for uid, age_s in (("a", 13), ("b", 14), ("c", 12)):
        held.put(a_pod(uid, clock.now_s() - age_s))
        clock.advance(0.5)
    clock.advance(5)
    assert uids(held) == ["a", "b", "c"]
    assert [one.uid for one in held.due(besides={"a"})] == ["b", "c"]


def test_nothing_of_a_pod_is_kept_but_what_opening_needs(held: HeldPods) -> None:
    held.put(a_pod("p", 0.0, gates=("example.com/quota", GATE), managedFields=[{"a": "b"}]))
    (one,) = held.due()
    assert one.pod == {
        "metadata": {"name": "p", "namespace": "d", "uid": "p"},
        "spec": {"schedulingGates": [{"name": "example.com/quota"}, {"name": GATE}]},
    }


def test_nobody_waits_longer_for_having_been_made_in_the_future() -> None:
    assert wait_left_s(LONGEST_S, 1_000.0, 0.0) == LONGEST_S
    assert wait_left_s(LONGEST_S, 0.0, 5.0) == LONGEST_S - 5
    assert wait_left_s(LONGEST_S, 0.0, 500.0) == 0.0

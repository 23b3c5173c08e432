"""What a binder keeps of its tenants: bounded for each and for all, and nobody pushes out what is another's."""

from __future__ import annotations

import pytest

from tests.extender.binder_harness import (
    OTHER,
    PLATFORM,
    Binder,
    call,
    refused,
)
from tiphys_extender.calls.placer import new_uid
from tiphys_extender.calls.replies import Replies
from tiphys_extender.calls.requests import PlaceCall
from tiphys_extender.serve.caps import Caps
from tiphys_extender.serve.kept import Kept
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenant


def test_a_tenants_answers_do_not_push_out_those_of_another() -> None:
    replies = Replies(10_000)
    calls = [parse(PlaceCall, call(idempotencyKey=f"k{index}")) for index in range(50)]
    replies.keep("quiet", calls[0], b"x" * 500)
    for one in calls:
        replies.keep("greedy", one, b"x" * 500)
    assert replies.find("quiet", calls[0]) == b"x" * 500
    assert [replies.find("greedy", one) is not None for one in calls] == [False] * 41 + [True] * 9


def test_a_tenants_answers_take_no_more_than_its_own_memory() -> None:
    replies = Replies(1_000_000)
    for index in range(1_000):
        replies.keep("greedy", parse(PlaceCall, call(idempotencyKey=f"g{index}")), b"x" * 100, 2_000)
    assert len(replies._kept) == 2_000 // 600


def test_what_a_tenant_has_finished_is_not_forgotten_because_another_finishes_much() -> None:
    binder = Binder(max_open=5)
    answer = binder.place()
    binder.placer.finished(PLATFORM, answer["id"])
    for _ in range(50):
        binder.placer.finished(OTHER, new_uid())
    with refused("finished"):
        binder.report(answer["id"], node=answer["node"], namespace="default", function="f")
    assert len(binder.leases._finished) == 5


def test_kept_values_are_bounded_for_each_and_for_all_and_leave_nothing_behind() -> None:
    kept: Kept[int] = Kept(10)
    for index in range(30):
        kept.put("a", f"k{index}", index, most_own=4)
    assert ([kept.get("a", f"k{index}") for index in (25, 26, 29)], len(kept)) == ([None, 26, 29], 4)
    kept.put("a", "k29", 1, size=2, most_own=4)
    assert (kept.get("a", "k29"), kept.get("a", "k26"), len(kept)) == (1, None, 3)
    kept.put("b", "large", 1, size=11)
    assert (kept.get("b", "large"), len(kept)) == (None, 3)
    assert list(kept._of) == ["a"]


def test_made_up_names_of_functions_are_bounded_for_each_tenant() -> None:
    binder = Binder()
    few = Tenant("few", (), frozenset({"default"}), Caps(max_functions=3))
    for index in range(3):
        for _ in range(2):
            binder.placer.finished(few, binder.place(few, function=f"f{index}")["id"])
    with pytest.raises(Refused) as told:
        binder.place(few, function="f3")
    assert (told.value.reason, told.value.status, told.value.retry_after_s) == ("too-many-functions", 429, 600)
    with refused("too-many-functions"):
        binder.report(new_uid(), few, node="n0", namespace="default", function="f4")
    assert binder.place(function="f3")["reserved"] is True, "another tenant's names are its own"
    assert binder.place(few, function="f0")["reserved"] is True
    binder.clock.advance(599)
    with refused("too-many-functions"):
        binder.place(few, function="f3")
    binder.clock.advance(1)
    assert binder.place(few, function="f3")["reserved"] is True


def test_metrics_are_as_many_whatever_tenants_and_functions_are_called() -> None:
    binder = Binder()

    def series() -> int:
        return sum(len(metric.samples) for metric in binder.metrics.registry.collect())

    binder.place(function="f")
    at_first = series()
    for index in range(100):
        named = Tenant(f"tenant-{index}", (), frozenset({"*"}), Caps())
        placed = binder.place(named, function=f"f{index}", labels={f"key-{index}": "v"}, idempotencyKey=f"k{index}")
        binder.placer.finished(named, placed["id"])
    assert series() == at_first < 1500


def test_a_function_whose_call_still_runs_is_not_forgotten() -> None:
    binder = Binder(lease_s=400)
    one = Tenant("one", (), frozenset({"default"}), Caps(max_functions=1))
    uid = binder.place(one)["id"]
    binder.clock.advance(300)
    binder.report(uid, one)
    binder.clock.advance(350)
    binder.placer.tick()
    with refused("too-many-functions"):
        binder.place(one, function="g")
    binder.clock.advance(400)
    binder.placer.tick()
    assert binder.place(one, function="g")["reserved"] is True

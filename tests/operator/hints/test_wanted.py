"""Which hints should stand: by what the policy asks, what is learned, and what shares the node."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.operator.hints.small import NOW_S, seen
from tiphys_models.api.scheduling_policy import Hints
from tiphys_models.placement.hints import Hint, changes
from tiphys_operator.hints.wanted import (
    LONG_STAY_S,
    LONGEST_S,
    Stay,
    deletion_cost,
    duration_s,
    protected_for_s,
    stays_of,
    wanted_hints,
)
from tiphys_operator.platforms.counting import Calls

BOTH = Hints(do_not_disrupt=True, deletion_cost=True)
DND = "karpenter.sh/do-not-disrupt"


def asked(asks: Hints | None = BOTH, run_time_s: float | None = 94.2, **parts: Any) -> dict[Hint, str]:
    return wanted_hints(seen(**parts), asks, run_time_s, lambda: "13", NOW_S)


def test_a_pod_that_ends_by_itself_is_protected_for_the_learned_time_in_whole_seconds() -> None:
    assert asked() == {Hint.DO_NOT_DISRUPT: "95s"}
    assert asked(run_time_s=95.0) == {Hint.DO_NOT_DISRUPT: "95s"}
    assert asked(owner="", spec={"restartPolicy": "OnFailure"}) == {Hint.DO_NOT_DISRUPT: "95s"}


def test_replicas_get_a_cost_and_no_protection_and_others_nothing() -> None:
    assert asked(owner="ReplicaSet") == {Hint.DELETION_COST: "13"}
    for owner in ("StatefulSet", "DaemonSet"):
        assert asked(owner=owner) == {}


@pytest.mark.parametrize("asks", [None, Hints(), Hints(deletion_cost=True)])
def test_what_no_policy_asks_for_is_not_wanted(asks: Hints | None) -> None:
    assert asked(asks) == {}
    assert asked(Hints(do_not_disrupt=True), owner="ReplicaSet") == {}


def test_before_anything_is_learned_and_without_a_start_nothing_is_said() -> None:
    assert asked(run_time_s=None) == {}
    assert asked(status={"startTime": None}) == {}


def test_nobody_is_protected_for_more_than_a_day() -> None:
    assert asked(run_time_s=10.0 * LONGEST_S) == {Hint.DO_NOT_DISRUPT: f"{LONGEST_S}s"}


def test_a_protection_is_written_once_whatever_is_learned_later() -> None:
    ours = {DND: "95s", "tiphys.io/hints": "doNotDisrupt=95s"}
    assert asked(run_time_s=500.0, annotations=ours) == {Hint.DO_NOT_DISRUPT: "95s"}
    one = seen(annotations=ours, age_s=1_000.0)
    assert changes(one.annotations, wanted_hints(one, BOTH, 5_000.0, str, NOW_S)) == {}, "one that outlived it is not extended"


def test_a_pod_that_has_run_for_longer_already_gets_none() -> None:
    assert asked(age_s=94.0) == {Hint.DO_NOT_DISRUPT: "95s"}
    assert asked(age_s=95.0) == {}


def test_a_cost_that_nobody_needs_is_not_reckoned() -> None:
    def cost() -> str:
        raise AssertionError("asked")

    assert wanted_hints(seen(), BOTH, None, cost, NOW_S) == {}


def stay(*others: dict[str, Any], times: dict[str, float] | None = None) -> Stay:
    """How long a node stays for these pods when another one of it goes."""
    there = [seen(name=f"o{number}", **parts) for number, parts in enumerate(others)]
    return stays_of([seen(name="me", owner="ReplicaSet", annotations={DND: "24h"}), *there], (times or {}).get, NOW_S).without("uid-me")


def test_a_pod_alone_on_its_node_is_the_cheapest_to_delete() -> None:
    assert stay() is Stay.ALONE
    assert stay({"owner": "DaemonSet"}) is Stay.ALONE


def test_pods_that_may_be_evicted_keep_a_node_less_than_protected_ones() -> None:
    assert stay({"owner": "ReplicaSet"}, {"owner": "Job"}) is Stay.MOVABLE
    assert stay({"annotations": {DND: "5m"}}) is Stay.SHORT
    assert stay({"annotations": {DND: f"{LONG_STAY_S + 10:.0f}s"}}) is Stay.LONG
    assert stay({"annotations": {DND: "5s"}, "age_s": 6.0}) is Stay.MOVABLE, "its time is over"


def test_who_is_protected_for_good_keeps_it_until_its_like_have_ended() -> None:
    always = {"annotations": {DND: "true"}, "age_s": 100.0}
    assert stay(always) is Stay.LONG, "nothing is known of its like"
    assert stay(always, times={"shop/encode": 200.0}) is Stay.SHORT
    assert stay(always, times={"shop/encode": 50.0}) is Stay.SHORT, "it may end at any time, and nobody may evict it"
    assert stay(always | {"owner": "ReplicaSet"}, times={"shop/encode": 200.0}) is Stay.LONG


def test_a_node_is_judged_without_the_pod_that_goes_and_with_all_others() -> None:
    ages = {"a": 700.0, "b": 100.0, "c": 0.0}
    there = [seen(name=name, annotations={DND: f"{seconds + 10:.0f}s"} if seconds else {}) for name, seconds in ages.items()]
    stays = stays_of(there, lambda _: None, NOW_S)
    assert [stays.without(f"uid-{name}") for name in ages] == [Stay.SHORT, Stay.LONG, Stay.LONG]


def test_the_cluster_autoscalers_own_word_protects_too() -> None:
    one = seen(owner="ReplicaSet", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    other = seen(owner="ReplicaSet", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"})
    assert (protected_for_s(one, lambda _: None, NOW_S), protected_for_s(other, lambda _: None, NOW_S)) == (math.inf, 0.0)


def test_calls_count_before_nodes_and_costs_are_small_and_never_negative() -> None:
    ordered = [deletion_cost(calls, where) for calls in Calls for where in Stay]
    assert [int(cost) for cost in ordered] == sorted({int(cost) for cost in ordered})
    assert int(ordered[0]) >= 0
    assert int(ordered[-1]) < 100


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("1.5m", 90.0), ("250ms", 0.25), ("", None), ("5", None), ("-5s", None), ("5 m", None), ("x", None)],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds

"""Who is counted as idle where, and for how long that is said."""

from __future__ import annotations

from tiphys_operator.cluster.instances import Instance
from tiphys_operator.platforms.counting import REMEMBERED_S, Calls, IdleCounts, LastCalls, NodeReport


def instance(name: str, node: str = "n0", function: str = "shop/resize") -> Instance:
    return Instance(name, function, node, "10.0.0.1")


def test_idle_ones_count_by_node_and_function_and_busy_ones_make_a_zero() -> None:
    counts = IdleCounts()
    there = {"a": instance("a"), "b": instance("b"), "c": instance("c", function="shop/mail"), "d": instance("d", "n1")}
    counts.round(there, {"a": True, "b": True, "c": False, "d": True}, 99.0, 100.5)
    assert counts.nodes == {
        "n0": NodeReport({"shop/resize": 2, "shop/mail": 0}, 99.0),
        "n1": NodeReport({"shop/resize": 1}, 99.0),
    }


def test_an_instance_that_does_not_answer_counts_for_nothing_while_its_neighbours_count() -> None:
    counts = IdleCounts()
    there = {"a": instance("a"), "b": instance("b"), "theirs": instance("theirs", function="other/slow")}
    counts.round(there, {"a": True}, 99.0, 100.0)
    assert counts.nodes == {"n0": NodeReport({"shop/resize": 1, "other/slow": 0}, 99.0)}


def test_of_a_node_on_which_none_answers_the_last_report_grows_old_and_is_then_forgotten() -> None:
    counts, there = IdleCounts(), {"a": instance("a"), "b": instance("b", "n1")}
    counts.round(there, {"a": True, "b": True}, 99.0, 100.0)
    counts.round(there, {"b": True}, 104.0, 105.0)
    assert {node: report.sampled_s for node, report in counts.nodes.items()} == {"n0": 99.0, "n1": 104.0}
    assert counts.nodes["n0"].counts == {"shop/resize": 1}
    counts.round(there, {"b": True}, 99.0 + REMEMBERED_S, 100.0 + REMEMBERED_S)
    assert set(counts.nodes) == {"n1"}


def test_a_function_whose_last_instance_has_gone_has_none_for_a_while_and_then_is_not_named() -> None:
    counts = IdleCounts()
    counts.round({"a": instance("a")}, {"a": True}, 99.0, 100.0)
    counts.round({}, {}, 104.0, 105.0)
    assert counts.nodes == {"n0": NodeReport({"shop/resize": 0}, 104.0)}
    counts.round({}, {}, 99.0 + REMEMBERED_S, 100.0 + REMEMBERED_S)
    assert counts.nodes["n0"].sampled_s == 99.0 + REMEMBERED_S
    counts.round({}, {}, 104.0 + REMEMBERED_S, 105.0 + REMEMBERED_S)
    assert counts.nodes == {}


def test_what_is_remembered_ends_with_the_instances() -> None:
    counts = IdleCounts()
    for number in range(50):
        now_s = 100.0 + number * REMEMBERED_S
        counts.round({"u": instance("a", f"n{number}", f"shop/f{number}")}, {"u": True}, now_s - 1, now_s)
        assert len(counts.nodes) <= 2
        assert len(counts._seen_s) <= 2


def test_an_instance_that_had_a_call_within_the_last_minute_is_one_with_calls() -> None:
    calls = LastCalls()
    calls.round({"a": True, "b": False}, 100.0)
    assert (calls.of("a", 100.0), calls.of("b", 100.0), calls.of("c", 100.0)) == (Calls.IDLE, Calls.BUSY, Calls.UNKNOWN)
    for second in range(105, 166, 5):
        calls.round({"a": True, "b": True}, float(second))
        assert calls.of("b", float(second)) is (Calls.BUSY if second < 165 else Calls.IDLE)
    calls.round({"a": False}, 170.0)
    assert (calls.of("a", 170.0), calls.of("b", 170.0)) == (Calls.BUSY, Calls.IDLE)


def test_of_an_instance_that_says_nothing_any_more_nothing_is_known_or_kept() -> None:
    calls = LastCalls()
    calls.round({"a": True}, 100.0)
    assert calls.of("a", 131.0) is Calls.UNKNOWN
    calls.round({}, 131.0)
    assert calls._said_s == {}

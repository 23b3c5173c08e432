"""Who is expected to tell of a window, and for how long."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.scaling.seen import RECENT
from tiphys_operator.scaling.presence import Heard, Presence, Running, lacks, presence, reaches, reporter
from tiphys_operator.scaling.presence import heard as heard_of
from tiphys_operator.scaling.series import Series, warnings_of


def running(*names: str, restarts: str = "0") -> Running:
    return Running(dict.fromkeys(names, 0.0), lives={name: f"{name}/{restarts}" for name in names}, known=frozenset(names))


def heard(nameless: int = 0, others: int = 0) -> Heard:
    return Heard(frozenset(), frozenset(f"series {n}" for n in range(nameless)), frozenset(f"other {n}" for n in range(others)))


def after(*windows: tuple[Heard, Running]) -> tuple[Presence, str]:
    state, missing = Presence(), ""
    for found, pods in windows:
        state, missing = presence(found, state, pods)
    return state, missing


FOUR = running("a", "b", "c", "d")


def test_a_source_that_falls_silent_is_missed_for_as_long_as_its_pods_run() -> None:
    assert after((heard(4), FOUR), *[(heard(3), FOUR)] * 100)[1] == "1 of 4 sources of its series"


def test_each_pod_that_goes_takes_its_share_along() -> None:
    assert after((heard(8), FOUR), (heard(4), running("a", "b")))[1] == ""
    assert after((heard(8), FOUR), (heard(3), running("a", "b")))[1] == "1 of 4 sources of its series"


def test_pods_that_were_replaced_or_restarted_are_expected_to_tell_nothing_they_have_not_told() -> None:
    assert after((heard(4), FOUR), (heard(0), running("e", "f", "g", "h")))[1] == ""
    assert after((heard(4), FOUR), (heard(0), running("a", "b", "c", "d", restarts="1")))[1] == ""


def test_pods_that_end_and_are_still_scraped_are_not_waited_for_afterwards() -> None:
    two = running("a", "b")
    assert after((heard(4), FOUR), (heard(4), two), (heard(4), two), (heard(2), two))[1] == ""


def test_new_sources_are_expected_once_the_pods_have_settled() -> None:
    assert after((heard(2), FOUR), (heard(4), FOUR), (heard(3), FOUR))[1] == ""
    assert after((heard(2), FOUR), *[(heard(4), FOUR)] * 5, (heard(3), FOUR))[1] == "1 of 4 sources of its series"


def test_other_pods_are_waited_for_only_for_a_while() -> None:
    gone = [(heard(others=1), FOUR)] * (RECENT - 1)
    assert after((heard(others=2), FOUR), *gone)[1] == "1 of 2 proxies that are no pods of its own"
    assert after((heard(others=2), FOUR), *gone, (heard(others=1), FOUR), (heard(others=1), FOUR))[1] == ""


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abcdefgh"), min_size=1)), min_size=1, max_size=30))
def test_whatever_came_before_it_is_complete_again_once_all_pods_are_new(windows: list[tuple[int, set[str]]]) -> None:
    before = [(heard(count, count), running(*names)) for count, names in windows]
    assert after(*before, (heard(0), running("x", "y")))[1] == ""


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"pod": "a"}, "a"),
        ({"kubernetes_pod_name": "a"}, "a"),
        ({"pod": "waypoint-1", "instance": "10.0.0.9:15020"}, "other waypoint-1"),
        ({"instance": "10.0.0.1:15020"}, "a"),
        ({"instance": "[fd00::1]:15020"}, "b"),
        ({"instance": "b:80"}, "b"),
        ({"instance": "10.0.0.7:15020"}, "instance 10.0.0.7:15020"),
        ({"le": "1", "source": "x"}, "series source=x"),
    ],
)
def test_a_series_names_its_pod_by_label_or_address(labels: dict[str, str], expected: str) -> None:
    pods = Running({"a": 0.0, "b": 0.0}, addresses={"10.0.0.1": "a", "fd00::1": "b"}, known=frozenset("ab"))
    assert reporter(Series(labels, (1.0,), (1.0,)), pods, "") == expected


@given(gap=st.floats(1, 15), phase=st.floats(0, 1), alive_s=st.floats(0, 60))
def test_a_target_that_is_alive_covers_every_window_and_one_that_died_covers_none_but_its_last(
    gap: float, phase: float, alive_s: float
) -> None:
    times = [phase * gap + n * gap for n in range(200)]
    end_s = times[-1] + phase * gap * 0.99
    length_s = 15.0
    lived = Series({}, tuple(times), tuple(times))
    assert reaches(lived, end_s, length_s)
    died = tuple(t for t in times if t <= end_s - length_s - alive_s)
    assert lacks(Series({}, died, died), end_s - length_s, end_s) is None


@pytest.mark.parametrize("gap", [1.0, 5.0, 7.5, 15.0])
@pytest.mark.parametrize("pods", [8, 60])
def test_scrapes_that_come_a_little_early_or_late_make_no_window_incomplete(gap: float, pods: int) -> None:
    draw = Random(7)
    began = {f"web-{n}": draw.random() * gap for n in range(pods)}
    times = {name: [phase + n * gap + draw.uniform(-0.02, 0.02) for n in range(round(900 / gap))] for name, phase in began.items()}
    for number in range(50):
        now_s = 60 + 15.0 * number
        seen = [Series({"pod": n}, tuple(t for t in every if now_s - 45 < t <= now_s), ()) for n, every in times.items()]
        end_s = max(s.times_s[-1] for s in seen)
        assert heard_of(seen, running(*began), "pod", end_s - 15, end_s).pods == set(began)


def test_servers_say_in_different_ways_that_an_answer_is_partial() -> None:
    assert warnings_of({}) == ()
    assert warnings_of({"warnings": ["no store\nmatched", "b", "c", "d"]})[0] == "Prometheus says: no store matched"
    assert len(warnings_of({"warnings": ["a", "b"], "infos": ["c", "d"]})) == 3
    assert warnings_of({"isPartial": True}) == ("Prometheus says: the answer is partial",)
    assert warnings_of({"warnings": None, "infos": None, "isPartial": False}) == ()

"""Two scrapes of one counter are told from two counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiphys_operator.scaling.copies import copies, largest, told_once
from tiphys_operator.scaling.series import Series

STEPS = st.lists(st.integers(0, 1000), min_size=60, max_size=60)


def scraped(steps: list[int], every: int, phase: int, restart: int = 0, **labels: str) -> Series:
    """A counter that grows by a step a second, read now and then; at a restart it begins at 0 again."""
    values, value = [], 0
    for second, step in enumerate(steps):
        value = step if restart and second == restart else value + step
        values.append(value)
    times = range(phase, len(steps), every)
    return Series({"pod": "web-1", "le": "+Inf", **labels}, tuple(map(float, times)), tuple(float(values[t]) for t in times))


@given(steps=STEPS, every=st.tuples(st.integers(1, 15), st.integers(1, 15)), phases=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_two_scrapes_of_one_counter_are_copies_however_often_and_whenever_they_look(
    steps: list[int], every: tuple[int, int], phases: tuple[int, int]
) -> None:
    one, other = (scraped(steps, e, p, job=str(n)) for n, (e, p) in enumerate(zip(every, phases, strict=True)))
    assert copies(one, other, 0.0)
    kept, unlike = told_once((one, other), 0.0)
    assert (len(kept), unlike) == (1, "")


@given(
    steps=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    restart=st.integers(12, 58),
    phases=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_counters_that_restart_between_scrapes_are_still_copies_of_each_other(
    steps: list[int], restart: int, phases: tuple[int, int]
) -> None:
    # so busy before that nobody can take the first counts afterwards for a continuation
    one, other = (scraped([100] * restart + steps[restart:], 5, p, restart, job=str(n)) for n, p in enumerate(phases))
    assert copies(one, other, 0.0)


def test_counters_that_grow_differently_are_all_kept_and_named() -> None:
    one, other = scraped([10] * 60, 5, 0, instance="10.0.0.1:80"), scraped([4] * 60, 5, 2, instance="10.0.0.1:90")
    kept, unlike = told_once((one, other), 40.0)
    assert len(kept) == 2
    assert unlike == "web-1 is told more than once (by instance)"


def test_series_of_different_pods_routes_or_addresses_are_no_copies() -> None:
    pods = [scraped([1] * 60, 5, 0, pod=name) for name in "ab"]
    routes = [scraped([1] * 60, 5, 0, handler=name) for name in "ab"]
    nameless = [Series({"le": "1", "instance": f"10.0.0.{n}:80"}, (1.0,), (1.0,)) for n in (1, 2)]
    for both in (pods, routes, nameless):
        assert len(told_once(both, 0.0)[0]) == len(largest(both)) == 2


def test_of_two_scrapes_of_a_gauge_the_larger_counts() -> None:
    gauges = [Series({"pod": "web-1", "job": job}, (1.0,), (value,)) for job, value in (("a", 3.0), ("b", 5.0))]
    assert [s.values for s in largest(gauges)] == [(5.0,)]

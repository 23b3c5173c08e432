"""Processor time of pods that ended, from samples taken while they ran: what it is, and when it is unknown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.placement.gauges import Sample
from tiphys_models.placement.pod_cpu import (
    COVERED,
    MOST_NAMESPACES,
    POD_CPU_SERIES,
    CpuReading,
    OpenPods,
    PodCpuEnd,
    UnknownCpu,
    pod_cpu_query,
    pod_cpu_readings,
    whole_run,
)

STARTED_S = 1000.0
CORES = 4.0


def running(started_s: float | None = STARTED_S, *, restarted: bool = False) -> OpenPods:
    """One pod that has started."""
    pods = OpenPods()
    pods.seen("d", "p", "u", started_s, restarted=restarted)
    return pods


def sampled(pods: OpenPods, *samples: tuple[float, float]) -> OpenPods:
    """Core-seconds, and seconds after the start."""
    for core_seconds, after_s in samples:
        pods.put([CpuReading("d", "p", core_seconds, STARTED_S + after_s)])
    return pods


def ended(pods: OpenPods, after_s: float = 100.0, uid: str = "u") -> PodCpuEnd:
    known = pods.gone("d", "p", uid)
    assert known is not None
    return known.ended(STARTED_S + after_s, CORES)


@pytest.mark.parametrize(("after_s", "whole"), [(100.0, 60.0), (80.0, 75.0), (50.0, 120.0)])
def test_the_sampled_part_stands_for_the_whole_run(after_s: float, whole: float) -> None:
    end = ended(sampled(running(), (10.0, 20.0), (60.0, after_s)))
    assert end.core_seconds == pytest.approx(whole)
    assert end.unknown is None


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        (running(), UnknownCpu.NO_SAMPLE),
        (running(None), UnknownCpu.START_UNSEEN),
        (sampled(running(), (30.0, 49.0)), UnknownCpu.LITTLE_COVERED),
        (sampled(running(), (0.0, 0.0)), UnknownCpu.LITTLE_COVERED),
        (sampled(running(), (60.0, 40.0), (20.0, 80.0)), UnknownCpu.RESTARTED),
        (sampled(running(restarted=True), (60.0, 80.0)), UnknownCpu.RESTARTED),
        (sampled(running(), (700.0, 80.0)), UnknownCpu.IMPLAUSIBLE),
    ],
    ids=lambda value: str(value) if isinstance(value, UnknownCpu) else "",
)
def test_what_cannot_be_known_is_unknown_and_never_zero(pods: OpenPods, why: UnknownCpu) -> None:
    end = ended(pods)
    assert math.isnan(end.core_seconds)
    assert end.unknown == why


def test_another_start_than_before_is_a_restart_and_one_that_is_not_shown_is_none() -> None:
    pods = sampled(running(), (30.0, 80.0))
    pods.seen("d", "p", "u", None, restarted=False)
    pods.seen("d", "p", "u", STARTED_S, restarted=False)
    assert ended(pods).unknown is None
    pods = sampled(running(), (30.0, 80.0))
    pods.seen("d", "p", "u", STARTED_S + 90.0, restarted=False)
    assert ended(pods).unknown == UnknownCpu.RESTARTED


def test_a_sample_from_before_the_start_or_of_no_later_time_than_the_last_is_no_reading() -> None:
    assert ended(sampled(running(), (30.0, -1.0))).unknown == UnknownCpu.NO_SAMPLE
    assert ended(sampled(running(), (50.0, 100.0), (1.0, 100.0), (2.0, 90.0))) == PodCpuEnd(50.0)
    assert ended(sampled(running(), (0.1 + 0.2, 70.0), (0.3, 100.0))) == PodCpuEnd(0.3)
    assert ended(sampled(running(None), (30.0, 90.0))).unknown == UnknownCpu.START_UNSEEN


def test_another_pod_under_the_same_name_begins_with_nothing() -> None:
    pods = sampled(running(), (60.0, 80.0))
    pods.seen("d", "p", "other", STARTED_S + 90.0, restarted=False)
    assert pods.gone("d", "p", "u") is None
    assert len(pods) == 1
    sampled(pods, (61.0, 85.0))  # of the former one, scraped late
    assert ended(pods, uid="other").unknown == UnknownCpu.NO_SAMPLE
    assert (len(pods), list(pods.namespaces)) == (0, [])


def test_samples_of_strangers_are_nobodys_and_a_bounded_number_of_pods_is_kept() -> None:
    pods = OpenPods(most=2)
    for name in ("a", "b", "c"):
        pods.seen("d", name, f"u-{name}", STARTED_S, restarted=False)
    pods.put([CpuReading("d", "c", 1.0, STARTED_S), CpuReading("elsewhere", "a", 1.0, STARTED_S)])
    assert len(pods) == 2
    assert pods.gone("d", "c", "u-c") is None
    pods.keep({"u-b"})
    assert len(pods) == 1
    assert pods.gone("d", "a", "u-a") is None
    pods.seen("other", "c", "u-c", STARTED_S, restarted=False)
    assert pods.namespaces == {"d", "other"}


@given(st.floats(0, 1e9), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_whole_run_is_at_least_its_sampled_part_and_at_most_twice_as_much(core_seconds: float, sampled_s: float, run_s: float) -> None:
    whole = whole_run(core_seconds, sampled_s, run_s)
    if run_s > 0 and sampled_s >= COVERED * run_s:
        assert core_seconds <= whole <= core_seconds / COVERED * (1 + 1e-12)
    else:
        assert math.isnan(whole)


def sample(pod: str, quantity: str, value: float, namespace: str = "d") -> Sample:
    return Sample((namespace, pod, quantity), value, 5000.0)


def test_an_answer_says_how_much_and_how_long_ago_and_half_an_answer_nothing() -> None:
    samples = [
        sample("p", "core_seconds", 3.0),
        sample("p", "age_seconds", 20.0),
        sample("no-age", "core_seconds", 3.0),
        sample("no-value", "age_seconds", 3.0),
        *(sample(f"odd-{value}", "core_seconds", value) for value in (math.nan, math.inf, -1.0)),
        *(sample(f"odd-{value}", "age_seconds", 1.0) for value in (math.nan, math.inf, -1.0)),
        sample("young", "core_seconds", 1.0),
        sample("young", "age_seconds", -1.0),
        sample("", "core_seconds", 1.0),
        sample("", "age_seconds", 1.0),
        sample("p", "colour", 1.0),
    ]
    assert pod_cpu_readings(samples, now_s=1000.0) == [CpuReading("d", "p", 3.0, 980.0)]


def test_only_pods_of_these_namespaces_are_asked_for_unless_they_are_very_many() -> None:
    query = pod_cpu_query(POD_CPU_SERIES, {"b", "a"})
    assert 'container_cpu_usage_seconds_total{namespace=~"a|b",container!="",container!="POD"}' in query
    assert 'own:cpu{namespace=~"a"}' in pod_cpu_query("own:cpu", {"a"})
    assert "namespace=~" not in pod_cpu_query(POD_CPU_SERIES, {f"n{i}" for i in range(MOST_NAMESPACES + 1)})

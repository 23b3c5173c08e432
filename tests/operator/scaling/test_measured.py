"""Windows from raw samples, and every way in which they can be missing."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tests.operator.scaling.small import window
from tiphys_models.api.scaling_policy import LatencyMetrics, TargetRef
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_operator.scaling.measured import Readings, Scope, measure, request_cpu_ms
from tiphys_operator.scaling.series import Series
from tiphys_operator.scaling.sources import PRESETS, source_of

END = 1000.0


def counter(per_s: float, pod: str = "a", start: float = 0.0, end: float = END, **labels: str) -> Series:
    times = tuple(t for t in (END - 5.0 * back for back in range(24, -1, -1)) if start <= t <= end)
    return Series({"pod": pod, **labels}, times, tuple(per_s * t for t in times))


def buckets(total: float, good: float, pod: str = "a", end: float = END) -> tuple[Series, ...]:
    rates = {"0.1": good / 2, "0.4": good, "+Inf": total}
    return tuple(counter(rate, pod, end=end, le=edge) for edge, rate in rates.items())


def scope(**changes: Any) -> Scope:
    usual: dict[str, Any] = {
        "target_s": 0.4,
        "percentile": 0.9,
        "length_s": 15.0,
        "per_second": 1.0,
        "pod_label": "pod",
        "born": {"a": 0.0},
    }
    return Scope(**(usual | changes))


def test_requests_lateness_and_cpu_of_the_last_window() -> None:
    readings = Readings(buckets(100, 80), used=(counter(0.2),), throttled=(counter(2),), periods=(counter(10),))
    (found,) = measure(readings, scope(), 1).windows
    assert (found.at_s, found.length_s, found.arrived, found.completed) == (END, 15.0, 1500.0, 1500.0)
    assert found.late == pytest.approx(0.2)
    assert found.p90_s == 0.4, "the 90th percentile lies beyond the last edge that is finite"
    assert found.used_cpu_m == pytest.approx(200.0)
    assert found.throttled == pytest.approx(0.2)


def test_cpu_that_two_endpoints_of_the_kubelet_tell_is_counted_once() -> None:
    both = (
        counter(0.2, metrics_path="/metrics/cadvisor", id="first"),
        counter(0.1, metrics_path="/metrics/cadvisor", id="restarted"),
        counter(0.29, metrics_path="/metrics/resource"),
        counter(0.2, "b", metrics_path="/metrics/resource"),
    )
    (found,) = measure(Readings(buckets(1, 1), used=both), scope(), 1).windows
    assert found.used_cpu_m == pytest.approx(300.0 + 200.0)


def test_a_pod_that_began_within_the_window_is_charged_with_what_it_used() -> None:
    young = Series({"pod": "a"}, (END - 1, END), (0.2, 0.4))
    (found,) = measure(Readings(buckets(1, 1), used=(young,)), scope(length_s=5.0, born={"a": END - 2}), 1).windows
    assert found.used_cpu_m == pytest.approx(1000 * 0.4 / 5)
    unknown = Series({"pod": "a"}, (END - 1, END), (7.0, 7.2))
    (found,) = measure(Readings(buckets(1, 1), used=(unknown,)), scope(length_s=5.0), 1).windows
    assert found.used_cpu_m == pytest.approx(1000 * 0.2 / 5)


def test_requests_and_cpu_are_counted_between_the_same_samples() -> None:
    # the window begins just after a sample: both counters grow from the sample before it
    times = tuple(END - 1.0 * back - 0.4 for back in range(8, -1, -1))
    cpu = Series({"pod": "a"}, times, tuple(0.04 * n for n in range(9)))
    counts = tuple(Series({"pod": "a", "le": le}, times, tuple(20.0 * n for n in range(9))) for le in ("0.4", "+Inf"))
    (found,) = measure(Readings(counts, used=(cpu,)), scope(length_s=4.5), 1).windows
    assert found.used_cpu_m is not None
    assert found.used_cpu_m * found.length_s / found.completed == pytest.approx(2.0)


def test_cpu_that_is_read_more_rarely_than_a_window_lasts_is_not_charged_to_one_window() -> None:
    rarely = Series({"pod": "a"}, (END - 26, END - 14, END - 2), (0.0, 2.4, 4.8))
    (found,) = measure(Readings(buckets(1, 1), used=(rarely,)), scope(length_s=5.0), 1).windows
    assert found.used_cpu_m == pytest.approx(200.0)
    first, second = measure(Readings(buckets(1, 1), used=(rarely,)), scope(length_s=5.0), 2).windows
    assert first.used_cpu_m is None, "a window without a look is not one without work"
    assert second.used_cpu_m == pytest.approx(200.0)


def test_pods_are_summed_and_one_that_is_silent_is_named() -> None:
    readings = Readings((*buckets(10, 10, "a"), *buckets(20, 20, "b"), *buckets(5, 5, "c", end=END - 60)))
    found = measure(readings, scope(born={"a": 0.0, "b": 0.0, "c": 0.0, "new": END - 3}), 1)
    assert found.windows[0].completed == 450
    assert found.silent == ("c",), "a pod that just started may be silent"


def test_a_growing_queue_arrived_although_nobody_answered_it() -> None:
    waiting = counter(4.0)
    (found,) = measure(Readings(buckets(100, 100), in_flight=(waiting,)), scope(), 1).windows
    assert found.arrived == pytest.approx(1500 + 60)
    assert found.in_flight == pytest.approx(4.0 * END)


def test_requests_in_flight_of_a_pod_that_is_gone_do_not_wait() -> None:
    (found,) = measure(Readings(buckets(1, 1), in_flight=(counter(4.0, "gone"),)), scope(), 1).windows
    assert found.in_flight is None


def test_nothing_answered_is_late_if_somebody_waits_and_unknown_if_nobody_does() -> None:
    silent = buckets(0, 0)
    (idle,) = measure(Readings(silent), scope(), 1).windows
    assert (idle.late, idle.arrived, idle.p90_s) == (None, 0.0, None)
    (stuck,) = measure(Readings(silent, in_flight=(counter(1.0),)), scope(), 1).windows
    assert stuck.late == 1.0


def test_a_restarted_operator_reads_past_windows_too() -> None:
    found = measure(Readings(buckets(100, 100)), scope(), 6).windows
    assert [w.at_s for w in found] == [END - 15.0 * back for back in range(5, -1, -1)]
    assert {round(w.completed) for w in found} == {1500}


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        (Readings(()), ScalingReason.SERIES_MISSING),
        (Readings((Series({"le": "+Inf"}, (END,), (math.nan,)),)), ScalingReason.SAMPLES_UNUSABLE),
        (Readings((Series({"le": "+Inf"}, (END,), (1e300,)),)), ScalingReason.SAMPLES_UNUSABLE),
        (Readings(buckets(1, 1), used=(Series({}, (END,), (-1.0,)),)), ScalingReason.SAMPLES_UNUSABLE),
        (Readings((counter(1, le="0.5"), counter(1, le="+Inf"))), ScalingReason.NO_BUCKET_EDGE),
        (Readings((counter(1, le="0.4"),)), ScalingReason.NO_BUCKET_EDGE),
        (Readings((counter(1, le="abc"),)), ScalingReason.NO_BUCKET_EDGE),
    ],
)
def test_what_cannot_be_read_is_a_reason_and_no_window(readings: Readings, reason: ScalingReason) -> None:
    found = measure(readings, scope(), 1)
    assert (found.windows, found.problem) == ((), reason)
    assert found.message


def test_too_few_requests_say_nothing_about_their_cpu() -> None:
    (found,) = measure(Readings(buckets(1, 1), used=(counter(5.0),)), scope(), 1).windows
    assert request_cpu_ms([found], 0.9, None) is None
    assert request_cpu_ms([found], 0.9, 1.5) == 1.5


def test_cpu_of_a_request_is_learned_from_windows_that_kept_the_objective() -> None:
    well = window(rate=100.0, late=0.0, used_cpu_m=200.0)
    # most requests were given up: they were counted, and took nothing
    drowned = window(rate=1000.0, late=1.0, used_cpu_m=300.0)
    assert request_cpu_ms([well, drowned], 0.9, None) == pytest.approx(2.0)
    assert request_cpu_ms([drowned], 0.9, 2.0) == 2.0
    assert request_cpu_ms([drowned], 0.9, None) == pytest.approx(0.3), "at least so much"
    assert request_cpu_ms([window(used_cpu_m=None)], 0.9, None) is None


HOSTILE = {
    "namespace": "victim", "destination_workload_namespace": "victim", "destination_workload": "", "reporter": "", "direction": "",
    "deployment": "", "pod": "", "le": "+Inf", 'exported_namespace': 'victim"} or {namespace="victim',
}  # fmt: skip


@pytest.mark.parametrize("pod_label", [None, "pod", "namespace", "destination_workload_namespace", "le"])
@pytest.mark.parametrize("keys", [*([key] for key in HOSTILE), list(HOSTILE)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_no_matcher_leads_a_policy_out_of_its_own_namespace(preset: Any, keys: list[str], pod_label: str | None) -> None:
    metrics = LatencyMetrics(
        preset=preset,
        matchers={key: HOSTILE[key] for key in keys},
        pod_label=pod_label,
        histogram="apiserver_request_duration_seconds",
        in_flight="victims_gauge",
    )
    source, names = source_of(metrics, TargetRef(kind="Deployment", name="web"), "shop"), ["web-1"]
    own = f'{PRESETS[preset].tenancy}="shop"'
    for query in (source.buckets(names, 30), source.completed(names, 30), source.flight(names, 30), source.past(9, 15)):
        selector = query[query.index("{") + 1 :]
        labels = [part.partition("=")[0] for part in re.split(r",(?=[a-z_]+[=!])", selector)]
        assert own in selector
        # twice would still be both; once, as ours, leaves nothing to argue about
        assert labels.count(PRESETS[preset].tenancy) == 1 + (pod_label == PRESETS[preset].tenancy)
    for query in (source.cpu(names, "main", 30), source.up(names, 30)):
        assert not query or ('namespace="shop"' in query and not re.search('[{,]namespace="victim"', query))


def test_presets_name_series_and_pods_exactly() -> None:
    target = TargetRef(kind="Deployment", name="web")
    ours = source_of(LatencyMetrics(), target, "shop")
    expected = 'http_request_duration_seconds_bucket{namespace="shop",pod=~"web-2|web\\\\.1"}[30000ms]'
    assert ours.buckets(["web-2", "web.1"], 30.0) == expected
    assert ours.flight(["a"], 30.0) == ""
    assert ours.past(960, 15.0) == (
        'sum(rate(http_request_duration_seconds_bucket{le="+Inf",namespace="shop",pod=~"web-[a-z0-9]+-[a-z0-9]{5}"}[30000ms]))'
        "[14400000ms:15000ms]"
    )
    mesh = source_of(LatencyMetrics(preset="istio", matchers={"cluster": 'a"b'}), target, "shop")
    assert mesh.buckets(["web-1"], 30.0) == (
        'istio_request_duration_milliseconds_bucket{cluster="a\\"b",destination_workload="web",'
        'destination_workload_namespace="shop",reporter="destination"}[30000ms]'
    )
    assert mesh.per_second == 1000.0
    own = source_of(LatencyMetrics(histogram="mine", unit="milliseconds", pod_label="instance"), target, "shop")
    assert own.buckets(["w"], 1.0) == 'mine_bucket{namespace="shop",instance=~"w"}[1000ms]'

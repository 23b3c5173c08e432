"""Which series belong to a workload: presets for latency histograms, and cAdvisor's for CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiphys_models.api.scaling_policy import LatencyMetrics, TargetRef
from tiphys_models.base.promql import matchers as _matchers


@dataclass(frozen=True, slots=True)
class MetricConvention:
    """How a family of servers names its latency histogram and labels its series."""

    histogram: str
    per_second: float
    """Units of its bucket edges in a second."""
    pod_label: str
    """Empty: series are not told apart by pod."""
    tenancy: str
    """Label that holds the namespace of the pods that were asked: a policy sees series of its own namespace, whatever its spec says."""
    matchers: Mapping[str, str]
    """Label matchers as templates with {name} and {kind} of the workload, the kind in lower case."""


USED, THROTTLED, PERIODS = CPU_COUNTERS = (
    "container_cpu_usage_seconds_total", "container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_periods_total",
)  # fmt: skip
PRESETS: Mapping[str, MetricConvention] = {
    "tiphys": MetricConvention("http_request_duration_seconds", 1.0, "pod", "namespace", {}),
    "otel": MetricConvention("http_server_request_duration_seconds", 1.0, "pod", "namespace", {}),
    "istio": MetricConvention(
        "istio_request_duration_milliseconds",
        1000.0,
        "",
        "destination_workload_namespace",
        # each request is counted at both ends
        {"reporter": "destination", "destination_workload": "{name}"},
    ),
    "linkerd": MetricConvention("response_latency_ms", 1000.0, "", "namespace", {"direction": "inbound", "{kind}": "{name}"}),
}


@dataclass(frozen=True, slots=True)
class SeriesSource:
    """Everything that queries need to know."""

    histogram: str
    per_second: float
    pod_label: str
    matchers: Mapping[str, str]
    extra: Mapping[str, str]
    """Label matchers that the spec adds to the preset's."""
    in_flight: str
    namespace: str
    pods: str
    """Pattern of the names that the workload's pods have and had: good enough for the past, where no list knows them."""

    def past(self, windows: int, length_s: float) -> str:
        """Requests a second of past windows, one sample each."""
        parts = _matchers({**self.matchers, "le": "+Inf"})
        if self.pod_label:
            parts.append(f'{self.pod_label}=~"{self.pods}"')
        span_ms, step_ms = round(windows * length_s * 1000), round(length_s * 1000)
        return f"sum(rate({self.histogram}_bucket{{{','.join(parts)}}}[{2 * step_ms}ms]))[{span_ms}ms:{step_ms}ms]"

    def buckets(self, pods: Sequence[str], span_s: float) -> str:
        """The query for the histogram's bucket counters."""
        return _query(f"{self.histogram}_bucket", self.matchers, self.pod_label, pods, span_s)

    def completed(self, pods: Sequence[str], span_s: float) -> str:
        """The counter of all requests."""
        return _query(f"{self.histogram}_bucket", {**self.matchers, "le": "+Inf"}, self.pod_label, pods, span_s)

    def flight(self, pods: Sequence[str], span_s: float) -> str:
        """Requests taken and not yet answered; empty if there is no such gauge."""
        return _query(self.in_flight, self.matchers, self.pod_label, pods, span_s) if self.in_flight else ""

    def up(self, pods: Sequence[str], span_s: float) -> str:
        """Whether scrapes of the pods succeed; empty where a pod without samples is missed in any case."""
        return "" if self.pod_label else _query("up", {**self.extra, "namespace": self.namespace}, "pod", pods, span_s)

    def cpu(self, pods: Sequence[str], container: str, span_s: float) -> str:
        """Counters of cAdvisor, all in one question: their names tell them apart."""
        matchers = {"namespace": self.namespace, "container": container}
        return _query("", matchers, "pod", pods, span_s, f'__name__=~"{"|".join(CPU_COUNTERS)}"')


def source_of(metrics: LatencyMetrics, target: TargetRef, namespace: str) -> SeriesSource:
    """The preset with what the spec overrides."""
    preset = PRESETS[metrics.preset]
    words = {"name": target.name, "kind": target.kind.lower()}
    matchers = {key.format(**words): value.format(**words) for key, value in preset.matchers.items()}
    per_second = preset.per_second if metrics.unit is None else 1000.0 if metrics.unit == "milliseconds" else 1.0
    return SeriesSource(
        histogram=metrics.histogram or preset.histogram,
        per_second=per_second,
        pod_label=preset.pod_label if metrics.pod_label is None else metrics.pod_label,
        # the namespace last: whoever may write a policy may not read another namespace's series through it
        matchers=matchers | dict(metrics.matchers) | {preset.tenancy: namespace},
        extra={key: value for key, value in metrics.matchers.items() if key not in (*matchers, preset.tenancy)},
        in_flight=metrics.in_flight or "",
        namespace=namespace,
        pods=_literal(target.name) + ("-[0-9]+" if target.kind == "StatefulSet" else "-[a-z0-9]+-[a-z0-9]{5}"),
    )


def _query(metric: str, matchers: Mapping[str, str], pod_label: str, pods: Sequence[str], span_s: float, *more: str) -> str:
    parts = [*more, *_matchers(matchers)]
    if pod_label:
        # an explicit list: a pattern such as web-.* also matches web-canary
        names = "|".join(map(_literal, sorted(pods)))
        parts.append(f'{pod_label}=~"{names}"')
    return f"{metric}{{{','.join(parts)}}}[{round(span_s * 1000)}ms]"


def _literal(name: str) -> str:
    """The name as a literal in a regular expression: a dot is the only special character that a pod's name may hold."""
    return name.replace(".", "\\\\.")

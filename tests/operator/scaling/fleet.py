"""A service of many pods behind a Prometheus that scrapes each of them, or does not; series carry labels as presets have them in life."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.operator.scaling.harness import Kube, Life, World
from tests.operator.scaling.small import NOW_S, pod_object
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.quantity import rfc3339
from tiphys_operator.scaling.intents import IntentKeys

SCRAPE_S = 5
CPU_MS = 2.0
IN_FLIGHT = "requests_in_flight"
Labels = Callable[[str, int], Mapping[str, str]]


def _sidecar(job: str) -> Labels:
    return lambda pod, number: {"namespace": "default", "pod": pod, "job": job, "instance": f"10.0.0.{number}:15090"}


SHAPES: Mapping[str, tuple[str, Labels]] = {
    "tiphys": ("tiphys", _sidecar("web")),
    "otel": ("otel", _sidecar("web")),
    "linkerd": ("linkerd", _sidecar("linkerd-proxy")),
    "istio, sidecars": ("istio", _sidecar("envoy-stats")),
    "istio, old labels": ("istio", lambda pod, _: {"kubernetes_pod_name": pod}),
    "istio, addresses": ("istio", lambda _, number: {"instance": f"10.0.0.{number}:15020"}),
    "istio, nameless": ("istio", lambda _, number: {"source_workload": f"client-{number}"}),
    "istio, strange addresses": ("istio", lambda _, number: {"instance": f"proxy-{number}"}),
}
"""Preset and labels by name; the last two never tell which pod is meant."""


@dataclass
class Target:
    """What is scraped of one pod."""

    number: int
    requests: float = 0.0
    seconds: float = 0.0
    times: list[tuple[float, float]] = field(default_factory=list)
    kubelet: list[tuple[float, float]] = field(default_factory=list)


class FleetPrometheus:
    """Scrapes every 5 s whoever is not unscraped."""

    def __init__(self, clock: ManualClock, labels: Labels) -> None:
        self.clock, self.labels, self.down, self.frozen_s = clock, labels, False, 0.0
        self.rate = 40.0
        self.targets: dict[str, Target] = {}
        self.unscraped: set[str] = set()
        self.without_kubelet: set[str] = set()
        self.idle: set[str] = set()
        """Pods whose proxies have not had a request, and so no series of any."""
        self.copies: tuple[Mapping[str, str], ...] = ({},)
        """What each scrape of a pod adds to its labels."""
        self.unlike = False
        """Copies that count something else."""
        self.warnings: list[str] = []
        self.now_s = clock.now_s()

    def advance(self, seconds: float, running: set[str]) -> None:
        """Time goes on; requests are shared among the pods that run."""
        for name in running:
            self.targets.setdefault(name, Target(int(name.rpartition("-")[2])))
        end_s = self.now_s + seconds
        while self.now_s + SCRAPE_S <= end_s:
            self.now_s += SCRAPE_S
            for name in running:
                target = self.targets[name]
                share = self.rate * SCRAPE_S / len(running)
                target.requests += share
                target.seconds += share * CPU_MS / 1000
                if name not in self.unscraped:
                    target.times = [*target.times, (self.now_s, target.requests)][-120:]
                if name not in self.without_kubelet:
                    target.kubelet = [*target.kubelet, (self.now_s, target.seconds)][-120:]

    async def ranges(self, promql: str, *_: Any) -> Any:
        result = []
        metric, _brace, rest = promql.partition("{")
        span = int(re.search(r"\[(\d+)ms", promql).group(1)) / 1000 if "[" in promql else 0  # type: ignore[union-attr]
        pods = re.search(r'pod=~"([^"]*)"', rest)
        for name, target in self.targets.items():
            if pods and name not in pods.group(1).split("|"):
                continue
            found = self._series(metric or "container_cpu_usage_seconds_total", name, target, self.clock.now_s() - span)
            result += [row for row in found if 'le="+Inf"' not in rest or row["metric"]["le"] == "+Inf"]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return answer | ({"warnings": self.warnings} if self.warnings else {})

    def _series(self, metric: str, name: str, target: Target, since_s: float) -> list[dict[str, Any]]:
        if metric.endswith("_bucket"):
            edges = ("0.4", "400", "+Inf")
            own, samples = [dict(self.labels(name, target.number)) | {"le": le} for le in edges], [] if name in self.idle else target.times
        elif metric == "up":
            own, samples = [dict(self.labels(name, target.number))], [(t, 1.0) for t, _ in target.times]
        elif metric == "container_cpu_usage_seconds_total":
            own, samples = [{"pod": name, "job": "kubelet", "__name__": metric}], target.kubelet
        elif metric == IN_FLIGHT:
            own, samples = [dict(self.labels(name, target.number))], [(t, 5.0) for t, _ in target.times]
        else:
            return []
        recent = [(t, v) for t, v in samples if t > since_s]
        return [
            {"metric": {**labels, **copy}, "values": [[t, str(v * (1 + number if self.unlike else 1))] for t, v in recent]}
            for labels in own
            for number, copy in enumerate(self.copies)
            if recent
        ]


class Fleet(World):
    """A Deployment whose pods follow its scale at once."""

    def __init__(self, shape: str, pods: int = 8, rate: float = 40.0, **spec: Any) -> None:
        preset, told = SHAPES[shape]
        self.clock, self.keys = ManualClock(NOW_S - 600), IntentKeys()
        objective = {"latencyMilliseconds": 400, "metrics": {"preset": preset} | spec.pop("metrics", {})}
        self.kube = Kube(replicas=pods, **({"objective": objective} | spec))
        self.kube.pods = {}
        self.numbered = 0
        self.prometheus: FleetPrometheus = FleetPrometheus(self.clock, told)  # type: ignore[assignment]
        self.prometheus.rate = rate
        self.grow()
        self.pass_s(600)

    def grow(self) -> None:
        while len(self.kube.pods) < self.kube.deployment["spec"]["replicas"]:
            self.numbered += 1
            size = next(iter(self.sizes()), "100m")
            status = {"startTime": rfc3339(self.clock.now_s()), "podIP": f"10.0.0.{self.numbered}"}
            self.kube.pods[f"web-{self.numbered}"] = pod_object(f"web-{self.numbered}", cpu=size, status=status)
        while len(self.kube.pods) > self.kube.deployment["spec"]["replicas"]:
            self.kube.pods.popitem()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.prometheus.advance(seconds, set(self.kube.pods))

    async def window(self, life: Life) -> None:
        for uid in life.cluster.observed.pod_uids() - set(self.kube.pods):
            life.cluster.observed.drop_pod(uid)
        await life.window()
        self.grow()
        self.pass_s(15)

    @property
    def replicas(self) -> int:
        return int(self.kube.deployment["spec"]["replicas"])

    @property
    def cpu_m(self) -> int:
        return sum(int(size.removesuffix("m")) for size in self.sizes())

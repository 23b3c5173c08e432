"""Processor time of pods that end, from counters that were sampled while they ran: which question is asked, what is kept of its answers,
and what follows from the last one for the whole run.

Nothing reports the counter of a container that has ended. What is known is its last sample, and the run goes on after that; so the sampled
part stands for the whole run, where it is at least half of it. What cannot be known is unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tiphys_models.base.promql import narrowed, quoted
from tiphys_models.placement.gauges import Sample

POD_CPU_SERIES = 'container_cpu_usage_seconds_total{container!="",container!="POD"}'
"""cAdvisor's counters of containers: without those of whole pods, which count the same again, and without the pause container's."""
POD_CPU_LABELS = ("namespace", "pod", "quantity")
COVERED = 0.5
"""Least share of a run that its last sample must cover."""
MOST_NAMESPACES = 200
"""Namespaces that a question names at the most; with more it asks for all, since it would be longer than many answers."""
MOST_PODS = 200_000
"""Open pods of which samples are kept, more than any cluster has; of more, those that come later stay unknown."""
_TOGETHER_S = 30
"""Samples of one pod's containers are at most so far apart; cAdvisor takes each at least every 15 s."""
_BELIEVABLE = 2.0
"""How often all of what its node has a pod may have used: clocks differ a little, and what is allocatable is less than what there is."""
_SAME = 1.0 - 1e-9
"""Containers are added up in any order: the last digits of a counter that stands still may differ."""
_ROUNDED_S = 1.0
"""Starts are told in whole seconds."""
_SECONDS, _AGE = "core_seconds", "age_seconds"


class UnknownCpu(StrEnum):
    """Why the processor time of a pod that ended is unknown."""

    START_UNSEEN = "start-unseen"
    """No watch has shown when its container started."""
    NO_SAMPLE = "no-sample"
    """It was never sampled since its start: the run was too short, or nobody scrapes its node's cAdvisor."""
    LITTLE_COVERED = "little-covered"
    """Its last sample covers less than half of its run."""
    RESTARTED = "restarted"
    """A container was started again, or its counter went back."""
    IMPLAUSIBLE = "implausible"
    """More than its node has."""


class CpuReading(NamedTuple):
    """The counters of one pod, added up."""

    namespace: str
    pod: str
    core_seconds: float
    at_s: float
    """When the oldest of them was sampled."""


class PodCpuEnd(NamedTuple):
    """What is known of a pod that ended: its processor time, or why it is NaN."""

    core_seconds: float
    unknown: UnknownCpu | None = None


def pod_cpu_query(series: str, namespaces: Set[str]) -> str:
    """One question for processor time of the pods of these namespaces, and how old it is, told apart by the label `quantity`.

    Of one container the newest series counts: another exporter that tells the same counts once, and one that is gone but not yet forgotten
    (Prometheus keeps series with timestamps of their own for five minutes) not at all. The time of an instant vector is that of the query.
    """
    held = [] if len(namespaces) > MOST_NAMESPACES else [f"namespace=~{quoted('|'.join(sorted(namespaces)))}"]
    counters = narrowed(series, held)
    taken_s = f"timestamp({counters})"
    pod, container = "by (namespace, pod)", "by (namespace, pod, container)"
    alive = f"max {container} ({taken_s}) > on (namespace, pod) group_left () (max {pod} ({taken_s}) - {_TOGETHER_S})"
    newest = f"{counters} and ({taken_s} == on (namespace, pod, container) group_left () ({alive}))"
    seconds = f"sum {pod} (max {container} ({newest}))"
    age_s = f"time() - min {pod} ({alive})"
    return f'label_replace({seconds}, "quantity", "{_SECONDS}", "", "") or label_replace({age_s}, "quantity", "{_AGE}", "", "")'


def pod_cpu_readings(samples: Sequence[Sample], now_s: float) -> list[CpuReading]:
    """What an answer that was asked for at a time by our clock says of pods; a pod of which half is missing or absurd has no reading."""
    told: dict[str, dict[tuple[str, str], float]] = {_SECONDS: {}, _AGE: {}}
    for (namespace, pod, quantity), value, _ in samples:
        if namespace and pod and quantity in told and 0 <= value < math.inf:
            told[quantity][namespace, pod] = value
    ages_s = told[_AGE]
    return [CpuReading(*of, seconds, now_s - ages_s[of]) for of, seconds in told[_SECONDS].items() if of in ages_s]


@dataclass(slots=True)
class OpenPod:
    """A pod that runs, and the last sample of its counters."""

    uid: str
    started_s: float = math.nan
    core_seconds: float = math.nan
    at_s: float = math.nan
    restarted: bool = False

    def starts(self, started_s: float | None, restarted: bool) -> None:
        """Its first container started then, as far as shown; another start than before is a restart."""
        if started_s is not None and started_s != self.started_s:
            self.restarted |= not math.isnan(self.started_s)
            self.started_s = started_s
        self.restarted |= restarted

    def take(self, core_seconds: float, at_s: float) -> None:
        """Another sample; one from before its start is of another pod of this name, or of an init container."""
        if not at_s >= self.started_s or at_s <= self.at_s:
            return
        self.restarted |= core_seconds < self.core_seconds * _SAME
        self.core_seconds, self.at_s = core_seconds, at_s

    def ended(self, now_s: float, node_cores: float) -> PodCpuEnd:
        """Processor time of the whole run, which ends now, if the sampled part can stand for it."""
        if self.restarted:
            return PodCpuEnd(math.nan, UnknownCpu.RESTARTED)
        if math.isnan(self.started_s):
            return PodCpuEnd(math.nan, UnknownCpu.START_UNSEEN)
        if math.isnan(self.core_seconds):
            return PodCpuEnd(math.nan, UnknownCpu.NO_SAMPLE)
        run_s, sampled_s = now_s - self.started_s, self.at_s - self.started_s
        if self.core_seconds > _BELIEVABLE * node_cores * (sampled_s + _ROUNDED_S):
            return PodCpuEnd(math.nan, UnknownCpu.IMPLAUSIBLE)
        whole = whole_run(self.core_seconds, sampled_s, run_s)
        return PodCpuEnd(whole, UnknownCpu.LITTLE_COVERED if math.isnan(whole) else None)


def whole_run(core_seconds: float, sampled_s: float, run_s: float) -> float:
    """Processor time of a run of which the first part was sampled; NaN where that is less than half of it."""
    if not (run_s > 0 and sampled_s >= COVERED * run_s):
        return math.nan
    return core_seconds * max(run_s / sampled_s, 1.0)


class OpenPods:
    """Functions' pods that run, by namespace and name: what a sample tells them apart by."""

    def __init__(self, most: int = MOST_PODS) -> None:
        self._by_namespace: dict[str, dict[str, OpenPod]] = {}
        self._most, self._count = most, 0

    def __len__(self) -> int:
        return self._count

    @property
    def namespaces(self) -> Set[str]:
        """Namespaces with open pods."""
        return self._by_namespace.keys()

    def seen(self, namespace: str, pod: str, uid: str, started_s: float | None, *, restarted: bool) -> None:
        """A pod runs. Another uid under the name is another pod, of which nothing is known yet."""
        known = self._by_namespace.get(namespace, {}).get(pod)
        if known is None or known.uid != uid:
            if known is None and self._count >= self._most:
                return
            self._count += known is None
            known = self._by_namespace.setdefault(namespace, {})[pod] = OpenPod(uid)
        known.starts(started_s, restarted)

    def put(self, readings: Iterable[CpuReading]) -> None:
        """Samples of pods; those of pods that are not open are nobody's."""
        for namespace, pod, core_seconds, at_s in readings:
            if (known := self._by_namespace.get(namespace, {}).get(pod)) is not None:
                known.take(core_seconds, at_s)

    def gone(self, namespace: str, pod: str, uid: str) -> OpenPod | None:
        """A pod runs no longer; what was kept of it, None if nothing was."""
        there = self._by_namespace.get(namespace, {})
        if (known := there.get(pod)) is None or known.uid != uid:
            return None
        del there[pod]
        self._count -= 1
        if not there:
            del self._by_namespace[namespace]
        return known

    def keep(self, uids: Set[str]) -> None:
        """Forget every pod but these, which run."""
        gone = [(ns, pod, kept.uid) for ns, there in self._by_namespace.items() for pod, kept in there.items() if kept.uid not in uids]
        for namespace, pod, uid in gone:
            self.gone(namespace, pod, uid)

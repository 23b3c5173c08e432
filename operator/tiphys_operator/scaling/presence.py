"""Who should have told of a window, and did not. Pure: what must be remembered between two windows goes in and comes out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiphys_models.scaling.seen import RECENT
from tiphys_operator.scaling.series import Series

_POD_LABELS = ("pod", "kubernetes_pod_name", "pod_name")
"""Where scrape configurations put the name of the pod that was scraped."""
_JITTER = 1.1
_JITTER_S = 0.5
_SETTLED_WINDOWS = 4
"""Pods that end are scraped for a while: only then does what is told without their names count as told by those that are left."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Running:
    """The pods of a workload, by name."""

    born: Mapping[str, float | None]
    """When each ready pod started."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """What is another after a restart of its containers; without an entry the name."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Names by IP address."""
    known: frozenset[str] = frozenset()
    """Names of pods that run or just ran."""

    def life(self, name: str) -> str:
        """What a series of a pod cannot outlive."""
        return self.lives.get(name, name)


@dataclass(frozen=True, slots=True)
class Presence:
    """What earlier windows were told of."""

    lives: frozenset[str] = frozenset()
    """Pods that were heard."""
    nameless: int = 0
    """Reporters nobody can tell a pod of, while `ready` ran."""
    ready: frozenset[str] = frozenset()
    settled: int = 0
    """Windows for which `ready` has been the same."""
    others: tuple[int, ...] = ()
    """Reporters that are certainly other pods, such as gateways, in the last windows."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Reporters of the newest window."""

    pods: frozenset[str]
    nameless: frozenset[str]
    others: frozenset[str]


def reporter(series: Series, running: Running, pod_label: str) -> str:
    """The pod that told a series, or else what tells it from other reporters."""
    labels = series.labels
    if pod_label:
        return labels.get(pod_label, "")
    names = [name for label in _POD_LABELS if (name := labels.get(label))]
    for name in names:
        if name in running.known:
            return name
    instance = labels.get("instance", "")
    host = (instance.rpartition(":")[0] or instance).strip("[]")
    if host in running.addresses:
        return running.addresses[host]
    if names:
        return f"other {names[0]}"
    if instance:
        return f"{'other' if running.addresses else 'instance'} {instance}"
    return "series " + ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in ("__name__", "le"))


def lag_s(series: Series, length_s: float) -> float:
    """How old the newest sample of a target that is alive may be: as far as its samples lie apart."""
    gaps = [after - before for before, after in zip(series.times_s, series.times_s[1:], strict=False)]
    return min(_JITTER * statistics.median(gaps) + _JITTER_S, length_s) if gaps else length_s


def covers(series: Series, begin_s: float, end_s: float) -> bool:
    """Whether its samples reach from the begin of a window to its end."""
    return series.times_s[0] <= begin_s and reaches(series, begin_s, end_s)


def reaches(series: Series, begin_s: float, end_s: float) -> bool:
    """Whether its samples reach the end of a window."""
    length_s = end_s - begin_s
    lag = end_s - series.times_s[-1]
    return lag <= lag_s(series, length_s) and lag < length_s


def heard(buckets: Iterable[Series], running: Running, pod_label: str, begin_s: float, end_s: float) -> Heard:
    """Who told of the whole window; of pods that began within it nobody expects that."""
    told = {reporter(s, running, pod_label) for s in buckets if covers(s, begin_s, end_s)}
    pods = frozenset(told if pod_label else told & running.known)
    others = frozenset(name for name in told - pods if name.startswith("other "))
    return Heard(pods, frozenset(told - pods - others), others)


def silent_pods(
    found: Heard, former: Presence, running: Running, buckets: Sequence[Series], up: Sequence[Series], pod_label: str,
    begin_s: float, end_s: float,
) -> tuple[str, ...]:  # fmt: skip
    """Ready pods that should have told of the window, by name."""
    if not pod_label and not found.pods and not any(running.life(name) in former.lives for name in running.born):
        return ()  # a mesh whose series name no pod
    expected = {name for name, born_s in running.born.items() if (born_s or 0.0) < begin_s}
    missing = expected - found.pods
    if pod_label or not missing:
        return tuple(sorted(missing))
    # a proxy has no such series before its first request: if it is scraped like the others, it had none
    jobs = {s.labels.get("job", "") for s in buckets if reaches(s, begin_s, end_s)}
    began = {reporter(s, running, pod_label) for s in buckets}
    scraped = {s.labels.get("pod", "") for s in up if s.labels.get("job", "") in jobs and s.values[-1] == 1 and reaches(s, begin_s, end_s)}
    return tuple(sorted(n for n in missing if n in began or running.life(n) in former.lives or n not in scraped))


def presence(found: Heard, former: Presence, running: Running) -> tuple[Presence, str]:
    """What to remember, and what is missing among reporters that are no pods of ours, or cannot be told to be.

    The latter are expected as long as the pods run that ran when they were heard: each pod that goes takes its share along.
    """
    ready = frozenset(running.life(name) for name in running.born)
    left = len(former.ready & ready)
    expected = former.nameless * left // len(former.ready) if former.ready else 0
    told, missing = len(found.nameless), ""
    if told < expected:
        missing = f"{expected - told} of {expected} sources of its series"
    most = max(former.others, default=0)
    if len(found.others) < most:
        missing = missing or f"{most - len(found.others)} of {most} proxies that are no pods of its own"
    lives = former.lives & ready | {running.life(name) for name in found.pods if name in running.born}
    others = (*former.others, len(found.others))[-RECENT:]
    if told < expected:
        return Presence(lives, former.nameless, former.ready, 0, others), missing
    same = ready == former.ready
    settled = former.settled + 1 if same else 0
    # right after pods went, their last samples still come: what is expected may rise only once that is over
    count = told if not former.ready or settled >= _SETTLED_WINDOWS else expected
    return Presence(lives, count, ready, settled, others), missing


def named(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    every = sorted(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more

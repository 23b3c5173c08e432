"""Pods that should have reported a window and did not. Pure: what must be remembered between two windows goes in and comes out."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiphys_models.scaling.seen import RECENT
from tiphys_operator.scaling.series import Series

_POD_LABELS = ("pod", "kubernetes_pod_name", "pod_name")
"""Where scrape configurations put the name of the pod that was scraped."""
_JITTER = 1.1
_JITTER_S = 0.5
_NEGLIGIBLE = 0.03
"""Less of the load than this may be left out of a window: no rule acts on it."""
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
    """The reporters that earlier windows had."""

    lives: frozenset[str] = frozenset()
    """Pods that delivered samples."""
    nameless: int = 0
    """The number of reporters that no pod can be named for, while `ready` ran."""
    ready: frozenset[str] = frozenset()
    settled: int = 0
    """Windows for which `ready` has been the same."""
    others: tuple[int, ...] = ()
    """How many reporters were certainly other pods, such as gateways, in each of the last windows."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Reporters of the newest window."""

    pods: frozenset[str]
    nameless: frozenset[str]
    others: frozenset[str]


def reporter(series: Series, running: Running, pod_label: str) -> str:
    """The pod that reported a series, or else what distinguishes it from other reporters."""
    labels = series.labels
    if pod_label:
        return labels.get(pod_label, "")
    names = [name for label in _POD_LABELS if (name := labels.get(label))]
    for name in names:
        if name in running.known:
            return name
    instance = labels.get("instance", "")
    host = (instance.rpartition(":")[0] or instance).strip("[]")
    if host in running.known or host in running.addresses:
        return running.addresses.get(host, host)
    if names:
        return f"other {names[0]}"
    if instance:
        return f"instance {instance}"
    return "series " + ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in ("__name__", "le"))


def gap_s(series: Series) -> float | None:
    """How far its samples lie apart."""
    gaps = [after - before for before, after in zip(series.times_s, series.times_s[1:], strict=False)]
    return statistics.median(gaps) if gaps else None


def reaches(series: Series, end_s: float, length_s: float) -> bool:
    """Whether the target was still alive at the end of a window: its newest sample is no older than samples lie apart."""
    gap, lag = gap_s(series), end_s - series.times_s[-1]
    return lag < length_s and (gap is None or lag <= _JITTER * gap + _JITTER_S)


def lacks(series: Series, begin_s: float, end_s: float) -> float | None:
    """Which share of a window its samples leave out; None if they begin too late or ended too early to tell."""
    before, length_s = bisect_right(series.times_s, begin_s), end_s - begin_s
    if not before or not reaches(series, end_s, length_s):
        return None
    gap, newest_s = gap_s(series), series.times_s[-1]
    if gap is None or end_s - newest_s < gap / _JITTER:
        return 0.0
    # as old as it may just be: then it must have been as old when the window began
    return gap / length_s if newest_s - series.times_s[before - 1] <= length_s - gap / _JITTER else 0.0


def heard(buckets: Iterable[Series], running: Running, pod_label: str, begin_s: float, end_s: float) -> Heard:
    """The reporters of the whole window; pods that began within it are not expected to report it."""
    shares: dict[str, float] = {}
    for s in buckets:
        if (share := lacks(s, begin_s, end_s)) is not None:
            who = reporter(s, running, pod_label)
            shares[who] = min(share, shares.get(who, 1.0))
    # a scrape that comes a little late leaves the window of a few; one that does not come any more, that of those who died together
    tolerated = math.fsum(shares.values()) <= _NEGLIGIBLE * len(shares)
    told = {who for who, share in shares.items() if tolerated or not share}
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
    jobs = {s.labels.get("job", "") for s in buckets if reaches(s, end_s, end_s - begin_s)}
    began = {reporter(s, running, pod_label) for s in buckets}
    scraped = {
        s.labels.get("pod", "") for s in up if s.labels.get("job", "") in jobs and s.values[-1] == 1 and reaches(s, end_s, end_s - begin_s)
    }
    return tuple(sorted(n for n in missing if n in began or running.life(n) in former.lives or n not in scraped))


def presence(found: Heard, former: Presence, running: Running) -> tuple[Presence, str]:
    """What to remember, and what is missing among reporters that are no pods of ours, or cannot be told to be.

    They are expected as long as the pods run that ran when they were heard: each pod that goes takes its share along. Other pods come and
    go by themselves: after so many windows nobody waits for them any more.
    """
    ready = frozenset(running.life(name) for name in running.born)
    left, of = len(former.ready & ready), max(len(former.ready), 1)
    nameless, others = former.nameless * left // of, tuple(count * left // of for count in former.others)
    settled = former.settled + 1 if ready == former.ready else 0
    # right after pods went, their last samples still come: what is expected may rise only once that is over
    rises = not former.ready or settled >= _SETTLED_WINDOWS

    def counted(told: int, expected: int) -> int:
        return told if rises or told < expected else expected

    most, missing = max(others, default=0), ""
    if len(found.others) < most:
        missing = f"{most - len(found.others)} of {most} proxies that are no pods of its own"
    if len(found.nameless) < nameless:
        missing = f"{nameless - len(found.nameless)} of {nameless} sources of its series"
    lives = former.lives & ready | {running.life(name) for name in found.pods if name in running.born}
    others = (*others, counted(len(found.others), most))[-RECENT:]
    return Presence(lives, max(counted(len(found.nameless), nameless), nameless), ready, settled, others), missing


def named(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    every = sorted(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more

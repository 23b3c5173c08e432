"""How much one namespace may have probed: so many sites, and so often all together. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiphys_models.api.inference_site import Probe


@dataclass(frozen=True, slots=True)
class ProbeWish:
    """A site that asks to be probed."""

    uid: str
    namespace: str
    age: tuple[str, str]
    """Creation and name: the oldest come first, so that no newcomer takes another's place."""
    probe: Probe


@dataclass(frozen=True, slots=True)
class ProbeQuota:
    """What every namespace may have probed."""

    sites: int = 100
    per_second: float = 50.0
    """Probes; above, all of its sites are probed more seldom."""
    least_interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Granted:
    """What comes of the wishes."""

    probes: Mapping[str, Probe] = field(default_factory=dict)
    """The probes that are granted, by the site's uid."""
    interval_s: Mapping[str, float] = field(default_factory=dict)
    too_many: frozenset[str] = frozenset()
    """Uids that are not probed, because others of their namespace are."""


def grant(wishes: Iterable[ProbeWish], quota: ProbeQuota) -> Granted:
    """What each namespace gets."""
    by_namespace: defaultdict[str, list[ProbeWish]] = defaultdict(list)
    for wish in wishes:
        by_namespace[wish.namespace].append(wish)
    probes: dict[str, Probe] = {}
    interval_s: dict[str, float] = {}
    too_many: set[str] = set()
    for all_of_it in by_namespace.values():
        oldest = sorted(all_of_it, key=lambda wish: wish.age)
        granted = oldest[: quota.sites]
        too_many |= {wish.uid for wish in oldest[quota.sites :]}
        wanted_s = {wish.uid: max(float(wish.probe.interval_seconds), quota.least_interval_s) for wish in granted}
        stretch = max(sum(1 / each for each in wanted_s.values()) / quota.per_second, 1.0)
        probes |= {wish.uid: wish.probe for wish in granted}
        interval_s |= {uid: each * stretch for uid, each in wanted_s.items()}
    return Granted(probes, interval_s, frozenset(too_many))

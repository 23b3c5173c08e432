"""Worlds of long-lived pods: applications, their lifetimes, requests and use, and the pods of two days, from seeds alone.

Splits never meet: the random stream is named by (split, world, seed).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.base.hashing import stable_hash
from tiphys_models.base.random import stream

DAY_S = 24 * 3600.0
DAYS = 2
"""The first one is for warming up, the second one counts."""
NODE_CORES, NODE_GIB = 16.0, 64.0
_CORES = (0.25, 0.5, 1.0, 2.0, 4.0)
_CORES_P = (0.15, 0.3, 0.3, 0.15, 0.1)
_GIB_A_CORE_MEDIAN, _GIB_A_CORE_SIGMA = 3.5, 0.6
_LARGEST_GIB = 24.0
_SHARE_SIGMA = 0.7
_BATCH = 3.0


@dataclass(frozen=True, slots=True)
class LivesWorld:
    """One kind of cluster. The default: 40 applications of jobs whose pods live as long as each other."""

    name: str
    cv: float
    """Coefficient of variation of lifetimes within an application."""
    jobs: int = 40
    services: int = 0
    job_cores: float = 200.0
    """Cores that jobs request on average over the day."""
    shortest_s: float = 180.0
    longest_s: float = 12 * 3600.0
    """Median lifetimes of the applications lie between these, evenly in their logarithm."""
    swing: float = 0.5
    """Of arrivals over a day."""
    use: tuple[float, float] = (0.3, 0.9)
    """CPU that pods of an application use over what they request, lowest and highest application."""
    interference: float = 0.0
    """What pods on a node whose cores are all in use lose to each other, beyond cores that are not there."""
    start_s: float = 60.0
    """From opening a node until pods run on it."""
    linger_s: float = 60.0
    """How long a node is empty before it goes."""
    consolidates: bool = False
    """Whether nodes with little on them, and nothing but services, are emptied by force."""


PREDICTABLE = LivesWorld("k8s-long-predictable", cv=0.2)
VAGUE = LivesWorld("k8s-long-vague", cv=1.5)
SERVICES = LivesWorld("k8s-long-services", cv=0.6, jobs=30, services=14, job_cores=130.0)
HOT = LivesWorld("k8s-long-hot", cv=0.6, use=(0.5, 1.6), interference=0.1)
WORLDS: tuple[LivesWorld, ...] = (PREDICTABLE, VAGUE, SERVICES, HOT)


@dataclass(frozen=True, slots=True)
class LivesPods:
    """All pods of two days, in order of arrival."""

    applications: int
    arrival_s: FloatArray
    application: IntArray
    life_s: FloatArray
    """How long it runs on a node that nobody slows down."""
    works: BoolArray
    """Whether it ends when its work is done, as jobs do; services end by the clock."""
    cores: FloatArray
    """Requests."""
    gib: FloatArray
    use_cores: FloatArray
    """CPU it would use if nobody else did."""
    uid_hash: HashArray

    def __len__(self) -> int:
        return len(self.arrival_s)


def make_pods(world: LivesWorld, split: str, seed: int) -> LivesPods:
    """The pods of one seed."""
    rng = stream("placement-lives", split, world.name, seed)
    count = world.jobs + world.services
    cores = rng.choice(_CORES, count, p=_CORES_P)
    gib = np.minimum(cores * np.exp(rng.normal(np.log(_GIB_A_CORE_MEDIAN), _GIB_A_CORE_SIGMA, count)), _LARGEST_GIB)
    use = rng.uniform(*world.use, count)
    jobs = _jobs(world, cores[: world.jobs], rng)
    services = _services(world, rng)
    arrival_s, drawn, life_s = (np.concatenate(pair) for pair in zip(jobs, services, strict=True))
    order = np.argsort(arrival_s, kind="stable")
    application: IntArray = drawn[order].astype(np.int64)
    noise = np.exp(rng.normal(-0.02, 0.2, len(order)))
    return LivesPods(
        applications=count,
        arrival_s=arrival_s[order],
        application=application,
        life_s=life_s[order],
        works=application < world.jobs,
        cores=cores[application],
        gib=gib[application],
        use_cores=cores[application] * use[application] * noise,
        uid_hash=np.array([stable_hash(f"pod-{i}") for i in range(len(order))], np.uint64),
    )


def _jobs(world: LivesWorld, cores: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Batches of jobs, more of them by day; every application has a share of the cores."""
    medians_s = np.exp(rng.uniform(np.log(world.shortest_s), np.log(world.longest_s), world.jobs))
    share = np.exp(rng.normal(0.0, _SHARE_SIGMA, world.jobs))
    sigma = np.sqrt(np.log(1 + world.cv**2))
    means_s = medians_s * np.exp(sigma**2 / 2)
    a_second = world.job_cores * share / share.sum() / (cores * means_s)
    arrivals, applications, lives = [], [], []
    for a in range(world.jobs):
        batches = rng.poisson(a_second[a] / _BATCH * DAYS * DAY_S)
        at_s = _swinging(batches, world.swing, rng)
        sizes = rng.geometric(1 / _BATCH, batches)
        arrivals.append(np.repeat(at_s, sizes) + rng.uniform(0.0, 5.0, int(sizes.sum())))
        applications.append(np.full(int(sizes.sum()), a, np.float64))
        lives.append(np.maximum(medians_s[a] * np.exp(rng.normal(0.0, sigma, int(sizes.sum()))), 10.0))
    return np.concatenate(arrivals), np.concatenate(applications), np.concatenate(lives)


def _swinging(count: int, swing: float, rng: np.random.Generator) -> FloatArray:
    """Times of two days, most of them at noon: thinning by the day's curve."""
    found = np.zeros(0)
    while len(found) < count:
        drawn = rng.uniform(0.0, DAYS * DAY_S, 2 * count + 8)
        kept = rng.uniform(0.0, 1.0 + swing, len(drawn)) < 1.0 - swing * np.cos(2 * np.pi * drawn / DAY_S)
        found = np.concatenate((found, drawn[kept]))
    return found[:count]


def _services(world: LivesWorld, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Replicas that are there from the beginning and are replaced one by one whenever their service is rolled out."""
    arrivals, applications, lives = [], [], []
    for s in range(world.services):
        replicas = int(rng.integers(3, 13))
        every_s = np.exp(rng.uniform(np.log(6 * 3600.0), np.log(3 * DAY_S)))
        at_s = 0.0
        next_s = every_s * rng.uniform()
        while at_s < DAYS * DAY_S:
            first_s = at_s + 60.0 * np.arange(replicas)
            gone_s = next_s + 60.0 * np.arange(replicas) + 30.0  # the old one goes when the new one is there
            arrivals.append(first_s)
            applications.append(np.full(replicas, world.jobs + s, np.float64))
            lives.append(np.maximum(gone_s - first_s, 60.0))
            at_s, next_s = next_s, next_s + every_s * np.exp(rng.normal(-0.125, 0.5))
    if not arrivals:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    return np.concatenate(arrivals), np.concatenate(applications), np.concatenate(lives)

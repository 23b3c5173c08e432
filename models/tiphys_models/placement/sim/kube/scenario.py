"""What pods run on: the cluster of `FaasScenario` under Kubernetes' filter, and what of the functions is declared, rightly or wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream
from tiphys_models.placement.sim.functions import NOISE_CV
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import CallWorkload

GENERATIONS = (0.7, 1.0, 1.0, 1.3)
"""Speeds of nodes that were bought in different years, repeated."""


@dataclass(frozen=True, slots=True)
class KubeScenario:
    """The standard one: ten nodes of 8 cores and 2 GiB, readings every second, every function declared as it is."""

    name: str = "k8s"
    cluster: FaasScenario = field(default_factory=FaasScenario)
    variation: float = NOISE_CV
    """Standard deviation over mean of a call's work."""
    generations: bool = False
    """Whether nodes differ in speed, which nobody declares."""
    declared: float = 1.0
    """Share of the functions of which a profile is declared."""
    error: float = 0.0
    """Each declared quantity is wrong by a factor exp(normal(0, error))."""
    history: bool = False
    """Whether everybody has watched another minute of the same functions before."""
    core_seconds: bool = True
    """Whether the processor time of a call is seen."""
    image_mib: float = 0.0
    """Size of every function's image, pulled before its first start on a node; zero: all images are there."""
    pull_mib_per_s: float = 100.0
    """What pulls of one node share."""
    images_kept_mib: float = 1e9
    """Images that a node keeps; the least recently used go."""

    def speeds(self) -> FloatArray:
        """How fast each node starts and runs calls."""
        return np.array([GENERATIONS[n % len(GENERATIONS)] if self.generations else 1.0 for n in range(self.cluster.nodes)])


def _world(name: str, cluster: FaasScenario | None = None, **changes: float | bool) -> KubeScenario:
    return replace(KubeScenario(name, cluster or FaasScenario()), **changes)  # type: ignore[arg-type]


STANDARD = KubeScenario()
DEAR_STARTS = _world("k8s-dear-starts", FaasScenario(start_cost=2.0))
READINGS_15 = _world("k8s-readings-15s", FaasScenario(period_s=15.0))
READINGS_30 = _world("k8s-readings-30s", FaasScenario(period_s=30.0))
LITTLE_MEMORY = _world("k8s-memory", FaasScenario(memory_gib=1.0))
VARIED = _world("k8s-cv1", variation=1.0)
VERY_VARIED = _world("k8s-cv2", variation=2.0)
GENERATION_MIX = _world("k8s-generations", generations=True)
JUDGED: tuple[KubeScenario, ...] = (
    STANDARD,
    DEAR_STARTS,
    READINGS_15,
    READINGS_30,
    LITTLE_MEMORY,
    VARIED,
    VERY_VARIED,
    GENERATION_MIX,
)
"""Worlds with a bound."""
PRINTED: tuple[KubeScenario, ...] = (
    _world("k8s-pulls", image_mib=400.0, images_kept_mib=1600.0),
    _world("k8s-interference", FaasScenario(interference=0.1)),
    _world("k8s-starts-x5", FaasScenario(start_cost=5.0)),
)
"""Worlds that are shown without one."""
PROFILED: tuple[KubeScenario, ...] = (
    _world("k8s-profiles-80", declared=0.8),
    _world("k8s-profiles-50", declared=0.5),
    _world("k8s-profiles-0", declared=0.0),
    _world("k8s-profiles-off-30", error=0.3),
    _world("k8s-profiles-off-60", error=0.6),
    _world("k8s-profiles-off-100", error=1.0),
)
"""Worlds whose functions are declared in part, or wrongly; each also with a minute of history."""

BLIND = _world("k8s-cpu-unseen", declared=0.0, core_seconds=False)
"""Nobody declares anything, and nobody sees the processor time of a call."""
TRACED = _world("k8s-azure", FaasScenario(period_s=5.0), declared=0.0)
"""The world of `trace`: nobody declares anything, nodes are read every five seconds, and an hour is there to learn in."""


def with_history(scenario: KubeScenario) -> KubeScenario:
    """The same world after a minute of the same functions."""
    return replace(scenario, history=True)


def varied(workload: CallWorkload, variation: float) -> CallWorkload:
    """The same calls, whose work varies by so much: the same draws, stretched."""
    if variation == NOISE_CV:
        return workload
    before, after = (float(np.sqrt(np.log1p(cv**2))) for cv in (NOISE_CV, variation))
    normal = (np.log(workload.noise) + before**2 / 2) / before
    return replace(workload, noise=np.exp(normal * after - after**2 / 2))


def declared_wrongly(profiles: FloatArray, scenario: KubeScenario, workload: CallWorkload) -> FloatArray:
    """What is declared of each function: the truth, each quantity off by its own factor."""
    if scenario.error == 0.0:
        return profiles
    rng = stream("placement-declared", workload.split, workload.name, workload.seed)
    wrong: FloatArray = profiles * np.exp(rng.normal(0.0, scenario.error, profiles.shape))
    wrong[:, 2] = np.maximum(wrong[:, 2], wrong[:, 1])  # nobody declares a cold call to be less work than a warm one
    wrong[:, 3] = np.clip(wrong[:, 3], 0.25, 64.0)
    return wrong

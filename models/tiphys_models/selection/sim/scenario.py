"""What a workload runs on: hosts, and the modelling choices that decide results; the default is the model of the published tables."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.selection.cloud.hosts import B2S, PAPER_FLEET, HostType


@dataclass(frozen=True, slots=True)
class CloudScenario:
    """Resume and linger are 0 s by default: a sleeping host answers at once, an empty one sleeps at once."""

    name: str = "default"
    kinds: tuple[tuple[HostType, int], ...] = PAPER_FLEET
    resume_s: float = 0.0
    linger_intervals: int = 0
    mix: str = "uniform"
    within_interval: bool = False


DEFAULT_SCENARIO = CloudScenario()
SENSITIVITY: tuple[CloudScenario, ...] = (
    CloudScenario("resume-5s", resume_s=5.0),
    CloudScenario("resume-30s-linger-3", resume_s=30.0, linger_intervals=3),
    CloudScenario("mix-heavy", mix="heavy"),
    CloudScenario("mix-light", mix="light"),
    CloudScenario("arrivals-uniform", within_interval=True),
    CloudScenario("b2s-only", kinds=((B2S, 100),)),
)
"""One choice changed at a time."""

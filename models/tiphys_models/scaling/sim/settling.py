"""Where an agent that changes sizes only comes to rest at a constant rate, from a low and a high limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.sim.clairvoyant import smallest_sufficient_m
from tiphys_models.scaling.sim.episode import ServiceEpisode, finish
from tiphys_models.scaling.sim.load import Load, draw_load
from tiphys_models.scaling.sim.records import WindowRecords
from tiphys_models.scaling.sim.scenario import FIBONACCI, ServiceScenario
from tiphys_models.scaling.sim.shapes import LoadShape

RATES = (40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 250.0)
STARTS_M = (60.0, 600.0)
WINDOWS = 120
LAST = 40
"""Windows over which a limit that has settled is averaged."""
ONE_POD = ServiceScenario("one-pod", max_replicas=1)


@dataclass(frozen=True, slots=True)
class SettledRun:
    """One run at a constant rate: where the size of a pod came to rest, beside the smallest one that would do."""

    rps: float
    start_m: float
    settled_m: float
    smallest_m: float
    kept: float
    """Share of the last windows within the objective."""
    records: WindowRecords


def constant_load(split: str, seed: int, rps: float) -> Load:
    """Requests at this rate."""
    seconds = round(WINDOWS * ONE_POD.window_s)
    return draw_load(LoadShape(f"constant-{rps:g}", split, seed, np.full(seconds, rps)), FIBONACCI)


def settle(agent: ScalingAgent, split: str, seed: int) -> list[SettledRun]:
    """Every rate, from both limits."""
    found = []
    for rps in RATES:
        load = constant_load(split, seed, rps)
        smallest_m = smallest_sufficient_m(load, ONE_POD)
        for start_m in STARTS_M:
            episode = ServiceEpisode([load], ONE_POD)
            episode.start_with(np.ones(1, np.int64), np.array([start_m]))
            records = finish(agent, episode)
            settled_m, kept = float(records.cpu_m[0, -LAST:].mean()), float(records.kept()[0, -LAST:].mean())
            found.append(SettledRun(rps, start_m, settled_m, smallest_m, kept, records))
    return found

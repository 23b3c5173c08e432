"""Measuring the repository's constants: scheduling times of planners, and the divisors of J. On the `calibration` split, once.

What it prints is kept in `base/constants.json` with its provenance: benchmarks never measure what they are judged by.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.selection.cloud.bill import SchedulingTime
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.score import Divisors, Outcome
from tiphys_models.selection.planners.registry import PAPER, make_planners
from tiphys_models.selection.sim.episode import FixedCandidate, IntervalMoment, Planners, run
from tiphys_models.selection.sim.maxmin import columns
from tiphys_models.selection.sim.workloads import INTERVALS, make_workload, rates

SEEDS = (0, 1, 2)
_INTERVALS = 150


@dataclass(slots=True)
class _Clock:
    """A chooser that times one planner, in CPU seconds (others compute too), at every moment of an episode that another one leads."""

    name: str
    leader: str
    seconds: list[tuple[int, float]] = field(default_factory=list)

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        started = time.process_time()
        repair(moment.state, moment.tasks, moment.planners.fresh_plan(self.name, moment.state, moment.tasks, moment.digest))
        self.seconds.append((len(moment.tasks), time.process_time() - started))
        return self.leader

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


def scheduling_time(name: str) -> SchedulingTime:
    """A line through the median seconds of a call per number of tasks, in the regime workload; repair included, on this machine."""
    leader = "one-per-host"
    clock = _Clock(name, leader)
    run(make_workload("regime", "calibration", 0, _INTERVALS), Planners(make_planners(list({name, leader}))), clock)
    counts = np.array([n for n, _ in clock.seconds])
    seconds = np.array([s for _, s in clock.seconds])
    sizes = np.unique(counts)
    medians = np.array([np.median(seconds[counts == n]) for n in sizes])
    weight = np.sqrt([(counts == n).sum() for n in sizes])
    slope, base = np.polyfit(sizes, medians, 1, w=weight)
    return SchedulingTime(max(float(base), 0.0), max(float(slope), 0.0))


def divisors(workload: str, names: Sequence[str]) -> Divisors:
    """Mean of the rows of the paper's planners (of all candidates while there are none), over calibration seeds."""
    chosen = [n for n in names if n in PAPER] or list(names)
    found = []
    for seed in SEEDS:
        tasks = make_workload(workload, "calibration", seed)
        planners = Planners(make_planners(chosen))
        found += [columns(run(tasks, planners, FixedCandidate(name))) for name in chosen]
    expected = rates(workload, 60 * INTERVALS, np.random.default_rng(0)).mean() * INTERVALS
    cost, energy, response, late = np.mean(found, axis=0).tolist()
    return Divisors(cost, energy, response, late, float(expected))

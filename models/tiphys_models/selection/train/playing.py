"""Selectors judged by playing: mean J over the validation (or calibration) split, as a share of the best fixed candidate's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Divisors, Weights, cost_at_sla
from tiphys_models.selection.selectors.protocol import Selector
from tiphys_models.selection.selectors.ucb import UCB
from tiphys_models.selection.sim.choosers import Selected
from tiphys_models.selection.sim.episode import CandidateChooser, FixedCandidate, IntervalRecords, Planners, run
from tiphys_models.selection.sim.workloads import WORKLOADS, make_workload

Pricing = Callable[[Divisors], Weights]
JUDGED: Mapping[str, Pricing] = {"default": lambda _: DEFAULT, "cost-at-sla": cost_at_sla}
Maker = Callable[[Weights, Divisors], Selector]


@dataclass(slots=True)
class Court:
    """Plays on few seeds of one split; kept plans and the fixed candidates' rows serve every selector that is judged."""

    planners: Planners
    split: str
    seeds: tuple[int, ...]
    intervals: int
    weights: Mapping[str, Pricing] = field(default_factory=lambda: JUDGED)
    _fixed: dict[tuple[str, int], list[IntervalRecords]] = field(default_factory=dict)

    def judge(self, make: Maker) -> dict[str, float]:
        """J over best fixed J, by workload and weights: below 1 is better than any fixed candidate."""
        found: dict[str, float] = {}
        for workload in WORKLOADS:
            divisors = DIVISORS[workload]
            for key, pricing in self.weights.items():
                weights = pricing(divisors)
                mine = [self._play(workload, s, Selected(make(weights, divisors), weights, divisors)) for s in self.seeds]
                rows = [[self._j(r, workload, weights) for r in self._rows(workload, s)] for s in self.seeds]
                best = float(np.mean(rows, axis=0).min())
                found[f"{workload}/{key}"] = float(np.mean([self._j(r, workload, weights) for r in mine])) / best
        return found

    def bills(self, make: Maker, pricing: Pricing) -> dict[str, tuple[float, float]]:
        """Mean USD by workload, and the share of missed deadlines on the seed that missed most."""
        found: dict[str, tuple[float, float]] = {}
        for workload in WORKLOADS:
            divisors = DIVISORS[workload]
            weights = pricing(divisors)
            mine = [self._play(workload, s, Selected(make(weights, divisors), weights, divisors)) for s in self.seeds]
            found[workload] = float(np.mean([r.cost_usd for r in mine])), max(r.sla_violation for r in mine)
        return found

    def _rows(self, workload: str, seed: int) -> list[IntervalRecords]:
        if (workload, seed) not in self._fixed:
            self._fixed[workload, seed] = [self._play(workload, seed, FixedCandidate(name)) for name in self.planners.names]
        return self._fixed[workload, seed]

    def _play(self, workload: str, seed: int, chooser: CandidateChooser) -> IntervalRecords:
        return run(make_workload(workload, self.split, seed, self.intervals), self.planners, chooser)

    def _j(self, r: IntervalRecords, workload: str, weights: Weights) -> float:
        return DIVISORS[workload].j(weights, r.cost_usd, r.energy_kwh, r.response_s, r.sla_violation, self.intervals)


MISSED_GRID_USD = (1.5e-4, 1.75e-4, 2e-4, 2.25e-4, 2.5e-4, 4e-4)
MOST_VIOLATIONS = 0.08
"""Most missed deadlines on every validation seed: below the 10 % that the weights are named for, since other seeds differ."""


def price_violations(court: Court, make: Maker) -> dict[float, dict[str, tuple[float, float]]]:
    """USD and violations by price; `score.MISSED_USD` is the least that keeps MOST_VIOLATIONS everywhere."""
    return {usd: court.bills(make, partial(cost_at_sla, missed_usd=usd)) for usd in MISSED_GRID_USD}


UCB_GRID = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2**0.5)


def tune_ucb(planners: Planners, seeds: tuple[int, ...], intervals: int) -> dict[float, float]:
    """Mean J over best fixed on the calibration split, default weights, by c: `ucb.TUNED_C` is the lowest."""
    court = Court(planners, "calibration", seeds, intervals, {"default": JUDGED["default"]})
    return {c: float(np.mean(list(court.judge(lambda w, d, c=c: UCB(planners.names, c)).values()))) for c in UCB_GRID}  # type: ignore[misc]

"""What each candidate would have cost at the same moment: counterfactual labels for learned selectors, from the cloud itself.

A label is marginal: everything to completion under the plan, minus everything without the waiting tasks. Features must come from
`selectors.encoding`, never from the cloud, which knows true works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.score import Divisors, Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.sim.episode import CandidateChooser, IntervalMoment, Planners, run
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO, CloudScenario
from tiphys_models.selection.sim.workloads import TaskWorkload

Works = tuple[FloatArray, FloatArray]


def marginals(moment: IntervalMoment, works: Works | None = None) -> dict[str, Outcome]:
    """Marginal outcome of every candidate at this moment: what its plan adds to the run without any."""
    # an interval's own cost would not do: tasks that have not ended look free in it, and slow packing wins (ADR 21)
    base = _without(moment, works)
    return {
        name: moment.cloud.drained(moment.plan(name), scheduling_s(name, len(moment.tasks)), works) - base for name in moment.planners.names
    }


def _without(moment: IntervalMoment, works: Works | None) -> Outcome:
    cloud = moment.cloud.clone()
    cloud.waiting = cloud.waiting[:0]
    return cloud.drained(Plan(cloud.waiting), 0.0, None if works is None else (works[0], works[1][:0]))


@dataclass(frozen=True, slots=True)
class Labels:
    """One row a moment."""

    candidates: tuple[str, ...]
    features: FloatArray
    tasks: FloatArray
    """Number of waiting tasks at each moment."""
    outcomes: FloatArray
    """Moments x candidates x (usd, joules, response_s, violations, tasks)."""

    def j(self, weights: Weights, divisors: Divisors) -> FloatArray:
        """Moments x candidates: shares of J."""
        w, d = weights, divisors
        per = np.array(
            [
                w.cost / d.cost_usd,
                w.energy / d.energy_kwh / 3.6e6,
                w.response / d.response_s / d.tasks,
                w.violation / d.sla_violation / d.tasks,
            ]
        )
        return np.asarray(self.outcomes[:, :, :4] @ per)


@dataclass(slots=True)
class _Labelling:
    """A chooser that writes down, for every `every`-th moment, what each candidate would have cost."""

    behaviour: CandidateChooser
    encode: Callable[[CloudState, Tasks], FloatArray]
    every: int
    rows: list[tuple[FloatArray, int, list[Outcome]]] = field(default_factory=list)
    seen: int = 0

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        if self.seen % self.every == 0:
            self.rows.append((self.encode(moment.state, moment.tasks), len(moment.tasks), list(marginals(moment).values())))
        self.seen += 1
        return self.behaviour.choose(moment)

    def settled(self, interval: int, outcome: Outcome) -> None:
        """A decision's tasks have all ended; implements `CandidateChooser.settled`."""
        self.behaviour.settled(interval, outcome)


def collect(
    workload: TaskWorkload, planners: Planners, behaviour: CandidateChooser, encode: Callable[[CloudState, Tasks], FloatArray],
    scenario: CloudScenario = DEFAULT_SCENARIO, every: int = 1,
) -> Labels:  # fmt: skip
    """Run an episode under `behaviour` and label the moments it meets."""
    labelling = _Labelling(behaviour, encode, every)
    run(workload, planners, labelling, scenario)
    return Labels(
        planners.names,
        np.array([features for features, _, _ in labelling.rows], np.float64),
        np.array([count for _, count, _ in labelling.rows], np.float64),
        np.array([[[o.usd, o.joules, o.response_s, o.violations, o.tasks] for o in row] for _, _, row in labelling.rows], np.float64),
    )

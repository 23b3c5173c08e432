"""The paper's data set: every policy in charge for 100 intervals in a row, one tuple an interval that has a decision."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.selectors.encoding import encode_paper
from tiphys_models.selection.selectors.phi import Since
from tiphys_models.selection.sim.episode import IntervalMoment, Planners, run
from tiphys_models.selection.sim.workloads import make_workload

GAMMA = 100
"""Intervals in a row that each policy is in charge of."""


@dataclass(slots=True)
class _Blocks:
    rows: list[FloatArray] = field(default_factory=list)
    last: Since | None = None

    def choose(self, moment: IntervalMoment) -> str:
        names = moment.planners.names
        if self.last is not None:
            self.rows[-1][1] = self.last.phi(moment.state, moment.tasks)
        taken = min(moment.interval // GAMMA, len(names) - 1)
        self.rows.append(np.concatenate([[taken, np.nan], encode_paper(moment.state, moment.tasks)]))
        self.last = Since.at(moment.state, moment.tasks, scheduling_s(names[taken], len(moment.tasks)))
        return names[taken]

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


def blocks(workload: str, planners: Planners, seed: int) -> FloatArray:
    """Rows of (policy, phi, inputs)."""
    chooser = _Blocks()
    run(make_workload(workload, "train", seed, GAMMA * len(planners.names)), planners, chooser)
    return np.array([row for row in chooser.rows if np.isfinite(row[1])])

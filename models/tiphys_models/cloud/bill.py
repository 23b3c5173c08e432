"""What scheduling itself costs: serverless execution priced by the second, from a table of calibrated scheduling times.

The table, not the wall clock, is charged: rows would otherwise move with the machine and with kept plans. Its lines are measured
once by `tiphys bench selection --calibrate` and kept here.
"""

from __future__ import annotations

from dataclasses import dataclass

USD_PER_GB_S = 1.6e-5
"""Consumption list price of Azure functions, which MetaNet's authors use too."""
SCHEDULER_GB = 1.5


@dataclass(frozen=True, slots=True)
class SchedulingTime:
    """Seconds of one call of a planner: a + b x waiting tasks."""

    base_s: float
    per_task_s: float

    def seconds(self, tasks: int) -> float:
        """Nothing to place, nothing to run."""
        return self.base_s + self.per_task_s * tasks if tasks else 0.0


SCHEDULING_TIMES: dict[str, SchedulingTime] = {
    "arima-aco": SchedulingTime(0.0, 0.0016),
    "lstm-aco": SchedulingTime(0.0, 0.0013),
    "decision-nn": SchedulingTime(0.0, 0.0012),
    "semi-direct": SchedulingTime(0.0006, 0.0014),
    "graf": SchedulingTime(0.0099, 0.0025),
    "gobi": SchedulingTime(0.0027, 0.0011),
    "gosh": SchedulingTime(0.0114, 0.0036),
    "cost-lean": SchedulingTime(0.0, 0.0002),
    "energy-lean": SchedulingTime(0.0, 0.0002),
    "one-per-host": SchedulingTime(0.0002, 0.0),
    "first-fit": SchedulingTime(0.0001, 0.0),
    "random-host": SchedulingTime(0.0001, 0.0),
}
UNMEASURED = SchedulingTime(0.5, 0.0)
"""For a planner without a line of its own: dear enough that nobody forgets to measure."""


def scheduling_s(planner: str, tasks: int) -> float:
    """Charged seconds of one call."""
    return SCHEDULING_TIMES.get(planner, UNMEASURED).seconds(tasks)


def serverless_usd(seconds: float) -> float:
    """Price of running the scheduler for so long."""
    return seconds * SCHEDULER_GB * USD_PER_GB_S

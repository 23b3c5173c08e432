"""What scheduling itself costs: serverless execution priced by the second, from a table of calibrated scheduling times.

The table, not the wall clock, is charged: rows would otherwise move with the machine and with kept plans. Its lines are measured
once by `tiphys bench selection --calibrate` and kept with the other constants.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.base.constants import constant

USD_PER_GB_S = 1.6e-5
"""Consumption list price of Azure functions, which MetaNet's authors use too."""
SCHEDULER_GB = 1.5


@dataclass(frozen=True, slots=True)
class SchedulingTime:
    """Seconds of one call of a planner: a + b x waiting tasks."""

    base_s: float
    per_task_s: float

    def seconds(self, tasks: int) -> float:
        """Seconds of a call for so many waiting tasks; a planner is not run for none."""
        return self.base_s + self.per_task_s * tasks if tasks else 0.0


SCHEDULING_TIMES: dict[str, SchedulingTime] = {name: SchedulingTime(*time) for name, time in constant("selection.scheduling-times").items()}
UNMEASURED = SchedulingTime(0.5, 0.0)
"""Charge for a planner without a line of its own: high enough that nobody forgets to measure."""


def scheduling_s(planner: str, tasks: int) -> float:
    """Charged seconds of one call."""
    return SCHEDULING_TIMES.get(planner, UNMEASURED).seconds(tasks)


def serverless_usd(seconds: float) -> float:
    """Price of running the scheduler for so long."""
    return seconds * SCHEDULER_GB * USD_PER_GB_S

"""J: cost, energy, response and violations as one number, the same for planners' rows, selectors and bounds.

J = sum of weight x value / divisor over an episode. Weights are the user's; divisors are constants of the repository, never
recomputed from the run they judge.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.base.constants import constant, number

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each of the four counts; only their proportions matter to a choice."""

    cost: float = 0.25
    energy: float = 0.25
    response: float = 0.25
    violation: float = 0.25


DEFAULT = Weights()
MISSED_USD = number("selection.missed-usd")
"""Price of a missed deadline under the weights `cost-at-sla`, about that of the cheapest host for 15 s: the least with which `metanet`
keeps its own at 8 % on the validation split (`tiphys train selection --preset cost-at-sla`)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Totals of some tasks or decisions; adds up."""

    usd: float = 0.0
    joules: float = 0.0
    response_s: float = 0.0
    """Response times, summed over tasks."""
    violations: float = 0.0
    tasks: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        return self.plus(other, 1.0)

    def __sub__(self, other: Outcome) -> Outcome:
        return self.plus(other, -1.0)

    def scaled(self, factor: float) -> Outcome:
        """So many times as much."""
        return Outcome().plus(self, factor)

    def plus(self, other: Outcome, sign: float) -> Outcome:
        """The sum, written out: drafts add up tens of thousands of them."""
        return Outcome(
            self.usd + sign * other.usd,
            self.joules + sign * other.joules,
            self.response_s + sign * other.response_s,
            self.violations + sign * other.violations,
            self.tasks + sign * other.tasks,
        )


@dataclass(frozen=True, slots=True)
class Divisors:
    """What one unit of each term is worth in an episode of 1,000 intervals; responses and violations are means over tasks."""

    cost_usd: float
    energy_kwh: float
    response_s: float
    sla_violation: float
    tasks: float
    """Tasks of such an episode as expected beforehand: what turns sums over a decision's tasks into parts of the mean."""
    intervals: int = 1000

    def j(self, weights: Weights, cost_usd: float, energy_kwh: float, response_s: float, sla_violation: float, intervals: int) -> float:
        """J of an episode; cost and energy grow with its length, the means do not."""
        part = self.intervals / intervals
        return (
            weights.cost * cost_usd * part / self.cost_usd
            + weights.energy * energy_kwh * part / self.energy_kwh
            + weights.response * response_s / self.response_s
            + weights.violation * sla_violation / self.sla_violation
        )

    def share(self, weights: Weights, outcome: Outcome) -> float:
        """What a decision adds to J of an episode of 1,000 intervals: shares of all decisions add up to (nearly) J.

        "Nearly", because the number of tasks is the expected one: a decision must not depend on how many tasks will follow.
        """
        return (
            weights.cost * outcome.usd / self.cost_usd
            + weights.energy * outcome.joules / JOULES_PER_KWH / self.energy_kwh
            + weights.response * outcome.response_s / (self.response_s * self.tasks)
            + weights.violation * outcome.violations / (self.sla_violation * self.tasks)
        )


DIVISORS: dict[str, Divisors] = {workload: Divisors(**means) for workload, means in constant("selection.divisors").items()}
"""Means of the rows of the paper's seven planners on the calibration split (`tiphys bench selection --calibrate`)."""


def cost_at_sla(divisors: Divisors, missed_usd: float = MISSED_USD) -> Weights:
    """The cheapest bill that still keeps deadlines: money alone counts, and a missed deadline costs so much of it."""
    ratio = missed_usd * divisors.tasks * divisors.sla_violation / divisors.cost_usd
    return Weights(cost=1 / (1 + ratio), energy=0.0, response=0.0, violation=ratio / (1 + ratio))

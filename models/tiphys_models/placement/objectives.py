"""What a placement is to be good for: that calls are done soon, that nodes can go soon, or both at a price.

Completion is counted in seconds of calls, cost in seconds that nodes live longer because a pod was placed there. Where lifetimes are
vague, a pod prolongs all nodes by much the same, so that what cost says of a choice shrinks by itself to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement import lifetimes
from tiphys_models.placement.candidates import CandidateView
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.waiting import NotYet

Objective = Literal["completion", "cost", "both"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
_COST = (PolicyName.LIFETIMES, PolicyName.MOST_ALLOCATED)
"""Policies whose own aim is cost."""


def judge_of(policy: str, objective: str, *, chosen: bool) -> str | None:
    """The policy that judges for another one under an objective; None if that one cannot. Unchosen, it is the objective's own."""
    if objective == "completion":
        return policy
    if objective == "cost":
        if policy in _COST and chosen:
            return policy
        return str(PolicyName.LIFETIMES) if policy == PolicyName.ESTIMATOR or not chosen else None
    return str(PolicyName.ESTIMATOR) if policy == PolicyName.ESTIMATOR or not chosen else None


def added_node_s(view: CandidateView) -> FloatArray:
    """Seconds by which the pod is expected to prolong the life of each candidate, as far as lifetimes have been learned."""
    now_s = view.now_s if view.now_s > -math.inf else 0.0
    stays = (1.0 - view.lives.gone(view.request.function, now_s)) * lifetimes.SPANS_S
    added: FloatArray = (view.lives.empty(view.rows, now_s) * stays).sum(axis=1)
    return added


@dataclass(frozen=True, slots=True)
class PricedEstimator(Estimator):
    """The estimator, to whose seconds those that a node lives longer are added at a price."""

    worth_s: float = 0.1
    """Seconds of completion that one second of a node is worth."""

    def weighed(self, view: CandidateView, costs: FloatArray) -> FloatArray:
        """Minus the seconds that a placement costs, those of the node included."""
        return Estimator.weighed(self, view, costs) - self.worth_s * added_node_s(view)

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """Whether waiting pays in seconds of completion: for an instance on whatever node, so its price is not known."""
        b = view.believed()
        seconds = scores + self.worth_s * added_node_s(view) if b.known and b.measured else scores
        return Estimator.not_yet(self, view, seconds, best, before)

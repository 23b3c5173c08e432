"""What a scaling agent is: one function from what is seen of many services to sizes, and the same function for one service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.scaling.seen import ServiceHistory, seen_of
from tiphys_models.scaling.state import ScalingDecision, ScalingState


@dataclass(frozen=True, slots=True)
class Answers:
    """One row a service."""

    replicas: IntArray
    cpu_m: FloatArray
    action: IntArray | None = None
    """Index into the agent's actions; -1 where its gate kept the rule."""
    values: FloatArray | None = None
    """[services, actions]; -inf: not possible now."""


class ScalingAgent(Protocol):
    """Deterministic, and without memory: everything an agent needs is in `ServiceHistory`."""

    @property
    def name(self) -> str:
        """Name of the agent in the CRD and the tables."""
        ...

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of a learned agent's actions; empty for rules."""
        ...

    def answer(self, seen: ServiceHistory) -> Answers:
        """What every service should get."""
        ...


def decide(agent: ScalingAgent, state: ScalingState) -> ScalingDecision:
    """The agent's decision for one service. Without a recent reading nothing changes."""
    if state.stale:
        return ScalingDecision(state.replicas, state.cpu_m, "NoData")
    answers = agent.answer(seen_of([state]))
    replicas, cpu_m = int(answers.replicas[0]), int(answers.cpu_m[0])
    if answers.values is None or answers.action is None:
        return ScalingDecision(replicas, cpu_m, "Rule")
    values = {name: float(v) for name, v in zip(agent.actions, answers.values[0], strict=True) if np.isfinite(v)}
    taken = int(answers.action[0])
    if taken < 0:
        return ScalingDecision(replicas, cpu_m, "KeptRule", "", values)
    return ScalingDecision(replicas, cpu_m, "BestValue", agent.actions[taken], values)

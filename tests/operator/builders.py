"""Builders of what the operator sees; tests name only what matters to them."""

from __future__ import annotations

from typing import Any

from tests.builders import policy_object
from tiphys_models.api.scheduling_policy import SchedulingPolicyStatus
from tiphys_operator.placement.models_found import ModelFound, ModelRefused
from tiphys_operator.placement.observation import AnswerCounts, Observation, PodGroup, PolicySeen, policy_seen
from tiphys_operator.placement.plan import Plan, plan

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00Z"
DIGEST = "ab" * 32
FAASRANK = ModelFound("faasrank", DIGEST)
REFUSED = ModelRefused("NotFinite", "NotFinite: faasrank.json: a weight is NaN or infinite")


def seen(
    name: str = "p",
    namespace: str = "default",
    status: SchedulingPolicyStatus | None = None,
    generation: int = 1,
    created: str = "2026-01-01T00:00:00Z",
    **spec: Any,
) -> PolicySeen:
    obj = policy_object(name, namespace, created, **spec)
    obj["metadata"] |= {"generation": generation, "resourceVersion": "7"}
    if status is not None:
        obj["status"] = status.model_dump(by_alias=True, mode="json")
    return policy_seen(obj)


def pods(count: int = 1, ours: bool = True, **labels: str) -> PodGroup:
    return PodGroup(labels, ours, count)


def observed(*policies: PolicySeen, now_s: float = NOW_S, **parts: Any) -> Observation:
    """Pods are none, unless given by policy name: pods={"p": [pods(3)]}."""
    groups = {p.key: () for p in policies} | {f"default/{name}": tuple(found) for name, found in parts.pop("pods", {}).items()}
    groups = {key: group for key, group in groups.items() if key not in parts.get("pod_problems", {})}
    answers = {f"default/{name}": counts for name, counts in parts.pop("answers", {}).items()}
    return Observation(now_s=now_s, policies=policies, pods=groups, answers=answers, **parts)


def planned(*policies: PolicySeen, **parts: Any) -> Plan:
    return plan(observed(*policies, **parts), "tiphys-system", "tiphys")


def status_of(made: Plan, name: str = "p") -> SchedulingPolicyStatus:
    (found,) = [write.status for write in made.statuses if write.policy.name == name]
    return found


def conditions(made: Plan, name: str = "p") -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    return {str(c.type): (c.status, str(c.reason)) for c in status_of(made, name).conditions}


def after(policy: PolicySeen, made: Plan, /, **spec: Any) -> PolicySeen:
    """The same policy with the status that was planned."""
    return seen(policy.name, policy.namespace, status_of(made, policy.name), policy.generation, **spec)


def answers(**counts: Any) -> AnswerCounts:
    return AnswerCounts(**counts)

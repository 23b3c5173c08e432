"""Conflicts with others that scale the workload. Each dimension has one owner: whoever is there already keeps it, and we only recommend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.scaling_policy import TargetRef
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_operator.scaling.seen import ScalingSeen

OVERRIDES = 3
"""So many times within an hour somebody else has set the number of pods otherwise: a GitOps tool, or another controller."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody who would undo our steps, or whose steps we would undo."""

    reason: ScalingReason
    message: str


@dataclass(frozen=True, slots=True)
class OtherScalers:
    """Autoscalers of the namespace, as the API server sends them."""

    hpas: Sequence[Mapping[str, Any]] = ()
    vpas: Sequence[Mapping[str, Any]] = ()
    scaled_objects: Sequence[Mapping[str, Any]] = ()


def conflict(policy: ScalingSeen, others: OtherScalers, policies: Iterable[ScalingSeen], overridden: int, manager: str) -> Conflict | None:
    """The first reason why this policy must not act; None if there is none."""
    spec = policy.spec
    if spec is None:
        return None
    target, horizontal, vertical = spec.target_ref, spec.horizontal is not None, spec.vertical is not None
    for hpa in others.hpas:
        if not _names(part(part(hpa, "spec"), "scaleTargetRef"), target):
            continue
        name = part(hpa, "metadata").get("name")
        if horizontal:
            return Conflict(
                ScalingReason.OWNED_BY_HPA, f"HorizontalPodAutoscaler {name} sets the number of pods: delete it, or remove spec.horizontal"
            )
        if vertical and _by_utilisation(hpa):
            return Conflict(
                ScalingReason.OWNED_BY_HPA,
                f"HorizontalPodAutoscaler {name} divides by CPU requests, which would move: give it an AverageValue, or delete it",
            )
    for scaled in others.scaled_objects if horizontal else ():
        reference = {"kind": "Deployment", **part(part(scaled, "spec"), "scaleTargetRef")}
        if _names(reference, target):
            name = part(scaled, "metadata").get("name")
            return Conflict(ScalingReason.OWNED_BY_KEDA, f"ScaledObject {name} sets the number of pods")
    for vpa in others.vpas if vertical else ():
        specified = part(vpa, "spec")
        mode = part(specified, "updatePolicy").get("updateMode") or "Auto"
        if mode != "Off" and _names(part(specified, "targetRef"), target):
            name = part(vpa, "metadata").get("name")
            return Conflict(
                ScalingReason.OWNED_BY_VPA, f"VerticalPodAutoscaler {name} sets sizes: set its updateMode to Off, or remove spec.vertical"
            )
    winner = min((p for p in policies if _same_target(p, policy)), key=_seniority, default=policy)
    if _seniority(winner) < _seniority(policy):
        return Conflict(ScalingReason.OWNED_BY_POLICY, f"ScalingPolicy {winner.name} has the same target and is older")
    if horizontal and overridden >= OVERRIDES:
        who = manager or "somebody else"
        message = f"{who} has set the number of pods otherwise {overridden} times within an hour: remove replicas from what it applies"
        return Conflict(ScalingReason.OVERRIDDEN, message)
    return None


def part(obj: Any, name: str) -> Mapping[str, Any]:
    """A part of an object that others wrote; empty where it is missing, null or something else."""
    value = obj.get(name) if isinstance(obj, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _names(reference: Mapping[str, Any], target: TargetRef) -> bool:
    return reference.get("kind") == target.kind and reference.get("name") == target.name


def _by_utilisation(hpa: Mapping[str, Any]) -> bool:
    metrics = part(hpa, "spec").get("metrics")
    for metric in metrics if isinstance(metrics, list) else ():
        source = part(metric, "resource") or part(metric, "containerResource")
        if source.get("name") == "cpu" and part(source, "target").get("type") == "Utilization":
            return True
    return False


def _same_target(other: ScalingSeen, policy: ScalingSeen) -> bool:
    if other.spec is None or policy.spec is None or other.deleting or other.spec.mode == "Off":
        return False
    mine, theirs = policy.spec.target_ref, other.spec.target_ref
    return other.namespace == policy.namespace and (mine.kind, mine.name) == (theirs.kind, theirs.name)


def _seniority(policy: ScalingSeen) -> tuple[str, str]:
    return policy.created, policy.name

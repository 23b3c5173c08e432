"""Who else scales the workload. One owner a dimension: whoever is there already keeps it, and we only recommend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.reasons import ScalingReason
from tiphys_models.api.scaling_policy import TargetRef
from tiphys_operator.scaling.seen import ScalingSeen

OVERRIDES = 3
"""So many times within an hour somebody else has set the number of pods otherwise: a GitOps tool, or another controller."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody who would undo our steps, or whose steps we would undo."""

    reason: ScalingReason
    message: str


@dataclass(frozen=True, slots=True)
class Others:
    """Autoscalers of the namespace, as the API server sends them."""

    hpas: Sequence[Mapping[str, Any]] = ()
    vpas: Sequence[Mapping[str, Any]] = ()
    scaled_objects: Sequence[Mapping[str, Any]] = ()


def conflict(policy: ScalingSeen, others: Others, policies: Iterable[ScalingSeen], overridden: int, manager: str) -> Conflict | None:
    """The first reason why this policy must not act; None if there is none."""
    spec = policy.spec
    if spec is None:
        return None
    target, horizontal, vertical = spec.target_ref, spec.horizontal is not None, spec.vertical is not None
    for hpa in others.hpas:
        if not _names(hpa.get("spec", {}).get("scaleTargetRef"), target):
            continue
        name = hpa["metadata"]["name"]
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
        reference = {"kind": "Deployment", **(scaled.get("spec", {}).get("scaleTargetRef") or {})}
        if _names(reference, target):
            return Conflict(ScalingReason.OWNED_BY_KEDA, f"ScaledObject {scaled['metadata']['name']} sets the number of pods")
    for vpa in others.vpas if vertical else ():
        specified = vpa.get("spec", {})
        mode = (specified.get("updatePolicy") or {}).get("updateMode") or "Auto"
        if mode != "Off" and _names(specified.get("targetRef"), target):
            name = vpa["metadata"]["name"]
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


def _names(reference: Mapping[str, Any] | None, target: TargetRef) -> bool:
    reference = reference or {}
    return reference.get("kind") == target.kind and reference.get("name") == target.name


def _by_utilisation(hpa: Mapping[str, Any]) -> bool:
    for metric in hpa.get("spec", {}).get("metrics") or ():
        source = metric.get("resource") or metric.get("containerResource") or {}
        if source.get("name") == "cpu" and (source.get("target") or {}).get("type") == "Utilization":
            return True
    return False


def _same_target(other: ScalingSeen, policy: ScalingSeen) -> bool:
    if other.spec is None or policy.spec is None or other.deleting or other.spec.mode == "Off":
        return False
    mine, theirs = policy.spec.target_ref, other.spec.target_ref
    return other.namespace == policy.namespace and (mine.kind, mine.name) == (theirs.kind, theirs.name)


def _seniority(policy: ScalingSeen) -> tuple[str, str]:
    return policy.created, policy.name

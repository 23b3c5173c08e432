"""Whoever else scales a workload is found before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.small import policy
from tiphys_models.api.reasons import ScalingReason
from tiphys_operator.scaling.conflicts import OVERRIDES, Others, conflict
from tiphys_operator.scaling.seen import ScalingSeen

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def named(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "theirs"}, "spec": spec}


def reason(others: Others, seen: ScalingSeen | None = None, *more: ScalingSeen, overridden: int = 0) -> ScalingReason | None:
    found = conflict(seen or policy(), others, [seen or policy(), *more], overridden, "argocd")
    return found.reason if found is not None else None


VERTICAL_ONLY: dict[str, Any] = {"horizontal": None}
HORIZONTAL_ONLY: dict[str, Any] = {"vertical": None}


@pytest.mark.parametrize(
    ("others", "spec", "expected"),
    [
        (Others(), {}, None),
        (Others(hpas=[named(scaleTargetRef=TARGET)]), {}, ScalingReason.OWNED_BY_HPA),
        (Others(hpas=[named(scaleTargetRef=TARGET | {"name": "other"})]), {}, None),
        (Others(hpas=[named(scaleTargetRef=TARGET | {"kind": "StatefulSet"})]), {}, None),
        (Others(hpas=[named(scaleTargetRef=TARGET)]), VERTICAL_ONLY, None),
        (Others(hpas=[named(scaleTargetRef=TARGET, metrics=[CPU])]), VERTICAL_ONLY, ScalingReason.OWNED_BY_HPA),
        (Others(scaled_objects=[named(scaleTargetRef={"name": "web"})]), {}, ScalingReason.OWNED_BY_KEDA),
        (Others(scaled_objects=[named(scaleTargetRef={"name": "web"})]), VERTICAL_ONLY, None),
        (Others(vpas=[named(targetRef=TARGET)]), {}, ScalingReason.OWNED_BY_VPA),
        (Others(vpas=[named(targetRef=TARGET, updatePolicy={"updateMode": "Off"})]), {}, None),
        (Others(vpas=[named(targetRef=TARGET)]), HORIZONTAL_ONLY, None),
    ],
)
def test_an_owner_of_a_dimension_that_we_scale_is_a_conflict(others: Others, spec: dict[str, Any], expected: ScalingReason | None) -> None:
    assert reason(others, policy(**spec)) == expected


def test_of_two_policies_the_older_one_acts() -> None:
    mine = policy()
    older = policy(metadata={"name": "older", "uid": "o", "creationTimestamp": "2025-01-01T00:00:00Z"})
    assert reason(Others(), mine, older) is ScalingReason.OWNED_BY_POLICY
    assert reason(Others(), older, mine) is None
    off = policy(metadata={"name": "older", "uid": "o", "creationTimestamp": "2025-01-01T00:00:00Z"}, mode="Off")
    assert reason(Others(), mine, off) is None
    twin = policy(metadata={"name": "aaa", "uid": "a"})
    assert reason(Others(), mine, twin) is ScalingReason.OWNED_BY_POLICY, "of equal age the first by name"


def test_somebody_who_keeps_setting_the_number_of_pods_is_not_fought() -> None:
    assert reason(Others(), overridden=OVERRIDES - 1) is None
    assert reason(Others(), overridden=OVERRIDES) is ScalingReason.OVERRIDDEN
    found = conflict(policy(), Others(), [], OVERRIDES, "argocd")
    assert found is not None
    assert "argocd" in found.message

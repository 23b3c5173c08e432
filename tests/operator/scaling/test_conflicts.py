"""Whoever else scales a workload is found before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.small import policy
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_operator.scaling.conflicts import OVERRIDES, OtherScalers, conflict
from tiphys_operator.scaling.seen import ScalingSeen

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def named(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "theirs"}, "spec": spec}


def reason(others: OtherScalers, seen: ScalingSeen | None = None, *more: ScalingSeen, overridden: int = 0) -> ScalingReason | None:
    found = conflict(seen or policy(), others, [seen or policy(), *more], overridden, "argocd")
    return found.reason if found is not None else None


VERTICAL_ONLY: dict[str, Any] = {"horizontal": None}
HORIZONTAL_ONLY: dict[str, Any] = {"vertical": None}


@pytest.mark.parametrize(
    ("others", "spec", "expected"),
    [
        (OtherScalers(), {}, None),
        (OtherScalers(hpas=[named(scaleTargetRef=TARGET)]), {}, ScalingReason.OWNED_BY_HPA),
        (OtherScalers(hpas=[named(scaleTargetRef=TARGET | {"name": "other"})]), {}, None),
        (OtherScalers(hpas=[named(scaleTargetRef=TARGET | {"kind": "StatefulSet"})]), {}, None),
        (OtherScalers(hpas=[named(scaleTargetRef=TARGET)]), VERTICAL_ONLY, None),
        (OtherScalers(hpas=[named(scaleTargetRef=TARGET, metrics=[CPU])]), VERTICAL_ONLY, ScalingReason.OWNED_BY_HPA),
        (OtherScalers(scaled_objects=[named(scaleTargetRef={"name": "web"})]), {}, ScalingReason.OWNED_BY_KEDA),
        (OtherScalers(scaled_objects=[named(scaleTargetRef={"name": "web"})]), VERTICAL_ONLY, None),
        (OtherScalers(vpas=[named(targetRef=TARGET)]), {}, ScalingReason.OWNED_BY_VPA),
        (OtherScalers(vpas=[named(targetRef=TARGET, updatePolicy={"updateMode": "Off"})]), {}, None),
        (OtherScalers(vpas=[named(targetRef=TARGET)]), HORIZONTAL_ONLY, None),
    ],
)
def test_an_owner_of_a_dimension_that_we_scale_is_a_conflict(
    others: OtherScalers, spec: dict[str, Any], expected: ScalingReason | None
) -> None:
    assert reason(others, policy(**spec)) == expected


def test_of_two_policies_the_older_one_acts() -> None:
    mine = policy()
    older = policy(metadata={"name": "older", "uid": "o", "creationTimestamp": "2025-01-01T00:00:00Z"})
    assert reason(OtherScalers(), mine, older) is ScalingReason.OWNED_BY_POLICY
    assert reason(OtherScalers(), older, mine) is None
    off = policy(metadata={"name": "older", "uid": "o", "creationTimestamp": "2025-01-01T00:00:00Z"}, mode="Off")
    assert reason(OtherScalers(), mine, off) is None
    twin = policy(metadata={"name": "aaa", "uid": "a"})
    assert reason(OtherScalers(), mine, twin) is ScalingReason.OWNED_BY_POLICY, "of equal age the first by name"


def test_somebody_who_keeps_setting_the_number_of_pods_is_not_fought() -> None:
    assert reason(OtherScalers(), overridden=OVERRIDES - 1) is None
    assert reason(OtherScalers(), overridden=OVERRIDES) is ScalingReason.OVERRIDDEN
    found = conflict(policy(), OtherScalers(), [], OVERRIDES, "argocd")
    assert found is not None
    assert "argocd" in found.message

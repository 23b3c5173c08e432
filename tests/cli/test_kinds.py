"""What the doctor says about objects of every kind."""

from __future__ import annotations

from enum import EnumType
from typing import Any

import pytest

from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.support import doctor
from tiphys_cli.support.facts import Finding
from tiphys_cli.support.kinds import ADVICE, GOOD, kind_fact, kind_findings, unlisted_findings
from tiphys_models.api import reasons, scaling_reasons, stream_reasons
from tiphys_models.api.resources import (
    INFERENCE_SITE,
    LEARNED_MODEL,
    MODEL_VARIANT,
    PLACEMENT_PLAN,
    RESOURCES,
    SCALING_POLICY,
    SCHEDULING_POLICY,
    STREAM_POLICY,
    Resource,
)

NOW_S = 1_800_000_000.0


def obj(
    name: str = "o", *conditions: tuple[str, str, str, str], spec: dict[str, Any] | None = None, generation: int = 1, observed: int = 1
) -> Any:
    shown = [dict(zip(("type", "status", "reason", "message"), condition, strict=True)) for condition in conditions]
    return {
        "metadata": {"name": name, "namespace": "shop", "generation": generation},
        "spec": {"mode": "Active"} if spec is None else spec,
        "status": {"observedGeneration": observed, "conditions": shown},
    }


def findings(resource: Resource, *objects: Any) -> list[Finding]:
    return list(kind_findings([kind_fact(resource, o, NOW_S) for o in objects]))


BROKEN = [
    (SCHEDULING_POLICY, ("ModelLoaded", "False", "ModelMissing", "no model m"), "tiphys model publish"),
    (SCHEDULING_POLICY, ("ModelLoaded", "False", "WeightsNotShipped", "in no image"), "tiphys model ship NAME"),
    (SCALING_POLICY, ("ModelLoaded", "False", "WeightsNotShipped", "in no image"), "tiphys model ship NAME"),
    (SCHEDULING_POLICY, ("Conflict", "True", "Overridden", "p2 wins"), "narrow one of the selectors"),
    (SCALING_POLICY, ("MetricsAvailable", "False", "SeriesMissing", "no histogram"), "spec.objective.metrics"),
    (SCALING_POLICY, ("RolledBack", "True", "WorseThanRule", ""), "the rule decides"),
    (STREAM_POLICY, ("Ready", "Unknown", "BinderUnreachable", "no binder"), "operator.binding.binders"),
    (LEARNED_MODEL, ("Accepted", "False", "DigestMismatch", "sha256 differs"), "describe lm o"),
    (INFERENCE_SITE, ("Reachable", "False", "ProbesMissed", "timed out"), "spec.probe"),
    (MODEL_VARIANT, ("Ready", "False", "NoReadyEndpoint", ""), "endpointslices"),
]


@pytest.mark.parametrize(("resource", "condition", "advice"), BROKEN, ids=lambda part: getattr(part, "kind", None))
def test_a_condition_that_says_no_is_told_with_what_to_do(resource: Resource, condition: tuple[str, str, str, str], advice: str) -> None:
    (finding,) = findings(resource, obj("o", condition))
    assert (finding.check, finding.grade) == (resource.kind, "WARN")
    assert finding.message.startswith(f"shop/o: {condition[0]} is {condition[1]} ({condition[2]})")
    assert advice in finding.advice


@pytest.mark.parametrize("resource", [r for r in RESOURCES if r is not PLACEMENT_PLAN], ids=lambda r: r.kind)
def test_objects_of_every_kind_whose_conditions_are_well_need_one_line(resource: Resource) -> None:
    well = [(kind, status, "Fine", "") for kind, status in GOOD[resource.kind].items()]
    (finding,) = findings(resource, obj("a", *well), obj("b", *well))
    assert (finding.grade, finding.message) == ("OK", "2 in use, and nothing to mend")


def test_a_plan_that_is_no_longer_valid_is_told() -> None:
    (finding,) = findings(PLACEMENT_PLAN, obj("p", spec={"validUntil": "2027-01-15T07:58:00Z"}))
    assert "has not been valid for 120 s" in finding.message
    assert findings(PLACEMENT_PLAN, obj("p", spec={"validUntil": "2027-01-15T08:00:30Z"}))[0].grade == "OK"
    assert findings(PLACEMENT_PLAN, obj("p", spec={"validUntil": "soon"}))[0].grade == "OK"


def test_what_somebody_wants_so_is_nothing_to_mend() -> None:
    off = obj("off", ("Ready", "False", "Disabled", "mode is Off"), spec={"mode": "Off"})
    paused = obj("paused", ("Ready", "False", "Paused", ""))
    assert [finding.grade for finding in findings(SCALING_POLICY, off, paused)] == ["OK"]
    assert findings(INFERENCE_SITE, obj("s", ("Reachable", "Unknown", "NotProbed", ""), spec={}))[0].grade == "OK"


def test_an_object_without_a_status_and_one_with_an_older_status_are_told() -> None:
    assert "has no status" in findings(STREAM_POLICY, obj())[0].message
    behind = obj("o", ("Ready", "True", "Binding", ""), generation=4, observed=3)
    assert "a status of an older spec" in findings(STREAM_POLICY, behind)[0].message


def test_a_cause_that_a_thousand_objects_share_takes_no_thousand_lines() -> None:
    many = [obj(f"o{i}", ("Ready", "False", "TargetNotFound", "")) for i in range(1_000)]
    told = findings(SCALING_POLICY, *many)
    assert len(told) == 21
    assert told[-1].message == "and 980 more of this kind"


@pytest.mark.parametrize("status", [None, {"conditions": None}, {"conditions": ["x"]}, {"conditions": [{"type": None}]}])
def test_an_odd_status_hides_no_other_object(status: Any) -> None:
    odd = obj("odd") | {"status": status}
    told = findings(STREAM_POLICY, odd, obj("b", ("Ready", "False", "NoOffers", "")))
    assert any("shop/b" in finding.message for finding in told)


def test_a_kind_that_may_not_be_listed_is_told_and_hides_no_other() -> None:
    class Api:
        def items(self, path: str) -> list[Any]:
            if path.endswith("scalingpolicies"):
                raise RequestRefused(403, "Forbidden", path)
            if path.endswith("learnedmodels"):
                raise RequestRefused(404, "NotFound", path)
            return [obj("o", ("Ready", "False", "NoOffers", ""))] if path.endswith("streampolicies") else []

    found, unlisted = doctor._objects(Api(), NOW_S)  # type: ignore[arg-type]
    assert ([fact.kind for fact in found], unlisted) == (["StreamPolicy"], ("ScalingPolicy",))
    (finding,) = unlisted_findings(unlisted)
    assert (finding.check, finding.grade) == ("ScalingPolicy", "WARN")


def test_every_reason_that_advice_is_given_for_exists() -> None:
    enums = [
        found for module in (reasons, scaling_reasons, stream_reasons) for found in vars(module).values() if isinstance(found, EnumType)
    ]
    words = {str(getattr(found, name)) for found in enums for name in found.__members__}
    assert set(ADVICE) - words <= {"WeightsNotShipped"}

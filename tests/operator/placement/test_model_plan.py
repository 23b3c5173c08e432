"""What LearnedModels' conditions say, and what a policy's model is, from what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.builders import DIGEST, NOW_S, conditions, observed, seen, status_of
from tests.publications import OWN
from tiphys_models.api.learned_model import LearnedModelStatus
from tiphys_models.artifacts import files
from tiphys_operator.placement.models_found import Check, ModelFound, ModelRefused, ModelUnread
from tiphys_operator.placement.observation import ModelSeen, model_seen
from tiphys_operator.placement.plan import Plan, plan

SPEC: dict[str, Any] = {
    "policy": "faasrank",
    "stage": "active",
    "weights": {"configMap": {"name": "m-1"}},
    "sha256": DIGEST,
    "featureSchema": "faasrank-42/1",
}
SOUND = ModelFound("faasrank", DIGEST)
OTHER = "cd" * 32
REFUSED = ModelRefused("NotFinite", "NotFinite: m: a weight is NaN or infinite")


def model(name: str = "m", namespace: str = OWN, status: LearnedModelStatus | None = None, **spec: Any) -> ModelSeen:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 3, "resourceVersion": "7"}
    obj: dict[str, Any] = {"metadata": metadata, "spec": SPEC | spec}
    if status is not None:
        obj["status"] = status.model_dump(by_alias=True, mode="json")
    return model_seen(obj)


def planned(*policies: Any, learned: tuple[ModelSeen, ...] = (), check: Check | None = SOUND, **parts: Any) -> Plan:
    checks = {m.key: check for m in learned if m.namespace == OWN and check is not None}
    return plan(observed(*policies, learned=learned, checks=checks, **parts), OWN, "tiphys")


def found(made: Plan) -> dict[str, tuple[str, str]]:
    (write,) = made.models
    return {c.type: (c.status, c.reason) for c in write.status.conditions}


HELD: dict[str, tuple[dict[str, frozenset[str]] | None, tuple[str, str], str]] = {
    "by all": ({"m": frozenset({DIGEST})}, ("True", "Loaded"), DIGEST),
    "by some": ({"m": frozenset({DIGEST, ""})}, ("False", "NotLoaded"), DIGEST),
    "by none": ({}, ("False", "NotLoaded"), ""),
    "an earlier version": ({"m": frozenset({OTHER})}, ("False", "LastGood"), OTHER),
    "nobody knows": (None, ("Unknown", "ExtendersUnknown"), ""),
}


@pytest.mark.parametrize("case", HELD)
def test_loaded_says_what_the_extenders_hold(case: str) -> None:
    held, expected, served = HELD[case]
    made = planned(learned=(model(),), held=held)
    assert found(made) == {"Accepted": ("True", "Accepted"), "Loaded": expected}
    assert made.models[0].status.served_digest == served


AGENT: dict[str, Any] = {"policy": "combined", "featureSchema": "scaling/1"}


@pytest.mark.parametrize(("stage", "said"), [("shadow", "mode Recommend, Shadow that"), ("active", "Recommend, Shadow, Canary, Active")])
def test_an_agent_of_scaling_is_loaded_by_the_operator_whatever_extenders_hold(stage: str, said: str) -> None:
    made = planned(learned=(model(**AGENT, stage=stage),), check=ModelFound("combined", DIGEST), held=None)
    assert found(made) == {"Accepted": ("True", "Accepted"), "Loaded": ("True", "Loaded")}
    assert said in made.models[0].status.conditions[1].message
    assert made.models[0].status.served_digest == DIGEST
    refused = planned(learned=(model(**AGENT, stage=stage),), check=REFUSED, held=None)
    assert found(refused)["Loaded"] == ("False", "NotLoaded")


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a planner": (
        {"policy": "gobi", "featureSchema": "board/1"},
        "SchedulingPolicies in mode Active, Canary, Shadow whose select names it",
    ),
    "a selector": ({"policy": "metanet", "featureSchema": "selection-general/2"}, "whose select names it take it with an interval"),
    "a stream policy": ({"policy": "score", "featureSchema": "binding-score/4"}, "StreamPolicies in mode Active, Canary, Shadow"),
    "a stream agent": ({"policy": "aset", "featureSchema": "binding-pooled/4"}, "that name it take it with a window"),
    "an agent of scaling": (AGENT, "ScalingPolicies in mode Recommend, Shadow, Canary, Active"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_model_of_any_system_tells_from_candidate_to_refused_what_becomes_of_it(case: str) -> None:
    spec, said = OTHERS[case]
    sound = ModelFound(spec["policy"], DIGEST)
    candidate = planned(learned=(model(**spec, stage="candidate"),), check=sound, held=None)
    assert found(candidate) == {"Accepted": ("True", "Accepted"), "Loaded": ("False", "Candidate")}
    active = planned(learned=(model(**spec, stage="active"),), check=sound, held=None)
    assert found(active) == {"Accepted": ("True", "Accepted"), "Loaded": ("True", "Loaded")}
    assert said in active.models[0].status.conditions[1].message
    assert active.models[0].status.served_digest == DIGEST
    refused = planned(learned=(model(**spec, stage="active"),), check=REFUSED, held=None)
    assert found(refused) == {"Accepted": ("False", "NotFinite"), "Loaded": ("False", "NotLoaded")}
    assert "former weights goes on" in refused.models[0].status.conditions[1].message


def selecting(**select: Any) -> Any:
    return seen(mode="Active", policy=None, select={"by": "metanet", **select})


SELECTORS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = {
    "what ships": ({}, {}, ("True", "ModelNotNeeded")),
    "a selector without weights": ({"by": "ucb"}, {}, ("True", "ModelNotNeeded")),
    "published under its own name": ({}, {"learned": "metanet"}, ("True", "ModelLoaded")),
    "published under another": ({"model": "m"}, {"learned": "m"}, ("True", "ModelLoaded")),
    "mounted": ({"model": "m"}, {"models": {"m": ModelFound("metanet", OTHER)}}, ("True", "ModelLoaded")),
    "not there": ({"model": "m"}, {}, ("False", "ModelMissing")),
    "at another stage": ({"model": "m"}, {"learned": "m", "stage": "shadow"}, ("False", "ModelStage")),
    "for another selector": ({"model": "m", "by": "dqn"}, {"learned": "m"}, ("False", "ModelRefused")),
    "broken": ({"model": "m"}, {"learned": "m", "check": REFUSED}, ("False", "ModelRefused")),
    "broken, and mounted": (
        {"model": "m"}, {"learned": "m", "check": REFUSED, "models": {"m": ModelFound("metanet", OTHER)}}, ("False", "ModelRefused"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SELECTORS)
def test_a_policy_with_select_tells_whose_weights_choose(case: str) -> None:
    select, given, expected = SELECTORS[case]
    parts = dict(given)
    name, stage, check = parts.pop("learned", ""), parts.pop("stage", "active"), parts.pop("check", ModelFound("metanet", DIGEST))
    published = model(name, policy="metanet", featureSchema="selection-general/2", stage=stage) if name else None
    made = planned(selecting(**select), learned=(published,) if published is not None else (), check=check, **parts)
    assert conditions(made)["ModelLoaded"] == expected
    assert conditions(made)["Ready"][1] != "DegradedToFallback", "what ships chooses meanwhile"


def test_weights_that_no_image_carries_are_told_from_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "brought", tuple)
    policy = seen(policy="faasrank", model="faasrank-paper", mode="Active")
    made = planned(policy)
    assert conditions(made)["ModelLoaded"] == ("False", "WeightsNotShipped")
    assert conditions(made)["Ready"] == ("False", "DegradedToFallback")
    ready, loaded = (next(c for c in status_of(made).conditions if c.type == kind) for kind in ("Ready", "ModelLoaded"))
    assert all("tiphys model ship faasrank-paper" in c.message for c in (ready, loaded))
    published = planned(policy, learned=(model("faasrank-paper"),))
    assert conditions(published)["ModelLoaded"] == ("True", "ModelLoaded")
    mounted = planned(policy, models={"faasrank-paper": SOUND})
    assert conditions(mounted)["ModelLoaded"] == ("True", "ModelLoaded")


def test_an_agent_of_scaling_is_no_model_of_a_scheduling_policy() -> None:
    policy = seen(policy="faasrank", model="m", mode="Active")
    made = planned(policy, learned=(model(**AGENT, stage="active"),), check=ModelFound("combined", DIGEST))
    assert conditions(made)["ModelLoaded"] == ("False", "ModelMissing")


CHECKS: dict[str, tuple[Check | None, tuple[str, str]]] = {
    "refused": (REFUSED, ("False", "NotFinite")),
    "missing": (ModelRefused("Missing", "Missing: m: there is no ConfigMap m-1"), ("False", "Missing")),
    "unread": (ModelUnread("denied"), ("Unknown", "Unreadable")),
    "not looked at": (None, ("Unknown", "Unreadable")),
}


@pytest.mark.parametrize("case", CHECKS)
def test_accepted_names_the_check_that_failed(case: str) -> None:
    check, expected = CHECKS[case]
    assert found(planned(learned=(model(),), check=check, held={}))["Accepted"] == expected


@pytest.mark.parametrize(("stage", "reason"), [("candidate", "Candidate"), ("retired", "Retired")])
def test_stages_that_serve_nobody_say_so_even_if_extenders_hold_the_weights(stage: str, reason: str) -> None:
    made = planned(learned=(model(stage=stage),), held={"m": frozenset({DIGEST})})
    assert found(made) == {"Accepted": ("True", "Accepted"), "Loaded": ("False", reason)}
    assert made.models[0].status.served_digest == ""


def test_a_model_elsewhere_or_without_a_valid_spec_serves_nobody() -> None:
    assert found(planned(learned=(model(namespace="tenant"),)))["Accepted"] == ("False", "WrongNamespace")
    assert found(planned(learned=(model(weights={}),), check=None))["Accepted"] == ("False", "InvalidSpec")


def test_nothing_is_written_or_told_twice_and_a_stage_change_is_news() -> None:
    first = planned(learned=(model(),), held={"m": frozenset({DIGEST})})
    assert [(e.reason, e.warning) for e in first.events] == [("Accepted", False), ("Loaded", False)]
    status = first.models[0].status
    again = planned(learned=(model(status=status),), held={"m": frozenset({DIGEST})}, now_s=NOW_S + 60)
    assert (again.models, again.events) == ((), ())
    moved = planned(learned=(model(status=status, stage="retired"),), held={"m": frozenset({DIGEST})})
    assert [e.reason for e in moved.events] == ["StageChanged"]
    broken = planned(learned=(model(status=status),), check=REFUSED, held={"m": frozenset({DIGEST})})
    assert [(e.reason, e.warning) for e in broken.events] == [("NotFinite", True)]


def test_a_policy_is_ready_by_a_learned_model_of_the_releases_namespace() -> None:
    made = planned(seen(policy="faasrank", model="m", mode="Active"), learned=(model(),))
    assert conditions(made)["ModelLoaded"] == ("True", "ModelLoaded")
    assert status_of(made).model_digest == DIGEST


def test_a_learned_model_of_another_namespace_is_not_the_policys() -> None:
    made = planned(seen(policy="faasrank", model="m", mode="Active"), learned=(model(namespace="default"),))
    assert conditions(made)["ModelLoaded"] == ("False", "ModelMissing")


@pytest.mark.parametrize(
    ("stage", "mode", "reason"),
    [
        ("candidate", "Shadow", "ModelStage"),
        ("shadow", "Shadow", "ModelLoaded"),
        ("shadow", "Active", "ModelStage"),
        ("canary", "Active", "ModelStage"),
        ("retired", "Shadow", "ModelStage"),
    ],
)
def test_a_stage_that_does_not_serve_the_mode_degrades_the_policy(stage: str, mode: str, reason: str) -> None:
    made = planned(seen(policy="faasrank", model="m", mode=mode), learned=(model(stage=stage),))
    assert conditions(made)["ModelLoaded"][1] == reason
    assert conditions(made)["Ready"][1] == ("Accepted" if reason == "ModelLoaded" else "DegradedToFallback")


@pytest.mark.parametrize(("name", "where"), [("gobi", "select.among"), ("metanet", "select.by")])
def test_a_policy_that_names_a_planners_or_selectors_weights_is_told_where_those_belong(name: str, where: str) -> None:
    made = planned(seen(policy="faasrank", model=name, mode="Active"))
    assert conditions(made)["ModelLoaded"] == ("False", "ModelMissing")
    assert f"name it in {where}" in status_of(made).conditions[3].message


def test_what_its_stage_does_not_serve_the_mounted_and_then_the_shipped_model_does() -> None:
    policy = seen(policy="faasrank", model="m", mode="Active")
    shipped, mounted = {"m": ModelFound("faasrank", "11" * 32)}, {"m": ModelFound("faasrank", "22" * 32)}
    candidate = (model(stage="candidate"),)
    assert status_of(planned(policy, learned=candidate, shipped=shipped)).model_digest == "11" * 32
    made = planned(policy, learned=candidate, shipped=shipped, models=mounted)
    assert status_of(made).model_digest == "22" * 32
    assert "stage candidate" in status_of(made).conditions[3].message


def test_a_refused_model_leaves_the_last_good_one_and_else_the_shipped_one() -> None:
    policy = seen(policy="faasrank", model="m", mode="Active")
    shipped = {"m": ModelFound("faasrank", "11" * 32)}
    for serving, digest in (({("m", "faasrank", "Active"): OTHER}, OTHER), ({}, "11" * 32)):
        made = planned(policy, learned=(model(),), check=REFUSED, shipped=shipped, serving=serving)
        assert conditions(made)["ModelLoaded"] == ("False", "ModelRefused")
        assert conditions(made)["Ready"] == ("True", "Accepted")
        assert status_of(made).model_digest == digest

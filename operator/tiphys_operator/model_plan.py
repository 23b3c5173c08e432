"""What LearnedModels' statuses should say, and what a SchedulingPolicy's model is: pure functions of an observation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiphys_models.api.learned_model import SERVES, LearnedModelStatus
from tiphys_models.api.reasons import ConditionType, ModelConditionType, ModelReason, Reason
from tiphys_models.api.routing import Route
from tiphys_models.api.selection import PlannerName, SelectorName
from tiphys_operator.guard import caught
from tiphys_operator.models_found import Check, ModelFound, ModelRefused, ModelUnread
from tiphys_operator.observation import ModelSeen, Observation
from tiphys_operator.verdicts import MESSAGE_MAX, Verdict, condition, former


@dataclass(frozen=True, slots=True)
class ModelWrite:
    """A status that differs from what stands there."""

    model: ModelSeen
    status: LearnedModelStatus


@dataclass(frozen=True, slots=True)
class ModelNews:
    """Something about a model that people should hear of."""

    model: ModelSeen
    warning: bool
    reason: ModelReason
    message: str


def plan_models(seen: Observation, own_namespace: str) -> tuple[list[ModelWrite], list[ModelNews], list[tuple[ModelSeen, str]]]:
    """Statuses and news of all LearnedModels, and which of them could not be judged, with the reason."""
    writes: list[ModelWrite] = []
    news: list[ModelNews] = []
    broken: list[tuple[ModelSeen, str]] = []
    for model in seen.learned:
        if model.deleting:
            continue
        with caught() as trip:
            status, told = _judged(model, seen, own_namespace)
        if trip.error is not None:
            broken.append((model, trip.message))
            failed = Verdict(ModelConditionType.ACCEPTED, "False", ModelReason.INTERNAL_ERROR, trip.message)
            found = condition(failed, model.status.conditions, model.generation, seen.now_s)
            status, told = LearnedModelStatus(observed_generation=model.generation, conditions=[found]), []
        if status != model.status:
            writes.append(ModelWrite(model, status))
        news.extend(told)
    return writes, news, broken


def _judged(model: ModelSeen, seen: Observation, own_namespace: str) -> tuple[LearnedModelStatus, list[ModelNews]]:
    accepted = _accepted(model, seen.checks.get(model.key), own_namespace)
    loaded, served = _loaded(model, accepted, seen)
    stage = model.spec.stage if model.spec is not None else ""
    status = LearnedModelStatus(
        observed_generation=model.generation,
        stage=stage,
        served_digest=served,
        conditions=[condition(verdict, model.status.conditions, model.generation, seen.now_s) for verdict in (accepted, loaded)],
    )
    return status, _news(model, accepted, loaded, stage)


def policy_model(route: Route, seen: Observation) -> tuple[Verdict, str]:
    """ModelLoaded of a policy, and the digest of what serves: of a refused artifact's name, the last good one or a weaker source."""
    kind, name, policy = ConditionType.MODEL_LOADED, route.spec.model_name, str(route.spec.policy)
    if route.spec.select is not None:
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, "select names candidates; those that are learned bring their own weights"), ""
    if name is None:
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, f"{policy} is a rule"), ""
    mode = "Shadow" if route.spec.mode == "Off" else route.spec.mode
    refused, elsewhere = "", ""
    for where, found, stage in _sources(name, seen):
        if mode not in SERVES[stage]:
            elsewhere = f"LearnedModel {name} is at stage {stage}, which serves no policy in mode {mode}"
        elif isinstance(found, ModelFound) and found.policy == policy:
            if not refused:
                note = f"; {elsewhere}" if elsewhere else ""
                return Verdict(kind, "True", Reason.MODEL_LOADED, f"{where} {name}, sha256 {found.digest[:12]}{note}"), found.digest
            serves = seen.serving.get((name, policy, mode), found.digest)
            return Verdict(kind, "False", Reason.MODEL_REFUSED, f"{refused}; until then sha256 {serves[:12]} serves"), serves
        elif isinstance(found, ModelFound):
            refused = refused or f"{where} {name} holds weights for {found.policy}, not for {policy}: name another model in spec.model"
        elif isinstance(found, ModelRefused):
            refused = refused or f"{found.message}; publish a sound artifact, it is taken without a restart"
    last_good = seen.serving.get((name, policy, mode), "")
    if refused:
        held = f"; until then the last good one serves, sha256 {last_good[:12]}" if last_good else ""
        return Verdict(kind, "False", Reason.MODEL_REFUSED, refused + held), last_good
    if elsewhere:
        return Verdict(kind, "False", Reason.MODEL_STAGE, f"{elsewhere}: raise its stage, or name another model"), ""
    if name in (*PlannerName, *SelectorName):
        what, where = ("planner", "select.among") if name in set(PlannerName) else ("selector", "select.by")
        message = f"{name} is a {what} and brings its own weights: name it in {where}, or another model in spec.model"
        return Verdict(kind, "False", Reason.MODEL_MISSING, message), ""
    message = (
        f"no LearnedModel {name}, no mounted {name}.json with {name}.safetensors, none shipped: add one, it is taken without a restart"
    )
    return Verdict(kind, "False", Reason.MODEL_MISSING, message), ""


def _sources(name: str, seen: Observation) -> Iterator[tuple[str, Check, str]]:
    """Where a name stands, the strongest first, with its stage: as the extender orders them."""
    for model in seen.learned:
        if model.name != name or model.spec is None or model.deleting or model.spec.for_scaling:
            continue
        if (check := seen.checks.get(model.key)) is not None:
            yield "LearnedModel", check, model.spec.stage
    for where, models in (("mounted", seen.models), ("shipped", seen.shipped)):
        if (found := models.get(name)) is not None:
            yield where, found, "active"


def _accepted(model: ModelSeen, check: Check | None, own_namespace: str) -> Verdict:
    kind = ModelConditionType.ACCEPTED
    if model.namespace != own_namespace:
        message = f"models are read in namespace {own_namespace} only: publish it there; policies of every namespace may name it"
        return Verdict(kind, "False", ModelReason.WRONG_NAMESPACE, message)
    if model.spec is None:
        return Verdict(kind, "False", ModelReason.INVALID_SPEC, model.invalid)
    match check:
        case ModelFound(policy=policy, digest=digest):
            return Verdict(kind, "True", ModelReason.ACCEPTED, f"weights for {policy}, sha256 {digest[:12]}, passed every check")
        case ModelRefused(reason=reason, message=message):
            return Verdict(kind, "False", ModelReason(reason), f"{message}; publish a sound artifact, it is taken without a restart")
        case ModelUnread(why=why):
            return Verdict(kind, "Unknown", ModelReason.UNREADABLE, why)
        case None:
            return Verdict(kind, "Unknown", ModelReason.UNREADABLE, "not checked yet")


def _loaded(model: ModelSeen, accepted: Verdict, seen: Observation) -> tuple[Verdict, str]:
    """Whether the extenders serve it, and which digest."""
    kind = ModelConditionType.LOADED
    if accepted.reason in (ModelReason.WRONG_NAMESPACE, ModelReason.INVALID_SPEC) or model.spec is None:
        return Verdict(kind, "False", ModelReason.NOT_LOADED, "see Accepted"), ""
    spec = model.spec
    if spec.stage == "retired":
        return Verdict(kind, "False", ModelReason.RETIRED, "at stage retired it serves nobody"), ""
    if spec.stage == "candidate":
        return Verdict(kind, "False", ModelReason.CANDIDATE, "at stage candidate it is checked, but serves nobody: set spec.stage"), ""
    if spec.for_scaling:
        if accepted.status != "True":
            return Verdict(kind, "False", ModelReason.NOT_LOADED, "see Accepted; who decided with former weights goes on with them"), ""
        modes = "Recommend and Active" if "Active" in SERVES[spec.stage] else "Recommend"
        return Verdict(kind, "True", ModelReason.LOADED, f"ScalingPolicies in mode {modes} that name it take it with a window"), spec.sha256
    if seen.held is None:
        return Verdict(kind, "Unknown", ModelReason.EXTENDERS_UNKNOWN, "no extender could be asked which weights it holds"), ""
    digests = seen.held.get(model.name, frozenset())
    served = max(digests, default="")
    if digests == {spec.sha256}:
        modes = ", ".join(sorted(SERVES[spec.stage]))
        return Verdict(kind, "True", ModelReason.LOADED, f"serves policies in mode {modes}"), served
    if served and spec.sha256 not in digests:
        return Verdict(
            kind, "False", ModelReason.LAST_GOOD, f"the extenders go on with the last good version, sha256 {served[:12]}"
        ), served
    return Verdict(kind, "False", ModelReason.NOT_LOADED, "not every extender has it yet"), served


def _news(model: ModelSeen, accepted: Verdict, loaded: Verdict, stage: str) -> list[ModelNews]:
    """Accepted, refused, loaded, moved to another stage; each once."""
    news = []
    for verdict in (accepted, loaded):
        past = former(model.status.conditions, verdict.type)
        if past is not None and (past.status, past.reason) == (verdict.status, verdict.reason):
            continue
        warns = verdict.type == ModelConditionType.ACCEPTED and verdict.status == "False"
        if warns or verdict.status == "True":
            news.append(ModelNews(model, warns, ModelReason(verdict.reason), verdict.message[:MESSAGE_MAX]))
    if stage and model.status.stage and stage != model.status.stage:
        news.append(ModelNews(model, False, ModelReason.STAGE_CHANGED, f"stage {model.status.stage} → {stage}"))
    return news

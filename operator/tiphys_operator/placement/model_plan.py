"""What LearnedModels' statuses should say, and what a SchedulingPolicy's model is: pure functions of an observation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiphys_models.api.learned_model import SERVES, LearnedModelSpec, LearnedModelStatus
from tiphys_models.api.reasons import ConditionType, ModelConditionType, ModelReason, Reason
from tiphys_models.api.routing import Route
from tiphys_models.api.selection import PlannerName, SelectorName, SelectSpec
from tiphys_models.artifacts.card import System
from tiphys_models.artifacts.shipped import is_unshipped, shipped
from tiphys_models.kube.guard import caught
from tiphys_models.placement.registry import is_ours
from tiphys_models.seats.modes import mode_of
from tiphys_operator.placement.models_found import Check, ModelFound, ModelRefused, ModelUnread
from tiphys_operator.placement.observation import ModelSeen, Observation
from tiphys_operator.runtime.conditions import MESSAGE_MAX, Verdict, condition, former


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
    mode = "Shadow" if route.spec.mode == "Off" else route.spec.mode
    if route.spec.select is not None:
        return _selectors_model(route.spec.select, mode, seen)
    if name is None:
        why = "is a rule" if is_ours(policy) else "is not of this distribution: it brings what it has learned"
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, f"{policy} {why}"), ""
    refused, elsewhere = "", ""
    for where, found, stage in _sources(name, seen, "placement"):
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
    if is_unshipped(name):
        message = f"the weights of {name} are in no image, and nobody has published them: `tiphys model ship {name}`"
        return Verdict(kind, "False", Reason.WEIGHTS_NOT_SHIPPED, message), ""
    message = (
        f"no LearnedModel {name}, no mounted {name}.json with {name}.safetensors, none shipped: add one, it is taken without a restart"
    )
    return Verdict(kind, "False", Reason.MODEL_MISSING, message), ""


def _selectors_model(select: SelectSpec, mode: str, seen: Observation) -> tuple[Verdict, str]:
    """ModelLoaded of a policy with `select`: whose weights choose. What ships stands in for what cannot be had."""
    kind, by, name = ConditionType.MODEL_LOADED, str(select.by), select.model_name
    if name is None:
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, f"{by} takes no weights; candidates that are learned bring their own"), ""
    ships = shipped().get(by)
    stands_in, digest = f"; until then the shipped weights of {by} choose", ships.sha256 if ships is not None else ""
    problem: tuple[Reason, str] | None = None
    for where, found, stage in _sources(name, seen, "selection"):
        if mode not in SERVES[stage]:
            said = f"LearnedModel {name} is at stage {stage}, which serves no policy in mode {mode}: raise its stage"
            problem = problem or (Reason.MODEL_STAGE, said)
        elif isinstance(found, ModelFound) and found.policy == by:
            if problem is not None and problem[0] is Reason.MODEL_REFUSED:
                return Verdict(kind, "False", problem[0], f"{problem[1]}; until then sha256 {found.digest[:12]} chooses"), found.digest
            return Verdict(kind, "True", Reason.MODEL_LOADED, f"{where} {name}, sha256 {found.digest[:12]}, chooses"), found.digest
        elif isinstance(found, ModelFound):
            problem = problem or (Reason.MODEL_REFUSED, f"{where} {name} holds weights for {found.policy}, not for {by}")
        elif isinstance(found, ModelRefused):
            said = f"{found.message}; publish a sound artifact, it is taken with an interval"
            problem = problem or (Reason.MODEL_REFUSED, said)
    if problem is None and select.model is None:
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, f"no model is named: the shipped weights of {by} choose"), ""
    reason, said = problem or (Reason.MODEL_MISSING, f"no LearnedModel {name} for {by}, no mounted {name}.json: add one")
    return Verdict(kind, "False", reason, said + stands_in), digest


def _sources(name: str, seen: Observation, system: System) -> Iterator[tuple[str, Check, str]]:
    """The places where a model of this name lies, with its stage, the strongest first, as stores order them; only those of this system."""
    for model in seen.learned:
        if model.name != name or model.spec is None or model.deleting or model.spec.system not in (None, system):
            continue
        if (check := seen.checks.get(model.key)) is not None:
            yield "LearnedModel", check, model.spec.stage
    # the shipped ones of the other systems are named by the table: whoever decides with them checks them
    for where, models in (("mounted", seen.models), ("shipped", seen.shipped if system == "placement" else {})):
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
    if spec.system != "placement":
        if accepted.status != "True":
            return Verdict(kind, "False", ModelReason.NOT_LOADED, "see Accepted; who decided with former weights goes on with them"), ""
        return Verdict(kind, "True", ModelReason.LOADED, _takers(spec)), spec.sha256
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


def _takers(spec: LearnedModelSpec) -> str:
    """The sentence that says which policies use a model that extenders do not hold, and when they load it."""
    modes = ", ".join(sorted(SERVES[spec.stage]))
    match spec.system:
        case "scaling":
            modes = ", ".join(mode for mode in ("Recommend", "Shadow", "Canary", "Active") if mode_of(mode) in SERVES[spec.stage])
            return f"ScalingPolicies in mode {modes} that name it take it with a window"
        case "selection":
            return f"SchedulingPolicies in mode {modes} whose select names it take it with an interval"
    return f"StreamPolicies in mode {modes} that name it take it with a window"


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

"""The agent that decides for a policy: one by name, or a learned one with a LearnedModel's weights, checked and taken without a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tiphys_models.api.learned_model import ConfigMapSource, LearnedModelSpec, WeightsSource
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.api.scaling_status import AgentSeen
from tiphys_models.artifacts.loaders import Loaded, loader_of
from tiphys_models.artifacts.store import SERVES, Source
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.learned_models import fetch_model
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.registry import make_agent, unshipped_model
from tiphys_models.seats.modes import mode_of
from tiphys_operator.served_models import REFUSED_FOR_S, ServedModels, models_path

__all__ = ["REFUSED_FOR_S", "AgentShelf", "Chosen", "models_path"]
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Chosen:
    """The agent that decides, and what became of the model that the policy names."""

    agent: ScalingAgent
    reason: ScalingReason
    message: str
    seen: AgentSeen | None = None
    """What a learned agent decides with."""

    @property
    def loaded(self) -> bool:
        """Whether the agent is the one that the policy asks for."""
        return self.reason in (ScalingReason.MODEL_NOT_NEEDED, ScalingReason.MODEL_SHIPPED, ScalingReason.MODEL_LOADED)


class AgentShelf(ServedModels):
    """The agents of all ScalingPolicies."""

    def __init__(self, client: KubeClient, namespace: str, models_dir: Path | None, clock: Clock) -> None:
        super().__init__(client, namespace, models_dir, clock, "scaling")
        self._client, self._models_dir = client, models_dir

    async def choose(self, spec: ScalingPolicySpec, told: AgentSeen | None, held: Chosen | None) -> Chosen:
        """The agent for a policy. `told`: as its status says; `held`: as it decided in the last window, for the same spec.

        InvalidInput or ArtifactRefused if there is no agent of that kind; Unavailable if the API server does not answer.
        """
        kind, own = spec.agent.kind, unshipped_model(spec.agent.kind)
        name = spec.agent.model or own
        if not name or not _takes_weights(kind):
            if held is not None and held.loaded:
                return held
            agent = make_agent(kind, _attainment(spec))
            if isinstance(agent, LearnedAgent):
                return _shipped(agent, ScalingReason.MODEL_SHIPPED, "no model is named")
            return Chosen(agent, ScalingReason.MODEL_NOT_NEEDED, f"{kind} takes no weights")
        found = await self._named(spec, name, told, held)
        if spec.agent.model is None and found.seen is None and self.feed.wanted(name) is None:
            message = f"the weights of {kind} are in no image, and nobody has published them: `tiphys model ship {name}`; the rule decides"
            return replace(found, reason=ScalingReason.WEIGHTS_NOT_SHIPPED, message=message)
        return found

    async def _named(self, spec: ScalingPolicySpec, name: str, told: AgentSeen | None, held: Chosen | None) -> Chosen:
        """The agent with the weights of a name, or what stands in."""
        await self.look()
        former = told if told is not None and told.model == name else None
        published = self.feed.wanted(name)
        if (problem := self._unserved(published, name, spec)) is not None:
            if (mounted := self._mounted_model(spec, name, held)) is not None:
                return mounted
            return _standing_in(spec, held, *problem)
        frozen = spec.agent.learning == "Frozen" and former is not None
        try:
            if former is not None and frozen and not _same(published, former):
                return await self._as_told(spec, name, former, held)
            return await self._published(spec, name, published, held)
        except ArtifactRefused as error:
            reason = ScalingReason.MODEL_REFUSED if published is not None or frozen else ScalingReason.MODEL_MISSING
            found = await self._last_good(spec, name, None if frozen else former, held, reason, str(error))
        if frozen and found.seen is not None:  # kept under its name: else the next window would take what is published now
            return replace(found, seen=found.seen.model_copy(update={"model": name}))
        return found

    def _unserved(self, published: LearnedModelSpec | str | None, name: str, spec: ScalingPolicySpec) -> tuple[ScalingReason, str] | None:
        """Whoever may publish says so: it is deleted, or its stage does not serve the policy's mode. Then nobody goes on with it."""
        if published is None and self.feed.listed_once:
            return ScalingReason.MODEL_MISSING, f"there is no LearnedModel {name} in the namespace of the release"
        if isinstance(published, LearnedModelSpec) and _mode(spec) not in SERVES[published.stage]:
            return ScalingReason.MODEL_STAGE, f"LearnedModel {name} is at stage {published.stage}, which does not serve mode {spec.mode}"
        return None

    def _mounted_model(self, spec: ScalingPolicySpec, name: str, held: Chosen | None) -> Chosen | None:
        """Files of that name in the models volume, where no LearnedModel serves."""
        found = self.find(spec.agent.kind, name, _mode(spec))
        if found is None or found.source is not Source.MOUNTED:
            return None
        seen = AgentSeen(model=name, digest=found.loaded.digest)
        if held is not None and held.seen is not None and (held.seen.model, held.seen.digest) == (name, seen.digest):
            return Chosen(held.agent, ScalingReason.MODEL_LOADED, _message("mounted", seen), held.seen)
        return _taken(found.loaded, spec, seen, "mounted")

    async def _published(self, spec: ScalingPolicySpec, name: str, published: LearnedModelSpec | str | None, held: Chosen | None) -> Chosen:
        """What a LearnedModel asks for now; ArtifactRefused says why it cannot be had."""
        usable = _usable(published, name, spec.agent.kind)
        seen = AgentSeen(model=name, digest=usable.sha256, config_map=_config_map(usable))
        if held is not None and held.seen is not None and (held.seen.model, held.seen.digest) == (name, seen.digest):
            return Chosen(held.agent, ScalingReason.MODEL_LOADED, _message("LearnedModel", seen), held.seen)
        try:
            loaded = await self.feed.load(name)
        except ApiError as error:
            raise self._unreadable(name, error) from error
        if loaded is None:
            raise ArtifactRefused("Missing", f"LearnedModel {name} was changed while it was read")
        return _taken(loaded, spec, seen, "LearnedModel")

    async def _as_told(self, spec: ScalingPolicySpec, name: str, former: AgentSeen, held: Chosen | None) -> Chosen:
        """The version of a status that no LearnedModel names any more: immutable ConfigMaps stay until somebody deletes them."""
        published = _spec_of(spec.agent.kind, former)
        if held is not None and held.seen is not None and (held.seen.model, held.seen.digest) == (name, former.digest):
            return Chosen(held.agent, ScalingReason.MODEL_LOADED, _message("LearnedModel", held.seen), held.seen)
        try:
            loaded = await fetch_model(self._client, self.namespace, name, published, self._models_dir)
        except ApiError as error:
            raise self._unreadable(name, error) from error
        return _taken(loaded, spec, former, "LearnedModel")

    async def _last_good(
        self, spec: ScalingPolicySpec, name: str, former: AgentSeen | None, held: Chosen | None, reason: ScalingReason, why: str
    ) -> Chosen:
        """What decides instead of refused weights: what is held in this process, else what the status names, else what ships."""
        if held is not None and held.seen is not None:
            whose = "last good version decides" if held.seen.model == name else "shipped weights decide"
            return Chosen(held.agent, reason, f"{why}; the {whose}, sha256 {held.seen.digest[:12]}", held.seen)
        if former is not None and former.config_map:
            try:
                found = await self._as_told(spec, name, former, held)
            except ArtifactRefused:
                pass
            else:
                return Chosen(found.agent, reason, f"{why}; the last good version decides, sha256 {former.digest[:12]}", found.seen)
        return _standing_in(spec, held, reason, why)

    def _unreadable(self, name: str, error: ApiError) -> Exception:
        if error.status != _FORBIDDEN:
            return error
        return ArtifactRefused("Missing", f"{name}: the operator may not read ConfigMaps of namespace {self.namespace}")


def _takes_weights(kind: str) -> bool:
    loader = loader_of(kind)
    return loader is not None and loader.system == "scaling"


def _mode(spec: ScalingPolicySpec) -> str:
    """Recommend is Shadow under another name."""
    return mode_of(spec.mode)


def _message(where: str, seen: AgentSeen) -> str:
    return f"{where} {seen.model}, sha256 {seen.digest[:12]}"


def _taken(loaded: Loaded, spec: ScalingPolicySpec, seen: AgentSeen, where: str) -> Chosen:
    agent = loaded.value.at(_attainment(spec))
    return Chosen(agent, ScalingReason.MODEL_LOADED, _message(where, seen), seen)


def _usable(published: LearnedModelSpec | str | None, name: str, kind: str) -> LearnedModelSpec:
    """ArtifactRefused says why not."""
    if published is None:
        raise ArtifactRefused("Missing", f"LearnedModel {name} has not been seen yet")
    if isinstance(published, str):
        raise ArtifactRefused("InvalidSpec", f"LearnedModel {name}: {published}")
    if published.policy != kind:
        raise ArtifactRefused("PolicyMismatch", f"LearnedModel {name} has weights for {published.policy}, not for {kind}")
    return published


def _same(published: LearnedModelSpec | str | None, former: AgentSeen) -> bool:
    return isinstance(published, LearnedModelSpec) and published.sha256 == former.digest


def _shipped(agent: ScalingAgent, reason: ScalingReason, why: str) -> Chosen:
    digest = str(getattr(agent, "digest", ""))
    return Chosen(agent, reason, f"{why}; the shipped weights decide, sha256 {digest[:12]}", AgentSeen(digest=digest))


def _standing_in(spec: ScalingPolicySpec, held: Chosen | None, reason: ScalingReason, why: str) -> Chosen:
    """What decides where named weights cannot: those that ship, held if they were; the rule for an agent of which none ship."""
    kind = spec.agent.kind
    if unshipped_model(kind):
        ruled = held is not None and held.seen is None
        agent = held.agent if held is not None and ruled else make_agent("rule", _attainment(spec))
        return Chosen(agent, reason, f"{why}; the rule decides")
    stood_in = held is not None and held.seen is not None and not held.seen.model
    agent = held.agent if held is not None and stood_in else make_agent(kind, _attainment(spec))
    return _shipped(agent, reason, why)


def _spec_of(kind: str, former: AgentSeen) -> LearnedModelSpec:
    """What a LearnedModel would have to say to mean the version of a status."""
    if not former.config_map:
        raise ArtifactRefused("Missing", f"nothing names the weights with sha256 {former.digest[:12]} any more")
    try:
        schema = moves_of(kind).schema
        weights = WeightsSource(config_map=ConfigMapSource(name=former.config_map))
        return LearnedModelSpec(policy=kind, weights=weights, sha256=former.digest, feature_schema=schema)
    except KeyError:
        raise ArtifactRefused("Missing", f"{kind} is of another package: its former weights cannot be found by a status") from None
    except ValidationError:  # anybody may have written that into a status
        raise ArtifactRefused("Missing", "what the status says of the former weights cannot be: neither a ConfigMap nor a digest") from None


def _config_map(published: LearnedModelSpec) -> str:
    """Where it can be found again: only with the usual keys and its own card."""
    source = published.weights.config_map
    return source.name if source is not None and source == ConfigMapSource(name=source.name) and published.card is None else ""


def _attainment(spec: ScalingPolicySpec) -> float:
    return spec.objective.attainment_percent / 100

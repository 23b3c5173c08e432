"""Who decides for a policy: an agent by name, or a learned one with the weights of a LearnedModel, checked and taken without a restart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tiphys_models.api.learned_artifact import Parts, check_card_size, check_promised
from tiphys_models.api.learned_model import PLURAL, SCALING_AGENTS, SERVES, ConfigMapSource, LearnedModelSpec, WeightsSource, parse_model
from tiphys_models.api.reasons import ScalingReason
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import AgentSeen
from tiphys_models.api.scheduling_policy import GROUP, VERSION
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.clients.learned_models import fetch_parts
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import ArtifactRefused, InvalidInput
from tiphys_models.scaling.learned import LearnedAgent, check_agent
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.registry import make_agent

REFUSED_FOR_S = 30.0
"""What was refused is looked at again: its ConfigMap may come, or be corrected, after the object that names it."""
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Chosen:
    """Who decides, and what became of the model that the policy names."""

    agent: ScalingAgent
    reason: ScalingReason
    message: str
    seen: AgentSeen | None = None
    """Of a learned agent."""

    @property
    def loaded(self) -> bool:
        """Whether it is what the policy asks for."""
        return self.reason in (ScalingReason.MODEL_NOT_NEEDED, ScalingReason.MODEL_SHIPPED, ScalingReason.MODEL_LOADED)


def models_path(namespace: str) -> str:
    """LearnedModels of the release: those of other namespaces serve nobody."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"


def checked_agent(spec: LearnedModelSpec, parts: Parts, origin: str, attainment: float | None = None) -> LearnedAgent:
    """Every check that a published agent must pass."""
    check_card_size(parts, origin)
    agent = check_agent(parts.card, parts.weights, origin, attainment)
    check_promised(spec, agent.name, agent.digest, agent.moves.schema, origin)
    return agent


class AgentShelf:
    """Sink of the LearnedModels of one namespace, and the agents made from them."""

    def __init__(self, client: KubeClient, namespace: str, models_dir: Path | None, clock: Clock) -> None:
        self.namespace = namespace
        self._client, self._models_dir, self._clock = client, models_dir, clock
        self._published: dict[str, LearnedModelSpec | str] = {}
        self._names: dict[str, str] = {}
        self._listed = False
        self._refused: dict[tuple[object, ...], tuple[float, ArtifactRefused]] = {}

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        name = obj["metadata"]["name"]
        self._names[obj["metadata"]["uid"]] = name
        try:
            self._published[name] = parse_model(obj)
        except InvalidInput as error:
            self._published[name] = str(error)

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._names.pop(obj["metadata"]["uid"], None)
        self._published.pop(obj["metadata"]["name"], None)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        self._listed = True
        self._names = {uid: name for uid, name in self._names.items() if uid in uids}
        self._published = {name: spec for name, spec in self._published.items() if name in self._names.values()}

    async def choose(self, spec: ScalingPolicySpec, told: AgentSeen | None, held: Chosen | None) -> Chosen:
        """The agent for a policy. `told`: as its status says; `held`: as it decided in the last window, for the same spec.

        InvalidInput or ArtifactRefused if there is no agent of that kind; Unavailable if the API server does not answer.
        """
        kind, name = spec.agent.kind, spec.agent.model
        if kind not in SCALING_AGENTS or name is None:
            if held is not None and held.loaded:
                return held
            agent = make_agent(kind, _attainment(spec))
            if isinstance(agent, LearnedAgent):
                return _shipped(agent, ScalingReason.MODEL_SHIPPED, "no model is named")
            return Chosen(agent, ScalingReason.MODEL_NOT_NEEDED, f"{kind} takes no weights")
        former = told if told is not None and told.model == name else None
        published = self._published.get(name)
        if (problem := self._unserved(published, name, spec)) is not None:
            standing_in = held is not None and held.seen is not None and not held.seen.model
            agent = held.agent if held is not None and standing_in else make_agent(kind, _attainment(spec))
            return _shipped(agent, *problem)
        frozen = spec.agent.learning == "Frozen" and former is not None
        try:
            if former is not None and frozen and not _same(published, former):
                return await self._taken(spec, name, _as_told(kind, former), held)
            return await self._taken(spec, name, _usable(published, name, kind), held)
        except ArtifactRefused as error:
            reason = ScalingReason.MODEL_REFUSED if published is not None or frozen else ScalingReason.MODEL_MISSING
            found = await self._last_good(spec, name, None if frozen else former, held, reason, str(error))
        if frozen and found.seen is not None:  # kept under its name: else the next window would take what is published now
            return replace(found, seen=found.seen.model_copy(update={"model": name}))
        return found

    def _unserved(self, published: LearnedModelSpec | str | None, name: str, spec: ScalingPolicySpec) -> tuple[ScalingReason, str] | None:
        """Whoever may publish says so: it is deleted, or its stage does not serve the policy's mode. Then nobody goes on with it."""
        mode = "Active" if spec.mode == "Active" else "Shadow"
        if published is None and self._listed:
            return ScalingReason.MODEL_MISSING, f"there is no LearnedModel {name} in the namespace of the release"
        if isinstance(published, LearnedModelSpec) and mode not in SERVES[published.stage]:
            return ScalingReason.MODEL_STAGE, f"LearnedModel {name} is at stage {published.stage}, which does not serve mode {spec.mode}"
        return None

    async def _last_good(
        self, spec: ScalingPolicySpec, name: str, former: AgentSeen | None, held: Chosen | None, reason: ScalingReason, why: str
    ) -> Chosen:
        """Of refused weights: held in this process, else found where the status says it was, else what ships."""
        if held is not None and held.seen is not None:
            whose = "last good version decides" if held.seen.model == name else "shipped weights decide"
            return Chosen(held.agent, reason, f"{why}; the {whose}, sha256 {held.seen.digest[:12]}", held.seen)
        if former is not None and former.config_map:
            try:
                found = await self._taken(spec, name, _as_told(spec.agent.kind, former), held)
            except ArtifactRefused:
                pass
            else:
                return Chosen(found.agent, reason, f"{why}; the last good version decides, sha256 {former.digest[:12]}", found.seen)
        return _shipped(make_agent(spec.agent.kind, _attainment(spec)), reason, why)

    async def _taken(self, spec: ScalingPolicySpec, name: str, published: LearnedModelSpec, held: Chosen | None) -> Chosen:
        seen = AgentSeen(model=name, digest=published.sha256, config_map=_config_map(published))
        message = f"LearnedModel {name}, sha256 {published.sha256[:12]}"
        if held is not None and held.seen is not None and (held.seen.model, held.seen.digest) == (name, seen.digest):
            return Chosen(held.agent, ScalingReason.MODEL_LOADED, message, held.seen)
        now_s = self._clock.monotonic_s()
        until_s, refusal = self._refused.get(published.artifact, (0.0, None))
        if refusal is not None and until_s > now_s:
            raise refusal
        try:
            parts = await fetch_parts(self._client, self.namespace, name, published, self._models_dir)
            agent = await asyncio.to_thread(checked_agent, published, parts, name, _attainment(spec))
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            raise ArtifactRefused("Missing", f"{name}: the operator may not read ConfigMaps of namespace {self.namespace}") from error
        except ArtifactRefused as error:
            self._refused = {key: kept for key, kept in self._refused.items() if kept[0] > now_s} | {
                published.artifact: (now_s + REFUSED_FOR_S, error)
            }
            raise
        return Chosen(agent, ScalingReason.MODEL_LOADED, message, seen)


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


def _as_told(kind: str, former: AgentSeen) -> LearnedModelSpec:
    """A version that no LearnedModel names any more: immutable ConfigMaps stay until somebody deletes them."""
    if not former.config_map:
        raise ArtifactRefused("Missing", f"nothing names the weights with sha256 {former.digest[:12]} any more")
    schema = getattr(make_agent(kind), "moves").schema  # noqa: B009 - only learned agents come here
    try:
        weights = WeightsSource(config_map=ConfigMapSource(name=former.config_map))
        return LearnedModelSpec(policy=kind, weights=weights, sha256=former.digest, feature_schema=schema)
    except ValidationError:  # anybody may have written that into a status
        raise ArtifactRefused("Missing", "what the status says of the former weights cannot be: neither a ConfigMap nor a digest") from None


def _config_map(published: LearnedModelSpec) -> str:
    """Where it can be found again: only with the usual keys and its own card."""
    source = published.weights.config_map
    return source.name if source is not None and source == ConfigMapSource(name=source.name) and published.card is None else ""


def _attainment(spec: ScalingPolicySpec) -> float:
    return spec.objective.attainment_percent / 100

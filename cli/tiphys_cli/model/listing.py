"""All models there are, published in a cluster, mounted and shipped: with stage, digest and the policies that decide with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.api.stream_policy import parse_stream_policy
from tiphys_models.artifacts.card import Card
from tiphys_models.artifacts.directory import scan
from tiphys_models.artifacts.loaders import Loaded, loader_of
from tiphys_models.artifacts.shipped import is_carried, is_unshipped, shipped
from tiphys_models.artifacts.store import Source, Store
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.scaling.registry import model_of

_NOT_FOUND = 404
_REFUSED = (403, _NOT_FOUND)
_KINDS = {"SchedulingPolicy": "schedulingpolicies", "ScalingPolicy": "scalingpolicies", "StreamPolicy": "streampolicies"}


@dataclass(slots=True)
class Row:
    """One model of one source."""

    source: Source
    name: str
    policy: str
    stage: str = "active"
    accepted: str = "True"
    loaded: str = ""
    reason: str = ""
    sha256: str = ""
    served_digest: str = ""
    evaluation: str = ""
    used_by: list[str] = field(default_factory=list)

    @property
    def system(self) -> str:
        """The system that the model decides in; empty if its policy is unknown."""
        loader = loader_of(self.policy)
        return loader.system if loader is not None else ""

    def as_json(self) -> dict[str, Any]:
        """One object of `tiphys model list --json`."""
        return {
            "name": self.name, "policy": self.policy, "stage": self.stage, "accepted": self.accepted, "loaded": self.loaded,
            "reason": self.reason, "sha256": self.sha256, "servedDigest": self.served_digest, "evaluation": self.evaluation,
            "source": str(self.source), "system": self.system, "usedBy": self.used_by,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Use:
    """What a policy decides with, if it is there."""

    who: str
    mode: str
    wanted: tuple[tuple[str, tuple[str, ...]], ...]
    """Everything that may decide, each with the names of its models, the wanted one first."""


def shipped_rows() -> list[Row]:
    """What every image carries; weights that none does say so."""
    rows = []
    for name, line in shipped().items():
        there = is_carried(name) and not is_unshipped(name)
        reason = "" if there else "WeightsNotShipped"
        if line.role != "seed":
            rows.append(Row(Source.SHIPPED, name, line.policy, accepted=str(there), reason=reason, sha256=line.sha256))
    return rows


def mounted_rows(directory: Path) -> list[Row]:
    """The artifacts of a models volume that is mounted on this machine, checked."""
    rows = []
    for one in scan(directory, {})[1]:
        match one.found:
            case ArtifactRefused() as refusal:
                rows.append(Row(Source.MOUNTED, one.name, "", accepted="False", reason=refusal.reason))
            case Loaded() as loaded:
                rows.append(Row(Source.MOUNTED, one.name, loaded.policy, sha256=loaded.digest))
    return rows


async def published_rows(client: KubeClient, namespace: str) -> list[Row]:
    """The LearnedModels of a release, with what the operator says of them."""
    try:
        found = await client.get(models_in(namespace))
    except ApiError as error:
        raise explained(error) from error
    return [_published(obj) for obj in found.get("items") or ()]


async def uses(client: KubeClient) -> list[Use]:
    """What all policies of a cluster decide with; kinds that are not there, or may not be read, use nothing."""
    found: list[Use] = []
    for kind, plural in _KINDS.items():
        try:
            listed = await client.get(f"/apis/{GROUP}/{VERSION}/{plural}")
        except ApiError as error:
            if error.status not in _REFUSED:
                raise
            continue
        found += [use for obj in listed.get("items") or () for use in _use(kind, obj)]
    return found


def with_users(rows: list[Row], policies: Iterable[Use]) -> list[Row]:
    """The same rows, each with the policies that decide with it: found as every process finds its models."""
    store = Store()
    for row in rows:
        if row.source is Source.LEARNED:
            store.set_stage(row.name, row.stage)
        digest = row.served_digest or row.sha256
        if (loader := loader_of(row.policy)) is not None and digest and (row.accepted != "False" or row.served_digest):
            card = Card(name="listed", policy=row.policy, feature_schema="unread", sha256=digest)
            store.take(row.source, _called(row), Loaded(loader.system, card, None))
    by_place = {(row.source, _called(row)): row for row in rows}
    for use in policies:
        for policy, models in use.wanted:
            served = ((model, store.find(policy, model, use.mode)) for model in models)
            first = next(((found.source, model) for model, found in served if found is not None), None)
            if first is not None:
                by_place[first].used_by.append(use.who)
    return rows


def models_in(namespace: str) -> str:
    """Path of the LearnedModels of a namespace."""
    head, _, plural = MODELS_PATH.rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}"


def explained(error: ApiError) -> Exception:
    """A cluster without the kind is an installation that is too old."""
    if error.status == _NOT_FOUND:
        return InvalidInput("this cluster does not know the kind LearnedModel: upgrade the chart, or apply manifests/crds")
    return error


def _called(row: Row) -> str:
    """The name under which a policy finds it: shipped agents of scaling are found by their kind."""
    return row.policy if row.source is Source.SHIPPED and row.system == "scaling" else row.name


def _published(obj: Mapping[str, Any]) -> Row:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    accepted, loaded = conditions.get("Accepted") or {}, conditions.get("Loaded") or {}
    return Row(
        Source.LEARNED,
        obj["metadata"]["name"],
        spec.get("policy", ""),
        spec.get("stage", "candidate"),
        accepted.get("status", "Unknown"),
        loaded.get("status", "Unknown"),
        (loaded if accepted.get("status") == "True" else accepted).get("reason", "no status: is the operator running?"),
        spec.get("sha256", ""),
        status.get("servedDigest", ""),
        (spec.get("evaluation") or {}).get("value", ""),
    )


def _use(kind: str, obj: dict[str, Any]) -> Iterator[Use]:
    """Nothing for an invalid policy, a rule, or one that is Off."""
    metadata = obj["metadata"]
    try:
        mode, wanted = _wanted(kind, obj)
    except InvalidInput:
        return
    if mode != "Off" and wanted:
        who = f"{kind} {metadata.get('namespace', '')}/{metadata['name']} ({mode})"
        yield Use(who, "Shadow" if mode == "Recommend" else mode, wanted)


def _wanted(kind: str, obj: dict[str, Any]) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    if kind == "ScalingPolicy":
        scaling = parse_scaling(obj)
        agent = scaling.agent
        # what ships stands in; an agent that ships without weights finds them under their own name
        names = (agent.kind, model_of(agent.kind)) if agent.model is None else (agent.model, agent.kind)
        return scaling.mode, ((agent.kind, names),) if loader_of(agent.kind) is not None else ()
    if kind == "StreamPolicy":
        stream = parse_stream_policy(obj)
        return stream.mode, ((str(stream.policy), (stream.model_name,)),) if stream.model_name is not None else ()
    policy = parse_spec(obj)
    select, name = policy.select, policy.model_name
    if select is None:
        return policy.mode, ((str(policy.policy), (name,)),) if name is not None else ()
    by = str(select.by)
    chooses = ((by, (select.model_name, by)),) if select.model_name is not None else ()
    return policy.mode, (*chooses, *((one, (one,)) for one in select.among if loader_of(one) is not None))

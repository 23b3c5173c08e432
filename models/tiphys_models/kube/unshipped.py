"""Objects that name weights which no image carries and nobody has published: what `tiphys model ship` is for. It only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.api.stream_policy import parse_stream_policy
from tiphys_models.artifacts.shipped import is_carried, shipped
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.scaling.registry import model_of

KINDS = {"SchedulingPolicy": "schedulingpolicies", "ScalingPolicy": "scalingpolicies", "StreamPolicy": "streampolicies"}
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """An object, and the weights that it names."""

    who: str
    model: str

    def __str__(self) -> str:
        return f"{self.who} needs {self.model}: `tiphys model ship {self.model}`; until then the rule answers"


@dataclass(frozen=True, slots=True)
class Needs:
    """The objects that need weights, and the kinds that could not be listed."""

    needs: tuple[Need, ...]
    problems: tuple[str, ...]
    """Kinds that could not be listed, and why."""


async def needed(client: KubeClient, namespace: str) -> Needs:
    """Every object of a cluster whose weights are missing in a release's namespace. Mounted files are not seen from here."""
    problems: list[str] = []
    published = {
        obj["metadata"]["name"]
        async for obj in _items(client, MODELS_PATH, problems)
        if obj["metadata"].get("namespace", namespace) == namespace
    }
    found = [
        Need(f"{kind} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}", model)
        for kind, plural in KINDS.items()
        async for obj in _items(client, f"/apis/{GROUP}/{VERSION}/{plural}", problems)
        if (model := wanted(kind, obj)) and model not in published
    ]
    return Needs(tuple(sorted(found)), tuple(problems))


def wanted(kind: str, obj: dict[str, Any]) -> str:
    """The weights that a policy names and no image carries; empty if there are none, it is Off, or it cannot be read."""
    try:
        mode, model = _named(kind, obj)
    except InvalidInput:
        return ""
    return model if mode != "Off" and model in shipped() and not is_carried(model) else ""


def _named(kind: str, obj: dict[str, Any]) -> tuple[str, str]:
    if kind == "ScalingPolicy":
        scaling = parse_scaling(obj)
        return scaling.mode, model_of(scaling.agent.kind) if scaling.agent.model is None else scaling.agent.model
    if kind == "StreamPolicy":
        stream = parse_stream_policy(obj)
        return stream.mode, stream.model_name or ""
    policy = parse_spec(obj)
    name = policy.model_name if policy.select is None else policy.select.model_name
    return policy.mode, name or ""


async def _items(client: KubeClient, path: str, problems: list[str]) -> AsyncIterator[dict[str, Any]]:
    """Objects of all namespaces; none of a kind that is not installed."""
    try:
        async with aclosing(client.pages(path)) as pages:
            async for page in pages:
                for item in page["items"]:
                    yield item
    except Unavailable as error:
        if not isinstance(error, ApiError) or error.status != _NOT_FOUND:
            problems.append(f"{path.rsplit('/', 1)[-1]} could not be listed: {error}")

"""Checks the artifacts that LearnedModels point to, each again only when its bytes may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiphys_models.api.learned_model import LearnedModelSpec, WeightsSource
from tiphys_models.artifacts.directory import stamp_of
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.kube.client import METADATA_OF_ONE, ApiError, KubeClient
from tiphys_models.kube.learned_models import fetch_model
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.models_found import Check, ModelRefused, ModelUnread, found_of
from tiphys_operator.placement.observation import ModelSeen

_FORBIDDEN, _NOT_FOUND = 403, 404
_OVERLOADED = (401, 429, 500, 502, 503, 504)


class LearnedCheck:
    """Remembers what it found by object, spec and version of the bytes."""

    def __init__(self, client: KubeClient, own_namespace: str, models_dir: Path | None, guard: ObjectGuard) -> None:
        self._client, self._own_namespace, self._models_dir, self._guard = client, own_namespace, models_dir, guard
        self._known: dict[str, tuple[tuple[Any, ...], Check]] = {}

    async def check(self, models: Sequence[ModelSeen]) -> Mapping[str, Check]:
        """Results by key, for models of the operator's own namespace; Unavailable if the API server does not answer."""
        known = {}
        for model in models:
            if model.spec is not None and model.namespace == self._own_namespace and not model.deleting:
                with self._guard.over(model.kind, model.key, model.version) as trip:
                    known[model.key] = await self._checked(model, model.spec)
                if trip.error is not None:
                    known[model.key] = (), ModelUnread(f"its artifact could not be checked: {trip.message}")
        self._known = known
        return {key: check for key, (_, check) in known.items()}

    async def _checked(self, model: ModelSeen, spec: LearnedModelSpec) -> tuple[tuple[Any, ...], Check]:
        version: tuple[Any, ...] = ()
        try:
            version = (model.uid, spec.artifact, await self._bytes_version(model.namespace, spec.weights))
            former = self._known.get(model.key)
            if former is not None and former[0] == version:
                return former
            found = found_of(await fetch_model(self._client, model.namespace, model.name, spec, self._models_dir))
        except ArtifactRefused as refusal:
            return version, ModelRefused(refusal.reason, str(refusal))
        except ApiError as error:
            if error.status in _OVERLOADED:
                raise
            if error.status != _FORBIDDEN:
                return version, ModelUnread(str(error))
            return version, ModelUnread(
                "the operator may not read ConfigMaps: give its ServiceAccount the verb get on them in its namespace"
            )
        return version, found

    async def _bytes_version(self, namespace: str, weights: WeightsSource) -> Any:
        """What changes when the bytes do: a fraction of what they weigh."""
        if weights.config_map is None:
            file = (self._models_dir or Path()) / (weights.file or "")
            return await asyncio.to_thread(stamp_of, file.with_suffix(".json"))
        path = f"/api/v1/namespaces/{namespace}/configmaps/{weights.config_map.name}"
        try:
            return (await self._client.get(path, accept=METADATA_OF_ONE))["metadata"]["resourceVersion"]
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return ""
            raise

"""Fetches what a LearnedModel points to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tiphys_models.api.learned_artifact import Parts, checked_network, missing_config_map, parts_of_config_map, parts_of_file
from tiphys_models.api.learned_model import LearnedModelSpec
from tiphys_models.artifacts.score_network import ScoreNetwork
from tiphys_models.clients.kube import ApiError, KubeClient

_NOT_FOUND = 404


async def fetch_network(client: KubeClient, namespace: str, name: str, spec: LearnedModelSpec, models_dir: Path | None) -> ScoreNetwork:
    """The network, checked in a thread; ArtifactRefused says what is wrong with it, Unavailable that it could not be read."""
    parts = await fetch_parts(client, namespace, name, spec, models_dir)
    return await asyncio.to_thread(checked_network, spec, parts, name)


async def fetch_parts(client: KubeClient, namespace: str, name: str, spec: LearnedModelSpec, models_dir: Path | None) -> Parts:
    """The bytes, unchecked; ArtifactRefused if they are not there, Unavailable if they could not be read."""
    source = spec.weights.config_map
    if source is None:
        return await asyncio.to_thread(parts_of_file, spec, models_dir, spec.weights.file or "", name)
    try:
        obj = await client.get(f"/api/v1/namespaces/{namespace}/configmaps/{source.name}")
    except ApiError as error:
        if error.status == _NOT_FOUND:
            raise missing_config_map(source, name) from error
        raise
    return await asyncio.to_thread(parts_of_config_map, spec, source, obj, name)

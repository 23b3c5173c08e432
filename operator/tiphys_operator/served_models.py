"""The models with which the operator's own deciders decide: published ones loaded when they are needed, then mounted ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.learned_model import PLURAL
from tiphys_models.artifacts.card import System
from tiphys_models.artifacts.store import Mounted, Served, Store
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import ArtifactRefused, Unavailable
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.learned_models import ModelFeed

log = logging.getLogger(__name__)

REFUSED_FOR_S = 30.0
"""What was refused is looked at again: its ConfigMap may come, or be corrected, after the object that names it."""
_LOOK_AGAIN_S = 10.0
_PATIENCE_S = 1.0
"""A decision that is due does not wait longer for other weights."""


def models_path(namespace: str) -> str:
    """LearnedModels of the release: those of other namespaces serve nobody."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"


class ServedModels:
    """Sink of the LearnedModels of one namespace, and the models of one system made from them."""

    def __init__(self, client: KubeClient, namespace: str, models_dir: Path | None, clock: Clock, system: System) -> None:
        self.namespace = namespace
        self.store = Store()
        self.feed = ModelFeed(client, self.store, namespace, models_dir, {system}, clock=clock, retry_s=REFUSED_FOR_S)
        self._mounted, self._clock, self._looked_s = Mounted(self.store, models_dir, {system}), clock, float("-inf")

    def put(self, obj: dict[str, Any]) -> None:
        """The watch shows a new or changed LearnedModel."""
        self.feed.put(obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that a LearnedModel was deleted."""
        self.feed.drop(obj)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        self.feed.listed(uids)

    def find(self, policy: str, model: str, mode: str) -> Served | None:
        """The published or mounted model of that name that decides for a policy in a mode; None: what ships decides."""
        return self.store.find(policy, model, mode)

    async def look(self) -> None:
        """Read mounted files that have changed; now and then."""
        if self._mounted.directory is None or self._clock.monotonic_s() < self._looked_s + _LOOK_AGAIN_S:
            return
        self._looked_s = self._clock.monotonic_s()
        self._mounted.take(*await asyncio.to_thread(self._mounted.look))

    async def refresh(self, names: Iterable[str]) -> None:
        """Load what is published under these names; what cannot be had now leaves what served before."""
        await self.look()
        for name in names:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self.feed.load(name)
            except ArtifactRefused:
                continue  # the store has told, and its LearnedModel says it
            except (Unavailable, TimeoutError) as error:
                fields = {"model": name, "why": str(error) or "it takes long"}
                log.warning("model could not be read, trying again", extra={"fields": fields})
                return  # the others would wait as long

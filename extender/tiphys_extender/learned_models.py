"""LearnedModels of the release's namespace: watched, their artifacts fetched and checked, swapped without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_extender.metrics import Metrics
from tiphys_extender.model_store import ModelStore, Source
from tiphys_models.api.learned_model import LearnedModelSpec, parse_model
from tiphys_models.clients.kube import KubeClient
from tiphys_models.clients.learned_models import fetch_network
from tiphys_models.domain.errors import ArtifactRefused, InvalidInput, Unavailable

_log = logging.getLogger(__name__)

RETRY_S = 10.0
"""What was missing or refused is tried again: a ConfigMap may come, or be corrected, after the object that names it."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    uid: str
    spec: LearnedModelSpec


class LearnedModels:
    """Sink of the watch, and the job that loads what the watch brings."""

    def __init__(
        self,
        client: KubeClient,
        store: ModelStore,
        metrics: Metrics,
        namespace: str,
        models_dir: Path | None,
        retry_s: float = RETRY_S,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.namespace = namespace
        self._client, self._store, self._metrics = client, store, metrics
        self._models_dir, self._retry_s, self._beat = models_dir, retry_s, beat
        self._uids: dict[str, str] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._pending: set[str] = set()
        self._again: set[str] = set()
        self._wake = asyncio.Event()
        self._listed = False
        self.settled = False
        """Whether everything of the first list has been tried: before that an answer might miss a model that is there."""

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed. A stage counts at once; other bytes are fetched first. An invalid spec leaves what was there."""
        name, uid = obj["metadata"]["name"], obj["metadata"].get("uid", "")
        if self._uids.get(name, uid) != uid:
            self._remove(name)  # deleted and made again: the old version is nobody's
        self._uids[name] = uid
        try:
            spec = parse_model(obj)
        except InvalidInput as error:
            self._store.refuse(Source.LEARNED, name, ArtifactRefused("InvalidSpec", f"{name}: {error}"))
            return
        if spec.for_scaling:  # the operator serves it
            self._remove(name)
            self._uids[name] = uid
            return
        former = self._wanted.get(name)
        self._wanted[name] = _Wanted(uid, spec)
        self._store.set_stage(name, spec.stage)
        if former is None or former.spec.artifact != spec.artifact:
            self._pending.add(name)
            self._wake.set()

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted: mounted and shipped models of that name serve again."""
        self._remove(obj["metadata"]["name"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for name in [name for name, uid in self._uids.items() if uid not in uids]:
            self._remove(name)
        self._listed = True
        self._wake.set()

    def __len__(self) -> int:
        return len(self._uids)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._pending:
                await self._load(self._pending.pop())
                self._beat()
            self._beat()
            self.settled = self.settled or self._listed
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._retry_s)
            if not self._wake.is_set():
                self._pending, self._again = self._pending | self._again, set()
            self._wake.clear()

    async def _load(self, name: str) -> None:
        wanted = self._wanted.get(name)
        if wanted is None:
            return
        found: Any
        try:
            found = await fetch_network(self._client, self.namespace, name, wanted.spec, self._models_dir)
        except (ArtifactRefused, Unavailable) as error:
            found = error
        except Exception as error:  # noqa: BLE001 - cards and weights are data from elsewhere: one must not keep the others from serving
            found = ArtifactRefused("WeightsUnreadable", f"{name}: {type(error).__name__}")
        now = self._wanted.get(name)
        if now is None or (now.uid, now.spec.artifact) != (wanted.uid, wanted.spec.artifact):
            return  # it changed meanwhile, and is pending again or gone
        self._again.discard(name)
        match found:
            case ArtifactRefused():
                self._again.add(name)
                self._store.refuse(Source.LEARNED, name, found)
            case Unavailable():
                self._again.add(name)
                self._metrics.watch_errors["models", "unreachable"].inc()
                _log.warning("model could not be read, trying again", extra={"fields": {"model": name, "why": str(found)}})
            case network:
                self._store.take(Source.LEARNED, name, network)

    def _remove(self, name: str) -> None:
        for table in (self._uids, self._wanted):
            table.pop(name, None)
        self._pending.discard(name)
        self._again.discard(name)
        self._store.forget(Source.LEARNED, name)

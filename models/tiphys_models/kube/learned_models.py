"""LearnedModels of the release's namespace: their artifacts fetched, checked and put into a store, without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_models.api.learned_artifact import checked, missing_config_map, parts_of_config_map, parts_of_file
from tiphys_models.api.learned_model import LearnedModelSpec, parse_model
from tiphys_models.artifacts.files import Parts
from tiphys_models.artifacts.loaders import Loaded, loader_of
from tiphys_models.artifacts.store import Source, Store
from tiphys_models.base.clock import Clock, SystemClock
from tiphys_models.base.errors import ArtifactRefused, InvalidInput, TiphysError, Unavailable
from tiphys_models.kube.client import ApiError, KubeClient

_log = logging.getLogger(__name__)

RETRY_S = 10.0
"""What was missing or refused is tried again: a ConfigMap may come, or be corrected, after the object that names it."""
_NOT_FOUND = 404


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


async def fetch_model(client: KubeClient, namespace: str, name: str, spec: LearnedModelSpec, models_dir: Path | None) -> Loaded:
    """The model, checked in a thread; ArtifactRefused says what is wrong with it, Unavailable that it could not be read."""
    try:
        parts = await fetch_parts(client, namespace, name, spec, models_dir)
        return await asyncio.to_thread(checked, spec, parts)
    except TiphysError:
        raise
    except Exception as error:  # what a hostile ConfigMap can raise cannot be listed: one must not keep the others from serving
        raise ArtifactRefused("WeightsUnreadable", f"{name}: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a LearnedModel asks for."""

    uid: str
    spec: LearnedModelSpec


class ModelFeed:
    """Sink of a watch on LearnedModels, and what loads them into a store: when asked, or as a job of its own."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        namespace: str,
        models_dir: Path | None,
        systems: Collection[str],
        *,
        clock: Clock | None = None,
        retry_s: float = RETRY_S,
        beat: Callable[[], None] = lambda: None,
        unreachable: Callable[[], None] = lambda: None,
    ) -> None:
        self.namespace = namespace
        self._client, self._store, self._models_dir, self._systems = client, store, models_dir, systems
        self._clock = clock if clock is not None else SystemClock()
        self._retry_s, self._beat, self._unreachable = retry_s, beat, unreachable
        self._uids: dict[str, str] = {}
        self._said: dict[str, LearnedModelSpec | str] = {}
        """Every spec, or what is wrong with it; also those that other processes serve."""
        self._wanted: dict[str, _Wanted] = {}
        """What this process loads."""
        self._taken: dict[str, _Wanted] = {}
        """What the store holds of each name."""
        self._refused: dict[str, tuple[float, _Wanted, ArtifactRefused]] = {}
        """Refused models by name: until when the same artifact is not tried again, and why it was refused."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._pending: set[str] = set()
        self._again: set[str] = set()
        self._wake = asyncio.Event()
        self.listed_once = False
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
            self._said[name] = str(error)
            self._store.refuse(Source.LEARNED, name, ArtifactRefused("InvalidSpec", f"{name}: {error}"))
            return
        loader = loader_of(spec.policy)
        if loader is None or loader.system not in self._systems:  # others serve it, or nobody
            self._remove(name)
            self._uids[name], self._said[name] = uid, spec
            return
        invalid_before, former = isinstance(self._said.get(name), str), self._wanted.get(name)
        self._said[name], self._wanted[name] = spec, _Wanted(uid, spec)
        self._store.set_stage(name, spec.stage)
        if former is None or invalid_before or former.spec.artifact != spec.artifact:
            self._pending.add(name)
            self._wake.set()

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted: mounted and shipped models of that name serve again."""
        self._remove(obj["metadata"]["name"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for name in [name for name, uid in self._uids.items() if uid not in uids]:
            self._remove(name)
        self.listed_once = True
        self._wake.set()

    def __len__(self) -> int:
        return len(self._uids)

    def wanted(self, name: str) -> LearnedModelSpec | str | None:
        """The spec of a LearnedModel, what is wrong with it, or None if none has been seen."""
        return self._said.get(name)

    async def run(self) -> None:
        """Load what the watch brings, until cancelled."""
        while True:
            while self._pending:
                await self._try(self._pending.pop())
                self._beat()
            self._beat()
            self.settled = self.settled or self.listed_once
            with contextlib.suppress(TimeoutError):  # Python 3.11's wait_for loses a cancellation that comes together with a wake
                async with asyncio.timeout(self._retry_s):
                    await self._wake.wait()
            if not self._wake.is_set():
                self._pending, self._again = self._pending | self._again, set()
            self._wake.clear()

    async def _try(self, name: str) -> None:
        try:
            await self.load(name, again=True)
        except ArtifactRefused:
            self._again.add(name)
        except Unavailable as error:
            self._again.add(name)
            self._unreachable()
            _log.warning("model could not be read, trying again", extra={"fields": {"model": name, "why": str(error)}})

    async def load(self, name: str, *, again: bool = False) -> Loaded | None:
        """The version that a LearnedModel asks for, fetched if need be; None if it was changed or deleted meanwhile.

        ArtifactRefused if it must not serve (for `retry_s` from memory, unless `again`), Unavailable if it could not be read.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            wanted = self._wanted.get(name)
            if wanted is None:
                return None
            entry = self._store.entry(Source.LEARNED, name)
            if self._same(self._taken.get(name), wanted) and entry is not None and entry.loaded is not None:
                if entry.refusal is not None:  # of a version that was asked for in between
                    self._store.take(Source.LEARNED, name, entry.loaded)
                return entry.loaded
            until_s, refused, refusal = self._refused.get(name, (0.0, None, None))
            if refusal is not None and not again and self._same(refused, wanted) and until_s > self._clock.monotonic_s():
                raise refusal
            try:
                loaded = await fetch_model(self._client, self.namespace, name, wanted.spec, self._models_dir)
            except ArtifactRefused as refusal:
                if self._current(name, wanted):
                    self._refused[name] = (self._clock.monotonic_s() + self._retry_s, wanted, refusal)
                    self._store.refuse(Source.LEARNED, name, refusal)
                    raise
                return None
            if not self._current(name, wanted):
                return None  # it changed meanwhile, and is pending again or gone
            self._refused.pop(name, None)
            self._again.discard(name)
            self._taken[name] = wanted
            self._store.take(Source.LEARNED, name, loaded)
            return loaded

    def _current(self, name: str, wanted: _Wanted) -> bool:
        return self._same(self._wanted.get(name), wanted)

    @staticmethod
    def _same(one: _Wanted | None, other: _Wanted) -> bool:
        return one is not None and (one.uid, one.spec.artifact) == (other.uid, other.spec.artifact)

    def _remove(self, name: str) -> None:
        for table in (self._uids, self._said, self._wanted, self._taken, self._refused, self._locks):
            table.pop(name, None)
        self._pending.discard(name)
        self._again.discard(name)
        self._store.forget(Source.LEARNED, name)

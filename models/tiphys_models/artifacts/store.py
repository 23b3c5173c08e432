"""Models by name from three sources, swapped while answers go on. A refused artifact leaves the last good one in place.

A name may stand in all sources: a LearnedModel wins over a mounted file, and that over what is shipped, for the modes that its stage
serves. So a new version can be shadowed under the name that decides, and deleting it goes back to what was there before. The same
store serves placement, selection, scaling and streams, in the extender, the binder and the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tiphys_models.artifacts.directory import Scanned, Stamp, scan
from tiphys_models.artifacts.loaders import Loaded
from tiphys_models.base.errors import ArtifactRefused

_log = logging.getLogger(__name__)

MODES = ("Off", "Shadow", "Canary", "Active")
SERVES: Mapping[str, frozenset[str]] = {
    "candidate": frozenset(),
    "shadow": frozenset({"Shadow"}),
    "canary": frozenset({"Shadow", "Canary"}),
    "active": frozenset({"Shadow", "Canary", "Active"}),
    "retired": frozenset(),
}
"""Which modes a stage serves. What it does not serve, the next source of that name does."""


class Source(StrEnum):
    """Where models come from, the strongest first."""

    LEARNED = "LearnedModel"
    MOUNTED = "mounted"
    SHIPPED = "shipped"


_ORDER = {source: number for number, source in enumerate(Source)}


@dataclass(slots=True)
class StoredModel:
    """One name of one source."""

    stage: str = "active"
    loaded: Loaded | None = None
    """The last good version."""
    refusal: ArtifactRefused | None = None
    """What is wrong with the version that came after it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model that decides."""

    source: Source
    loaded: Loaded


class Listener(Protocol):
    """Observer of a store, for metrics: it is called with what happens to models."""

    def taken(self, source: Source, name: str, loaded: Loaded) -> None:
        """A version passed its checks."""
        ...

    def refused(self, source: Source, name: str, refusal: ArtifactRefused) -> None:
        """A version failed a check, and did not before."""
        ...

    def published(self, serving: Collection[tuple[str, str, str]]) -> None:
        """Which models serve anybody now: (name, policy, digest)."""
        ...


class Store:
    """All models that a process holds. Written by one thread; `find` may be called by any."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._entries: dict[tuple[Source, str], StoredModel] = {}
        self._serving: dict[tuple[str, str, str], Served] = {}

    def find(self, policy: str, model: str, mode: str) -> Served | None:
        """The model of that name that decides for a policy in a mode; None without one, or if it is another policy's."""
        return self._serving.get((model, policy, mode))

    def entry(self, source: Source, name: str) -> StoredModel | None:
        """What is known of one name of one source."""
        return self._entries.get((source, name))

    def entries(self) -> Iterator[tuple[Source, str, StoredModel, tuple[str, ...]]]:
        """Every artifact with the modes it serves, by name, the strongest source first."""
        for source, name in sorted(self._entries, key=lambda key: (key[1], _ORDER[key[0]])):
            modes = tuple(mode for (model, _, mode), by in self._serving.items() if (model, by.source) == (name, source))
            yield source, name, self._entries[source, name], modes

    def set_stage(self, name: str, stage: str) -> None:
        """The stage of a LearnedModel counts at once, also for the last good version of one that was refused."""
        entry = self._entries.setdefault((Source.LEARNED, name), StoredModel())
        if entry.stage != stage:
            entry.stage = stage
            self._publish()

    def take(self, source: Source, name: str, loaded: Loaded) -> None:
        """A version that passed its checks serves from now on, as far as its stage goes."""
        entry = self._entries.setdefault((source, name), StoredModel())
        entry.loaded, entry.refusal = loaded, None
        fields = {"model": name, "source": str(source), "stage": entry.stage, "policy": loaded.policy, "sha256": loaded.digest}
        # what is shipped is no news: it is there in every process
        _log.log(logging.DEBUG if source is Source.SHIPPED else logging.INFO, "model loaded", extra={"fields": fields})
        if self._listener is not None:
            self._listener.taken(source, name, loaded)
        self._publish()

    def refuse(self, source: Source, name: str, refusal: ArtifactRefused) -> None:
        """A version failed a check: what served before goes on. The same refusal again is no news."""
        entry = self._entries.setdefault((source, name), StoredModel())
        if entry.refusal is not None and str(entry.refusal) == str(refusal):
            return
        entry.refusal = refusal
        if self._listener is not None:
            self._listener.refused(source, name, refusal)
        fields = {"model": name, "source": str(source), "why": str(refusal), "last_good_kept": entry.loaded is not None}
        _log.warning("model refused", extra={"fields": fields})

    def forget(self, source: Source, name: str) -> None:
        """An artifact is gone: the next source of that name serves, if there is one."""
        entry = self._entries.pop((source, name), None)
        if entry is not None and entry.loaded is not None:
            _log.info("model removed", extra={"fields": {"model": name, "source": str(source)}})
        self._publish()

    def take_scanned(self, source: Source, scanned: Scanned) -> None:
        """A file that was read; one of a system that this process does not serve is as good as gone."""
        match scanned.found:
            case None:
                if (source, scanned.name) in self._entries:
                    self.forget(source, scanned.name)
            case ArtifactRefused() as refusal:
                self.refuse(source, scanned.name, refusal)
            case loaded:
                self.take(source, scanned.name, loaded)

    def take_shipped(self, directories: Sequence[Path], names: Collection[str]) -> None:
        """The models of these names that come with the installation, those of the first directory last. Reads files: at start."""
        for directory in reversed(directories):
            for scanned in scan(directory, {}, names)[1]:
                self.take_scanned(Source.SHIPPED, scanned)

    def _publish(self) -> None:
        """Rebuild the table of serving models: the strongest source whose stage serves the mode. Swapped whole for reading threads."""
        serving: dict[tuple[str, str, str], Served] = {}
        for source, name in sorted(self._entries, key=lambda key: _ORDER[key[0]]):
            entry = self._entries[source, name]
            if entry.loaded is None:
                continue
            served = Served(source, entry.loaded)
            for mode in MODES:
                if mode in SERVES[entry.stage]:
                    serving.setdefault((name, entry.loaded.policy, mode), served)
        self._serving = serving
        if self._listener is not None:
            self._listener.published({(name, policy, by.loaded.digest) for (name, policy, _), by in serving.items()})


class Mounted:
    """The files of a directory, fed into a store whenever they change."""

    def __init__(self, store: Store, directory: Path | None, systems: Collection[str]) -> None:
        self.directory = directory
        self._store, self._systems = store, systems
        self._stamps: dict[str, Stamp] = {}

    def look(self) -> tuple[set[str], list[Scanned]]:
        """What has changed; nothing while the volume does not answer. Reads files: not for an event loop."""
        stamps = dict(self._stamps)
        if self.directory is None:
            return set(), []
        try:
            return scan(self.directory, stamps, systems=self._systems)
        except OSError as error:
            _log.warning("models cannot be listed, what serves goes on", extra={"fields": {"why": error.strerror or type(error).__name__}})
            return set(stamps), []

    def take(self, names: set[str], changed: list[Scanned]) -> None:
        """Put into the store what `look` found."""
        for scanned in changed:
            self._stamps[scanned.name] = scanned.stamp
            self._store.take_scanned(Source.MOUNTED, scanned)
        for gone in self._stamps.keys() - names:
            del self._stamps[gone]
            self._store.forget(Source.MOUNTED, gone)

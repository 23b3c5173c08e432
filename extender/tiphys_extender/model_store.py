"""The models that an extender or a binder holds: the shared store, with this process's metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiphys_extender.serve.metrics import Metrics
from tiphys_models.api.scheduling_policy import Mode
from tiphys_models.artifacts.loaders import Loaded
from tiphys_models.artifacts.shipped import names_of
from tiphys_models.artifacts.store import Mounted, Source, Store, StoredModel
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.published_profiles import POLICY as PROFILES

_log = logging.getLogger(__name__)

PLACEMENT = frozenset({"placement"})
PLACEMENT_AND_STREAMS = frozenset({"placement", "streams"})


class ModelStore:
    """Touched on the event loop only."""

    def __init__(
        self,
        directory: Path | None,
        metrics: Metrics,
        scrape_window_s: int,
        shipped: Sequence[Path] = (),
        systems: Collection[str] = PLACEMENT,
    ) -> None:
        self.systems = systems
        self.store = Store(self)
        self._metrics = metrics
        self._scrape_window_s = scrape_window_s
        self._mounted = Mounted(self.store, directory, systems)
        self._informed: set[tuple[str, str, str]] = set()
        self.profiles_published: Callable[[Mapping[str, FloatArray]], None] = _nobody
        """Told what other clusters have learned of functions, whenever models change."""
        self._profiles = ""
        self.store.take_shipped(shipped, [name for system in systems for name in names_of(system)])

    def policy(self, name: str, model: str, mode: Mode) -> PlacementPolicy | None:
        """The policy with the weights that serve this mode now; None without them, or if they are another policy's."""
        found = self.store.find(name, model, mode)
        return found.loaded.value if found is not None else None

    async def rescan(self) -> None:
        """Read what has changed in the directory, in a thread; swap on the loop."""
        if self._mounted.directory is None:
            return
        self._mounted.take(*await asyncio.to_thread(self._mounted.look))

    def rescan_now(self) -> None:
        """Scan the mounted directory without an event loop: at start."""
        self._mounted.take(*self._mounted.look())

    def taken(self, source: Source, name: str, loaded: Loaded) -> None:
        """Warns of a model that was not trained for this scrape window; implements `Listener.taken`."""
        windows_s = _trained_windows_s(loaded)
        if source is not Source.SHIPPED and windows_s is not None and self._scrape_window_s not in windows_s:
            fields = {"model": name, "window_s": self._scrape_window_s, "trained_s": windows_s}
            _log.warning("model was not trained for this scrape window", extra={"fields": fields})

    def refused(self, source: Source, name: str, refusal: ArtifactRefused) -> None:
        """Counts the refusal by its reason; implements `Listener.refused`."""
        self._metrics.model_failures[refusal.reason].inc()

    def published(self, serving: Collection[tuple[str, str, str]]) -> None:
        """Shows which models serve now, as a metric; implements `Listener.published`."""
        informed = set(serving)
        for gone in self._informed - informed:
            self._metrics.model_info.remove(*gone)
        for labels in informed:
            self._metrics.model_info.labels(*labels).set(1)
        self._informed = informed
        self.publish_profiles()

    def publish_profiles(self) -> None:
        """Tell of the profiles of the LearnedModel that serves Active policies, if they are others than before; none are there without."""
        found = self.store.find(PROFILES, PROFILES, "Active")
        digest = found.loaded.digest if found is not None else ""
        if digest != self._profiles:
            self._profiles = digest
            self.profiles_published(found.loaded.value.profiles if found is not None else {})

    def describe(self) -> list[dict[str, Any]]:
        """Every artifact with its state, for people and the operator."""
        return [self._describe(*found) for found in self.store.entries()]

    def _describe(self, source: Source, name: str, entry: StoredModel, modes: tuple[str, ...]) -> dict[str, Any]:
        windows_s = _trained_windows_s(entry.loaded) if entry.loaded else []
        return {
            "name": name,
            "source": str(source),
            "stage": entry.stage,
            "serves": bool(modes),
            "modes": list(modes),
            "policy": entry.loaded.policy if entry.loaded else "",
            "sha256": entry.loaded.digest if entry.loaded else "",
            "windowMatches": windows_s is None or self._scrape_window_s in windows_s,
            "refused": entry.refusal.reason if entry.refusal else "",
            "message": str(entry.refusal) if entry.refusal else "",
        }


def _nobody(profiles: Mapping[str, FloatArray]) -> None:
    """The default of `profiles_published`: a store that stands alone."""


def _trained_windows_s(loaded: Loaded) -> list[int] | None:
    """Rate windows that a model was trained for; None for one that reads no rates."""
    return loaded.value.network.card.scrape_windows_s if isinstance(loaded.value, FaaSRank) else None

"""Models by name from three sources, swapped while answers go on. A refused artifact leaves the last good one in place.

A name may stand in all sources: a LearnedModel wins over a mounted file, and that over what is shipped, for the modes that its stage
serves. So a new version can be shadowed under the name that decides, and deleting it goes back to what was there before.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from tiphys_extender.metrics import Metrics
from tiphys_extender.model_files import Scanned, Stamp, check_policy, scan
from tiphys_models.api.learned_model import SERVES
from tiphys_models.api.scheduling_policy import Mode
from tiphys_models.artifacts.score_network import ScoreNetwork
from tiphys_models.artifacts.shipped import SHIPPED
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.policies.protocol import PlacementPolicy
from tiphys_models.policies.registry import PolicyName, make_policy

_log = logging.getLogger(__name__)


class Source(StrEnum):
    """Where models come from, the strongest first."""

    LEARNED = "LearnedModel"
    MOUNTED = "mounted"
    SHIPPED = "shipped"


@dataclass(slots=True)
class _Entry:
    """One name of one source."""

    stage: str = "active"
    network: ScoreNetwork | None = None
    policy: PlacementPolicy | None = None
    refusal: ArtifactRefused | None = None


class ModelStore:
    """All models that the process holds. Touched on the event loop only."""

    def __init__(self, directory: Path | None, metrics: Metrics, scrape_window_s: int, shipped: Path | None = None) -> None:
        self._directory = directory
        self._metrics = metrics
        self._scrape_window_s = scrape_window_s
        self._stamps: dict[str, Stamp] = {}
        self._entries: dict[tuple[Source, str], _Entry] = {}
        self._serving: dict[tuple[str, str, str], tuple[Source, PlacementPolicy]] = {}
        self._informed: set[tuple[str, str, str]] = set()
        if shipped is not None:
            # planners' and selectors' weights lie beside them, and are none of an extender's business
            for scanned in scan(shipped, {}, SHIPPED)[1]:
                self._take_file(Source.SHIPPED, scanned)

    def policy(self, name: PolicyName, model: str, mode: Mode) -> PlacementPolicy | None:
        """The policy with the weights that serve this mode now; None without them, or if they are another policy's."""
        found = self._serving.get((model, name, mode))
        return found[1] if found is not None else None

    async def rescan(self) -> None:
        """Read what has changed in the directory, in a thread; swap on the loop."""
        if self._directory is None:
            return
        names, changed = await asyncio.to_thread(scan, self._directory, dict(self._stamps))
        for scanned in changed:
            self._stamps[scanned.name] = scanned.stamp
            self._take_file(Source.MOUNTED, scanned)
        for gone in self._stamps.keys() - names:
            del self._stamps[gone]
            self.forget(Source.MOUNTED, gone)

    def rescan_now(self) -> None:
        """The same without a loop: at start."""
        if self._directory is None:
            return
        for scanned in scan(self._directory, {})[1]:
            self._stamps[scanned.name] = scanned.stamp
            self._take_file(Source.MOUNTED, scanned)

    def set_stage(self, name: str, stage: str) -> None:
        """Of a LearnedModel: counts at once, also for the last good version of one that was refused."""
        entry = self._entries.setdefault((Source.LEARNED, name), _Entry())
        if entry.stage != stage:
            entry.stage = stage
            self._publish()

    def take(self, source: Source, name: str, network: ScoreNetwork) -> None:
        """It passed its checks: it serves from now on, as far as its stage goes."""
        try:
            check_policy(network, name)
        except ArtifactRefused as refusal:
            self.refuse(source, name, refusal)
            return
        entry = self._entries.setdefault((source, name), _Entry())
        entry.network, entry.refusal = network, None
        entry.policy = make_policy(PolicyName(network.card.policy), network)
        card = network.card
        fields = {"model": name, "source": str(source), "stage": entry.stage, "policy": card.policy, "sha256": card.sha256}
        # what is shipped is no news: it is there in every process
        _log.log(logging.DEBUG if source is Source.SHIPPED else logging.INFO, "model loaded", extra={"fields": fields})
        if source is not Source.SHIPPED and self._scrape_window_s not in card.scrape_windows_s:
            _log.warning(
                "model was not trained for this scrape window",
                extra={"fields": {"model": name, "window_s": self._scrape_window_s, "trained_s": card.scrape_windows_s}},
            )
        self._publish()

    def refuse(self, source: Source, name: str, refusal: ArtifactRefused) -> None:
        """It failed a check: what served before goes on. The same refusal again is no news."""
        entry = self._entries.setdefault((source, name), _Entry())
        if entry.refusal is not None and str(entry.refusal) == str(refusal):
            return
        entry.refusal = refusal
        self._metrics.model_failures[refusal.reason].inc()
        fields = {"model": name, "source": str(source), "why": str(refusal), "last_good_kept": entry.network is not None}
        _log.warning("model refused", extra={"fields": fields})

    def forget(self, source: Source, name: str) -> None:
        """It is gone: the next source of that name serves, if there is one."""
        entry = self._entries.pop((source, name), None)
        if entry is not None and entry.network is not None:
            _log.info("model removed", extra={"fields": {"model": name, "source": str(source)}})
        self._publish()

    def describe(self) -> list[dict[str, Any]]:
        """Every artifact with its state, for people and the operator."""
        order = list(Source)
        keys = sorted(self._entries, key=lambda key: (key[1], order.index(key[0])))
        return [self._describe(source, name, self._entries[source, name]) for source, name in keys]

    def _describe(self, source: Source, name: str, entry: _Entry) -> dict[str, Any]:
        card = entry.network.card if entry.network else None
        modes = [mode for (model, _, mode), (by, _) in self._serving.items() if (model, by) == (name, source)]
        return {
            "name": name,
            "source": str(source),
            "stage": entry.stage,
            "serves": bool(modes),
            "modes": modes,
            "policy": card.policy if card else "",
            "sha256": card.sha256 if card else "",
            "windowMatches": card is not None and self._scrape_window_s in card.scrape_windows_s,
            "refused": entry.refusal.reason if entry.refusal else "",
            "message": str(entry.refusal) if entry.refusal else "",
        }

    def _take_file(self, source: Source, scanned: Scanned) -> None:
        if isinstance(scanned.found, ArtifactRefused):
            self.refuse(source, scanned.name, scanned.found)
        else:
            self.take(source, scanned.name, scanned.found)

    def _publish(self) -> None:
        """Who serves what: the strongest source whose stage serves the mode."""
        serving: dict[tuple[str, str, str], tuple[Source, PlacementPolicy]] = {}
        informed = set()
        order = list(Source)
        for source, name in sorted(self._entries, key=lambda key: order.index(key[0])):
            entry = self._entries[source, name]
            if entry.network is None or entry.policy is None:
                continue
            card = entry.network.card
            for mode in (mode for mode in get_args(Mode) if mode in SERVES[entry.stage]):
                if (name, card.policy, mode) not in serving:
                    serving[name, card.policy, mode] = (source, entry.policy)
                    informed.add((name, card.policy, card.sha256))
        for gone in self._informed - informed:
            self._metrics.model_info.remove(*gone)
        for labels in informed:
            self._metrics.model_info.labels(*labels).set(1)
        self._serving, self._informed = serving, informed

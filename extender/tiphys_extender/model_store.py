"""Models in a directory: found, checked, swapped while answers go on. A refused artifact leaves the last good one in place."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_extender.metrics import Metrics
from tiphys_models.artifacts.score_network import ScoreNetwork, load_network
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.policies.protocol import PlacementPolicy
from tiphys_models.policies.registry import PolicyName, is_learned, make_policy

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that serves."""

    network: ScoreNetwork
    policy: PlacementPolicy

    @property
    def policy_name(self) -> str:
        """Registry name of the policy it is for."""
        return self.network.card.policy


@dataclass(frozen=True, slots=True)
class _Scanned:
    name: str
    stamp: _Stamp
    network: ScoreNetwork | None
    refusal: ArtifactRefused | None


class ModelStore:
    """All models of a directory, by name."""

    def __init__(self, directory: Path | None, metrics: Metrics, scrape_window_s: int) -> None:
        self._directory = directory
        self._metrics = metrics
        self._scrape_window_s = scrape_window_s
        self._stamps: dict[str, _Stamp] = {}
        self._models: dict[str, LoadedModel] = {}
        self._refusals: dict[str, ArtifactRefused] = {}

    def policy(self, name: PolicyName, model: str) -> PlacementPolicy | None:
        """The policy with the weights loaded now; None without them, or if they are another policy's."""
        loaded = self._models.get(model)
        return loaded.policy if loaded is not None and loaded.policy_name == name else None

    async def rescan(self) -> None:
        """Read what has changed, in a thread; swap on the loop."""
        if self._directory is None:
            return
        names, changed = await asyncio.to_thread(_scan, self._directory, dict(self._stamps))
        for scanned in changed:
            self._take(scanned)
        for gone in self._stamps.keys() - names:
            self._forget(gone)

    def rescan_now(self) -> None:
        """The same without a loop: at start."""
        if self._directory is None:
            return
        _, changed = _scan(self._directory, {})
        for scanned in changed:
            self._take(scanned)

    def describe(self) -> list[dict[str, Any]]:
        """Every artifact with its state, for people and the operator."""
        return [self._describe(name) for name in sorted(self._stamps)]

    def _describe(self, name: str) -> dict[str, Any]:
        loaded, refusal = self._models.get(name), self._refusals.get(name)
        return {
            "name": name,
            "serves": loaded is not None,
            "policy": loaded.policy_name if loaded else "",
            "sha256": loaded.network.card.sha256 if loaded else "",
            "windowMatches": loaded is not None and self._scrape_window_s in loaded.network.card.scrape_windows_s,
            "refused": refusal.reason if refusal else "",
            "message": str(refusal) if refusal else "",
        }

    def _take(self, scanned: _Scanned) -> None:
        self._stamps[scanned.name] = scanned.stamp
        if scanned.network is None:
            refusal = scanned.refusal or ArtifactRefused("Missing", scanned.name)
            self._refusals[scanned.name] = refusal
            self._metrics.model_failures[refusal.reason].inc()
            kept = scanned.name in self._models
            _log.warning("model refused", extra={"fields": {"model": scanned.name, "why": str(refusal), "last_good_kept": kept}})
            return
        self._refusals.pop(scanned.name, None)
        self._uninform(scanned.name)
        card = scanned.network.card
        self._models[scanned.name] = LoadedModel(scanned.network, make_policy(PolicyName(card.policy), scanned.network))
        self._metrics.model_info.labels(card.name, card.policy, card.sha256).set(1)
        _log.info("model loaded", extra={"fields": {"model": card.name, "policy": card.policy, "sha256": card.sha256}})
        if self._scrape_window_s not in card.scrape_windows_s:
            _log.warning(
                "model was not trained for this scrape window",
                extra={"fields": {"model": card.name, "window_s": self._scrape_window_s, "trained_s": card.scrape_windows_s}},
            )

    def _forget(self, name: str) -> None:
        del self._stamps[name]
        self._refusals.pop(name, None)
        self._uninform(name)
        if self._models.pop(name, None) is not None:
            _log.info("model removed", extra={"fields": {"model": name}})

    def _uninform(self, name: str) -> None:
        if (before := self._models.get(name)) is not None:
            card = before.network.card
            self._metrics.model_info.remove(card.name, card.policy, card.sha256)


def _scan(directory: Path, stamps: dict[str, _Stamp]) -> tuple[set[str], list[_Scanned]]:
    cards = sorted(directory.glob("*.json"))
    names, changed = set(), []
    for card in cards:
        names.add(card.stem)
        stamp = _stamp(card)
        if stamps.get(card.stem) != stamp:
            changed.append(_load(card, stamp))
    return names, changed


def _load(card: Path, stamp: _Stamp) -> _Scanned:
    try:
        network = load_network(card)
        if network.card.name != card.stem:
            raise ArtifactRefused("CardInvalid", f"{card.name} calls itself {network.card.name!r}: file and card must have one name")
        if network.card.policy not in set(PolicyName) or not is_learned(PolicyName(network.card.policy)):
            raise ArtifactRefused("UnknownPolicy", f"{card.name} is for policy {network.card.policy!r}, which takes no model")
    except ArtifactRefused as refusal:
        return _Scanned(card.stem, stamp, None, refusal)
    return _Scanned(card.stem, stamp, network, None)


def _stamp(card: Path) -> _Stamp:
    """What changes when either file is written or, as a ConfigMap does it, its symlink moves on."""
    parts = []
    for path in (card, card.with_suffix(".safetensors")):
        try:
            info = path.stat()
            parts.append((info.st_mtime_ns, info.st_size, info.st_ino))
        except OSError:
            parts.append((0, 0, 0))
    return tuple(parts)

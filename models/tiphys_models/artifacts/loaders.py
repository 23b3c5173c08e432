"""The one table of everything that decides with weights: policy -> the system it decides in, and what loads it.

Modules are named and imported only when one of their artifacts is loaded: an extender must never import planners, nor an operator
what it does not run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tiphys_models.artifacts.card import Card, System, read_card
from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.base.errors import ArtifactRefused

_log = logging.getLogger(__name__)

GROUP = "tiphys.loaders"
"""Entry point group of other distributions: name of a policy -> a `Loader`. Ours cannot be replaced."""
REASONS = frozenset({
    "Missing", "ForbiddenFormat", "TooLarge", "CardInvalid", "DigestMismatch", "WeightsUnreadable", "SchemaMismatch", "ShapeMismatch",
    "TooMuchWork", "NotFinite", "UnknownPolicy", "PolicyMismatch",
})  # fmt: skip
"""Why an artifact may be refused: conditions and metrics name them."""
Load = Callable[[Parts], Any]
"""Bytes of an artifact -> what decides with them; ArtifactRefused says why they must not serve. Never unpickles."""


@dataclass(frozen=True, slots=True)
class Loader:
    """What loads the artifacts of one policy."""

    system: System
    load: Load | str
    """A function, or `MODULE` whose function `load` it is."""

    def __call__(self, parts: Parts) -> Any:
        """Loads an artifact, with the signature of `Load`."""
        if not isinstance(self.load, str):
            return self.load(parts)
        return import_module(f"tiphys_models.{self.load}").load(parts)


@dataclass(frozen=True, slots=True)
class Loaded:
    """An artifact that passed every check."""

    system: System
    card: Card
    value: Any
    """What decides with it: a PlacementPolicy; a Planner or a SelectorFactory; a PricedAgent, which `.at(attainment)` makes a ScalingAgent
    of; a BindingPolicy or a binding Agent."""

    @property
    def policy(self) -> str:
        """Registry name of what decides with it."""
        return self.card.policy

    @property
    def digest(self) -> str:
        """The weights, by which decisions are recorded."""
        return self.card.sha256


LOADERS: dict[str, Loader] = {
    "faasrank": Loader("placement", "placement.faasrank"),
    "estimator-network": Loader("placement", "placement.estimator_network"),
    "estimator": Loader("placement", "placement.published_profiles"),
    "lstm-aco": Loader("selection", "selection.planners.lstm_aco"),
    "decision-nn": Loader("selection", "selection.planners.decision_nn"),
    "semi-direct": Loader("selection", "selection.planners.semi_direct"),
    "graf": Loader("selection", "selection.planners.graf"),
    "gobi": Loader("selection", "selection.planners.gobi"),
    "gosh": Loader("selection", "selection.planners.gosh"),
    "metanet": Loader("selection", "selection.selectors.metanet"),
    "metanet-paper": Loader("selection", "selection.selectors.metanet_paper"),
    "dqn": Loader("selection", "selection.selectors.dqn"),
    "combined": Loader("scaling", "scaling.learned"),
    "dqn-vertical": Loader("scaling", "scaling.learned"),
    "dqn-vertical-published": Loader("scaling", "scaling.learned"),
    "dqn-horizontal": Loader("scaling", "scaling.learned"),
    "dqn-horizontal-3": Loader("scaling", "scaling.learned"),
    "q-table": Loader("scaling", "scaling.learned"),
    "score": Loader("streams", "streams.learned"),
    "aset": Loader("streams", "streams.agent"),
    "aset-wide": Loader("streams", "streams.agent"),
    "aset-paper": Loader("streams", "streams.paper"),
}


@lru_cache(maxsize=1)
def _foreign() -> dict[str, Loader]:
    """Loaders of other distributions; what cannot be imported is as if it were not installed."""
    found: dict[str, Loader] = {}
    for point in entry_points(group=GROUP):
        try:
            loader = point.load()
        except Exception as error:  # noqa: BLE001 - somebody else's package must not keep ours from starting
            fields = {"name": point.name, "error": type(error).__name__}
            _log.warning("a loader of another package cannot be used", extra={"fields": fields})
            continue
        if isinstance(loader, Loader):
            found[point.name] = loader
    return found


def loader_of(policy: str) -> Loader | None:
    """What loads the artifacts of a policy; None if it takes none."""
    return LOADERS.get(policy) or _foreign().get(policy)


def load(parts: Parts) -> Loaded:
    """What these bytes are, checked; ArtifactRefused says why they must not serve."""
    card = read_card(parts, Card)
    loader = loader_of(card.policy)
    if loader is None:
        raise ArtifactRefused("UnknownPolicy", f"{parts.origin} is for policy {card.policy!r}, which takes no model")
    if card.system not in (None, loader.system):
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: {card.policy} decides in {loader.system}, the card says {card.system}")
    return Loaded(loader.system, card, loader(parts) if card.policy in LOADERS else _checked(loader, parts))


def _checked(loader: Loader, parts: Parts) -> Any:
    """What somebody else's loader makes of an artifact; whatever it raises is a refusal in one of our words, which metrics count."""
    try:
        return loader(parts)
    except ArtifactRefused as refusal:
        if refusal.reason in REASONS:
            raise
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: {refusal}") from refusal
    except Exception as error:
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: its loader failed: {type(error).__name__}: {error}") from error


def load_file(card_path: Path) -> Loaded:
    """The artifact loaded from the card `NAME.json` and the `NAME.safetensors` beside it."""
    return load(read_parts(card_path))

"""Agents: every window one of several policies binds all streams that arrive, chosen from what a binder knows.

Loads are those of the whole system. Streams that came or are bound, and what became of queries, are those of one binder's access site
where it serves, and those of all sites where it was trained (ADR 62). What is seen is pooled over offers by layer and accuracy band,
so that any number of offers fits. The network estimates by how many points each action would raise success over the base action's;
another action is taken above a margin only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.base.network import Network, network_of, shapes_of
from tiphys_models.streams.kernels import WEIGHTS
from tiphys_models.streams.learned import ScorePolicy, TablePolicy
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.rules import STATIC, StaticPolicy

SCHEMA = "binding-pooled/4"
WINDOW_S = 5.0
LAYERS = ("antenna", "co", "dc", "cloud")
ACCURACY_BANDS = (25.0, 40.0)
DELAY_BINS_MS = (50.0, 100.0, 200.0)
RATE_BINS_QPS = (5.0, 10.0, 20.0)
HOT = 0.85
ACTIONS = (*STATIC, "score", "table")
GROUPS = len(LAYERS) * (len(ACCURACY_BANDS) + 1)
BINS = (len(DELAY_BINS_MS) + 1) * (len(RATE_BINS_QPS) + 1)
FEATURES = 3 * GROUPS + 2 * BINS + 3 + len(ACTIONS)
HIDDEN = 64
MOST_APPLICATIONS = 256
"""Rows of an agent's table."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a binder knows at the start of a window."""

    load_qps: FloatArray
    """Load of every offer, the same as in the binder's view."""
    incoming: FloatArray
    """[BINS]: queries a second that were asked for in the last window, bound or not."""
    active: FloatArray
    """[BINS]: queries a second of the streams that are bound now."""
    success: float
    """Share of the last window's queries that succeeded; `reject` and `failure` are the other two shares."""
    reject: float
    failure: float
    action: int
    """Action of the last window, by its index in ACTIONS."""


def bin_of(max_delay_ms: FloatArray | float, rate_qps: FloatArray | float) -> IntArray:
    """Which of the delay x rate bins."""
    delay = np.searchsorted(DELAY_BINS_MS, max_delay_ms, side="right")
    return np.asarray(delay * (len(RATE_BINS_QPS) + 1) + np.searchsorted(RATE_BINS_QPS, rate_qps, side="right"), np.int64)


class Pooling:
    """Groups of these offers; made once."""

    def __init__(self, offers: Offers) -> None:
        self.capacity_qps = offers.columns.capacity_qps
        bands = np.searchsorted(ACCURACY_BANDS, offers.columns.accuracy, side="right")
        layers = np.array([LAYERS.index(o.site.layer) for o in offers.all])
        self._members = [np.flatnonzero((layers == i) & (bands == j)) for i in range(len(LAYERS)) for j in range(len(ACCURACY_BANDS) + 1)]

    def features(self, seen: Seen) -> FloatArray:
        """FEATURES numbers of order one: every group's mean and highest use and hot share; bins over all capacity; the last window."""
        use = seen.load_qps / self.capacity_qps
        pooled = np.zeros((GROUPS, 3))
        for group, members in enumerate(self._members):
            if len(members):
                inside = use[members]
                pooled[group] = inside.mean(), inside.max(), (inside > HOT).mean()
        total = self.capacity_qps.sum()
        last = np.zeros(len(ACTIONS))
        last[seen.action] = 1.0
        bins = 10.0 * np.concatenate([seen.incoming, seen.active]) / total
        return np.concatenate([pooled.ravel(), bins, [seen.success, seen.reject, seen.failure], last])


class AgentCard(Card):
    """What the card says besides."""

    base: int = Field(ge=0, lt=len(ACTIONS), description="Index of the best fixed action.")
    margin: float = Field(ge=0, description="Points of success that a switch must promise.")
    applications: list[str] = Field(max_length=MOST_APPLICATIONS, description="Rows of the table.")


@dataclass(frozen=True, slots=True)
class Agent:
    """Deterministic, and without memory."""

    name: str
    policies: tuple[BindingPolicy, ...]
    """Policies in the order of ACTIONS."""
    network: Network
    mean: FloatArray
    scale: FloatArray
    base: int
    margin: float

    def advantages(self, features: FloatArray) -> FloatArray:
        """Estimated advantage of every action over the base action, in points."""
        found = self.network(np.clip((features - self.mean) / self.scale, -5.0, 5.0)[None])[0]
        return np.asarray(found - found[self.base])

    def choose(self, features: FloatArray) -> int:
        """Index of the action for the coming window."""
        advantages = self.advantages(features)
        best = int(np.argmax(advantages))
        return best if advantages[best] > self.margin else self.base


def action_policies(weights: FloatArray, table: Sequence[int], applications: Sequence[str]) -> tuple[BindingPolicy, ...]:
    """Static policies, the score, and the table, whose entries are indices into these."""
    simple: tuple[BindingPolicy, ...] = (*(StaticPolicy(name) for name in STATIC), ScorePolicy(np.asarray(weights, np.float64)))
    return (*simple, TablePolicy({a: simple[k] for a, k in zip(applications, table, strict=True)}, simple[-1]))


def shapes(applications: int) -> dict[str, tuple[int, ...]]:
    """What an agent's arrays must look like."""
    network = shapes_of((FEATURES, HIDDEN, HIDDEN, len(ACTIONS)))
    return {**network, "mean": (FEATURES,), "scale": (FEATURES,), "weights": (WEIGHTS,), "table": (applications,)}


def agent_of(name: str, card: AgentCard, arrays: Mapping[str, FloatArray]) -> Agent:
    """The agent made of arrays that were checked."""
    policies = action_policies(arrays["weights"], [int(k) for k in arrays["table"]], card.applications)
    return Agent(name, policies, network_of(dict(arrays)), arrays["mean"], arrays["scale"], card.base, card.margin)


def load(parts: Parts) -> Agent:
    """The agent made of a checked artifact."""
    card = read_card(parts, AgentCard)
    found = check_tensors(parts, SCHEMA, shapes(len(card.applications)))
    if not np.isin(found["table"], np.arange(len(STATIC) + 1)).all() or (found["scale"] <= 0).any():
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: the table names no policy, or a scale is not positive")
    return agent_of(parts.origin.removesuffix(".json"), card, found.arrays)


def load_agent(card_path: Path) -> Agent:
    """The agent made of a card with its weights beside it."""
    return load(read_parts(card_path))

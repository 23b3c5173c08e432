"""Choosers of an action for every window: agents through what they see, chance, blind schedules, and the look-ahead oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.streams import kernels
from tiphys_models.streams.agent import BINS, Agent, Pooling, Seen, bin_of
from tiphys_models.streams.learned import ScorePolicy
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.paper import PaperAgent, WindowHistory, window_features
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action, StreamEpisode, WindowMoment
from tiphys_models.streams.sim.kernel import LIVE, NEXT_START, Streams
from tiphys_models.streams.sim.scenario import WINDOW_S

ORACLE_WINDOWS = 16
"""How long the oracle follows the base action after the one that it tries."""


def table_action(kinds: Sequence[int], weights: FloatArray, name: str = "table") -> Action:
    """A policy for every application, by the kinds of `kernels`, which are the indices in `agent.ACTIONS`."""
    return Action(name, np.array(kinds, np.int64), weights)


def agent_actions(weights: FloatArray, table: Sequence[int]) -> tuple[Action, ...]:
    """Actions in the order of `agent.ACTIONS`."""
    return (*STATIC_ACTIONS, Action.score(weights), table_action(table, weights))


def actions_of(agent: Agent, applications: Sequence[str]) -> tuple[Action, ...]:
    """Actions of a loaded agent, in the order of `agent.ACTIONS`."""
    score, table = agent.policies[-2], agent.policies[-1]
    if not isinstance(score, ScorePolicy):
        raise TypeError(f"{score.name} is no score")
    by_application = getattr(table, "by_application", {})
    kinds = [int(getattr(by_application.get(a), "kind", kernels.SCORE)) for a in applications]
    return agent_actions(score.weights, kinds)


@dataclass(slots=True)
class SimulatedBinder:
    """Makes a binder's view of the simulation: never the future, never what becomes of queries that are not answered yet."""

    offers: Offers
    streams: Streams
    pooling: Pooling = field(init=False)
    _bins: IntArray = field(init=False)
    _before: int = 0

    def __post_init__(self) -> None:
        self.pooling = Pooling(self.offers)
        self._bins = bin_of(self.streams.max_delay_ms, self.streams.rate_qps)

    def features(self, moment: WindowMoment, action: int) -> FloatArray:
        """Call once a window."""
        state, s = moment.episode.state, self.streams
        now = int(state.at[NEXT_START])
        came = slice(self._before, now)
        self._before = now
        live = state.live[: state.at[LIVE]]
        bound = live[state.offer[live] >= 0]
        incoming: FloatArray = np.bincount(self._bins[came], s.rate_qps[came], BINS) / WINDOW_S
        active = np.bincount(self._bins[bound], s.rate_qps[bound], BINS).astype(np.float64)
        shares = moment.last.shares() if moment.last else (1.0, 0.0, 0.0)
        return self.pooling.features(Seen(state.load_qps, incoming, active, *shares, action))


@dataclass(slots=True)
class Switching:
    """An agent in an episode."""

    agent: Agent
    actions: tuple[Action, ...]
    watcher: SimulatedBinder
    _last: int | None = None

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        last = self.agent.base if self._last is None else self._last
        self._last = self.agent.choose(self.watcher.features(moment, last))
        return self.actions[self._last]


@dataclass(slots=True)
class RandomActions:
    """Any action, anew in every window."""

    actions: tuple[Action, ...]
    rng: np.random.Generator

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        return self.actions[int(self.rng.integers(len(self.actions)))]


@dataclass(frozen=True, slots=True)
class Alternating:
    """Two actions in turn, whatever is seen."""

    first: Action
    second: Action
    turns: int = 1
    """Windows of the first to one of the second."""

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        return self.first if moment.index % (self.turns + 1) < self.turns else self.second


@dataclass(frozen=True, slots=True)
class ActionOracle:
    """Clairvoyant: each action now, then the base action for ORACLE_WINDOWS windows, with the true future. A figure, no bound."""

    actions: tuple[Action, ...]
    base: Action
    windows: int = ORACLE_WINDOWS

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        gained = [ahead(moment.episode, action, self.base, self.windows) for action in self.actions]
        return self.actions[int(np.argmax(gained))]


def ahead(episode: StreamEpisode, action: Action, base: Action, windows: int) -> float:
    """Queries answered in time within this and the next windows, if `action` binds now and `base` after."""
    twin = episode.clone()
    answered = 0.0
    for window in range(windows + 1):
        if twin.over:
            break
        answered += float(twin.window(action if window == 0 else base).tally[:, 0].sum())
    return answered


@dataclass(slots=True)
class PaperWatcher:
    """What the paper's agent sees of a window that has ended."""

    offers: Offers
    streams: Streams
    _before: int = 0

    def features(self, moment: WindowMoment) -> FloatArray:
        """Call once a window."""
        episode, s = moment.episode, self.streams
        now = int(episode.state.at[NEXT_START])
        came = slice(self._before, now)
        self._before = now
        incoming = np.bincount(bin_of(s.max_delay_ms[came], s.rate_qps[came]), s.rate_qps[came], BINS) / WINDOW_S
        served, responses, offered = episode.work.T / WINDOW_S
        return window_features(self.offers, served, responses, offered, incoming)


@dataclass(slots=True)
class PaperSwitching:
    """The paper's agent in an episode."""

    agent: PaperAgent
    watcher: PaperWatcher
    _history: WindowHistory = field(default_factory=WindowHistory)

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        return STATIC_ACTIONS[self.agent.choose(self._history.push(self.watcher.features(moment)))]

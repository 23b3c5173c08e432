"""One workload played window by window: an action binds the streams of a window, and the queries of all live streams are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.streams import kernels
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.rules import STATIC
from tiphys_models.streams.sim.interpreted import bind_until_by
from tiphys_models.streams.sim.kernel import NOT_YET, TIE_NAME, TIE_RANDOM, TIE_SPARE, EdgeCloud, Options, State, Streams, bind_until
from tiphys_models.streams.sim.queues import DROPPED, LATE, REJECT, SUCCESS, events, forget_ended, tick
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO, HORIZON_S, WINDOW_S, StreamScenario
from tiphys_models.streams.sim.workloads import APPLICATIONS, NAMES

_TIES = {"spare": TIE_SPARE, "name": TIE_NAME, "random": TIE_RANDOM}
_NO_WEIGHTS = np.zeros(kernels.WEIGHTS)


@dataclass(frozen=True)
class Action:
    """A policy for every application: mostly the same one."""

    name: str
    kinds: IntArray
    weights: FloatArray
    """Weights of the learned score."""
    policy: BindingPolicy | None = None
    """Another package's, for all applications: it is played by Python and not by compiled code."""

    def __post_init__(self) -> None:
        """Compiled code reads both without looking at their lengths; InvalidInput says what is wrong."""
        for what, found, wanted in (("kinds", self.kinds, len(APPLICATIONS)), ("weights", self.weights, kernels.WEIGHTS)):
            if np.shape(found) != (wanted,):
                raise InvalidInput(f"action {self.name!r}: {what} must be {wanted} numbers, and have the shape {np.shape(found)}")
        if unknown := [int(kind) for kind in self.kinds if not 0 <= kind <= kernels.SCORE]:
            raise InvalidInput(f"action {self.name!r}: kinds are numbers from 0 to {kernels.SCORE}, and one is {unknown[0]}")

    @classmethod
    def same(cls, name: str, kind: int, weights: FloatArray = _NO_WEIGHTS) -> Action:
        """The action that uses one policy for all applications."""
        return cls(name, np.full(len(APPLICATIONS), kind, np.int64), weights)

    @classmethod
    def foreign(cls, policy: BindingPolicy) -> Action:
        """A policy that no compiler knows."""
        return cls(policy.name, np.zeros(len(APPLICATIONS), np.int64), _NO_WEIGHTS, policy)

    @classmethod
    def score(cls, weights: FloatArray, name: str = "score") -> Action:
        """The learned score with these weights."""
        return cls.same(name, kernels.SCORE, weights)


STATIC_ACTIONS: tuple[Action, ...] = tuple(Action.same(name, kind) for name, kind in STATIC.items())


@dataclass(frozen=True, slots=True)
class QueryFractions:
    """What was counted: fractions of queries, which add up to one."""

    tally: FloatArray
    """[applications, 4] queries; see `queues`."""

    def shares(self, application: int | None = None) -> tuple[float, float, float]:
        """Success, reject, failure; zeros where nothing was asked."""
        counted = self.tally.sum(axis=0) if application is None else self.tally[application]
        total = max(float(counted.sum()), 1e-9)
        return float(counted[SUCCESS]) / total, float(counted[REJECT]) / total, float(counted[LATE] + counted[DROPPED]) / total

    @property
    def success(self) -> float:
        """Share of all queries; 1 where there were none."""
        return self.shares()[0] if self.tally.sum() > 0 else 1.0


class StreamEpisode:
    """See the module. Cheap to clone, which is how the future is looked at."""

    def __init__(
        self, world: EdgeCloud, streams: Streams, scenario: StreamScenario = DEFAULT_SCENARIO, horizon_s: float = HORIZON_S
    ) -> None:
        self.world, self.streams, self.scenario, self.horizon_s = world, streams, scenario, horizon_s
        access, offers = world.network_ms.shape
        count = len(streams.start_s)
        self.state = State(
            at=np.zeros(3, np.int64),
            refresh_s=np.zeros(1),
            load_qps=np.zeros(offers),
            seen_qps=np.zeros((access, offers)),
            offer=np.full(count, NOT_YET, np.int64),
            added_qps=np.zeros(count),
            live=np.zeros(count, np.int64),
            backlog=np.zeros(offers),
            free_s=np.zeros(int(world.columns.replicas.sum())),
        )
        self.now_s = 0.0
        self.tally = np.zeros((len(APPLICATIONS), 4))
        self.work = np.zeros((offers, 3))
        """Work of every offer in the last window: stream-seconds, responses, and load offered."""
        self._rng = np.random.default_rng(int(streams.draw[0] >> np.uint64(1)) if count else 0)

    @property
    def over(self) -> bool:
        """Whether the horizon is reached."""
        return self.now_s >= self.horizon_s

    def clone(self) -> StreamEpisode:
        """The same present with the same future. Query by query, the clone's network delays are others."""
        twin = object.__new__(StreamEpisode)
        twin.__dict__.update(self.__dict__)
        twin.state = State._make(a.copy() for a in self.state)
        twin.tally, twin.work = self.tally.copy(), self.work.copy()
        if self.scenario.events:
            twin._rng = np.random.default_rng(int(self.now_s))
        return twin

    def window(self, action: Action, length_s: float = WINDOW_S) -> QueryFractions:
        """The next window under this action."""
        s, t1 = self.scenario, min(self.now_s + length_s, self.horizon_s)
        options = Options(action.kinds, action.weights, s.ceiling, s.view_s, s.own_at_once, _TIES[s.tie])
        bind = bind_until if action.policy is None else bind_until_by(action.policy, NAMES)
        bind(self.world, self.streams, self.state, t1, options)
        tally = np.zeros_like(self.tally)
        self.work = np.zeros_like(self.work)
        if s.events:
            events(self.world, self.streams, self.state, self.now_s, t1, s.poisson_frames, self._rng, tally, self.work)
        else:
            at = self.now_s
            while at < t1 - 1e-9:
                tick(self.world, self.streams, self.state, at, min(at + s.tick_s, t1), s.variability, tally, self.work)
                at += s.tick_s
        forget_ended(self.streams, self.state, t1)
        if self.now_s >= s.warm_up_s:
            self.tally += tally
        self.now_s = t1
        return QueryFractions(tally)


@dataclass(frozen=True, slots=True)
class WindowMoment:
    """The start of a window. `episode` is for bounds only: it holds the future."""

    index: int
    last: QueryFractions | None
    episode: StreamEpisode


class ActionChooser(Protocol):
    """Whoever names an action for every window."""

    def choose(self, moment: WindowMoment) -> Action:
        """The action for all streams that arrive in the window."""
        ...


@dataclass(frozen=True, slots=True)
class FixedAction:
    """Always the same action."""

    action: Action

    def choose(self, moment: WindowMoment) -> Action:
        """The action for this window; implements `ActionChooser.choose`."""
        return self.action


@dataclass(frozen=True, slots=True)
class StreamRecords:
    """Records of a finished episode."""

    outcome: QueryFractions
    chosen: tuple[str, ...]
    success_by_window: tuple[float, ...] = field(default=())


def play(
    world: EdgeCloud, streams: Streams, chooser: ActionChooser, scenario: StreamScenario = DEFAULT_SCENARIO, horizon_s: float = HORIZON_S
) -> StreamRecords:
    """Play an episode from an empty system to the horizon."""
    episode = StreamEpisode(world, streams, scenario, horizon_s)
    chosen: list[str] = []
    success: list[float] = []
    last: QueryFractions | None = None
    while not episode.over:
        action = chooser.choose(WindowMoment(len(chosen), last, episode))
        last = episode.window(action)
        chosen.append(action.name)
        success.append(last.success)
    return StreamRecords(QueryFractions(episode.tally), tuple(chosen), tuple(success))


def mean_success(records: Sequence[StreamRecords]) -> float:
    """Mean success over episodes."""
    return float(np.mean([r.outcome.success for r in records]))

"""Agents against services: after every window an agent sees readings of the kind that a cluster gives; between two, sizes may be raised.

Whoever simulates, requests count by the window they arrived in; dropped ones and those still waiting at the end count as late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.scaling.bounds import allowed
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.protocol import Answers, ScalingAgent
from tiphys_models.scaling.rule_plus import control_of
from tiphys_models.scaling.seen import HISTORY, RECENT, ServiceHistory
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.learning import Learning, latenesses
from tiphys_models.scaling.sim.load import Load
from tiphys_models.scaling.sim.plant import Plant, PlantReadings
from tiphys_models.scaling.sim.records import WindowRecords
from tiphys_models.scaling.sim.scenario import START_CPU_M, ServiceScenario
from tiphys_models.scaling.sim.sizes import Sizes
from tiphys_models.scaling.sim.watching import Watching

_START_MARGIN = 1.25
"""Everybody begins with enough: how a cell is entered is not what is compared."""


class ServiceEpisode:
    """Services in step, one agent's answer a window; with a control, what it learns and raises, too."""

    def __init__(
        self, loads: Sequence[Load], scenario: ServiceScenario, plant: Plant | None = None, control: Control | None = None
    ) -> None:
        self.loads, self.scenario = loads, scenario
        self.plant = plant or FluidServices(loads, scenario)
        n = len(loads)
        self.played: IntArray = np.array([load.windows(scenario) for load in loads], np.int64)
        self.windows, self.window = int(self.played.max()), 0
        true_ms = np.array([load.service.cpu_ms for load in loads])
        first = np.array([load.shape.rps[0] for load in loads]) * true_ms * _START_MARGIN
        replicas: IntArray = np.clip(np.ceil(first / START_CPU_M), 1, scenario.max_replicas).astype(np.int64)
        self.learning = Learning(true_ms, scenario, control)
        self.sizes = Sizes(loads, scenario, self.plant, self.learning, replicas, np.full(n, START_CPU_M))
        looks = control is not None and control.looks
        self._watching = Watching(scenario, self.sizes, self.plant, self.learning) if looks else None
        self._rates = np.full((n, HISTORY + self.windows), np.nan)
        self._late = np.full((n, RECENT + self.windows), np.nan)
        self._used = np.full((n, RECENT + self.windows), np.nan)
        self._newest: list[PlantReadings] = []
        self._begun: list[tuple[IntArray, FloatArray]] = []
        self._paid: list[tuple[FloatArray, FloatArray]] = []
        self._p90_s: list[FloatArray] = []

    @property
    def over(self) -> bool:
        """Whether every service's load has ended."""
        return self.window >= self.windows

    @property
    def replicas(self) -> IntArray:
        """Pods that are there or start, by service."""
        return self.sizes.replicas

    @property
    def cpu_m(self) -> FloatArray:
        """Limit of each service's pods, in force."""
        return self.sizes.cpu_m

    @property
    def cpu_ms(self) -> FloatArray:
        """What agents are told that a request takes."""
        return self.learning.cpu_ms

    def start_with(self, replicas: IntArray, cpu_m: FloatArray) -> None:
        """Other sizes than enough, before the first window."""
        self.sizes.start_with(replicas, cpu_m)

    def advance(self) -> PlantReadings:
        """One window, with the sizes that are in force, those under way, and what looks raise."""
        self._begun.append((self.replicas.copy(), self.cpu_m.copy()))
        self._pass_window()
        r, w = self.plant.read(), self.window
        self._rates[:, HISTORY + w] = r.arrived / self.scenario.window_s
        self._late[:, RECENT + w] = latenesses(r)
        self._used[:, RECENT + w] = r.used_cpu_m if self.scenario.cpu_read else np.nan
        self._p90_s.append(r.p90_s)
        self._newest.append(r)
        del self._newest[: -1 - self.scenario.lag_windows]
        self.window += 1
        self._learn()
        return r

    def _pass_window(self) -> None:
        """Time passes up to the next moment at which something may change."""
        s, done = self.scenario, 0
        paid_pods, paid_m = np.zeros(len(self.loads)), np.zeros(len(self.loads))
        while done < s.periods:
            began = self.window * s.periods + done
            until = self._watching.next_look(done) if self._watching is not None else s.periods
            passing = min(until - done, self.sizes.next_change(began) - began)
            self.plant.pass_time(self.replicas, self.cpu_m, passing)
            paid_pods += self.replicas * (passing / s.periods)
            paid_m += self.replicas * self.cpu_m * (passing / s.periods)
            done += passing
            self.sizes.carry_out(self.window * s.periods + done)
            if self._watching is not None and done == until and done < s.periods:
                self._watching.look(self.window, done)
        self._paid.append((paid_pods, paid_m))

    def _learn(self) -> None:
        """The newest window that lag lets be seen, beside the rates that its sizes were decided by."""
        lag = self.scenario.lag_windows
        visible = self.window - 1 - lag
        if visible >= 0:
            decided = HISTORY + visible - lag
            before = self._rates[:, decided - 2 : decided]
            now_s = self.window * self.scenario.window_s
            self.learning.after(self._newest[0], self._late[:, RECENT + visible], before, now_s)

    def seen(self) -> ServiceHistory | None:
        """After a window; None while lag hides every reading."""
        s, w = self.scenario, self.window - self.scenario.lag_windows
        if w < 1:
            return None
        n, newest = len(self.loads), self._newest[0]
        return ServiceHistory(
            window_s=s.window_s,
            rates=self._rates[:, w : HISTORY + w],
            late=self._late[:, w : RECENT + w],
            used_cpu_m=self._used[:, w : RECENT + w],
            p90_s=newest.p90_s,
            in_flight=newest.in_flight,
            throttled=newest.throttled,
            replicas=self.sizes.ordered_replicas,
            ready=self.sizes.ready(self.window * s.periods),
            cpu_m=self.sizes.ordered_m,
            cpu_ms=self.cpu_ms,
            target_s=np.full(n, s.target_s),
            min_replicas=np.ones(n, np.int64),
            max_replicas=np.full(n, s.max_replicas),
            min_cpu_m=np.full(n, s.min_cpu_m),
            max_cpu_m=np.full(n, s.max_cpu_m),
            step_cpu_m=np.full(n, s.step_cpu_m),
            movable=np.ones((n, 4), np.bool_) if self._watching is None else self._watching.movable(self.window),
            headroom=self.learning.headroom,
            stands=self.learning.stands,
        )

    def apply(self, seen: ServiceHistory, answers: Answers) -> Answers:
        """Sizes for the coming window: what of the answer is allowed."""
        kept = allowed(seen, answers)
        self.sizes.order(kept.replicas, kept.cpu_m, self.window * self.scenario.periods)
        return kept

    def records(self) -> WindowRecords:
        """Records of the windows that were played; what still waits gets until its time-out, with the last sizes."""
        begun, p90_s = list(self._begun), list(self._p90_s)
        for _ in range(int(np.ceil(self.scenario.time_out_s / self.scenario.window_s)) + 1):
            self.plant.advance(self.replicas, self.cpu_m)
        out, w = self.plant.outcome(), self.windows
        return WindowRecords(
            out.arrived[:, :w], out.late[:, :w], out.never[:, :w], np.array([r for r, _ in begun]).T, np.array([c for _, c in begun]).T,
            np.array([pods for pods, _ in self._paid]).T, np.array([paid for _, paid in self._paid]).T,
            self._rates[:, HISTORY:], np.array(p90_s).T, self.played, self.scenario.window_s, self.scenario.percentile,
        )  # fmt: skip


def play(
    agent: ScalingAgent,
    loads: Sequence[Load],
    scenario: ServiceScenario,
    plant: Callable[[Sequence[Load], ServiceScenario], Plant] = FluidServices,
) -> WindowRecords:
    """A whole run of an agent against these loads."""
    return finish(agent, ServiceEpisode(loads, scenario, plant(loads, scenario), control_of(agent)))


def finish(agent: ScalingAgent, episode: ServiceEpisode) -> WindowRecords:
    """Play an episode that has been prepared."""
    while not episode.over:
        episode.advance()
        seen = episode.seen()
        if seen is not None:
            episode.apply(seen, agent.answer(seen))
    return episode.records()

"""Agents against services: after every window an agent sees readings of the kind that a cluster gives, and sizes change at once.

Whoever simulates, requests count by the window they arrived in; dropped ones and those still waiting at the end count as late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.bounds import allowed
from tiphys_models.scaling.protocol import Answers, ScalingAgent
from tiphys_models.scaling.reward import POD_PRICE
from tiphys_models.scaling.seen import HISTORY, RECENT, ServiceHistory
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.load import STARTS, Load
from tiphys_models.scaling.sim.plant import Plant, PlantReadings
from tiphys_models.scaling.sim.scenario import ServiceScenario

START_CPU_M = 500.0
_START_MARGIN = 1.25
"""Everybody begins with enough: how a cell is entered is not what is compared."""


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """What happened, [services, windows]."""

    arrived: FloatArray
    late: FloatArray
    never: FloatArray
    replicas: IntArray
    cpu_m: FloatArray
    rps: FloatArray
    p90_s: FloatArray
    """90th percentile of latency, in seconds, of the requests completed in each window."""
    played: IntArray
    """[services]: windows of each; later ones are empty."""
    window_s: float
    percentile: float

    def kept(self) -> BoolArray:
        """Windows within the objective; one without arrivals is."""
        return np.asarray(self.late <= (1 - self.percentile) * self.arrived + 1e-9)

    def _over(self, values: FloatArray) -> FloatArray:
        there = np.arange(values.shape[1]) < self.played[:, None]
        return np.asarray((values * there).sum(axis=1))

    def attained(self) -> FloatArray:
        """Share of windows that kept the objective, by service."""
        return self._over(self.kept().astype(np.float64)) / self.played

    def requests_attained(self) -> FloatArray:
        """Share of requests in time."""
        return 1 - self._over(self.late) / np.maximum(self._over(self.arrived), 1)

    def never_served(self) -> FloatArray:
        """Share of requests that were never served, by service."""
        return self._over(self.never) / np.maximum(self._over(self.arrived), 1)

    def cpu_hours(self) -> FloatArray:
        """Limits of all pods, starting ones included."""
        return self._over(self.replicas * self.cpu_m) * self.window_s / 3.6e6

    def replica_hours(self) -> FloatArray:
        """Pods, starting ones included."""
        return self._over(self.replicas.astype(np.float64)) * self.window_s / 3600

    def cost(self) -> FloatArray:
        """CPU-hours, pods at their price."""
        return self.cpu_hours() + POD_PRICE * self.replica_hours()

    def switches(self) -> FloatArray:
        """Windows that begin with another size or number."""
        changed = (np.diff(self.replicas, axis=1) != 0) | (np.diff(self.cpu_m, axis=1) != 0)
        there = np.arange(1, self.replicas.shape[1]) < self.played[:, None]
        return np.asarray((changed & there).sum(axis=1).astype(np.float64))


class ServiceEpisode:
    """Services in step, one agent's answer a window."""

    def __init__(self, loads: Sequence[Load], scenario: ServiceScenario, plant: Plant | None = None) -> None:
        self.loads, self.scenario = loads, scenario
        self.plant = plant or FluidServices(loads, scenario)
        n = len(loads)
        self.played: IntArray = np.array([load.windows(scenario) for load in loads], np.int64)
        self.windows, self.window = int(self.played.max()), 0
        self.cpu_ms = np.array([load.service.cpu_ms for load in loads])
        first = np.array([load.shape.rps[0] for load in loads]) * self.cpu_ms * _START_MARGIN
        self.replicas: IntArray = np.clip(np.ceil(first / START_CPU_M), 1, scenario.max_replicas).astype(np.int64)
        self.cpu_m: FloatArray = np.full(n, START_CPU_M)
        self._ready_s = np.zeros((n, scenario.max_replicas))
        self._started = np.zeros(n, np.int64)
        self._rates = np.full((n, HISTORY + self.windows), np.nan)
        self._late = np.full((n, RECENT + self.windows), np.nan)
        self._used = np.full((n, RECENT + self.windows), np.nan)
        self._newest: list[PlantReadings] = []
        self._sizes: list[tuple[IntArray, FloatArray]] = []
        self._p90_s: list[FloatArray] = []

    @property
    def over(self) -> bool:
        """Whether every service's load has ended."""
        return self.window >= self.windows

    def start_with(self, replicas: IntArray, cpu_m: FloatArray) -> None:
        """Other sizes than enough, before the first window."""
        self.replicas, self.cpu_m = replicas, cpu_m

    def advance(self) -> PlantReadings:
        """One window with the present sizes."""
        self._sizes.append((self.replicas.copy(), self.cpu_m.copy()))
        r = self.plant.advance(self.replicas, self.cpu_m)
        w, seconds = self.window, self.scenario.window_s
        self._rates[:, HISTORY + w] = r.arrived / seconds
        with np.errstate(invalid="ignore"):
            share = np.where(r.completed > 0, r.late / np.maximum(r.completed, 1e-9), np.where(r.arrived + r.in_flight > 0, 1.0, np.nan))
        self._late[:, RECENT + w] = share
        self._used[:, RECENT + w] = r.used_cpu_m
        self._p90_s.append(r.p90_s)
        self._newest.append(r)
        del self._newest[: -1 - self.scenario.lag_windows]
        self.window += 1
        return r

    def seen(self) -> ServiceHistory | None:
        """After a window; None while lag hides every reading."""
        s, w = self.scenario, self.window - self.scenario.lag_windows
        if w < 1:
            return None
        n, newest = len(self.loads), self._newest[0]
        ready = (self._ready_s <= self.window * s.window_s) & (np.arange(s.max_replicas) < self.replicas[:, None])
        return ServiceHistory(
            window_s=s.window_s,
            rates=self._rates[:, w : HISTORY + w],
            late=self._late[:, w : RECENT + w],
            used_cpu_m=self._used[:, w : RECENT + w],
            p90_s=newest.p90_s,
            in_flight=newest.in_flight,
            throttled=newest.throttled,
            replicas=self.replicas,
            ready=ready.sum(axis=1),
            cpu_m=self.cpu_m,
            cpu_ms=self.cpu_ms,
            target_s=np.full(n, s.target_s),
            min_replicas=np.ones(n, np.int64),
            max_replicas=np.full(n, s.max_replicas),
            min_cpu_m=np.full(n, s.min_cpu_m),
            max_cpu_m=np.full(n, s.max_cpu_m),
            step_cpu_m=np.full(n, s.step_cpu_m),
            movable=np.ones((n, 4), np.bool_),
        )

    def apply(self, seen: ServiceHistory, answers: Answers) -> Answers:
        """Sizes for the coming window: what of the answer is allowed."""
        kept = allowed(seen, answers)
        low, high = self.scenario.start_s
        for i in np.flatnonzero(kept.replicas != self.replicas).tolist():
            for pod in range(self.replicas[i], kept.replicas[i]):
                wait = low + (high - low) * self.loads[i].starts[self._started[i] % STARTS]
                self._ready_s[i, pod] = self.window * self.scenario.window_s + wait
                self._started[i] += 1
                self.plant.start_pod(i, pod, float(self._ready_s[i, pod]))
            if kept.replicas[i] < self.replicas[i]:
                self.plant.stop_pods(i, int(kept.replicas[i]))
        self.replicas, self.cpu_m = kept.replicas, kept.cpu_m
        return kept

    def records(self) -> WindowRecords:
        """Records of the windows that were played; what still waits gets until its time-out, with the last sizes."""
        sizes, p90_s = list(self._sizes), list(self._p90_s)
        for _ in range(int(np.ceil(self.scenario.time_out_s / self.scenario.window_s)) + 1):
            self.plant.advance(self.replicas, self.cpu_m)
        out, w = self.plant.outcome(), self.windows
        return WindowRecords(
            out.arrived[:, :w], out.late[:, :w], out.never[:, :w], np.array([r for r, _ in sizes]).T, np.array([c for _, c in sizes]).T,
            self._rates[:, HISTORY:], np.array(p90_s).T, self.played, self.scenario.window_s, self.scenario.percentile,
        )  # fmt: skip


def play(
    agent: ScalingAgent,
    loads: Sequence[Load],
    scenario: ServiceScenario,
    plant: Callable[[Sequence[Load], ServiceScenario], Plant] = FluidServices,
) -> WindowRecords:
    """A whole run of an agent against these loads."""
    return finish(agent, ServiceEpisode(loads, scenario, plant(loads, scenario)))


def finish(agent: ScalingAgent, episode: ServiceEpisode) -> WindowRecords:
    """Play an episode that has been prepared."""
    while not episode.over:
        episode.advance()
        seen = episode.seen()
        if seen is not None:
            episode.apply(seen, agent.answer(seen))
    return episode.records()

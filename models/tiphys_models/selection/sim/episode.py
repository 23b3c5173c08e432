"""A whole run: who plans each interval, what it cost; plans are kept, since bounds, selectors and rows ask for the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from tiphys_models.base.errors import TiphysError
from tiphys_models.selection.cloud.bill import scheduling_s, serverless_usd
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.score import JOULES_PER_KWH, Outcome
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import FORECASTERS
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO, CloudScenario
from tiphys_models.selection.sim.workloads import TaskWorkload

_TAIL = 500
"""Intervals after the last arrival in which everything has to end; only a planner that never places comes near."""


class Planners:
    """Candidates with their kept plans. Seeds are state digests, so a plan belongs to (planner, state, tasks) alone."""

    def __init__(self, planners: Mapping[str, Planner]) -> None:
        self._planners = dict(planners)
        self._kept: dict[tuple[str, int], Plan] = {}
        self.calls = self.repaired = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates, in the order given."""
        return tuple(self._planners)

    def plan(self, name: str, state: CloudState, tasks: Tasks, digest: int) -> Plan:
        """A feasible plan of this candidate, kept for whoever asks again."""
        key = (name, digest)
        if key not in self._kept:
            made = self.fresh_plan(name, state, tasks, digest)
            self._kept[key] = repair(state, tasks, made)
            self.calls += 1
            self.repaired += self._kept[key] is not made
        return self._kept[key]

    def fresh_plan(self, name: str, state: CloudState, tasks: Tasks, digest: int) -> Plan:
        """The planner's own answer, not repaired, made anew."""
        return self._planners[name].assign(state, tasks, digest)


@dataclass(frozen=True, slots=True)
class IntervalMoment:
    """An interval in which somebody has to choose. `cloud` is for bounds only: it holds the truth."""

    interval: int
    state: CloudState
    tasks: Tasks
    digest: int
    present: int
    """The digest without the past."""
    cloud: Cloud
    planners: Planners
    thinking_s: list[float] = field(default_factory=list)
    """A chooser notes here what choosing itself costs, beyond the chosen plan."""

    def plan(self, name: str) -> Plan:
        """What a candidate would do now. Histories hardly ever meet again, present states often do: most plans are kept by those."""
        forecasts = name in FORECASTERS and len(self.state.running)
        return self.planners.plan(name, self.state, self.tasks, self.digest if forecasts else self.present)


class CandidateChooser(Protocol):
    """Whoever names a candidate at every interval with waiting tasks: a constant, a selector, a bound."""

    def choose(self, moment: IntervalMoment) -> str:
        """A name among `moment.planners.names`."""
        ...

    def settled(self, interval: int, outcome: Outcome) -> None:
        """A decision's tasks have all ended."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCandidate:
    """Always the same candidate."""

    name: str

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        return self.name

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


@dataclass(frozen=True, slots=True)
class IntervalRecords:
    """Records of an episode: what it cost, and who chose."""

    cost_usd: float
    energy_kwh: float
    response_s: float
    sla_violation: float
    cpu_pct: float
    scheduling_s: float
    """Mean charged seconds of a call."""
    switches: int
    tasks: int
    usd: np.ndarray[tuple[int], np.dtype[np.float64]]
    """Per interval, hosts only."""
    chosen: tuple[str | None, ...]
    """Per interval; None where nothing waited."""
    ledger: dict[int, Outcome]


def run(
    workload: TaskWorkload, planners: Planners, chooser: CandidateChooser, scenario: CloudScenario = DEFAULT_SCENARIO
) -> IntervalRecords:
    """All intervals, then until every task has ended."""
    cloud = Cloud(workload, scenario)
    chosen: list[str | None] = []
    charged: list[float] = []
    while not (cloud.over and cloud.interval >= workload.intervals):
        if cloud.interval > workload.intervals + _TAIL:
            raise TiphysError(f"{len(cloud.waiting)} tasks were never placed, {_TAIL} intervals after the last arrival")
        if len(cloud.waiting):
            state, tasks = cloud.state(), cloud.tasks()
            moment = IntervalMoment(cloud.interval, state, tasks, state.digest(tasks), state.digest(tasks, past=False), cloud, planners)
            name = chooser.choose(moment)
            seconds = scheduling_s(name, len(tasks)) + sum(moment.thinking_s)
            cloud.place(moment.plan(name), seconds)
            chosen.append(name)
            charged.append(seconds)
        else:
            chosen.append(None)
        cloud.advance()
        for interval, outcome in cloud.settled():
            chooser.settled(interval, outcome)
    return _records(cloud, chosen, charged)


def _records(cloud: Cloud, chosen: list[str | None], charged: list[float]) -> IntervalRecords:
    names = [name for name in chosen if name is not None]
    responses = cloud.responses_s()
    return IntervalRecords(
        cost_usd=sum(cloud.usd) + serverless_usd(sum(charged)),
        energy_kwh=sum(cloud.joules) / JOULES_PER_KWH,
        response_s=float(responses.mean()) if len(responses) else 0.0,
        sla_violation=float(cloud.violated().mean()) if len(responses) else 0.0,
        cpu_pct=100 * sum(cloud.cpu_sum) / max(sum(cloud.active), 1),
        scheduling_s=float(np.mean(charged)) if charged else 0.0,
        switches=sum(a != b for a, b in pairwise(names)),
        tasks=len(responses),
        usd=np.array(cloud.usd, np.float64),
        chosen=tuple(chosen),
        ledger=cloud.ledger(),
    )

"""Playing one cell of the scaling study: every agent and setting on the same arrivals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tiphys_models.artifacts.files import card_of
from tiphys_models.base.arrays import BoolArray
from tiphys_models.lab.report import Row
from tiphys_models.scaling.learned import load_agent
from tiphys_models.scaling.protocol import Answers, ScalingAgent
from tiphys_models.scaling.registry import entries
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.scaling.sim.clairvoyant import clairvoyant
from tiphys_models.scaling.sim.episode import ServiceEpisode, finish, play
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.load import Load, draw_load, released
from tiphys_models.scaling.sim.noise import NOISY, make_noisy, repeated, with_noise
from tiphys_models.scaling.sim.records import WindowRecords
from tiphys_models.scaling.sim.requests import RequestServices
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO, FIBONACCI, HOTEL, SCENARIOS, START_CPU_M, ServiceScenario
from tiphys_models.scaling.sim.settling import settle
from tiphys_models.scaling.sim.shapes import HOUR_S, SHAPES, LoadShape, file_label, make_shape, read_shape, rotated
from tiphys_models.scaling.study.settings import CHOSEN, COMPARED, Setting, chosen_of, settings_of

BOUND = "clairvoyant"
KEEP = {"all": 1.0, "relaxed-95": 0.95}
JOINT = "three-services"
"""Fibonacci, geo and profile at once, a window kept if all three keep it: rows of their own, at chosen settings only."""
SETTLING = "settling"
"""The vertical agents alone, at constant rates."""
_JOINT_SHAPES = ("diurnal", "flash", "ramp")
_JOINT_AGENT = "dqn-horizontal-3"
JOINT_CARD = card_of(f"scaling-{_JOINT_AGENT}")
PER_POD = "-per-pod-queues"
"""Ends the shape of rows in which every pod has a queue of its own: the same arrivals, chosen settings only, request by request."""
PUBLISHED_VERTICAL = "dqn-vertical-published"
"""A row beside `dqn-vertical`, never served: what the published reward leads to."""
BESIDE = (PUBLISHED_VERTICAL, _JOINT_AGENT)
"""Artifacts that are played in rows of their own."""


def playable() -> tuple[str, ...]:
    """Agents of this distribution that have what they need, and the bound."""
    return (*(e.name for e in entries()), BOUND)


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape and seed under one scenario."""

    shape: str
    """A name, or the path of a file; JOINT and SETTLING are cells of their own."""
    seed: int
    agents: tuple[str, ...]
    seconds: int
    fluid: bool = False
    per_pod: bool = False
    """A queue for every pod instead of one for all."""
    scenario_name: str = DEFAULT_SCENARIO.name
    noise: str = ""
    """Ending of the noise on a file; named shapes have theirs in the name."""
    points: Literal["all", "compared", "chosen"] = "all"
    """Settings that are played: all of every agent, all of those that are compared, or the chosen ones."""
    sweep: bool = False
    """Whether HPA is played with every pod size and stabilisation."""

    @property
    def label(self) -> str:
        """Name of the cell's shape in the rows."""
        named = self.shape in (*SHAPES, *NOISY, JOINT, SETTLING)
        name = self.shape if named else file_label(Path(self.shape)) + (f"-noisy-{self.noise}" if self.noise else "")
        return name + PER_POD if self.per_pod else name

    @property
    def scenario(self) -> ServiceScenario:
        """Modelling choices under which the cell is played."""
        return replace(DEFAULT_SCENARIO, name="per-pod-queues", per_pod_queues=True) if self.per_pod else SCENARIOS[self.scenario_name]

    def load(self) -> Load:
        """The arrivals, the same for every agent."""
        return released(draw_load(self._shape(), FIBONACCI, requests=not self.fluid), self.scenario.work_after)

    def _shape(self) -> LoadShape:
        if self.shape in SHAPES:
            return make_shape(self.shape, "test", self.seed, self.seconds)
        if self.shape in NOISY:
            return make_noisy(self.shape, "test", self.seed, self.seconds)
        found = rotated(read_shape(Path(self.shape))[0], self.seed)
        return with_noise(replace(repeated(found, self.seconds), name=self.label), self.noise) if self.noise else found

    def settings(self, agent: str) -> list[Setting]:
        """Settings of an agent that the cell plays."""
        every = self.points == "all" or (self.points == "compared" and agent in COMPARED)
        return settings_of(agent, sweep=self.sweep) if every and not self.per_pod else chosen_of(agent)


def play_any(cell: Cell) -> list[Row]:
    """The rows of a cell, of three services, or of settling."""
    if cell.shape == JOINT:
        return joint(cell)
    return settling(cell.seed) if cell.shape == SETTLING else play_cell(cell)


def warm(*, fluid: bool) -> None:
    """Compile the simulator by playing one short cell."""
    play_cell(Cell("constant", 0, (), 60, fluid=fluid))


def play_cell(cell: Cell) -> list[Row]:
    """Every agent and setting; the bound knows no queues."""
    load = cell.load()
    rows = []
    for agent in cell.agents:
        if agent != BOUND:
            rows += [_row(cell, agent, name, play_one(made, load, cell.scenario, fluid=cell.fluid)) for name, made in cell.settings(agent)]
        elif not cell.per_pod:
            rows += [_row(cell, agent, name, clairvoyant(load, cell.scenario, keep)) for name, keep in KEEP.items()]
    return rows


def play_one(agent: ScalingAgent, load: Load, scenario: ServiceScenario, *, fluid: bool) -> WindowRecords:
    """An agent that never changes replicas is given as many as the highest rate takes."""
    plant = (FluidServices if fluid else RequestServices)([load], scenario)
    if agent.name != "dqn-vertical":
        return play(agent, [load], scenario, lambda loads, scenario: plant)
    episode = ServiceEpisode([load], scenario, plant)
    pods = np.ceil(load.shape.rps.max() * load.service.cpu_ms / START_CPU_M).astype(np.int64)
    episode.start_with(np.array([pods]), np.array([START_CPU_M]))
    return finish(agent, episode)


def _row(cell: Cell, agent: str, setting: str, r: WindowRecords) -> Row:
    """The row of one service, or of several together: a window is kept if all of them keep it."""
    windows, arrived = int(r.played[0]), max(float(r.arrived.sum()), 1.0)
    p90_s = r.p90_s[:, :windows].max(axis=0)
    known = p90_s[np.isfinite(p90_s)]
    kept: BoolArray = np.asarray(r.kept()[:, :windows].all(axis=0))
    hour = round(HOUR_S / r.window_s)
    later = {"slo_attained_after_first_hour": float(kept[hour:].mean())} if windows > hour else {}
    return {
        "shape": cell.label, "scenario": cell.scenario_name, "agent": agent, "setting": setting, "seed": cell.seed, "windows": windows,
        "slo_attained": float(kept.mean()), **later,
        "requests_attained": 1 - float(r.late.sum()) / arrived, "never_served": float(r.never.sum()) / arrived,
        "cost": float(r.cost().sum()), "cpu_hours": float(r.cpu_hours().sum()), "replica_hours": float(r.replica_hours().sum()),
        "p90_ms": float(1000 * np.median(known)) if len(known) else None, "switches": int(r.switches().sum()),
    }  # fmt: skip


def joint(cell: Cell, card: Path = JOINT_CARD) -> list[Row]:
    """One network for all three against agents that know one service each."""
    shapes = [make_shape(name, "test", cell.seed, cell.seconds) for name in _JOINT_SHAPES]
    loads = [draw_load(shape, service, requests=not cell.fluid) for shape, service in zip(shapes, HOTEL, strict=True)]
    made: dict[str, tuple[str, ScalingAgent]] = {"dqn-horizontal": ("27-joint-actions", load_agent(card))}
    for agent in cell.agents:
        if agent in CHOSEN and agent != "dqn-vertical":
            made[agent] = chosen_of(agent)[0]
    plant = FluidServices if cell.fluid else RequestServices
    return [_row(cell, name, setting, play(a, loads, DEFAULT_SCENARIO, plant)) for name, (setting, a) in made.items()]


def settling(seed: int) -> list[Row]:
    """`dqn-vertical` alone at constant rates, from a low and a high limit, beside the agent of the published reward."""
    rows = []
    for name in ("dqn-vertical", PUBLISHED_VERTICAL):
        path = card_of(f"scaling-{name}")
        for s in settle(load_agent(path), "test", seed) if path.exists() else ():
            row = _row(Cell("constant", seed, (), 0), name, CHOSEN[name]() if name in CHOSEN else "only", s.records)
            sizes = {"start_m": s.start_m, "settled_m": s.settled_m, "smallest_m": s.smallest_m, "kept_at_last": s.kept}
            rows.append({**row, "shape": f"constant-{s.rps:g}", **sizes})
    return rows


class _Noted:
    """An agent whose actions are kept: of a learned one by name, `kept rule` where its gate did not let it."""

    def __init__(self, agent: ScalingAgent) -> None:
        self._agent, self.name, self.actions = agent, agent.name, agent.actions
        self.taken: list[str] = []

    def answer(self, seen: ServiceHistory) -> Answers:
        """Answer of the wrapped agent; its action is noted."""
        answers = self._agent.answer(seen)
        if answers.action is not None:
            action = int(answers.action[0])
            self.taken.append(self.actions[action] if action >= 0 else "kept rule")
        return answers


def traces(cell: Cell) -> Row:
    """What the chosen settings of a cell did, window by window, in the fluid simulator."""
    load = draw_load(cell.load().shape, FIBONACCI)
    made: Row = {}
    for agent in cell.agents:
        for _, made_agent in () if agent == BOUND else chosen_of(agent):
            noted = _Noted(made_agent)
            r = play_one(noted, load, cell.scenario, fluid=True)
            made[agent] = {
                "rps": r.rps[0], "p90_s": r.p90_s[0], "replicas": r.replicas[0], "cpu_m": r.cpu_m[0], "taken": noted.taken,
            }  # fmt: skip
    return made

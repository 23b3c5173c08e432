"""Playing the cells of `tiphys bench scaling`, several processes at a time; a cell's rows depend on nothing but the cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tiphys_cli.bench.report import Row
from tiphys_cli.bench.scaling_settings import CHOSEN, chosen_of, settings_of
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.scaling.learned import load_agent
from tiphys_models.scaling.protocol import Answers, ScalingAgent
from tiphys_models.scaling.registry import entries
from tiphys_models.scaling.seen import Seen
from tiphys_models.sim.scaling.clairvoyant import clairvoyant
from tiphys_models.sim.scaling.episode import START_CPU_M, Episode, Records, finish, play
from tiphys_models.sim.scaling.fluid import FluidServices
from tiphys_models.sim.scaling.load import Load, draw_load
from tiphys_models.sim.scaling.requests import RequestServices
from tiphys_models.sim.scaling.scenario import DEFAULT_SCENARIO, FIBONACCI, HOTEL, Scenario
from tiphys_models.sim.scaling.settling import settle
from tiphys_models.sim.scaling.shapes import SHAPES, file_label, make_shape, read_shape, rotated

BOUND = "clairvoyant"
KEEP = {"all": 1.0, "relaxed-95": 0.95}
JOINT = "three-services"
"""Fibonacci, geo and profile at once, a window kept if all three keep it: rows of their own, at chosen settings only."""
_JOINT_SHAPES = ("diurnal", "flash", "ramp")
_JOINT_AGENT = "dqn-horizontal-3"
_JOINT_CARD = SHIPPED / f"scaling-{_JOINT_AGENT}.json"
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
class Job:
    """One shape and seed."""

    shape: str
    """A name, or the path of a file."""
    seed: int
    agents: tuple[str, ...]
    seconds: int
    fluid: bool = False
    per_pod: bool = False
    """A queue for every pod instead of one for all."""

    @property
    def label(self) -> str:
        """In rows."""
        name = self.shape if self.shape in (*SHAPES, JOINT) else file_label(Path(self.shape))
        return name + PER_POD if self.per_pod else name

    @property
    def scenario(self) -> Scenario:
        """The modelling choices."""
        return replace(DEFAULT_SCENARIO, name="per-pod-queues", per_pod_queues=True) if self.per_pod else DEFAULT_SCENARIO

    def load(self) -> Load:
        """The arrivals, the same for every agent."""
        if self.shape in SHAPES:
            shape = make_shape(self.shape, "test", self.seed, self.seconds)
        else:
            shape = rotated(read_shape(Path(self.shape))[0], self.seed)
        return draw_load(shape, FIBONACCI, requests=not self.fluid)


def play_all(jobs: list[Job], processes: int, tell: Callable[[str], None]) -> list[Row]:
    """In the order of the jobs; then the vertical agents alone at constant load."""
    started = time.monotonic()
    found: dict[int, list[Row]] = {}

    def told(index: int, rows: list[Row]) -> None:
        found[index] = rows
        tell(f"{len(found)}/{len(jobs)} {jobs[index].label}, seed {jobs[index].seed}: {time.monotonic() - started:.0f} s so far")

    if processes == 1:
        for index, job in enumerate(jobs):
            told(index, play_cell(job))
    else:
        play_cell(Job("constant", 0, (), 60, fluid=jobs[0].fluid))  # compiles once, before several processes would each do it
        with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(play_cell, job): index for index, job in enumerate(jobs)}
            for future in as_completed(futures):
                told(futures[future], future.result())
    rows = [row for index in range(len(jobs)) for row in found[index]]
    if "dqn-horizontal" in jobs[0].agents and _JOINT_CARD.exists():
        rows += [row for job in jobs if job.label == "constant" for row in joint(replace(job, shape=JOINT))]
        tell(f"{JOINT}: {time.monotonic() - started:.0f} s so far")
    if "dqn-vertical" in jobs[0].agents:
        rows += [row for seed in dict.fromkeys(job.seed for job in jobs) for row in settling(seed)]
    return rows


def play_cell(job: Job) -> list[Row]:
    """Every agent and setting; the bound knows no queues."""
    load = job.load()
    rows = []
    for agent in job.agents:
        if agent != BOUND:
            settings = chosen_of(agent) if job.per_pod else settings_of(agent)
            rows += [_row(job, agent, name, play_one(made, load, job.scenario, fluid=job.fluid)) for name, made in settings]
        elif not job.per_pod:
            rows += [_row(job, agent, name, clairvoyant(load, job.scenario, keep)) for name, keep in KEEP.items()]
    return rows


def play_one(agent: ScalingAgent, load: Load, scenario: Scenario, *, fluid: bool) -> Records:
    """An agent that never changes replicas is given as many as the highest rate takes."""
    plant = (FluidServices if fluid else RequestServices)([load], scenario)
    if agent.name != "dqn-vertical":
        return play(agent, [load], scenario, lambda loads, scenario: plant)
    episode = Episode([load], scenario, plant)
    pods = np.ceil(load.shape.rps.max() * load.service.cpu_ms / START_CPU_M).astype(np.int64)
    episode.start_with(np.array([pods]), np.array([START_CPU_M]))
    return finish(agent, episode)


def _row(job: Job, agent: str, setting: str, r: Records) -> Row:
    """Of one service, or of several together: a window is kept if all of them keep it."""
    windows, arrived = int(r.played[0]), max(float(r.arrived.sum()), 1.0)
    p90_s = r.p90_s[:, :windows].max(axis=0)
    known = p90_s[np.isfinite(p90_s)]
    return {
        "shape": job.label, "agent": agent, "setting": setting, "seed": job.seed, "windows": windows,
        "slo_attained": float(r.kept()[:, :windows].all(axis=0).mean()),
        "requests_attained": 1 - float(r.late.sum()) / arrived, "never_served": float(r.never.sum()) / arrived,
        "cost": float(r.cost().sum()), "cpu_hours": float(r.cpu_hours().sum()), "replica_hours": float(r.replica_hours().sum()),
        "p90_ms": float(1000 * np.median(known)) if len(known) else None, "switches": int(r.switches().sum()),
    }  # fmt: skip


def joint(job: Job, card: Path = _JOINT_CARD) -> list[Row]:
    """One network for all three against agents that know one service each."""
    shapes = [make_shape(name, "test", job.seed, job.seconds) for name in _JOINT_SHAPES]
    loads = [draw_load(shape, service, requests=not job.fluid) for shape, service in zip(shapes, HOTEL, strict=True)]
    made: dict[str, tuple[str, ScalingAgent]] = {"dqn-horizontal": ("27-joint-actions", load_agent(card))}
    for agent in job.agents:
        if agent in CHOSEN and agent != "dqn-vertical":
            made[agent] = chosen_of(agent)[0]
    plant = FluidServices if job.fluid else RequestServices
    return [_row(job, name, setting, play(a, loads, DEFAULT_SCENARIO, plant)) for name, (setting, a) in made.items()]


def settling(seed: int) -> list[Row]:
    """`dqn-vertical` alone at constant rates, from a low and a high limit, beside the agent of the published reward."""
    rows = []
    for name in ("dqn-vertical", PUBLISHED_VERTICAL):
        path = SHIPPED / f"scaling-{name}.json"
        for s in settle(load_agent(path), "test", seed) if path.exists() else ():
            row = _row(Job("constant", seed, (), 0), name, CHOSEN[name]() if name in CHOSEN else "only", s.records)
            sizes = {"start_m": s.start_m, "settled_m": s.settled_m, "smallest_m": s.smallest_m, "kept_at_last": s.kept}
            rows.append({**row, "shape": f"constant-{s.rps:g}", **sizes})
    return rows


class _Noted:
    """An agent whose actions are kept: of a learned one by name, `kept rule` where its gate did not let it."""

    def __init__(self, agent: ScalingAgent) -> None:
        self._agent, self.name, self.actions = agent, agent.name, agent.actions
        self.taken: list[str] = []

    def answer(self, seen: Seen) -> Answers:
        """The agent's."""
        answers = self._agent.answer(seen)
        if answers.action is not None:
            action = int(answers.action[0])
            self.taken.append(self.actions[action] if action >= 0 else "kept rule")
        return answers


def traces(job: Job) -> Row:
    """What the chosen settings of a cell did, window by window, in the fluid simulator."""
    load = draw_load(job.load().shape, FIBONACCI)
    made: Row = {}
    for agent in job.agents:
        for _, made_agent in () if agent == BOUND else chosen_of(agent):
            noted = _Noted(made_agent)
            r = play_one(noted, load, job.scenario, fluid=True)
            made[agent] = {
                "rps": r.rps[0], "p90_s": r.p90_s[0], "replicas": r.replicas[0], "cpu_m": r.cpu_m[0], "taken": noted.taken,
            }  # fmt: skip
    return made

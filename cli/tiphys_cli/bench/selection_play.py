"""Playing the cells of `tiphys bench selection`, several processes at a time; each cell's results depend on nothing but the cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_cli.bench.report import Row
from tiphys_models.cloud.score import DEFAULT, DIVISORS, Divisors, Weights
from tiphys_models.planners.registry import candidates, make_planners
from tiphys_models.selectors.registry import make_selector
from tiphys_models.sim.cloud.choosers import Oracle, RandomSwitching, Selected, Twin
from tiphys_models.sim.cloud.episode import Chooser, Fixed, Planners, Records, run
from tiphys_models.sim.cloud.maxmin import columns, max_min
from tiphys_models.sim.cloud.scenario import Scenario
from tiphys_models.sim.cloud.workloads import WORKLOADS, Workload, make_workload, read_workload
from tiphys_models.sim.workloads import stream

TRACED = ("metanet", "twin", "oracle")
"""Whose choices the picture over time shows: the first that was played."""
_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Job:
    """One workload, scenario and seed."""

    workload: str
    """A name, or the path of a CSV file."""
    scenario: Scenario
    seed: int
    intervals: int
    weights: dict[str, Weights]
    fixed: tuple[str, ...]
    choosers: dict[str, tuple[str, ...]]
    """Who is played under which of `weights`."""
    search: bool = False
    """Only look for the max-min oracle: rows are what it is compared with, and in no table."""
    trace: bool = False

    @property
    def label(self) -> str:
        """The workload's name in rows."""
        return self.workload if self.workload in WORKLOADS else Path(self.workload).stem

    def tasks(self) -> Workload:
        """What is played."""
        if self.workload not in WORKLOADS:
            return read_workload(Path(self.workload))[0]
        s = self.scenario
        return make_workload(self.workload, "test", self.seed, self.intervals, mix=s.mix, within_interval=s.within_interval)


@dataclass(slots=True)
class Played:
    """What came of it."""

    job: Job
    rows: list[Row] = field(default_factory=list)
    trace: Row = field(default_factory=dict)
    max_min: list[Row] | None = None
    calls: int = 0
    repaired: int = 0


def play_all(jobs: list[Job], processes: int, tell: Callable[[str], None]) -> list[Played]:
    """Results in the order of the jobs. One process: here, without starting any."""
    started = time.monotonic()
    if processes == 1:
        return [_told(play(job), index, len(jobs), started, tell) for index, job in enumerate(jobs)]
    _compile()  # once, before several processes would each do it
    results: dict[int, Played] = {}
    with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(play, job): index for index, job in enumerate(jobs)}
        for future in as_completed(futures):
            results[futures[future]] = _told(future.result(), len(results), len(jobs), started, tell)
    return [results[index] for index in range(len(jobs))]


def _told(played: Played, index: int, count: int, started: float, tell: Callable[[str], None]) -> Played:
    job = played.job
    tell(f"{index + 1}/{count} {job.label}, {job.scenario.name}, seed {job.seed}: {time.monotonic() - started:.0f} s so far")
    return played


def _compile() -> None:
    run(make_workload("stationary", "validation", 0, 3), Planners(make_planners(["first-fit"])), Oracle(DEFAULT, DIVISORS["stationary"]))


def play(job: Job) -> Played:
    """All policies of one cell."""
    workload = job.tasks()
    divisors = DIVISORS.get(job.workload, DIVISORS["stationary"])
    names = job.fixed or candidates()
    planners = Planners(make_planners(names))
    result = Played(job)
    records: dict[str, Records] = {}
    for name in job.fixed:
        records[name] = run(workload, planners, Fixed(name), job.scenario)
        result.rows += [_row(job, workload, divisors, key, name, records[name]) for key in job.weights]
    for key, choosers in job.choosers.items():
        for name in choosers:
            found = run(workload, planners, _chooser(name, names, job.weights[key], divisors, job), job.scenario)
            result.rows.append(_row(job, workload, divisors, key, name, found))
            if key == "default":
                records[name] = found
    if job.trace:
        result.trace = _trace(records)
    if job.search:
        result.max_min, result.rows = _search(workload, planners, records, divisors), []
    result.calls, result.repaired = planners.calls, planners.repaired
    return result


def _chooser(name: str, names: tuple[str, ...], weights: Weights, divisors: Divisors, job: Job) -> Chooser:
    rng = stream("selection", "chooser", name, job.workload, job.seed)
    if name == "random":
        return RandomSwitching(rng)
    if name == "oracle":
        return Oracle(weights, divisors)
    if name == "twin":
        return Twin(weights, divisors, rng)
    return Selected(make_selector(name, names, weights, divisors, int(rng.integers(2**31))), weights, divisors)


def _row(job: Job, workload: Workload, divisors: Divisors, key: str, policy: str, r: Records) -> Row:
    j = divisors.j(job.weights[key], r.cost_usd, r.energy_kwh, r.response_s, r.sla_violation, workload.intervals)
    return {
        "policy": policy, "workload": job.label, "scenario": job.scenario.name, "weights": key, "seed": job.seed,
        "intervals": workload.intervals, "tasks": r.tasks, "cost_usd": r.cost_usd, "energy_kwh": r.energy_kwh, "response_s": r.response_s,
        "sla_violation": r.sla_violation, "j": j, "cpu_pct": r.cpu_pct, "scheduling_s": r.scheduling_s, "switches": r.switches,
    }  # fmt: skip


def _trace(records: dict[str, Records]) -> Row:
    """Host cost per interval (moving mean) of everybody, and the choices of the one selector that the picture is about."""
    shown = next((name for name in TRACED if name in records), None)
    if shown is None:
        return {}
    kernel = np.ones(_WINDOW) / _WINDOW
    smooth: dict[str, Any] = {name: np.round(np.convolve(r.usd, kernel, "same"), 8).tolist() for name, r in records.items()}
    return {"policy": shown, "chosen": list(records[shown].chosen), "usd_per_interval": smooth}


def _search(workload: Workload, planners: Planners, records: dict[str, Records], divisors: Divisors) -> list[Row]:
    best = np.min([columns(r) for r in records.values()], axis=0)
    keys = ("cost_usd", "energy_kwh", "response_s", "sla_violation")
    return [
        {
            "weights": dict(zip(keys, (p.weights.cost, p.weights.energy, p.weights.response, p.weights.violation), strict=True)),
            "gains_pct": dict(zip(keys, p.gains_pct, strict=True)),
            "intervals": workload.intervals,
        }
        for p in max_min(workload, planners, best, divisors)
    ]

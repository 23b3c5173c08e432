"""Playing one cell of the selection study: every policy on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_models.base.random import stream
from tiphys_models.lab.report import Row
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Divisors, Weights
from tiphys_models.selection.planners.registry import candidates, make_planners
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_models.selection.sim.choosers import CandidateOracle, RandomCandidates, Selected, Twin
from tiphys_models.selection.sim.episode import CandidateChooser, FixedCandidate, IntervalRecords, Planners, run
from tiphys_models.selection.sim.maxmin import columns, max_min
from tiphys_models.selection.sim.scenario import CloudScenario
from tiphys_models.selection.sim.workloads import WORKLOADS, TaskWorkload, make_workload, read_workload

TRACED = ("metanet", "twin", "oracle")
"""Whose choices the picture over time shows: the first that was played."""
_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload, scenario and seed."""

    workload: str
    """A name, or the path of a CSV file."""
    scenario: CloudScenario
    seed: int
    intervals: int
    weights: dict[str, Weights]
    fixed: tuple[str, ...]
    choosers: dict[str, tuple[str, ...]]
    """Policies that are played under each of `weights`."""
    search: bool = False
    """Only look for the max-min oracle: rows are what it is compared with, and in no table."""
    trace: bool = False

    @property
    def label(self) -> str:
        """The workload's name in rows."""
        return self.workload if self.workload in WORKLOADS else Path(self.workload).stem

    def tasks(self) -> TaskWorkload:
        """The workload of the cell."""
        if self.workload not in WORKLOADS:
            return read_workload(Path(self.workload))[0]
        s = self.scenario
        return make_workload(self.workload, "test", self.seed, self.intervals, mix=s.mix, within_interval=s.within_interval)


@dataclass(slots=True)
class Played:
    """What came of it."""

    cell: Cell
    rows: list[Row] = field(default_factory=list)
    trace: Row = field(default_factory=dict)
    max_min: list[Row] | None = None
    calls: int = 0
    repaired: int = 0


def warm() -> None:
    """Compile the simulated cloud by playing a short episode."""
    run(
        make_workload("stationary", "validation", 0, 3),
        Planners(make_planners(["first-fit"])),
        CandidateOracle(DEFAULT, DIVISORS["stationary"]),
    )


def play(cell: Cell) -> Played:
    """All policies of one cell."""
    workload = cell.tasks()
    divisors = DIVISORS.get(cell.workload, DIVISORS["stationary"])
    names = cell.fixed or candidates()
    planners = Planners(make_planners(names))
    result = Played(cell)
    records: dict[str, IntervalRecords] = {}
    for name in cell.fixed:
        records[name] = run(workload, planners, FixedCandidate(name), cell.scenario)
        result.rows += [_row(cell, workload, divisors, key, name, records[name]) for key in cell.weights]
    for key, choosers in cell.choosers.items():
        for name in choosers:
            found = run(workload, planners, _chooser(name, names, cell.weights[key], divisors, cell), cell.scenario)
            result.rows.append(_row(cell, workload, divisors, key, name, found))
            if key == "default":
                records[name] = found
    if cell.trace:
        result.trace = _trace(records)
    if cell.search:
        result.max_min, result.rows = _search(workload, planners, records, divisors), []
    result.calls, result.repaired = planners.calls, planners.repaired
    return result


def _chooser(name: str, names: tuple[str, ...], weights: Weights, divisors: Divisors, cell: Cell) -> CandidateChooser:
    rng = stream("selection", "chooser", name, cell.workload, cell.seed)
    if name == "random":
        return RandomCandidates(rng)
    if name == "oracle":
        return CandidateOracle(weights, divisors)
    if name == "twin":
        return Twin(weights, divisors, rng)
    return Selected(make_selector(name, names, weights, divisors, int(rng.integers(2**31))), weights, divisors)


def _row(cell: Cell, workload: TaskWorkload, divisors: Divisors, key: str, policy: str, r: IntervalRecords) -> Row:
    j = divisors.j(cell.weights[key], r.cost_usd, r.energy_kwh, r.response_s, r.sla_violation, workload.intervals)
    return {
        "policy": policy, "workload": cell.label, "scenario": cell.scenario.name, "weights": key, "seed": cell.seed,
        "intervals": workload.intervals, "tasks": r.tasks, "cost_usd": r.cost_usd, "energy_kwh": r.energy_kwh, "response_s": r.response_s,
        "sla_violation": r.sla_violation, "j": j, "cpu_pct": r.cpu_pct, "scheduling_s": r.scheduling_s, "switches": r.switches,
    }  # fmt: skip


def _trace(records: dict[str, IntervalRecords]) -> Row:
    """Host cost per interval (moving mean) of everybody, and the choices of the one selector that the picture is about."""
    shown = next((name for name in TRACED if name in records), None)
    if shown is None:
        return {}
    kernel = np.ones(_WINDOW) / _WINDOW
    smooth: dict[str, Any] = {name: np.round(np.convolve(r.usd, kernel, "same"), 8).tolist() for name, r in records.items()}
    return {"policy": shown, "chosen": list(records[shown].chosen), "usd_per_interval": smooth}


def _search(workload: TaskWorkload, planners: Planners, records: dict[str, IntervalRecords], divisors: Divisors) -> list[Row]:
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

"""`tiphys bench selection`: planners, heuristics, selectors and bounds on the same tasks in the simulated cloud.

Rows are one workload, scenario, weights, policy and seed each; summaries and claims are computed from rows alone. Whatever planners
and selectors the registries know are played; a claim about one that is missing is not made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from tiphys_cli.bench.report import Result, Row
from tiphys_cli.bench.selection_claims import claims
from tiphys_cli.bench.selection_play import Job, Played, play_all
from tiphys_cli.bench.selection_summary import BASELINES, best_columns, summarise, with_best_fixed
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.cloud.bill import SCHEDULING_TIMES
from tiphys_models.cloud.score import DEFAULT, DIVISORS, MISSED_USD, Divisors, Weights, cost_at_sla
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.planners.registry import candidates
from tiphys_models.selectors.registry import entries as selector_entries
from tiphys_models.sim.cloud.scenario import DEFAULT_SCENARIO, SENSITIVITY
from tiphys_models.sim.cloud.workloads import INTERVALS, WORKLOADS, read_workload

BOUNDS = ("oracle", "twin")
_SEARCHED, _VARIED = 300, 500
"""Intervals of the max-min search (two blocks of every rate of the regime workload) and of the sensitivity rows."""
_SWEEP: tuple[tuple[float, float, float, float], ...] = (
    (0.7, 0.1, 0.1, 0.1), (0.1, 0.7, 0.1, 0.1), (0.1, 0.1, 0.7, 0.1), (0.4, 0.4, 0.1, 0.1), (0.4, 0.1, 0.4, 0.1), (0.1, 0.4, 0.4, 0.1),
)  # fmt: skip


def sweep() -> dict[str, Weights]:
    """Weights of the Pareto plot, by name: `sweep-70-10-10-10` is cost, energy, response, violations in percent."""
    return {"sweep-" + "-".join(str(round(100 * part)) for part in point): Weights(*point) for point in _SWEEP}


def policies() -> tuple[str, ...]:
    """Every row the table can have, `best-fixed` apart."""
    return (*candidates(), *(entry.name for entry in selector_entries() if not entry.live_only), "random", *BOUNDS)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played."""

    seeds: tuple[int, ...]
    policies: tuple[str, ...]
    file: Path | None = None
    quick: bool = False
    jobs: int = 0
    """Processes; 0: one a core."""

    @property
    def intervals(self) -> int:
        """Of every workload but files."""
        return 150 if self.quick else INTERVALS

    def cells(self) -> Iterator[Job]:
        """The published table, its first seed with the weight sweep; then one choice changed at a time, and the max-min search.

        What calls every planner at every interval is played no more often than a claim or a table needs: bounds under the default
        weights, the search and the sensitivity rows on one seed's first intervals.
        """
        workloads = WORKLOADS if self.file is None else (*WORKLOADS, str(self.file))
        fixed = tuple(p for p in self.policies if p in candidates())
        choosers = tuple(p for p in self.policies if p not in candidates())
        metanet = tuple(p for p in choosers if p == "metanet")
        played = {"default": choosers, "cost-at-sla": tuple(p for p in choosers if p not in BOUNDS)}
        for seed in self.seeds:
            for workload in workloads:
                first = seed == self.seeds[0] and workload in WORKLOADS
                swept = sweep() if first else {}
                published = {"default": DEFAULT, "cost-at-sla": cost_at_sla(DIVISORS.get(workload, DIVISORS["stationary"]))}
                yield Job(
                    workload, DEFAULT_SCENARIO, seed, self.intervals, published | swept, fixed,
                    played | dict.fromkeys(swept, metanet), trace=first,
                )  # fmt: skip
        one = {"default": DEFAULT}
        for workload in WORKLOADS:
            if "oracle" in choosers and fixed:
                intervals, others = min(self.intervals, _SEARCHED), tuple(p for p in choosers if p in BASELINES)
                yield Job(workload, DEFAULT_SCENARIO, self.seeds[0], intervals, one, fixed, {"default": others}, search=True)
            for scenario in SENSITIVITY[:2] if self.quick else SENSITIVITY:
                yield Job(workload, scenario, self.seeds[0], min(self.intervals, _VARIED), one, fixed, {"default": metanet})


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Play everything; InvalidInput names what cannot be."""
    started = time.monotonic()
    unknown = [p for p in plan.policies if p not in policies()]
    if unknown:
        raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(policies())}")
    if plan.file is not None and plan.file.stem in WORKLOADS:
        raise InvalidInput(f"--workload: {plan.file.name} would be confused with the workload of that name; call it something else")
    file_digest = None if plan.file is None else read_workload(plan.file)[1]
    played = play_all(list(plan.cells()), plan.jobs or os.cpu_count() or 1, tell)
    rows = with_best_fixed([row for p in played for row in p.rows])
    seconds = time.monotonic() - started
    inputs = _inputs(plan, played, rows, file_digest)
    return Result("selection", plan.quick, plan.seeds, seconds, inputs, rows, summarise(rows), claims(rows, inputs["max_min"], seconds))


def _inputs(plan: Plan, played: list[Played], rows: list[Row], file_digest: str | None) -> dict[str, Any]:
    return {
        "j": {"weights": _named(DEFAULT), "divisors": {name: _divisors(DIVISORS[name]) for name in WORKLOADS}},
        "weights": {name: _named(w) for name, w in {"default": DEFAULT, **sweep()}.items()},
        "cost_at_sla": {"missed_usd": MISSED_USD, "weights": {name: _named(cost_at_sla(DIVISORS[name])) for name in WORKLOADS}},
        "candidates": [p for p in plan.policies if p in candidates()],
        "models": {name: _digest(name) for name in plan.policies if _digest(name)},
        "training": {name: _training(name) for name in plan.policies if _training(name)},
        "scheduling_times": {name: asdict(line) for name, line in SCHEDULING_TIMES.items() if name in plan.policies},
        "workload_file": None if plan.file is None else {"name": plan.file.name, "sha256": file_digest},
        "best_columns": {workload: best_columns(rows, workload) for workload in WORKLOADS},
        "max_min": {p.job.workload: p.max_min for p in played if p.max_min is not None},
        "over_time": {p.job.workload: p.trace for p in played if p.trace},
        "plans": {"made": sum(p.calls for p in played), "repaired": sum(p.repaired for p in played)},
    }


def _named(w: Weights) -> Row:
    return {"cost_usd": w.cost, "energy_kwh": w.energy, "response_s": w.response, "sla_violation": w.violation}


def _divisors(d: Divisors) -> Row:
    return {"cost_usd": d.cost_usd, "energy_kwh": d.energy_kwh, "response_s": d.response_s, "sla_violation": d.sla_violation}


def _digest(name: str) -> str | None:
    path = WEIGHTS / f"{name}.safetensors"
    return sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _training(name: str) -> list[Row]:
    """What the card tells of each training seed, the shipped one first."""
    path = WEIGHTS / f"{name}.json"
    card = orjson.loads(path.read_bytes()) if path.exists() else {}
    shipped = card.get("training", {}).get("seed")
    return sorted(card.get("training_seeds", []), key=lambda seed: bool(seed["seed"] != shipped))

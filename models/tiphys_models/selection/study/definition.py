"""Planners, heuristics, selectors and bounds on the same tasks in the simulated cloud.

Rows are one workload, scenario, weights, policy and seed each; summaries and claims are computed from rows alone. Whatever planners
and selectors the registries know are played; a claim about one that is missing is not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import orjson

from tiphys_models.artifacts.files import card_of
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import Tables
from tiphys_models.lab.evidence import Contrast
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.lab.study import Study, Tell
from tiphys_models.selection.cloud.bill import SCHEDULING_TIMES
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, MISSED_USD, Divisors, Weights, cost_at_sla
from tiphys_models.selection.planners.registry import REGISTRY as PLANNERS
from tiphys_models.selection.planners.registry import candidates, entries
from tiphys_models.selection.selectors.registry import REGISTRY as SELECTORS
from tiphys_models.selection.selectors.registry import entries as selector_entries
from tiphys_models.selection.sim.calibration import divisors, scheduling_time
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO, SENSITIVITY
from tiphys_models.selection.sim.workloads import INTERVALS, WORKLOADS, read_workload
from tiphys_models.selection.study import figures, tables
from tiphys_models.selection.study.figures import BASELINES, best_columns, summarise, with_best_fixed
from tiphys_models.selection.study.play import Cell, Played, play, warm

BOUNDS = ("oracle", "twin")
_SEARCHED, _VARIED = 300, 500
"""Intervals of the max-min search (two blocks of every rate of the regime workload) and of the sensitivity rows."""
_MINUTES = 30.0
_SWEEP: tuple[tuple[float, float, float, float], ...] = (
    (0.7, 0.1, 0.1, 0.1), (0.1, 0.7, 0.1, 0.1), (0.1, 0.1, 0.7, 0.1), (0.4, 0.4, 0.1, 0.1), (0.4, 0.1, 0.4, 0.1), (0.1, 0.4, 0.4, 0.1),
)  # fmt: skip


def sweep() -> dict[str, Weights]:
    """Weights of the Pareto plot, by name: `sweep-70-10-10-10` is cost, energy, response, violations in percent."""
    return {"sweep-" + "-".join(str(round(100 * part)) for part in point): Weights(*point) for point in _SWEEP}


def policies() -> tuple[str, ...]:
    """Every row the table can have, `best-fixed` apart."""
    return (*candidates(), *(entry.name for entry in selector_entries() if not entry.live_only), "random", *BOUNDS)


def constants(names: Sequence[str] | None) -> Row:
    """The constants of the bill and of the score, measured anew.

    Scheduling times are those of these planners (all by default); divisors are measured for all together only, since they are a mean.
    """
    times = {name: asdict(scheduling_time(name)) for name in names or [e.name for e in entries()]}
    return {"scheduling_times": times, "divisors": {} if names else {w: asdict(divisors(w, candidates())) for w in WORKLOADS}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionStudy(Study[Cell, Played]):
    """The study, and what a run of it was asked for."""

    bench: ClassVar[str] = "selection"
    contrast: ClassVar[Contrast] = Contrast("metanet", "best-fixed", "greedy-j")

    policies: tuple[str, ...] = ()
    """Policies to play; empty: all of them."""
    file: Path | None = None

    @property
    def played(self) -> tuple[str, ...]:
        """Names of the policies that are played."""
        return self.policies or policies()

    @property
    def intervals(self) -> int:
        """The length of every workload but files."""
        return 150 if self.quick else INTERVALS

    def check(self) -> None:
        """Raises InvalidInput for what cannot be played; implements `Study.check`."""
        there = (*policies(), *PLANNERS.foreign, *SELECTORS.foreign)
        if unknown := [p for p in self.played if p not in there]:
            raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(there)}")
        if self.file is not None and self.file.stem in WORKLOADS:
            raise InvalidInput(f"--workload: {self.file.name} would be confused with the workload of that name; call it something else")
        if self.file is not None:
            read_workload(self.file)

    def prepare(self, tell: Tell) -> Row:
        """The file of tasks."""
        return {"file": None if self.file is None else {"name": self.file.name, "sha256": read_workload(self.file)[1]}}

    def cells(self, prepared: Row) -> list[Cell]:
        """The published table, its first seed with the weight sweep; then one choice changed at a time, and the max-min search.

        What calls every planner at every interval is played no more often than a claim or a table needs: bounds under the default
        weights, the search and the sensitivity rows on one seed's first intervals.
        """
        workloads = WORKLOADS if self.file is None else (*WORKLOADS, str(self.file))
        fixed = tuple(p for p in self.played if p in candidates() or p in PLANNERS.foreign)
        choosers = tuple(p for p in self.played if p not in fixed)
        metanet = tuple(p for p in choosers if p == "metanet")
        played = {"default": choosers, "cost-at-sla": tuple(p for p in choosers if p not in BOUNDS)}
        found = []
        for seed in self.seeds:
            for workload in workloads:
                first = seed == self.seeds[0] and workload in WORKLOADS
                swept = sweep() if first else {}
                published = {"default": DEFAULT, "cost-at-sla": cost_at_sla(DIVISORS.get(workload, DIVISORS["stationary"]))}
                found.append(Cell(
                    workload, DEFAULT_SCENARIO, seed, self.intervals, published | swept, fixed,
                    played | dict.fromkeys(swept, metanet), trace=first,
                ))  # fmt: skip
        one = {"default": DEFAULT}
        for workload in WORKLOADS:
            if "oracle" in choosers and fixed:
                intervals, others = min(self.intervals, _SEARCHED), tuple(p for p in choosers if p in BASELINES)
                found.append(Cell(workload, DEFAULT_SCENARIO, self.seeds[0], intervals, one, fixed, {"default": others}, search=True))
            found += [
                Cell(workload, scenario, self.seeds[0], min(self.intervals, _VARIED), one, fixed, {"default": metanet})
                for scenario in (SENSITIVITY[:2] if self.quick else SENSITIVITY)
            ]
        return found

    def play(self, cell: Cell) -> Played:
        """Plays one cell; implements `Study.play`."""
        return play(cell)

    def warm(self) -> None:
        """Compiles what the cells need, once; implements `Study.warm`."""
        warm()

    def label(self, cell: Cell) -> str:
        """A cell's name for progress messages; implements `Study.label`."""
        return f"{cell.label}, {cell.scenario.name}, seed {cell.seed}"

    def rows(self, played: Sequence[Played]) -> list[Row]:
        """Measured rows, one object a cell; implements `Study.rows`."""
        return with_best_fixed([row for p in played for row in p.rows])

    def inputs(self, prepared: Row, played: Sequence[Played], rows: Sequence[Row]) -> Row:
        """Everything read, with the models' digests; implements `Study.inputs`."""
        names = self.played
        return {
            "j": {"weights": _named(DEFAULT), "divisors": {name: _divisors(DIVISORS[name]) for name in WORKLOADS}},
            "weights": {name: _named(w) for name, w in {"default": DEFAULT, **sweep()}.items()},
            "cost_at_sla": {"missed_usd": MISSED_USD, "weights": {name: _named(cost_at_sla(DIVISORS[name])) for name in WORKLOADS}},
            "candidates": [p for p in names if p in candidates()],
            "models": dict(self.digests()),
            "training": {name: found for name in names if (found := _training(name))},
            "scheduling_times": {name: asdict(line) for name, line in SCHEDULING_TIMES.items() if name in names},
            "workload_file": prepared["file"],
            "best_columns": {workload: best_columns(rows, workload) for workload in WORKLOADS},
            "max_min": {p.cell.workload: p.max_min for p in played if p.max_min is not None},
            "over_time": {p.cell.workload: p.trace for p in played if p.trace},
            "plans": {"made": sum(p.calls for p in played), "repaired": sum(p.repaired for p in played)},
        }

    def summarise(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Row]:
        """Mean and interval of each group and figure; implements `Study.summarise`."""
        return summarise(rows)

    def claims(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
        """The promised figures with their bounds; implements `Study.claims`."""
        return [*figures.claims(rows, inputs["max_min"]), Claim("wall-minutes", inputs["wall_minutes"], _MINUTES, "<=")]

    def digests(self) -> Mapping[str, str]:
        """Digests of the judged weights by name; implements `Study.digests`."""
        there = {name: card_of(name).with_suffix(".safetensors") for name in self.played}
        return {name: sha256(path.read_bytes()).hexdigest() for name, path in there.items() if path.exists()}

    def titles(self) -> Sequence[str]:
        """Titles of the tables of a run; implements `Study.titles`."""
        return tables.titles(self.played)

    def tables(self, result: Result) -> Tables:
        """Tables of a result; implements `Study.tables`."""
        return tables.tables(result)

    def draw(self, result: Result, directory: Path) -> None:
        """Draws the pictures of a result; implements `Study.draw`."""
        from tiphys_models.selection.study.pictures import draw  # noqa: PLC0415 - matplotlib, only where there is something to draw

        draw(result, directory)


def _named(w: Weights) -> Row:
    return {"cost_usd": w.cost, "energy_kwh": w.energy, "response_s": w.response, "sla_violation": w.violation}


def _divisors(d: Divisors) -> Row:
    return {"cost_usd": d.cost_usd, "energy_kwh": d.energy_kwh, "response_s": d.response_s, "sla_violation": d.sla_violation}


def _training(name: str) -> list[Row]:
    """What the card tells of each training seed, the shipped one first."""
    path = card_of(name)
    card = orjson.loads(path.read_bytes()) if path.exists() else {}
    shipped = card.get("training", {}).get("seed")
    return sorted(card.get("training_seeds", []), key=lambda seed: bool(seed["seed"] != shipped))

"""Summary and claims of the scaling study, from rows alone; claims that do not hold are printed all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiphys_models.lab.intervals import FloatArray, IntArray, Interval, interval, of_statistic
from tiphys_models.lab.report import Claim, Row
from tiphys_models.scaling.sim.frontier import cost_at
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.scaling.sim.shapes import SHAPES, SMOOTH
from tiphys_models.scaling.study import promises

FIGURES = (
    "slo_attained",
    "slo_attained_after_first_hour",
    "requests_attained",
    "never_served",
    "cost",
    "cpu_hours",
    "replica_hours",
    "p90_ms",
    "switches",
)
WINDOWS_KEPT = {**dict.fromkeys(SMOOTH, 0.97), "flash": 0.95, "bursty": 0.90}
REQUESTS_KEPT = {**dict.fromkeys(SMOOTH, 0.97), "flash": 0.88}
OF_HORIZONTAL, OF_HORIZONTAL_FLASH, ENOUGH_SHAPES = 0.95, 0.85, 4
OF_RULE, OF_RULE_STEEP, OF_RULE_MEAN = 1.03, 1.05, 1.01
STEEP = ("flash", "bursty")
"""Shapes whose frontier is a cliff: a point of attainment costs several per cent."""
OF_HPA = 0.7
SETTLED, SETTLED_SMALL, SMALL_RPS = 1.15, 1.25, 100.0
NAIVE_CHANGES = 0.6
SETTINGS = 9
"""Settings played of every agent with a price or a margin."""


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Mean and interval over seeds of every figure."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["shape"], row["scenario"], row["agent"], row["setting"]), []).append(row)
    summary = []
    for (shape, scenario, agent, setting), mine in groups.items():
        for figure in FIGURES:
            values = [float(r[figure]) for r in mine if r.get(figure) is not None]
            if values:
                key = {"shape": shape, "scenario": scenario, "agent": agent, "setting": setting, "metric": figure}
                summary.append({**key, **interval(values).as_json()})
    return summary


def claims(rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
    """Each figure that is promised, with its bound."""
    chosen: Mapping[str, str] = inputs["chosen"]
    cells = [r for r in rows if "start_m" not in r and r["scenario"] == DEFAULT_SCENARIO.name]
    there = {r["agent"] for r in cells}
    found: list[Claim] = []
    if "combined" in there:
        found += _attained(cells, chosen["combined"])
        for bar, make in (("rule-horizontal", _against_horizontal), ("rule", _against_rule), ("hpa", _against_hpa)):
            if bar in there:
                found += make(cells, chosen[bar])
    shown = [len({r["setting"] for r in cells if r["agent"] == agent}) for agent in chosen if agent in there]
    if shown:
        found.append(Claim("settings-of-an-agent-with-price-or-margin", float(min(shown)), SETTINGS, ">="))
    found += promises.claims([r for r in rows if "start_m" not in r], chosen)
    found += _settled(rows)
    naive = [r["switches"] / r["windows"] for r in cells if r["agent"] == "naive" and r["shape"] == "constant"]
    if naive:
        found.append(Claim("naive-changes-a-window-constant", round(float(np.mean(naive)), 3), NAIVE_CHANGES, ">="))
    return found


def _mean(rows: Sequence[Row], agent: str, setting: str, shape: str, key: str) -> float:
    return float(np.mean([r[key] for r in rows if (r["agent"], r["setting"], r["shape"]) == (agent, setting, shape)]))


def _attained(rows: Sequence[Row], setting: str) -> Iterator[Claim]:
    files = set(promises.files(rows))
    for key, word, bounds in (("slo_attained", "windows", WINDOWS_KEPT), ("requests_attained", "requests", REQUESTS_KEPT)):
        for shape, bound in {**bounds, **(dict.fromkeys(sorted(files), 0.97) if word == "windows" else {})}.items():
            yield Claim(f"combined-{word}-kept-{shape}", round(_mean(rows, "combined", setting, shape, key), 4), bound, ">=")


@dataclass(frozen=True, slots=True)
class OverBar:
    """What `combined` costs at what a bar's one setting attains, over the bar's cost: of mean frontiers, over one shape's seeds.

    Arrays are by seed, those of `combined` by setting and seed.
    """

    attained: FloatArray
    cost: FloatArray
    wanted: FloatArray
    paid: FloatArray

    def ratio(self, seeds: IntArray | None = None) -> float:
        """The ratio over these seeds, or all; inf where `combined` never attains as much."""
        rows = np.arange(len(self.wanted)) if seeds is None else seeds
        attained, cost = self.attained[:, rows].mean(axis=1), self.cost[:, rows].mean(axis=1)
        return cost_at(attained, cost, float(self.wanted[rows].mean())) / float(self.paid[rows].mean())

    def interval(self) -> Interval:
        """The ratio with the interval of the same estimator."""
        return of_statistic(self.ratio, len(self.wanted))


def over_bar(rows: Sequence[Row], bar: str, setting: str, shape: str) -> OverBar:
    """Only seeds that every setting has."""
    by: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for r in rows:
        if (r["shape"], r["scenario"]) == (shape, DEFAULT_SCENARIO.name) and (
            r["agent"] == "combined" or (r["agent"], r["setting"]) == (bar, setting)
        ):
            by.setdefault((r["agent"], r["setting"]), {})[r["seed"]] = r["slo_attained"], r["cost"]
    seeds = sorted(set.intersection(*(set(found) for found in by.values()))) if by else []

    def column(key: tuple[str, str], which: int) -> list[float]:
        return [by[key][seed][which] for seed in seeds]

    mine = [key for key in by if key[0] == "combined"]
    attained, cost = (np.array([column(key, which) for key in mine]) for which in (0, 1))
    return OverBar(attained, cost, *(np.array(column((bar, setting), which)) for which in (0, 1)))


def _figure(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None


def _against_horizontal(rows: Sequence[Row], setting: str) -> Iterator[Claim]:
    over = {shape: over_bar(rows, "rule-horizontal", setting, shape).ratio() for shape in SHAPES}
    for shape, value in over.items():
        yield Claim(f"combined-cost-over-rule-horizontal-{shape}", _figure(value), _bound(shape, OF_HORIZONTAL_FLASH, OF_HORIZONTAL), "<=")
    yield Claim("shapes-below-rule-horizontal", float(sum(v <= OF_HORIZONTAL for v in over.values())), ENOUGH_SHAPES, ">=")


def _bound(shape: str, flash: float, others: float) -> float:
    return flash if shape == "flash" else others


def _against_rule(rows: Sequence[Row], setting: str) -> Iterator[Claim]:
    over = {shape: over_bar(rows, "rule", setting, shape).ratio() for shape in SHAPES}
    for shape, value in over.items():
        yield Claim(f"combined-cost-over-rule-{shape}", _figure(value), OF_RULE_STEEP if shape in STEEP else OF_RULE, "<=")
    yield Claim("combined-cost-over-rule-mean", _figure(float(np.mean(list(over.values())))), OF_RULE_MEAN, "<=")
    high = over_bar(rows, "rule", setting, "recurring").interval().ci95_high
    yield Claim("combined-cost-over-rule-ci95-high-recurring", _figure(high), 1 - 1e-9, "<=")


def _against_hpa(rows: Sequence[Row], setting: str) -> Iterator[Claim]:
    yield Claim("combined-cost-over-hpa-flash", _figure(over_bar(rows, "hpa", setting, "flash").ratio()), OF_HPA, "<=")


def _settled(rows: Sequence[Row]) -> Iterator[Claim]:
    for name, small, bound in (("from-100-rps", False, SETTLED), ("40-to-100-rps", True, SETTLED_SMALL)):
        mine = [r for r in rows if "start_m" in r and r["agent"] == "dqn-vertical" and (_rps(r) < SMALL_RPS) == small]
        ratios: dict[tuple[float, float], list[float]] = {}
        for r in mine:
            ratios.setdefault((_rps(r), r["start_m"]), []).append(r["settled_m"] / r["smallest_m"])
        if ratios:
            worst = max(float(np.mean(v)) for v in ratios.values())
            yield Claim(f"dqn-vertical-settled-over-smallest-{name}", round(worst, 3), bound, "<=")
    kept = [r["kept_at_last"] for r in rows if "start_m" in r and r["agent"] == "dqn-vertical"]
    if kept:
        yield Claim("dqn-vertical-settled-windows-kept", round(float(np.mean(kept)), 4), 0.95, ">=")


def _rps(row: Row) -> float:
    return float(row["shape"].removeprefix("constant-"))

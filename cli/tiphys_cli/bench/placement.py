"""`tiphys bench placement`: every policy on the same calls in the simulated FaaS cluster.

Rows are one workload, scenario, policy and seed each; summaries and claims are computed from rows alone. Seeds name the test
split: none of them can meet a seed that was used in training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_cli.bench.report import Claim, Result, Row, interval
from tiphys_models.artifacts.score_network import load_network
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.policies.faasrank import FaaSRank
from tiphys_models.policies.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst
from tiphys_models.sim.azure import TraceRows, read_trace, trace_workload
from tiphys_models.sim.episode import CLAIRVOYANT, GREEDY_STAY, Player, Records, simulate
from tiphys_models.sim.metrics import fullest_share, jain, lower_share, stretch
from tiphys_models.sim.scenario import AGES, MIXED, NODE_LOSS, SENSITIVITY, SIZES, Scenario
from tiphys_models.sim.tuning import static_rank_tuned
from tiphys_models.sim.workloads import KINDS, MULTI, Workload, make_workload

FIVE = ("hashing", "round-robin", "least-connections", "greedy", "static-rank")
"""The paper's baselines."""
COMPARATORS = ("warm-first", "static-rank-tuned")
LEARNED = ("faasrank", "faasrank-paper")
POLICIES = (*FIVE, "greedy-stay", *COMPARATORS, *LEARNED, "clairvoyant")
_BEHIND = 1.02


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played."""

    seeds: tuple[int, ...]
    policies: tuple[str, ...] = POLICIES
    trace_dir: Path | None = None
    models: dict[str, Path] = field(default_factory=lambda: {name: WEIGHTS / f"{name}.json" for name in LEARNED})
    quick: bool = False

    def cells(self) -> Iterator[tuple[str, Scenario, tuple[int, ...], tuple[str, ...]]]:
        """(workload, scenario, seeds, policies), the published table first."""
        default = Scenario()
        names = MULTI[:3] if self.quick else (*KINDS, "burst")
        for name in names:
            yield name, default, self.seeds, self.policies
        if self.trace_dir is not None:
            yield "azure", default, self.seeds, self.policies
        lean = tuple(p for p in self.policies if p in (*FIVE, *COMPARATORS, "faasrank"))
        few, fewest = self.seeds[: max(len(self.seeds) // 4, 1)], self.seeds[: max(len(self.seeds) // 10, 1)]
        sensitivity = tuple(p for p in self.policies if p in (*FIVE, *COMPARATORS, "faasrank", "clairvoyant"))
        for name in MULTI[:2] if self.quick else MULTI:
            for scenario in (*AGES, MIXED, SIZES[0], NODE_LOSS):
                yield name, scenario, self.seeds, lean
            for scenario in SENSITIVITY:
                yield name, scenario, few, sensitivity
            if not self.quick:
                yield name, SIZES[1], few, lean
                yield name, SIZES[2], fewest, lean


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Play everything; InvalidInput names what cannot be."""
    started = time.monotonic()
    players = _players(plan)
    networks = [p.network for p in players.values() if isinstance(p, FaaSRank)]
    trace = _trace(plan, networks)
    rows: list[Row] = []
    inflight: dict[str, Any] = {}
    said = ""
    for name, scenario, seeds, policies in plan.cells():
        if scenario.name != said:
            tell(f"{name}, {scenario.name}: {time.monotonic() - started:.0f} s so far")
            said = scenario.name
        for seed in seeds:
            workload = _workload(name, seed, scenario, trace)
            played = {policy: simulate(workload, players[policy], scenario) for policy in dict.fromkeys(("hashing", *policies))}
            rows += _rows(workload, scenario, seed, played)
            if name == "M5" and scenario.name == "default" and seed == seeds[0]:
                inflight = _inflight(played)
    inputs: dict[str, Any] = {
        "models": {policy: p.network.card.sha256 for policy, p in players.items() if isinstance(p, FaaSRank)},
        "trace": None if trace is None else _trace_facts(plan, trace),
        "load": "CPU seconds over cores x length of the workload",
        "inflight_over_time": inflight,
    }
    summary = summarise(rows)
    return Result("placement", plan.quick, plan.seeds, time.monotonic() - started, inputs, rows, summary, claims(rows))


def _players(plan: Plan) -> dict[str, Player]:
    unknown = [p for p in plan.policies if p not in POLICIES]
    if unknown:
        raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(POLICIES)}")
    rules: tuple[Player, ...] = (
        Hashing(), RoundRobin(), LeastConnections(), Greedy(), StaticRank(), GREEDY_STAY, WarmFirst(), static_rank_tuned(), CLAIRVOYANT,
    )  # fmt: skip
    players = {player.name: player for player in rules}
    for name in LEARNED:
        if name in plan.policies:
            players[name] = FaaSRank(load_network(plan.models[name]))
    return players


def _trace(plan: Plan, networks: Sequence[Any]) -> TraceRows | None:
    if plan.trace_dir is None:
        return None
    seen = {str(row) for n in networks for row in (getattr(n.card, "training", None) or {}).get("azure_rows_seen", [])}
    return read_trace(plan.trace_dir, seen)


def _trace_facts(plan: Plan, trace: TraceRows) -> Row:
    return {
        "directory": plan.trace_dir.name if plan.trace_dir else None,
        "sha256": trace.sha256,
        "rows": trace.total,
        "qualifying": len(trace.names),
        "dropped_as_seen": trace.dropped_as_seen,
    }


def _workload(name: str, seed: int, scenario: Scenario, trace: TraceRows | None) -> Workload:
    if name == "azure":
        assert trace is not None  # noqa: S101 - the plan has it exactly then
        return trace_workload(trace, seed, scenario.nodes)
    return make_workload(name, "test", seed, scenario.nodes)


def _rows(workload: Workload, scenario: Scenario, seed: int, played: dict[str, Records]) -> list[Row]:
    hashing_s = float(played["hashing"].completion_s.mean())
    rows = []
    for policy, records in played.items():
        times = records.completion_s
        others = [played[p] for p in FIVE if p != policy and p in played]
        rows.append(
            {
                "workload": workload.name,
                "scenario": scenario.name,
                "policy": policy,
                "nodes": scenario.nodes,
                "seed": seed,
                "calls": len(times),
                "mean_s": round(float(times.mean()), 5),
                "p50_s": round(float(np.percentile(times, 50)), 4),
                "p95_s": round(float(np.percentile(times, 95)), 4),
                "p99_s": round(float(np.percentile(times, 99)), 4),
                "pct_of_hashing": round(100 * float(times.mean()) / hashing_s, 3),
                "cold_starts": int(records.cold.sum()),
                "inflight_lower_share": round(lower_share(records, others), 4) if others else None,
                "jain_fairness": round(jain(list(stretch(records).values())), 4),
                "fullest_share": round(fullest_share(records, scenario.nodes), 4),
                "stretch": {function: round(value, 3) for function, value in stretch(records).items()},
            }
        )
    return rows


def _inflight(played: dict[str, Records]) -> dict[str, list[float]]:
    from tiphys_models.sim.metrics import inflight  # noqa: PLC0415

    end_s = max(float(r.finish_s.max()) for r in played.values())
    grid = np.arange(0.0, end_s, 0.5)
    return {policy: inflight(records, grid).tolist() for policy, records in played.items()}


# ---- from rows to figures --------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], scenario: str, workloads: Sequence[str], column: str = "mean_s") -> dict[str, np.ndarray[Any, Any]]:
    """policy -> [seeds, workloads]; only seeds that every workload has."""
    chosen = [r for r in rows if r["scenario"] == scenario and r["workload"] in workloads]
    names = [w for w in workloads if any(r["workload"] == w for r in chosen)]
    seeds = sorted({r["seed"] for r in chosen})
    found: dict[str, dict[tuple[int, str], float]] = {}
    for r in chosen:
        found.setdefault(r["policy"], {})[r["seed"], r["workload"]] = r[column]
    return {p: np.array([[cells[s, w] for w in names] for s in seeds]) for p, cells in found.items()}


def _groups(rows: Sequence[Row]) -> list[tuple[str, str, tuple[str, ...]]]:
    groups = [("default", name, (name,)) for name in dict.fromkeys(r["workload"] for r in rows if r["scenario"] == "default")]
    return groups + [(scenario, "M1-M10", MULTI) for scenario in dict.fromkeys(r["scenario"] for r in rows)]


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Percent of hashing, with intervals over paired seeds of the mean over workloads."""
    result: list[Row] = []
    for scenario, label, workloads in _groups(rows):
        table = _table(rows, scenario, workloads, "mean_s")
        for policy in table:
            percents = 100 * (table[policy] / table["hashing"]).mean(axis=1)
            line: Row = {"scenario": scenario, "workload": label, "policy": policy, "metric": "pct_of_hashing"}
            result.append(line | _rounded(interval(percents.tolist()).as_json()))
            for metric in ("mean_s", "p95_s", "p99_s", "cold_starts", "inflight_lower_share", "jain_fairness"):
                if scenario == "default" and (policy, metric) != ("", ""):
                    values = _table(rows, scenario, workloads, metric)[policy]
                    if not any(v is None for v in values.ravel().tolist()):
                        figures = interval(values.mean(axis=1).tolist()).as_json()
                        result.append({"scenario": scenario, "workload": label, "policy": policy, "metric": metric} | _rounded(figures))
        for other in ("static-rank", "least-connections", *COMPARATORS):
            if "faasrank" in table and other in table:
                figures = interval((table["faasrank"] / table[other]).mean(axis=1).tolist()).as_json()
                line = {"scenario": scenario, "workload": label, "policy": "faasrank", "metric": f"over {other}"}
                result.append(line | _rounded(figures))
    return result


def _rounded(row: Row) -> Row:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The published claims that these rows can answer."""
    table = _table(rows, "default", MULTI)
    if "faasrank" not in table:
        return []
    mine = table["faasrank"]
    result = [Claim("faasrank-mean-pct-of-hashing", _pct(mine, table["hashing"]), 58, "<=")]
    if all(p in table for p in FIVE):
        best = np.min([table[p].mean(axis=0) for p in FIVE], axis=0)
        result.append(Claim("faasrank-best-of-five-workloads", float((mine.mean(axis=0) <= best).sum()), float(mine.shape[1]), ">="))
    if "static-rank" in table:
        result.append(Claim("faasrank-over-static-rank", _ratio(mine, table["static-rank"])[0], 0.82, "<="))
    for other in COMPARATORS:
        if other in table:
            mean, high = _ratio(mine, table[other])
            result += [Claim(f"faasrank-over-{other}", mean, 0.97, "<="), Claim(f"faasrank-over-{other}-ci95-high", high, 0.9999, "<=")]
    if "clairvoyant" in table and "static-rank" in table:
        static, bound = (100 * (table[p] / table["hashing"]).mean() for p in ("static-rank", "clairvoyant"))
        own = 100 * (mine / table["hashing"]).mean()
        result.append(Claim("faasrank-gap-closed", round(float((static - own) / (static - bound)), 4), 0.65, ">="))
    azure = _table(rows, "default", ("azure",))
    if "faasrank" in azure:
        result.append(Claim("faasrank-azure-pct-of-hashing", _pct(azure["faasrank"], azure["hashing"]), 54, "<="))
        worst = max((_ratio(azure["faasrank"], azure[p])[1] for p in (*FIVE, *COMPARATORS) if p in azure), default=None)
        result.append(Claim("faasrank-azure-over-best-comparator-ci95-high", worst, 0.9999, "<="))
    for scenario in ("default", *(s.name for s in (*AGES, *SIZES, MIXED, NODE_LOSS))):
        there = _table(rows, scenario, MULTI)
        for policy in ("static-rank", "least-connections"):
            if policy in there and "faasrank" in there:
                result.append(Claim(f"never-behind-{policy}-{scenario}", _ratio(there["faasrank"], there[policy])[1], _BEHIND, "<="))
    return result


def _pct(mine: np.ndarray[Any, Any], hashing: np.ndarray[Any, Any]) -> float:
    return round(100 * float((mine / hashing).mean()), 3)


def _ratio(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(mean, upper end of the interval) of the ratio."""
    found = interval((mine / other).mean(axis=1).tolist())
    return round(found.mean, 4), round(found.ci95_high, 4)

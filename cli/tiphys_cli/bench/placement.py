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

from tiphys_cli.bench.placement_figures import COMPARATORS, FIVE, claims, summarise, training_claims
from tiphys_cli.bench.placement_speed import SPEED_BARS, measure_speed, speed_claims
from tiphys_cli.bench.report import Result, Row
from tiphys_models.artifacts.score_network import load_network
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.policies.faasrank import FaaSRank
from tiphys_models.policies.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst
from tiphys_models.sim.azure import TraceRows, read_trace, trace_workload
from tiphys_models.sim.episode import CLAIRVOYANT, GREEDY_STAY, Player, Records, simulate
from tiphys_models.sim.metrics import fullest_share, inflight, jain, lower_share, stretch
from tiphys_models.sim.scenario import AGES, MIXED, NODE_LOSS, PROFILED, SENSITIVITY, SIZES, Scenario
from tiphys_models.sim.tuning import static_rank_tuned
from tiphys_models.sim.workloads import KINDS, MULTI, Workload, make_workload

LEARNED = ("faasrank", "faasrank-paper")
POLICIES = (*FIVE, "greedy-stay", *COMPARATORS, *LEARNED, "clairvoyant")
_AZURE = "azure"


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
            yield _AZURE, default, self.seeds, self.policies
        lean = tuple(p for p in self.policies if p in (*FIVE, *COMPARATORS, "faasrank"))
        few = self.seeds[: max(len(self.seeds) // 4, 1)]
        sensitivity = tuple(p for p in self.policies if p in (*FIVE, *COMPARATORS, "faasrank", "clairvoyant"))
        for name in MULTI[:2] if self.quick else MULTI:
            for scenario in (*AGES, MIXED, SIZES[0], NODE_LOSS):
                yield name, scenario, self.seeds, lean
            for scenario in PROFILED:
                yield name, scenario, self.seeds, lean
            for scenario in SENSITIVITY:
                yield name, scenario, self.seeds, sensitivity
            if not self.quick:
                yield name, SIZES[1], self.seeds, lean
                yield name, SIZES[2], few, lean  # 20 times the calls of the others


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Play everything; InvalidInput names what cannot be."""
    started = time.monotonic()
    players = _players(plan)
    networks = [p.network for p in players.values() if isinstance(p, FaaSRank)]
    trace = _trace(plan, networks)
    speed = measure_speed([players[p] for p in SPEED_BARS if p in players], tell, quick=plan.quick)
    rows: list[Row] = []
    over_time: dict[str, Any] = {}
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
                over_time = _inflight(played)
    training = {policy: _training(p) for policy, p in players.items() if isinstance(p, FaaSRank)}
    inputs: dict[str, Any] = {
        "models": {policy: p.network.card.sha256 for policy, p in players.items() if isinstance(p, FaaSRank)},
        "training": training,
        "trace": None if trace is None else _trace_facts(plan, trace),
        "load": "CPU seconds over cores x length of the workload",
        "inflight_over_time": over_time,
    }
    checked = [*claims(rows), *training_claims(training), *speed_claims(speed)]
    return Result("placement", plan.quick, plan.seeds, time.monotonic() - started, inputs, rows, [*summarise(rows), *speed], checked)


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


def _training(player: FaaSRank) -> list[Row]:
    """What the card tells of each training seed, the shipped one first."""
    card = player.network.card.model_dump()
    shipped = card.get("training", {}).get("seed")
    return sorted(card.get("training_seeds", []), key=lambda seed: bool(seed["seed"] != shipped))


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
    if trace is not None and name == _AZURE:
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
    end_s = max(float(r.finish_s.max()) for r in played.values())
    grid = np.arange(0.0, end_s, 0.5)
    return {policy: inflight(records, grid).tolist() for policy, records in played.items()}

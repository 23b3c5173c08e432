"""The part of the placement study that plays under Kubernetes' filter: worlds, players, rows, summaries and claims.

Ratios are of each workload and seed by itself; a summary's interval is over seeds, each being the mean over workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_models.artifacts.files import card_of, read_parts
from tiphys_models.base.constants import constant
from tiphys_models.lab.intervals import Interval, interval
from tiphys_models.lab.report import Claim, Row
from tiphys_models.placement import estimator, estimator_network, learned_profiles, waiting
from tiphys_models.placement.residual import flat
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.kube import trace
from tiphys_models.placement.sim.kube.play import (
    BOOKS,
    ESTIMATOR,
    ESTIMATOR_NETWORK,
    KUBE_DEFAULT,
    MOST_ALLOCATED,
    RULE_6,
    UNGUARDED,
    WAITS,
    AnyPlayer,
    KubePlayer,
    KubeRecords,
    play_kube,
)
from tiphys_models.placement.sim.kube.scenario import BLIND, JUDGED, PRINTED, PROFILED, TRACED, KubeScenario, with_history
from tiphys_models.placement.sim.metrics import fullest_share, jain, stretch
from tiphys_models.placement.sim.workloads import MULTI, make_workload

TUNED_WEIGHTS: Mapping[str, list[float]] = constant("placement.rule-6")
"""Weights of rule-6 by world, found on the training split."""
ONE_SETTING = "rule-6-one-setting"
NETWORK = "estimator-network"
RULES: tuple[KubePlayer, ...] = (
    KUBE_DEFAULT,
    MOST_ALLOCATED,
    BOOKS,
    WAITS,
    RULE_6,
    replace(RULE_6, name=ONE_SETTING),
    ESTIMATOR,
    ESTIMATOR_NETWORK,
)
TITLE, NETWORK_TITLE = "kubernetes", "estimator-network"
BLIND_TITLE, TRACED_TITLE = "processor time unseen", trace.NAME
BLIND_WORLD, TRACED_WORLD = BLIND.name, TRACED.name
DEFAULT = "estimator"
BASE = "warm-first"
_STRONGEST = "rule-6"
_LEAN = ("warm-first-books", "warm-first-waits", "rule-6", DEFAULT, NETWORK)
_BOUNDS = {
    "k8s": 0.87,
    "k8s-dear-starts": 0.58,
    "k8s-readings-15s": 0.69,
    "k8s-memory": 0.47,
    "k8s-cv1": 0.90,
    "k8s-cv2": 0.94,
}
_NOT_ABOVE = {scenario.name: 1.03 if scenario.generations else 1.0 for scenario in JUDGED}
_CLEARLY, _CLEAR_WORLDS = 0.97, 2.0
_PROFILE_LOSS = 1.02
_NETWORK_LOSS, _NETWORK_WORLDS = 1.01, 3.0
_NOTHING_DECLARED = "k8s-profiles-0"


@dataclass(frozen=True, slots=True)
class KubeCell:
    """One workload, world and seed."""

    workload: str
    scenario: KubeScenario
    seed: int
    policies: tuple[str, ...]


@lru_cache(maxsize=1)
def network() -> estimator_network.EstimatorNetwork:
    """The network over the estimator, with the weights that are installed."""
    return estimator_network.load(read_parts(card_of(NETWORK)))


def player_of(name: str, others: Mapping[str, AnyPlayer], world: str) -> AnyPlayer:
    """Whoever plays under that name in a world; rule-6 has weights of its own there if it was tuned there."""
    found = next((player for player in (*RULES, UNGUARDED) if player.name == name), None)
    if found is None:
        return others[name]
    if name == NETWORK:
        return replace(found, weights=tuple(flat(network().heads).tolist()))
    if name == _STRONGEST and world in TUNED_WEIGHTS:
        return replace(found, weights=tuple(TUNED_WEIGHTS[world]))
    return found


def digest() -> str:
    """sha256 of every number that the estimator decides with: it has no weights, and sealed seeds must follow from something."""
    numbers: dict[str, Any] = {
        f"{module.__name__}.{name}": value
        for module in (estimator, learned_profiles, waiting)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, (int, float, tuple))
    }
    return sha256(repr(sorted(numbers.items())).encode()).hexdigest()


def cells(seeds: Sequence[int], policies: Sequence[str], *, quick: bool, traced: bool = False) -> list[KubeCell]:
    """Worlds with a bound on all seeds, printed ones and those of profiles on half of them; none where none of the rules is asked for."""
    own = {rule.name for rule in RULES}
    if not own.intersection(policies):
        return []
    every = tuple(p for p in policies if p in (*own, BASE, "least-connections", "faasrank"))
    lean = tuple(p for p in every if p in (BASE, *_LEAN))
    half = seeds[: max(len(seeds) // 2, 1)]
    groups = [(scenario, seeds, every) for scenario in (JUDGED[:2] if quick else JUDGED)]
    groups += [(scenario, half, every) for scenario in (() if quick else PRINTED)]
    profiled = PROFILED[2:4] if quick else PROFILED
    if not quick and DEFAULT in policies:
        groups += [(scenario, half, (*lean, UNGUARDED.name)) for scenario in (BLIND, with_history(BLIND))]
    groups += [(scenario, half, lean) for base in profiled for scenario in (base, with_history(base))]
    names = MULTI[:2] if quick else MULTI
    hours = [KubeCell(trace.NAME, TRACED, seed, every) for seed in (seeds[:1] if quick else half)] if traced else []
    return [*(KubeCell(name, scenario, seed, p) for scenario, chosen, p in groups for name in names for seed in chosen), *hours]


def play(cell: KubeCell, others: Mapping[str, AnyPlayer], trace_dir: Path | None = None) -> list[Row]:
    """Every policy of a cell on the same calls; hashing is always there, since shares are of its time."""
    functions = FUNCTIONS
    if cell.workload == trace.NAME and trace_dir is not None:
        traced = trace.read_functions(trace_dir)
        functions, workload = traced.models, trace.hour(traced, cell.seed)
    else:
        workload = make_workload(cell.workload, "test", cell.seed, cell.scenario.cluster.nodes)
    played = {
        name: play_kube(workload, player_of(name, others, cell.scenario.name), cell.scenario, functions=functions)
        for name in dict.fromkeys(("hashing", *cell.policies))
    }
    hashing_s = float(played["hashing"].calls.completion_s.mean())
    return [_row(cell, policy, records, hashing_s) for policy, records in played.items()]


def _row(cell: KubeCell, policy: str, records: KubeRecords, hashing_s: float) -> Row:
    times, nodes = records.calls.completion_s, cell.scenario.cluster.nodes
    held = records.held_s > 0
    return {
        "workload": cell.workload,
        "scenario": cell.scenario.name,
        "history": "one-minute" if cell.scenario.history else "none",
        "policy": policy,
        "nodes": nodes,
        "seed": cell.seed,
        "calls": len(times),
        "mean_s": round(float(times.mean()), 5),
        "p50_s": round(float(np.percentile(times, 50)), 4),
        "p95_s": round(float(np.percentile(times, 95)), 4),
        "p99_s": round(float(np.percentile(times, 99)), 4),
        "pct_of_hashing": round(100 * float(times.mean()) / hashing_s, 3),
        "cold_starts": int(records.calls.cold.sum()),
        "inflight_lower_share": None,
        "jain_fairness": None if cell.workload == trace.NAME else round(jain(list(stretch(records.calls).values())), 4),
        "fullest_share": round(fullest_share(records.calls, nodes), 4),
        "held_share": round(float(held.mean()), 4),
        "longest_hold_s": round(float(records.held_s.max()), 3),
    }


class _Table:
    """(scenario, history, policy) -> [seeds, workloads] of a column."""

    def __init__(self, rows: Sequence[Row], column: str) -> None:
        self._cells: dict[tuple[str, str, str], dict[tuple[int, str], float]] = {}
        for row in rows:
            self._cells.setdefault((row["scenario"], row["history"], row["policy"]), {})[row["seed"], row["workload"]] = row[column]

    def worlds(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((scenario, history) for scenario, history, _ in self._cells))

    def policies(self, world: tuple[str, str]) -> list[str]:
        return [policy for scenario, history, policy in self._cells if (scenario, history) == world]

    def has(self, world: tuple[str, str], policy: str) -> bool:
        return (*world, policy) in self._cells

    def ratio(self, world: tuple[str, str], policy: str, other: str, other_world: tuple[str, str] | None = None) -> list[float]:
        """One number a seed: the mean over workloads of what one policy has over the other."""
        mine, base = self._cells[*world, policy], self._cells[*(other_world or world), other]
        seeds = sorted({seed for seed, _ in mine})
        names = sorted({name for _, name in mine})
        return [float(np.mean([mine[seed, name] / base[seed, name] for name in names])) for seed in seeds]


def is_kube(row: Row) -> bool:
    """Whether a row was played under Kubernetes' filter."""
    return "history" in row


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Mean and p99 over those of warm-first as it landed, and over rule-6, by world and policy."""
    result: list[Row] = []
    for column, label in (("mean_s", "mean"), ("p99_s", "p99")):
        table = _Table(rows, column)
        for world in table.worlds():
            for other in (BASE, _STRONGEST):
                for policy in table.policies(world) if table.has(world, other) else ():
                    line = {
                        "scenario": world[0],
                        "history": world[1],
                        "workload": trace.NAME if world[0] == TRACED_WORLD else "M1-M10",
                        "policy": policy,
                        "metric": f"{label} over {other}",
                    }
                    result.append(line | interval(table.ratio(world, policy, other)).as_json(4))
            if table.has(world, NETWORK) and table.has(world, DEFAULT):
                line = {
                    "scenario": world[0],
                    "history": world[1],
                    "workload": "M1-M10",
                    "policy": NETWORK,
                    "metric": f"{label} over {DEFAULT}",
                }
                result.append(line | interval(table.ratio(world, NETWORK, DEFAULT)).as_json(4))
    return result


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What is promised of the default under Kubernetes' filter."""
    mean, p99 = _Table(rows, "mean_s"), _Table(rows, "p99_s")
    result: list[Claim] = []
    clear = 0.0
    judged = [(scenario.name, "none") for scenario in JUDGED]
    for world in (w for w in judged if mean.has(w, DEFAULT) and mean.has(w, BASE)):
        if world[0] in _BOUNDS:
            over = interval(mean.ratio(world, DEFAULT, BASE))
            result.append(Claim(f"{world[0]}-over-{BASE}", round(over.mean, 4), _BOUNDS[world[0]], "<="))
            tail = interval(p99.ratio(world, DEFAULT, BASE))
            result.append(Claim(f"{world[0]}-p99-over-{BASE}", round(tail.mean, 4), 1.0, "<="))
        if mean.has(world, _STRONGEST):
            over = interval(mean.ratio(world, DEFAULT, _STRONGEST))
            result.append(Claim(f"{world[0]}-over-{_STRONGEST}-ci95-high", _high(over), _NOT_ABOVE[world[0]], "<="))
            clear += over.mean < _CLEARLY
    if any(mean.has(world, _STRONGEST) for world in judged):
        result.append(Claim(f"worlds-clearly-ahead-of-{_STRONGEST}", clear, _CLEAR_WORLDS, ">="))
    return [*result, *_network_claims(mean), *_profile_claims(mean)]


def _network_claims(mean: _Table) -> list[Claim]:
    """The network is clearly ahead of the estimator in some worlds, and behind it in none."""
    worlds = [(scenario.name, "none") for scenario in JUDGED if mean.has((scenario.name, "none"), NETWORK)]
    highs = {world[0]: _high(interval(mean.ratio(world, NETWORK, DEFAULT))) for world in worlds if mean.has(world, DEFAULT)}
    found = [Claim(f"{name}-{NETWORK}-over-{DEFAULT}-ci95-high", high, _NETWORK_LOSS, "<=") for name, high in highs.items()]
    ahead = float(sum(high < 1.0 for high in highs.values()))
    return [*found, *([Claim(f"worlds-{NETWORK}-ahead-of-{DEFAULT}", ahead, _NETWORK_WORLDS, ">=")] if found else [])]


def _profile_claims(mean: _Table) -> list[Claim]:
    """However little or wrongly functions are declared, never above the best rule that learns from nothing."""
    result = []
    for world in mean.worlds():
        nothing = (_NOTHING_DECLARED, world[1])
        rivals = [rule for rule in ("warm-first-books", "warm-first-waits", _STRONGEST) if mean.has(nothing, rule)]
        if "profiles" not in world[0] or not mean.has(world, DEFAULT) or not rivals:
            continue
        worst = max(interval(mean.ratio(world, DEFAULT, rival, nothing)).mean for rival in rivals)  # over the fastest of them
        suffix = "after-a-minute" if world[1] != "none" else "from-empty"
        result.append(Claim(f"{world[0]}-{suffix}-over-best-undeclared-rule", round(worst, 4), _PROFILE_LOSS, "<="))
    return result


def _high(found: Interval) -> float:
    return round(found.mean if found.ci95_high is None else found.ci95_high, 4)


def table(summary: Sequence[Row]) -> list[Row]:
    """Worlds by policies, mean completion over warm-first's, with the default's p99 and its lead over rule-6."""
    found = {(r["scenario"], r["history"], r["metric"], r["policy"]): r for r in summary if "history" in r}
    elsewhere = (BLIND_WORLD, TRACED_WORLD)
    worlds = dict.fromkeys((scenario, history) for scenario, history, _, _ in found if scenario not in elsewhere)
    lines = []
    for scenario, history in worlds:

        def of(policy: str, metric: str, scenario: str = scenario, history: str = history) -> str:
            row = found.get((scenario, history, metric, policy))
            if row is None:
                return ""
            return _ends(row)

        lines.append(
            {
                "world": f"`{scenario}`" + (", after a minute" if history != "none" else ""),
                **{f"`{player.name}`": of(player.name, f"mean over {BASE}") for player in RULES},
                "`faasrank`": of("faasrank", f"mean over {BASE}"),
                "`estimator`, p99": of(DEFAULT, f"p99 over {BASE}"),
                "`estimator` ÷ `rule-6`": of(DEFAULT, f"mean over {_STRONGEST}"),
                "`estimator-network` ÷ `estimator`": of(NETWORK, f"mean over {DEFAULT}"),
            }
        )
    return lines


def network_table(summary: Sequence[Row]) -> list[Row]:
    """The network over the estimator by world: means, p99 and seeds."""
    own = [row for row in summary if row["policy"] == NETWORK]
    found = {(row["scenario"], row["history"], row["metric"]): row for row in own if row["metric"].endswith(DEFAULT)}
    worlds = dict.fromkeys((scenario, history) for scenario, history, _ in found)
    return [
        {
            "world": f"`{scenario}`" + (", after a minute" if history != "none" else ""),
            "seeds": found[scenario, history, f"mean over {DEFAULT}"]["n"],
            **{f"{label} ÷ `{DEFAULT}`": _ends(found[scenario, history, f"{label} over {DEFAULT}"]) for label in ("mean", "p99")},
        }
        for scenario, history in worlds
    ]


def _ends(row: Row) -> str:
    return f"{row['mean']:.3f}" if row["ci95_low"] is None else f"{row['mean']:.3f} ({row['ci95_low']:.3f}–{row['ci95_high']:.3f})"


def of_one_world(rows: Sequence[Row], world: str) -> list[Row]:
    """A line a policy and history of a world that has a table of its own: seconds, cold starts, who waited, and both over warm-first."""
    own = [row for row in rows if is_kube(row) and row["scenario"] == world]
    mean, p99 = _Table(own, "mean_s"), _Table(own, "p99_s")
    lines = []
    for found in mean.worlds():
        for policy in mean.policies(found) if mean.has(found, BASE) else ():
            mine = [row for row in own if (row["history"], row["policy"]) == (found[1], policy)]
            over, tail = (interval(table.ratio(found, policy, BASE)) for table in (mean, p99))
            lines.append(
                {
                    "policy": f"`{policy}`" + (", after a minute" if found[1] != "none" else ""),
                    "mean s": f"{np.mean([row['mean_s'] for row in mine]):.3f}",
                    "p99 s": f"{np.mean([row['p99_s'] for row in mine]):.2f}",
                    "cold starts": f"{np.mean([row['cold_starts'] / row['calls'] for row in mine]):.1%}",
                    "waited": f"{np.mean([row['held_share'] for row in mine]):.1%}",
                    "mean ÷ `warm-first`": _with_interval(over),
                    "p99 ÷ `warm-first`": _with_interval(tail),
                    "seeds": len({row["seed"] for row in mine}),
                }
            )
    return lines


def _with_interval(found: Interval) -> str:
    shown = found.as_json(3)  # of a single seed there is none
    return f"{found.mean:.3f}" if shown["ci95_low"] is None else f"{found.mean:.3f} ({shown['ci95_low']:.3f}–{shown['ci95_high']:.3f})"

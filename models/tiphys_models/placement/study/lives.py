"""Long-lived pods in the placement study: cells, rows, summary and claims, made and judged beside those of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Row, Trivial
from tiphys_models.placement.sim.lives.episode import (
    KUBE,
    MOST,
    LivesResult,
    learned,
    learned_points,
    play,
    static_rule,
    true_lives,
    volume_bound,
)
from tiphys_models.placement.sim.lives.tuning import TUNED_WEIGHTS, WORLD_WEIGHTS
from tiphys_models.placement.sim.lives.world import PREDICTABLE, WORLDS, LivesWorld, make_pods

BAR, LEARNED, TUNED = "most-allocated", "lifetimes", "packing-6"
POLICIES = (BAR, "kube-default", TUNED, "packing-6-per-world", "lifetimes-points", LEARNED, "lifetimes-true", "volume")
"""`packing-6`: six weights, tuned once for all worlds, and for each; `lifetimes-points`: each pod by its expected rest alone;
`lifetimes-true` and `volume` are bounds."""
SCENARIOS = tuple(world.name for world in WORLDS)
WORKLOAD = "second-day"
TITLE = "long-lived-pods"
_METRICS = ("node_hours", "slowdown")
_PREDICTABLE_LIMIT, _OTHER_LIMIT = 0.95, 1.01


@dataclass(frozen=True, slots=True)
class LivesCell:
    """One world and seed."""

    scenario: LivesWorld
    seed: int
    policies: tuple[str, ...]
    workload: str = WORKLOAD
    traced: bool = False


def cells(policies: Sequence[str], seeds: Sequence[int], *, quick: bool) -> list[LivesCell]:
    """Every world and seed, if any of the policies is played here."""
    here = tuple(p for p in POLICIES if p in policies)
    return [LivesCell(world, seed, here) for world in WORLDS for seed in (seeds[:1] if quick else seeds)] if here else []


def play_cell(cell: LivesCell) -> list[Row]:
    """Every policy of a cell on the same pods; most-allocated is always there, since shares are of its node-hours."""
    pods = make_pods(cell.scenario, "test", cell.seed)
    rules = {
        BAR: MOST,
        "kube-default": KUBE,
        TUNED: static_rule(TUNED_WEIGHTS),
        "packing-6-per-world": static_rule(WORLD_WEIGHTS[cell.scenario.name]),
        "lifetimes-points": learned_points(),
        LEARNED: learned(),
        "lifetimes-true": true_lives(),
    }
    names = dict.fromkeys((BAR, *(p for p in cell.policies if p in rules)))
    rows = [_row(cell, name, play(cell.scenario, pods, rules[name])) for name in names]
    if "volume" in cell.policies:
        unknown = dict.fromkeys(rows[0])
        hours = round(volume_bound(pods), 4)
        rows.append(unknown | _cell(cell, "volume") | {"node_hours": hours})
    return rows


def _cell(cell: LivesCell, policy: str) -> Row:
    return {"workload": cell.workload, "scenario": cell.scenario.name, "policy": policy, "seed": cell.seed}


def _row(cell: LivesCell, policy: str, found: LivesResult) -> Row:
    times = found.completion_s
    return _cell(cell, policy) | {
        "nodes": found.most_nodes,
        "calls": found.pods,
        "mean_s": round(float(times.mean()), 3),
        "p50_s": round(float(np.percentile(times, 50)), 3),
        "p95_s": round(float(np.percentile(times, 95)), 3),
        "p99_s": round(float(np.percentile(times, 99)), 3),
        "pct_of_hashing": None,
        "cold_starts": None,
        "inflight_lower_share": None,
        "jain_fairness": None,
        "node_hours": round(found.node_hours, 4),
        "slowdown": round(found.slowdown, 6),
        "pending_mean_s": round(float(found.waited_s.mean()), 4),
        "pending_p99_s": round(float(np.percentile(found.waited_s, 99)), 3),
    }


def _figures(rows: Sequence[Row], scenario: str, column: str) -> dict[str, np.ndarray[Any, Any]]:
    """policy -> one figure a seed, in order of seeds."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["scenario"] == scenario and row.get(column) is not None:
            found.setdefault(row["policy"], {})[row["seed"]] = row[column]
    return {policy: np.array([by_seed[seed] for seed in sorted(by_seed)]) for policy, by_seed in found.items()}


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Node-hours and slowdown of each policy over most-allocated's, paired by seed; those of lifetimes over the tuned rules', too."""
    result: list[Row] = []
    for scenario in SCENARIOS:
        for metric in _METRICS:
            table = _figures(rows, scenario, metric)
            pairs = [(policy, BAR) for policy in table] + [(LEARNED, other) for other in (TUNED, "packing-6-per-world", "lifetimes-points")]
            for policy, other in pairs:
                if policy in table and other in table:
                    line: Row = {"scenario": scenario, "workload": WORKLOAD, "policy": policy, "metric": f"{metric} over {other}"}
                    result.append(line | interval((table[policy] / table[other]).tolist()).as_json(4))
    return result


def table(summary: Sequence[Row]) -> list[Row]:
    """Every policy in every world, and lifetimes over the others that come near."""
    found = {(s["scenario"], s["policy"], s["metric"]): s for s in summary if s["workload"] == WORKLOAD}
    lines: list[Row] = []
    for scenario in SCENARIOS:
        for policy in POLICIES:
            hours, slow = (found.get((scenario, policy, f"{metric} over {BAR}")) for metric in _METRICS)
            if hours is None or policy == BAR:
                continue
            over = found.get((scenario, LEARNED, f"node_hours over {policy}"))
            lines.append(
                {
                    "scenario": f"`{scenario}`",
                    "policy": f"`{policy}`",
                    "node-hours": _shown(hours),
                    "slowdown": _shown(slow),
                    "node-hours of `lifetimes` over this policy's": _shown(over),
                    "seeds": hours["n"],
                }
            )
    return lines


def _shown(line: Row | None) -> str:
    if line is None:
        return ""
    return f"{line['mean']:.3f}" + ("" if line["ci95_low"] is None else f" ({line['ci95_low']:.3f}–{line['ci95_high']:.3f})")


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What lifetimes are held to in each world, with the value that most-allocated would have in their place."""
    result: list[Claim] = []
    for scenario in SCENARIOS:
        hours, slow = (_figures(rows, scenario, metric) for metric in _METRICS)
        if LEARNED not in hours:
            continue
        limit = _PREDICTABLE_LIMIT if scenario == PREDICTABLE.name else _OTHER_LIMIT
        mean, high = _ratio(hours[LEARNED], hours[BAR])
        one = Trivial(BAR, 1.0)
        if scenario == PREDICTABLE.name:
            result.append(Claim(f"lifetimes-node-hours-{scenario}", mean, limit, "<=", one))
        result.append(Claim(f"lifetimes-node-hours-{scenario}-ci95-high", high, limit, "<=", one))
        if scenario != PREDICTABLE.name:  # not behind is one thing, ahead another
            result.append(Claim(f"lifetimes-over-{BAR}-{scenario}-ci95-high", high, 0.9999, "<=", one))
        result.append(Claim(f"lifetimes-slowdown-{scenario}-ci95-high", _ratio(slow[LEARNED], slow[BAR])[1], 1.0, "<=", one))
        for other in (TUNED, "packing-6-per-world"):
            if other in hours:
                trivial = replace(one, value=_ratio(hours[BAR], hours[other])[1])
                high = _ratio(hours[LEARNED], hours[other])[1]
                result.append(Claim(f"lifetimes-over-{other}-{scenario}-ci95-high", high, 0.9999, "<=", trivial))
    return result


def settings() -> Mapping[str, Any]:
    """The tuned weights, for whoever reads the result."""
    return {TUNED: list(TUNED_WEIGHTS), "packing-6-per-world": {name: list(weights) for name, weights in WORLD_WEIGHTS.items()}}


def _ratio(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(mean, upper end of the interval) of the paired ratio; an end beyond the fourth digit is noise of the arithmetic."""
    found = interval((mine / other).tolist())
    return round(found.mean, 4), round(found.ci95_high, 4)

"""What rows of `tiphys bench selection` say together: the best fixed policy in hindsight, best columns, means with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiphys_cli.bench.report import Row, interval
from tiphys_models.planners.registry import HEURISTICS, PAPER

FIGURES = ("cost_usd", "energy_kwh", "response_s", "sla_violation", "j", "cpu_pct", "scheduling_s", "switches")
COLUMNS = FIGURES[:4]
SINGLE = (*PAPER, *HEURISTICS)
BASELINES = (*SINGLE, "ucb", "dqn")
"""Rows that the paper's four improvements are measured against."""


def pick(rows: Iterable[Row], **fields: object) -> list[Row]:
    """Rows with these values, by seed."""
    return sorted((r for r in rows if all(r[k] == v for k, v in fields.items())), key=lambda r: int(r["seed"]))


def groups(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """(workload, scenario, weights), in the order played."""
    return list(dict.fromkeys((r["workload"], r["scenario"], r["weights"]) for r in rows))


def mean(rows: Sequence[Row], key: str) -> float:
    """Over seeds."""
    return sum(float(r[key]) for r in rows) / len(rows)


def by_policy(rows: Sequence[Row], workload: str, scenario: str, weights: str) -> dict[str, list[Row]]:
    """Rows of one group."""
    there = [r for r in rows if (r["workload"], r["scenario"], r["weights"]) == (workload, scenario, weights)]
    return {policy: pick(there, policy=policy) for policy in dict.fromkeys(r["policy"] for r in there)}


def with_best_fixed(rows: list[Row]) -> list[Row]:
    """And, for every group, the single planner or heuristic with the lowest mean J again under the name `best-fixed`."""
    added = []
    for group in groups(rows):
        single = {p: r for p, r in by_policy(rows, *group).items() if p in SINGLE}
        if single:
            best = min(single, key=lambda p: mean(single[p], "j"))
            added += [{**row, "policy": "best-fixed", "of": best} for row in single[best]]
    return [*rows, *added]


def best_columns(rows: Sequence[Row], workload: str) -> Row:
    """The best mean of each column over the baselines, and whose it is."""
    there = {p: r for p, r in by_policy(rows, workload, "default", "default").items() if p in BASELINES}
    best: Row = {}
    for key in COLUMNS if there else ():
        means = {p: mean(r, key) for p, r in there.items()}
        policy = min(means, key=means.__getitem__)
        best[key] = {"value": means[policy], "policy": policy}
    return best


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Mean and interval over seeds of every figure; J also relative to the best fixed policy and to the twin, paired by seed."""
    summary: list[Row] = []
    for workload, scenario, weights in groups(rows):
        table = by_policy(rows, workload, scenario, weights)
        for policy, mine in table.items():
            measured = {figure: [float(r[figure]) for r in mine] for figure in FIGURES}
            for other in ("best-fixed", "twin"):
                if other in table and policy != other:
                    measured[f"j_over_{other}_pct"] = paired_pct(mine, table[other], "j")
            key = {"workload": workload, "scenario": scenario, "weights": weights, "policy": policy}
            summary += [{**key, "metric": metric, **interval(values).as_json()} for metric, values in measured.items()]
    return summary


def paired_pct(mine: Sequence[Row], other: Sequence[Row], key: str) -> list[float]:
    """100 x (mine / other - 1), seed by seed."""
    theirs = {r["seed"]: float(r[key]) for r in other}
    return [100 * (float(r[key]) / theirs[r["seed"]] - 1) for r in mine if r["seed"] in theirs]

"""What rows of `tiphys bench binding` say together: means with intervals, and paired differences to the best static policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiphys_cli.bench.binding_play import BLIND
from tiphys_cli.bench.report import Row, interval
from tiphys_models.binding.rules import PAPER, STATIC

Group = tuple[str, str, str, float, str]
"""Topology, scenario, arrivals, lambda, application."""
Table = dict[tuple[str, int | None], list[Row]]
"""Rows by policy and training seed."""


def group_of(row: Row) -> Group:
    """Where a row belongs."""
    return row["topology"], row["scenario"], row["arrivals"], row["lambda_per_min"], row["application"]


def tables(rows: Iterable[Row]) -> dict[Group, Table]:
    """Groups in the order played; rows by seed."""
    found: dict[Group, Table] = {}
    for row in rows:
        found.setdefault(group_of(row), {}).setdefault((row["policy"], row["training_seed"]), []).append(row)
    return found


def mean(rows: Sequence[Row], key: str = "success") -> float:
    """Over seeds."""
    return sum(float(r[key]) for r in rows) / len(rows)


def points(mine: Sequence[Row], other: Sequence[Row], key: str = "success") -> list[float]:
    """Differences in percentage points, seed by seed."""
    theirs = {r["seed"]: float(r[key]) for r in other}
    return [100 * (float(r[key]) - theirs[r["seed"]]) for r in mine if r["seed"] in theirs]


def best_static(table: Table) -> str | None:
    """The static policy (or relative-load) with the highest mean success."""
    there = {policy: mean(r) for (policy, _), r in table.items() if policy in STATIC}
    return max(there, key=there.__getitem__) if there else None


def with_blind(rows: list[Row]) -> list[Row]:
    """And, for every group of all applications together, the better of the blind comparators again under the name `blind`."""
    added = []
    for group, table in tables(rows).items():
        there = {p: r for (p, _), r in table.items() if p in BLIND}
        if there and group[-1] == "all":
            best = max(there, key=lambda p: mean(there[p]))
            added += [{**row, "policy": "blind", "of": best} for row in there[best]]
    return [*rows, *added]


def oracle_shares(table: Table) -> dict[str, float]:
    """What the oracle gains over the best of the seven, in points, and each agent's gain as a share of that; a figure, no claim.

    Nothing unless all of the seven are there."""
    oracle = table.get(("oracle", None))
    if oracle is None or any((policy, None) not in table for policy in PAPER):
        return {}
    seeds = {r["seed"] for r in oracle}

    def there(rows: Sequence[Row]) -> float:
        return 100 * mean([r for r in rows if r["seed"] in seeds])

    best = max(there(rows) for (policy, _), rows in table.items() if policy in PAPER)
    gain = there(oracle) - best
    others = {
        f"{p}-{k}" if k is not None else p: rows for (p, k), rows in table.items() if p.startswith("aset") or p in ("score", "random")
    }
    return {"oracle_gain_points": gain, **{name: (there(rows) - best) / max(gain, 1e-9) for name, rows in others.items()}}


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Mean and interval of every figure, and of success over the best static policy of the group, in points."""
    summary: list[Row] = []
    for group, table in tables(rows).items():
        static = best_static(table)
        for (policy, training_seed), mine in table.items():
            key: Row = dict(zip(("topology", "scenario", "arrivals", "lambda_per_min", "application"), group, strict=True))
            measured = {figure: [float(r[figure]) for r in mine] for figure in ("success", "reject", "failure")}
            if static is not None:
                measured["over_best_static_points"] = points(mine, table[static, None])
            key |= {"policy": policy, "training_seed": training_seed, "best_static": static}
            summary += [{**key, "metric": metric, **interval(values).as_json()} for metric, values in measured.items()]
    return summary

"""What rows of the study of streams say together: means with intervals, paired differences to the best static policy, and claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from tiphys_models.lab.intervals import FloatArray, Interval, interval, over_training_seeds
from tiphys_models.lab.report import Claim, Row
from tiphys_models.streams.rules import PAPER, STATIC
from tiphys_models.streams.sim.scenario import LAMBDA, UNSEEN_LAMBDAS
from tiphys_models.streams.study.play import BLIND

_ABOVE_ZERO = 1e-9
_AGENT = "aset"
EVERY = "all"
"""Stands for all training seeds together, in summaries."""
Group = tuple[str, str, str, float, str]
"""Topology, scenario, arrivals, lambda, application."""
Table = dict[tuple[str, int | None], list[Row]]
"""Rows by policy and training seed."""


FIGURES = ("success", "reject", "failure")


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
    """Mean of a column over the rows (one a seed)."""
    return sum(float(r[key]) for r in rows) / len(rows)


def points(mine: Sequence[Row], other: Sequence[Row], key: str = "success") -> list[float]:
    """Differences in percentage points, seed by seed."""
    theirs = {r["seed"]: float(r[key]) for r in other}
    return [100 * (float(r[key]) - theirs[r["seed"]]) for r in mine if r["seed"] in theirs]


def over(mine: Sequence[Sequence[Row]], other: Sequence[Row], key: str = "success") -> Interval:
    """The paired difference of an agent's rows by training seed to another's, in points; both kinds of seeds are random effects."""
    return over_training_seeds(_matrix([points(rows, other, key) for rows in mine]))


def _matrix(columns: Sequence[Sequence[float]]) -> FloatArray:
    """Training seeds x seeds, as many seeds as every training seed has."""
    shortest = min(len(column) for column in columns)
    return np.array([column[:shortest] for column in columns], np.float64)


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
    """Mean and interval of every figure, and of success over the best static policy of the group, in points.

    Of an agent with several training seeds there is one line for each, and one for all together.
    """
    summary: list[Row] = []
    for group, table in tables(rows).items():
        static = best_static(table)
        base = dict(zip(("topology", "scenario", "arrivals", "lambda_per_min", "application"), group, strict=True))
        for (policy, training_seed), mine in table.items():
            key = {**base, "policy": policy, "training_seed": training_seed, "best_static": static}
            summary += _lines(key, {f: interval([float(r[f]) for r in mine]) for f in FIGURES}, [mine], table, static)
        for policy in dict.fromkeys(policy for policy, _ in table):
            if len(several := agents(table, policy)) > 1:
                key = {**base, "policy": policy, "training_seed": EVERY, "best_static": static}
                found = {f: over_training_seeds(_matrix([[float(r[f]) for r in own] for own in several])) for f in FIGURES}
                summary += _lines(key, found, several, table, static)
    return summary


def _lines(key: Row, found: dict[str, Interval], mine: Sequence[Sequence[Row]], table: Table, static: str | None) -> list[Row]:
    if static is not None:
        found["over_best_static_points"] = over(mine, table[static, None])
    return [{**key, "metric": metric, **value.as_json()} for metric, value in found.items()]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Each figure that is promised, with its bound; training seeds are a random effect."""
    found = tables(rows)
    made: list[Claim] = []
    edge = found.get(_default("full-edge", LAMBDA), {})
    if (best := best_static(edge)) is not None:
        success = 100 * mean(edge[best, None])
        made += [Claim("best-static-success-pct-full-edge-60-high", round(success, 2), 85.0, "<=")]
        made += [Claim("best-static-success-pct-full-edge-60-low", round(success, 2), 75.0, ">=")]
    for rate in sorted((LAMBDA, *UNSEEN_LAMBDAS)):
        made += _edge(found.get(_default("full-edge", rate), {}), rate)
    made += _elsewhere(found)
    made += _blind(edge)
    made += _switching(edge)
    for group, table in found.items():
        if group[2] != "poisson" and group[-1] == "all" and (least := least_over_statics(table)) is not None:
            made.append(Claim(f"aset-over-every-static-points-{group[2]}", round(least.mean, 2), 3.0, ">="))
    made += _applications(found)
    return made


def _default(topology: str, rate: float) -> Group:
    return topology, "default", "poisson", rate, "all"


def agents(table: Table, policy: str = _AGENT) -> list[list[Row]]:
    """Rows of every training seed."""
    return [r for (name, _), r in table.items() if name == policy]


def least_over_statics(table: Table, policy: str = _AGENT, among: Collection[str] = STATIC) -> Interval | None:
    """The paired difference to the static policy that comes nearest."""
    mine = agents(table, policy)
    found = [over(mine, theirs) for (name, _), theirs in table.items() if name in among] if mine else []
    return min(found, key=lambda i: (i.mean, i.ci95_low), default=None)


def _edge(table: Table, rate: float) -> Iterator[Claim]:
    least = least_over_statics(table)
    best = best_static(table)
    if least is None or best is None:
        return
    bound = 2.0 if rate == LAMBDA else 1.5
    yield Claim(f"aset-over-every-static-points-full-edge-{rate:g}", round(least.mean, 2), bound, ">=")
    yield Claim(f"aset-over-every-static-points-ci95-low-full-edge-{rate:g}", round(least.ci95_low, 2), _ABOVE_ZERO, ">=")
    if (published := least_over_statics(table, among=PAPER)) is not None:
        yield Claim(f"aset-over-the-published-seven-points-full-edge-{rate:g}", round(published.mean, 2), bound, ">=")
    rejects = over(agents(table), table[best, None], "reject").mean
    yield Claim(f"aset-rejects-over-best-static-points-full-edge-{rate:g}", round(rejects, 2), 0.5, "<=")


def _elsewhere(found: dict[Group, Table]) -> Iterator[Claim]:
    co = least_over_statics(found.get(_default("co-dc-cloud", LAMBDA), {}))
    if co is not None:
        yield Claim("aset-over-every-static-points-co-dc-cloud-60", round(co.mean, 2), 1.0, ">=")
    table = found.get(_default("dc-cloud", LAMBDA), {})
    best = best_static(table)
    if agents(table) and best is not None:
        away = abs(over(agents(table), table[best, None]).mean)
        yield Claim("aset-from-best-static-points-either-way-dc-cloud-60", round(away, 2), 1.0, "<=")


def _blind(table: Table) -> Iterator[Claim]:
    rivals = [rows for (name, _), rows in table.items() if name in ("blind", "random")]
    if rivals and agents(table):
        least = min((over(agents(table), theirs) for theirs in rivals), key=lambda i: (i.mean, i.ci95_low))
        yield Claim("aset-over-best-blind-points-full-edge-60", round(least.mean, 2), 1.0, ">=")
        yield Claim("aset-over-best-blind-points-ci95-low-full-edge-60", round(least.ci95_low, 2), _ABOVE_ZERO, ">=")


def _switching(table: Table) -> Iterator[Claim]:
    """Learned switching counts only against the agent's own best fixed action."""
    for policy in ("aset", "aset-wide"):
        pairs = [
            (rows, table[f"{policy}-fixed", seed])
            for (name, seed), rows in table.items()
            if name == policy and (f"{policy}-fixed", seed) in table
        ]
        if pairs:
            low = over_training_seeds(_matrix([points(mine, fixed) for mine, fixed in pairs])).ci95_low
            yield Claim(f"{policy}-switching-over-own-best-fixed-points-ci95-low-full-edge-60", round(low, 3), _ABOVE_ZERO, ">=")


def _applications(found: dict[Group, Table]) -> Iterator[Claim]:
    """Two applications whose best static policies differ, each by so many points over the other's best: of the paper's seven at the
    calibrated rate, and with relative load among them at any rate."""
    for name, among, rates in (("seven", PAPER, (LAMBDA,)), ("eight", tuple(STATIC), (LAMBDA, *UNSEEN_LAMBDAS))):
        tried = [pair for rate in rates for pair in _pairs(found, among, rate)]
        if tried:
            gap, low, names = max(tried)
            yield Claim(f"applications-differ-points-of-{name}-{names}", round(gap, 2), 3.0, ">=")
            yield Claim(f"applications-differ-points-ci95-low-of-{name}-{names}", round(low, 2), _ABOVE_ZERO, ">=")


def _pairs(found: dict[Group, Table], among: Sequence[str], rate: float) -> Iterator[tuple[float, float, str]]:
    """(the smaller gap, its lower end, applications with their best policies)."""
    here = {
        group[-1]: {key: rows for key, rows in table.items() if key[0] in among}
        for group, table in found.items()
        if group[:4] == _default("full-edge", rate)[:4] and group[-1] != "all"
    }
    for a, b in combinations((name for name, table in here.items() if table), 2):
        first, second = best_static(here[a]), best_static(here[b])
        if first is not None and second is not None and first != second:
            gaps = [
                interval(points(here[a][first, None], here[a][second, None])),
                interval(points(here[b][second, None], here[b][first, None])),
            ]
            yield min(g.mean for g in gaps), min(g.ci95_low for g in gaps), f"{a}-{first}-{b}-{second}-{rate:g}"

"""Claims of `tiphys bench binding`, from rows alone; those that do not hold are printed all the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from tiphys_cli.bench.binding_summary import Group, Table, best_static, mean, points, tables
from tiphys_cli.bench.report import Claim, Row, interval
from tiphys_models.binding.rules import PAPER, STATIC
from tiphys_models.sim.binding.scenario import LAMBDA, UNSEEN_LAMBDAS

_ABOVE_ZERO = 1e-9
_AGENT = "aset"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Each figure that is promised, with its bound; where there are several training seeds, of the worst."""
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
        if group[2] != "poisson" and group[-1] == "all" and (over := worst_over_statics(table)) is not None:
            made.append(Claim(f"aset-over-every-static-points-{group[2]}", round(over[0], 2), 3.0, ">="))
    made += _applications(found)
    return made


def _default(topology: str, rate: float) -> Group:
    return topology, "default", "poisson", rate, "all"


def agents(table: Table, policy: str = _AGENT) -> list[list[Row]]:
    """Rows of every training seed."""
    return [r for (name, _), r in table.items() if name == policy]


def worst_over_statics(table: Table, policy: str = _AGENT, among: Collection[str] = STATIC) -> tuple[float, float] | None:
    """Mean and lower end of the paired difference to the static policy that comes nearest, of the worst training seed."""
    found = [
        min(((i := interval(points(mine, theirs))).mean, i.ci95_low) for (name, _), theirs in table.items() if name in among)
        for mine in agents(table, policy)
        if any(name in among for name, _ in table)
    ]
    return min(found) if found else None


def _edge(table: Table, rate: float) -> Iterator[Claim]:
    over = worst_over_statics(table)
    best = best_static(table)
    if over is None or best is None:
        return
    bound = 2.0 if rate == LAMBDA else 1.5
    yield Claim(f"aset-over-every-static-points-full-edge-{rate:g}", round(over[0], 2), bound, ">=")
    yield Claim(f"aset-over-every-static-points-ci95-low-full-edge-{rate:g}", round(over[1], 2), _ABOVE_ZERO, ">=")
    if (published := worst_over_statics(table, among=PAPER)) is not None:
        yield Claim(f"aset-over-the-published-seven-points-full-edge-{rate:g}", round(published[0], 2), bound, ">=")
    rejects = max(interval(points(mine, table[best, None], "reject")).mean for mine in agents(table))
    yield Claim(f"aset-rejects-over-best-static-points-full-edge-{rate:g}", round(rejects, 2), 0.5, "<=")


def _elsewhere(found: dict[Group, Table]) -> Iterator[Claim]:
    co = worst_over_statics(found.get(_default("co-dc-cloud", LAMBDA), {}))
    if co is not None:
        yield Claim("aset-over-every-static-points-co-dc-cloud-60", round(co[0], 2), 1.0, ">=")
    table = found.get(_default("dc-cloud", LAMBDA), {})
    best = best_static(table)
    if agents(table) and best is not None:
        away = max(abs(interval(points(mine, table[best, None])).mean) for mine in agents(table))
        yield Claim("aset-from-best-static-points-either-way-dc-cloud-60", round(away, 2), 1.0, "<=")


def _blind(table: Table) -> Iterator[Claim]:
    rivals = [rows for (name, _), rows in table.items() if name in ("blind", "random")]
    if rivals and agents(table):
        over = min(((i := interval(points(mine, theirs))).mean, i.ci95_low) for mine in agents(table) for theirs in rivals)
        yield Claim("aset-over-best-blind-points-full-edge-60", round(over[0], 2), 1.0, ">=")
        yield Claim("aset-over-best-blind-points-ci95-low-full-edge-60", round(over[1], 2), _ABOVE_ZERO, ">=")


def _switching(table: Table) -> Iterator[Claim]:
    """Learned switching counts only against the agent's own best fixed action."""
    for policy in ("aset", "aset-wide"):
        pairs = [
            (rows, table[f"{policy}-fixed", seed])
            for (name, seed), rows in table.items()
            if name == policy and (f"{policy}-fixed", seed) in table
        ]
        if pairs:
            low = min(interval(points(mine, fixed)).ci95_low for mine, fixed in pairs)
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

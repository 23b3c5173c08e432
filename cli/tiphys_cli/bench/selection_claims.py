"""Claims of `tiphys bench selection`, from rows alone; those that do not hold are printed all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tiphys_cli.bench.report import Claim, Row, interval
from tiphys_cli.bench.selection_summary import BASELINES, COLUMNS, SINGLE, best_columns, by_policy, mean, paired_pct
from tiphys_models.planners.registry import HEURISTICS, PAPER
from tiphys_models.sim.cloud.workloads import WORKLOADS

PAPER_GAINS = {"cost_usd": 8.0, "energy_kwh": 20.0, "response_s": 5.0, "sla_violation": 10.0}
"""Percent below the best row of each column, all at once: the paper's claim as first set; physics forbids it (docs/selection.md)."""
_SLA = 0.10
_MINUTES = 30.0
Table = dict[str, list[Row]]


def claims(rows: Sequence[Row], max_min: Mapping[str, Sequence[Row]], wall_seconds: float) -> list[Claim]:
    """Each figure that is promised, with its bound."""
    found: list[Claim] = []
    for workload in WORKLOADS:
        table = by_policy(rows, workload, "default", "default")
        if "metanet" in table:
            found += _gains(rows, table, workload)
            found += _dominated(table, workload)
            found += _j(table, workload)
            found += _cost_at_sla(by_policy(rows, workload, "default", "cost-at-sla"), workload)
        if max_min.get(workload):
            best = max(max_min[workload], key=lambda point: min(point["gains_pct"].values()))
            for key, bound in PAPER_GAINS.items():
                found.append(Claim(f"max-min-oracle-{key}-gain-pct-{workload}", round(best["gains_pct"][key], 2), bound, ">="))
        if {"twin", "best-fixed"} <= set(table):
            gain = -interval(paired_pct(table["twin"], table["best-fixed"], "j")).mean
            # below 2 %, one policy is enough on that workload, and the documentation says so
            found.append(Claim(f"twin-gain-over-best-fixed-pct-{workload}", round(gain, 2), 2.0, ">="))
        if {"oracle", "twin", "best-fixed"} <= set(table):
            least = min(mean(table["twin"], "j"), mean(table["best-fixed"], "j"))
            found.append(Claim(f"oracle-over-best-other-{workload}", round(mean(table["oracle"], "j") / least, 4), 1.0, "<="))
    found.append(Claim("wall-minutes", round(wall_seconds / 60, 1), _MINUTES, "<="))
    return found


def _gains(rows: Sequence[Row], table: Table, workload: str) -> Iterator[Claim]:
    best = best_columns(rows, workload)
    for key, bound in PAPER_GAINS.items():
        gain = 100 * (1 - mean(table["metanet"], key) / max(best[key]["value"], 1e-9))
        yield Claim(f"metanet-{key}-gain-pct-{workload}", round(gain, 2), bound, ">=")


def _dominated(table: Table, workload: str) -> Iterator[Claim]:
    mine = [mean(table["metanet"], key) for key in COLUMNS]
    rows = (([mean(r, key) for key in COLUMNS]) for policy, r in table.items() if policy in BASELINES)
    count = sum(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in rows)
    yield Claim(f"rows-that-dominate-metanet-{workload}", float(count), 0.0, "<=")


def _j(table: Table, workload: str) -> Iterator[Claim]:
    over = interval(paired_pct(table["metanet"], table["best-fixed"], "j"))
    yield Claim(f"metanet-j-over-best-fixed-pct-{workload}", round(over.mean, 3), -1.0 if workload == "regime" else 1.0, "<=")
    if workload == "regime":
        yield Claim("metanet-j-over-best-fixed-pct-ci95-high-regime", round(over.ci95_high, 3), -1e-9, "<=")
    if "twin" in table:
        behind = interval(paired_pct(table["metanet"], table["twin"], "j")).mean
        yield Claim(f"metanet-j-over-twin-pct-{workload}", round(behind, 3), 8.0, "<=")
    for other in ("ucb", "dqn"):
        if other in table:
            high = interval(paired_pct(table["metanet"], table[other], "j")).ci95_high
            yield Claim(f"metanet-j-over-{other}-pct-ci95-high-{workload}", round(high, 3), -1e-9, "<=")


def _cost_at_sla(table: Table, workload: str) -> Iterator[Claim]:
    """USD against the cheapest single planner, and the cheapest heuristic, among those that keep violations at 10 %."""
    mine = table.get("metanet")
    if not mine:
        return
    yield Claim(f"metanet-cost-at-sla-violation-{workload}", round(mean(mine, "sla_violation"), 4), _SLA, "<=")
    for kind, names, bound in (("planner", PAPER, -10.0 if workload == "stationary" else -5.0), ("heuristic", HEURISTICS, 0.0)):
        keeping = {p: r for p, r in table.items() if p in names and p in SINGLE and mean(r, "sla_violation") <= _SLA}
        if keeping:
            cheapest = min(keeping.values(), key=lambda r: mean(r, "cost_usd"))
            over = interval(paired_pct(mine, cheapest, "cost_usd")).mean
            yield Claim(f"metanet-cost-at-sla-over-cheapest-{kind}-pct-{workload}", round(over, 3), bound, "<=")

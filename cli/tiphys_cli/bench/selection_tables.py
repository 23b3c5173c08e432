"""Tables of `tiphys bench selection` for people: rows as in the paper's table 1, then everything else relative to the best fixed policy."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_cli.bench.report import Result, Row
from tiphys_cli.bench.selection_summary import FIGURES, groups

_DIGITS = {"cost_usd": 4, "energy_kwh": 4, "response_s": 2, "sla_violation": 3, "j": 4, "cpu_pct": 1, "scheduling_s": 4, "switches": 0}


def tables(result: Result) -> Sequence[tuple[str, Sequence[Row]]]:
    """One table a workload and weights of the default scenario, then sensitivity."""
    made = [
        (f"{workload}, weights {weights}", _table(result.summary, workload, weights))
        for workload, scenario, weights in groups(result.rows)
        if scenario == "default" and not weights.startswith("sweep")
    ]
    return [*made, ("J against the best fixed policy, %, by scenario", _scenarios(result.summary))]


def _table(summary: Sequence[Row], workload: str, weights: str) -> list[Row]:
    lines: dict[str, Row] = {}
    for s in summary:
        if (s["workload"], s["scenario"], s["weights"]) != (workload, "default", weights):
            continue
        line = lines.setdefault(s["policy"], {"policy": s["policy"]})
        if s["metric"] in FIGURES:
            line[s["metric"]] = f"{s['mean']:.{_DIGITS[s['metric']]}f}"
        elif s["metric"] == "j_over_best-fixed_pct":
            line["over best fixed, %"] = f"{s['mean']:+.2f} ({s['ci95_low']:+.2f}..{s['ci95_high']:+.2f})"
    return sorted(lines.values(), key=lambda line: float(line["j"]))


def _scenarios(summary: Sequence[Row]) -> list[Row]:
    lines: dict[tuple[str, str], Row] = {}
    for s in summary:
        if s["metric"] == "j_over_best-fixed_pct" and s["weights"] == "default":
            key = (s["workload"], s["scenario"])
            lines.setdefault(key, {"workload": key[0], "scenario": key[1]})[s["policy"]] = f"{s['mean']:+.1f}"
    return list(lines.values())

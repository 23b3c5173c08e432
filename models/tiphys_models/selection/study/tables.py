"""The tables of the selection study: every policy by workload and weights, gains, the sweep, scenarios, the cards' own lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiphys_models.lab.documents import Tables
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Result, Row
from tiphys_models.selection.sim.workloads import WORKLOADS
from tiphys_models.selection.study.figures import PAPER_GAINS, SINGLE, by_policy, mean, paired_pct

LEARNED = ("metanet", "metanet-paper", "dqn")
_FIGURES = {
    "cost_usd": ("USD", 1, ".4f"),
    "energy_kwh": ("kWh", 1, ".4f"),
    "response_s": ("response s", 1, ".2f"),
    "sla_violation": ("missed %", 100, ".1f"),
    "j": ("J", 1, ".4f"),
    "cpu_pct": ("CPU %", 1, ".1f"),
    "scheduling_s": ("scheduling ms", 1000, ".1f"),
    "switches": ("switches", 1, ".0f"),
}
_BILL = ("cost_usd", "sla_violation", "energy_kwh", "response_s", "j")


def titles(policies: Sequence[str]) -> list[str]:
    """The tables that a run with these policies may have; whether a policy has weights, the run will say."""
    tables = [f"{table}-{w}" for table in ("table", "cost-at-sla") for w in WORKLOADS]
    learned = [f"{part}-{policy}" for part in ("seeds", "digest") for policy in policies]
    return ["run", *tables, "gains", "enough", "sweep", "scenarios", *LEARNED, *learned]


def tables(result: Result) -> Tables:
    """Everything, the published table first."""
    return [
        ("run", _run(result)),
        *((f"table-{w}", _table(result.rows, w, "default", tuple(_FIGURES), "j")) for w in WORKLOADS),
        *((f"cost-at-sla-{w}", _table(result.rows, w, "cost-at-sla", _BILL, "cost_usd")) for w in WORKLOADS),
        ("gains", _gains(result)),
        ("enough", _enough(result)),
        ("sweep", _sweep(result)),
        ("scenarios", _scenarios(result)),
        *((name, _card(result, name)) for name in LEARNED),
        *((f"seeds-{name}", _seeds(found)) for name, found in result.inputs["training"].items()),
        *((f"digest-{name}", f"sha256 of the weights: `{digest}`") for name, digest in result.inputs["models"].items()),
    ]


def _run(result: Result) -> str:
    seeds = ", ".join(map(str, result.seeds))
    length = max((r["intervals"] for r in result.rows), default=0)
    return (
        f"Seeds {seeds} of the test split, {length:,} intervals, {result.wall_seconds / 60:.0f} minutes. "
        f"Under the weights `cost-at-sla` a missed deadline costs {result.inputs['cost_at_sla']['missed_usd']:g} USD. "
        "Means over seeds; in brackets 95 % intervals of paired differences."
    )


def _columns(rows: Sequence[Row], keys: Sequence[str]) -> Row:
    return {_FIGURES[key][0]: format(_FIGURES[key][1] * mean(rows, key), _FIGURES[key][2]) for key in _FIGURES if key in keys}


def _table(rows: Sequence[Row], workload: str, weights: str, figures: Sequence[str], order: str) -> list[Row]:
    policies = by_policy(rows, workload, "default", weights)
    best = policies.get("best-fixed", [])
    return [
        {
            "policy": f"`{policy}`" + (f" (`{policies[policy][0]['of']}`)" if policy == "best-fixed" else ""),
            **_columns(policies[policy], figures),
            "J over best fixed, %": "" if policy == "best-fixed" else _pct(paired_pct(policies[policy], best, "j")),
        }
        for policy in sorted(policies, key=lambda p: mean(policies[p], order))
    ]


def _pct(values: Sequence[float]) -> str:
    found = interval(values) if values else None
    if found is None:
        return ""
    return f"{found.mean:+.1f} ({found.ci95_low:+.1f} to {found.ci95_high:+.1f})" if math.isfinite(found.ci95_low) else f"{found.mean:+.1f}"


def _gains(result: Result) -> list[Row]:
    claims = {c.id: c.value for c in result.claims}
    lines = []
    for workload in WORKLOADS:
        for key, bound in PAPER_GAINS.items():
            best = result.inputs["best_columns"][workload].get(key)
            mine, bounds = (claims.get(f"{who}-{key}-gain-pct-{workload}") for who in ("metanet", "max-min-oracle"))
            title, scale, form = _FIGURES[key]
            lines.append(
                {
                    "workload": workload,
                    "column": title,
                    "best row of it": "" if best is None else f"{scale * best['value']:{form}} (`{best['policy']}`)",
                    "first target, %": f"{bound:g}",
                    "`metanet`, %": "" if mine is None else f"{mine:+.0f}",
                    "best oracle found, %": "" if bounds is None else f"{bounds:+.0f}",
                }
            )
    return lines


def _enough(result: Result) -> list[Row]:
    lines = []
    for workload in WORKLOADS:
        policies = by_policy(result.rows, workload, "default", "default")
        if not {"twin", "metanet", "best-fixed"} <= set(policies):
            continue
        best = policies["best-fixed"]
        over = {name: paired_pct(policies[name], best, "j") for name in ("twin", "metanet")}
        lines.append(
            {
                "workload": workload,
                "best fixed": f"`{best[0]['of']}`",
                "`twin` over it, J %": _pct(over["twin"]),
                "`metanet` over it, J %": _pct(over["metanet"]),
                "so": "one policy is enough" if -interval(over["twin"]).mean < 2.0 else "switching pays",
            }
        )
    return lines


def _sweep(result: Result) -> list[Row]:
    lines = []
    for workload in WORKLOADS:
        for key in result.inputs["weights"]:
            mine = by_policy(result.rows, workload, "default", key).get("metanet") if key.startswith("sweep") else None
            if mine:
                weights = key.removeprefix("sweep-").replace("-", " / ")
                lines.append({"workload": workload, "cost / energy / response / missed, %": weights, **_columns(mine, tuple(PAPER_GAINS))})
    return lines


def _scenarios(result: Result) -> list[Row]:
    lines = []
    for workload, scenario in dict.fromkeys((r["workload"], r["scenario"]) for r in result.rows):
        policies = by_policy(result.rows, workload, scenario, "default")
        if scenario == "default" or "best-fixed" not in policies:
            continue
        best = policies["best-fixed"]
        shown = {f"`{p}`": _pct(paired_pct(policies.get(p, []), best, "j")) for p in ("metanet", *SINGLE)}
        lines.append({"workload": workload, "scenario": scenario, **shown})
    return lines


def _card(result: Result, name: str) -> list[Row]:
    lines = []
    for workload in WORKLOADS:
        for weights in ("default", "cost-at-sla"):
            policies = by_policy(result.rows, workload, "default", weights)
            if name not in policies:
                continue
            mine = policies[name]
            lines.append(
                {
                    "workload": workload,
                    "weights": weights,
                    "J over best fixed, %": _pct(paired_pct(mine, policies.get("best-fixed", []), "j")),
                    "J over `twin`, %": _pct(paired_pct(mine, policies.get("twin", []), "j")),
                    "USD": f"{mean(mine, 'cost_usd'):.4f}",
                    "missed %": f"{100 * mean(mine, 'sla_violation'):.1f}",
                }
            )
    return lines


def _seeds(found: Sequence[Row]) -> list[Row]:
    return [
        {
            "training seed": f"{s['seed']}{' (shipped)' if index == 0 else ''}",
            **{key.replace("/", ", "): f"{value:.3f}" for key, value in s["validation_j_over_best_fixed"].items()},
            "mean": f"{s['mean']:.3f}",
        }
        for index, s in enumerate(found)
    ]

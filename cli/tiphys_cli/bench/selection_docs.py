"""The tables that documents have of `tiphys bench selection`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiphys_cli.bench.documents import claim_line, table
from tiphys_cli.bench.report import Result, Row, interval
from tiphys_cli.bench.selection_claims import PAPER_GAINS
from tiphys_cli.bench.selection_summary import SINGLE, by_policy, mean, paired_pct
from tiphys_models.sim.cloud.workloads import WORKLOADS

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


def marks(policies: Sequence[str]) -> list[str]:
    """Of all blocks that a run with these policies may have; whether a policy has weights, the run will say."""
    tables = [f"{table}-{w}" for table in ("table", "cost-at-sla") for w in WORKLOADS]
    learned = [f"{part}-{policy}" for part in ("seeds", "digest") for policy in policies]
    return ["run", *tables, "gains", "enough", "sweep", "scenarios", "claims", *LEARNED, *learned]


def blocks(result: Result) -> Mapping[str, str]:
    """By name."""
    return {
        "run": _run(result),
        **{f"table-{w}": _table(result.rows, w, "default", tuple(_FIGURES), "j") for w in WORKLOADS},
        **{f"cost-at-sla-{w}": _table(result.rows, w, "cost-at-sla", _BILL, "cost_usd") for w in WORKLOADS},
        "gains": _gains(result),
        "enough": _enough(result),
        "sweep": _sweep(result),
        "scenarios": _scenarios(result),
        "claims": table(("claim", "value", "bound", ""), [claim_line(c) for c in result.claims]),
        **{name: _card(result, name) for name in LEARNED},
        **{f"seeds-{name}": _seeds(found) for name, found in result.inputs["training"].items()},
        **{f"digest-{name}": f"sha256 of the weights: `{digest}`" for name, digest in result.inputs["models"].items()},
    }


def _run(result: Result) -> str:
    seeds = ", ".join(map(str, result.seeds))
    length = max((r["intervals"] for r in result.rows), default=0)
    return (
        f"Seeds {seeds} of the test split, {length:,} intervals, {result.wall_seconds / 60:.0f} minutes. "
        f"Under the weights `cost-at-sla` a missed deadline costs {result.inputs['cost_at_sla']['missed_usd']:g} USD. "
        "Means over seeds; in brackets 95 % intervals of paired differences."
    )


def _table(rows: Sequence[Row], workload: str, weights: str, figures: Sequence[str], order: str) -> str:
    policies = by_policy(rows, workload, "default", weights)
    best = policies.get("best-fixed", [])
    lines = []
    for policy in sorted(policies, key=lambda p: mean(policies[p], order)):
        mine = policies[policy]
        name = f"`{policy}`" + (f" (`{mine[0]['of']}`)" if policy == "best-fixed" else "")
        values = [format(scale * mean(mine, key), form) for key, (_, scale, form) in _FIGURES.items() if key in figures]
        lines.append([name, *values, "" if policy == "best-fixed" else _pct(paired_pct(mine, best, "j"))])
    return table(("policy", *(title for key, (title, _, _) in _FIGURES.items() if key in figures), "J over best fixed, %"), lines)


def _pct(values: Sequence[float]) -> str:
    found = interval(values)
    return f"{found.mean:+.1f} ({found.ci95_low:+.1f} to {found.ci95_high:+.1f})" if found.n > 1 else f"{found.mean:+.1f}"


def _gains(result: Result) -> str:
    claims = {c.id: c.value for c in result.claims}
    lines = []
    for workload in WORKLOADS:
        for key, bound in PAPER_GAINS.items():
            best = result.inputs["best_columns"][workload].get(key)
            mine, bounds = (claims.get(f"{who}-{key}-gain-pct-{workload}") for who in ("metanet", "max-min-oracle"))
            title, scale, form = _FIGURES[key]
            of = "" if best is None else f"{scale * best['value']:{form}} (`{best['policy']}`)"
            lines.append([workload, title, of, f"{bound:g}", *("" if v is None else f"{v:+.0f}" for v in (mine, bounds))])
    head = ("workload", "column", "best row of it", "first target, %", "`metanet`, %", "best oracle found, %")
    return table(head, lines)


def _enough(result: Result) -> str:
    lines = []
    for workload in WORKLOADS:
        policies = by_policy(result.rows, workload, "default", "default")
        if not {"twin", "metanet", "best-fixed"} <= set(policies):
            continue
        best = policies["best-fixed"]
        over = {name: paired_pct(policies[name], best, "j") for name in ("twin", "metanet")}
        verdict = "one policy is enough" if -interval(over["twin"]).mean < 2.0 else "switching pays"
        lines.append([workload, f"`{best[0]['of']}`", _pct(over["twin"]), _pct(over["metanet"]), verdict])
    return table(("workload", "best fixed", "`twin` over it, J %", "`metanet` over it, J %", "so"), lines)


def _sweep(result: Result) -> str:
    lines = []
    for workload in WORKLOADS:
        for key in result.inputs["weights"]:
            mine = by_policy(result.rows, workload, "default", key).get("metanet") if key.startswith("sweep") else None
            if mine:
                figures = [format(s * mean(mine, k), form) for k, (_, s, form) in _FIGURES.items() if k in PAPER_GAINS]
                lines.append([workload, key.removeprefix("sweep-").replace("-", " / "), *figures])
    head = ("workload", "cost / energy / response / missed, %", *(_FIGURES[k][0] for k in PAPER_GAINS))
    return table(head, lines)


def _scenarios(result: Result) -> str:
    lines = []
    for workload, scenario in dict.fromkeys((r["workload"], r["scenario"]) for r in result.rows):
        policies = by_policy(result.rows, workload, scenario, "default")
        if scenario == "default" or "best-fixed" not in policies:
            continue
        best = policies["best-fixed"]
        shown = [_pct(paired_pct(policies[p], best, "j")) if p in policies else "" for p in ("metanet", *SINGLE)]
        lines.append([workload, scenario, *shown])
    return table(("workload", "scenario", *(f"`{p}`" for p in ("metanet", *SINGLE))), lines)


def _card(result: Result, name: str) -> str:
    lines = []
    for workload in WORKLOADS:
        for weights in ("default", "cost-at-sla"):
            policies = by_policy(result.rows, workload, "default", weights)
            if name not in policies:
                continue
            mine = policies[name]
            over = [_pct(paired_pct(mine, policies[other], "j")) if other in policies else "" for other in ("best-fixed", "twin")]
            missed = 100 * mean(mine, "sla_violation")
            lines.append([workload, weights, *over, f"{mean(mine, 'cost_usd'):.4f}", f"{missed:.1f}"])
    return table(("workload", "weights", "J over best fixed, %", "J over `twin`, %", "USD", "missed %"), lines)


def _seeds(found: Sequence[Row]) -> str:
    keys = list(found[0]["validation_j_over_best_fixed"])
    lines = [
        [
            f"{s['seed']}{' (shipped)' if index == 0 else ''}",
            *(f"{s['validation_j_over_best_fixed'][k]:.3f}" for k in keys),
            f"{s['mean']:.3f}",
        ]
        for index, s in enumerate(found)
    ]
    return table(("training seed", *(k.replace("/", ", ") for k in keys), "mean"), lines)

"""The tables that documents have of `tiphys bench placement`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiphys_cli.bench.documents import claim_line, table
from tiphys_cli.bench.placement import LEARNED
from tiphys_cli.bench.report import Result, Row

_SCENARIO_POLICIES = ("least-connections", "static-rank", "static-rank-tuned", "warm-first", "faasrank", "clairvoyant")
_COLUMNS = {
    "mean_s": ("mean s", ".2f"),
    "p95_s": ("p95 s", ".1f"),
    "p99_s": ("p99 s", ".1f"),
    "cold_starts": ("cold starts", ".0f"),
    "inflight_lower_share": ("fewest in flight", ".0%"),
    "jain_fairness": ("Jain over functions", ".2f"),
}
_OVER = ("static-rank", "least-connections", "warm-first")


def marks(policies: Sequence[str]) -> list[str]:
    """Of all blocks that a run with these policies will have."""
    return ["short", "policies", "workloads", "scenarios", "claims", "speed", "digests", *(f"seeds-{p}" for p in LEARNED if p in policies)]


def blocks(result: Result) -> Mapping[str, str]:
    """By name."""
    training: Mapping[str, Sequence[Row]] = result.inputs.get("training", {})
    seeds = {f"seeds-{policy}": _seeds(found) for policy, found in training.items()}
    return {
        "short": _short(result),
        "policies": _policies(result),
        "workloads": _workloads(result),
        "scenarios": _scenarios(result),
        "claims": _claims(result),
        "speed": _speed(result),
        "digests": _digests(result),
        **seeds,
    }


class _Figures:
    """(scenario, workload, metric) -> {policy: summary row}."""

    def __init__(self, result: Result) -> None:
        self._found: dict[tuple[str, str, str], dict[str, Row]] = {}
        for row in result.summary:
            self._found.setdefault((row["scenario"], row["workload"], row["metric"]), {})[row["policy"]] = row

    def __call__(self, scenario: str, workload: str = "M1-M10", metric: str = "pct_of_hashing") -> dict[str, Row]:
        return self._found.get((scenario, workload, metric), {})

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(s for s, _, metric in self._found if metric == "pct_of_hashing"))

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(w for s, w, metric in self._found if s == "default" and metric == "pct_of_hashing"))


def _policies(result: Result) -> str:
    figures = _Figures(result)
    percents, azure = figures("default"), figures("default", "azure")
    columns = {metric: figures("default", metric=metric) for metric in _COLUMNS}
    lines = []
    for policy in sorted(percents, key=lambda p: -float(percents[p]["mean"])):
        means = [_mean(found.get(policy), _COLUMNS[metric][1]) for metric, found in columns.items()]
        lines.append([f"`{policy}`", _interval(percents[policy]), *means, _interval(azure.get(policy))])
    titles = (title for title, _ in _COLUMNS.values())
    return table(("policy", "M1–M10, % of hashing", *titles, "Azure rows, % of hashing"), lines)


def _short(result: Result) -> str:
    figures = _Figures(result)
    percents, azure, p99 = figures("default"), figures("default", "azure"), figures("default", metric="p99_s")
    chosen = [p for p in ("hashing", *_SCENARIO_POLICIES) if p in percents]
    lines = [[f"`{p}`", _interval(percents[p]), _mean(p99.get(p), ".1f"), _interval(azure.get(p))] for p in chosen]
    return table(("policy", "mean completion, % of hashing", "p99 s", "on rows of the Azure trace"), lines)


def _workloads(result: Result) -> str:
    figures = _Figures(result)
    policies = sorted(figures("default"), key=lambda p: -float(figures("default")[p]["mean"]))
    lines = []
    for workload in figures.workloads():
        found = figures("default", workload)
        lines.append([workload, *(_mean(found.get(p), ".1f") for p in policies)])
    return table(("workload", *(f"`{p}`" for p in policies)), lines)


def _scenarios(result: Result) -> str:
    figures = _Figures(result)
    lines = []
    for scenario in figures.scenarios():
        found = figures(scenario)
        ratios = [_interval(figures(scenario, metric=f"over {other}").get("faasrank"), ".2f") for other in _OVER]
        lines.append([scenario, str(found["hashing"]["n"]), *(_mean(found.get(p), ".1f") for p in _SCENARIO_POLICIES), *ratios])
    head = ("scenario", "seeds", *(f"`{p}`" for p in _SCENARIO_POLICIES), *(f"`faasrank` ÷ `{p}`" for p in _OVER))
    return table(head, lines)


def _claims(result: Result) -> str:
    lines = [claim_line(c) for c in result.claims if not c.id.startswith("never-behind") or not c.holds]
    behind = [c for c in result.claims if c.id.startswith("never-behind") and c.holds and c.value is not None]
    if behind:
        worst = max(behind, key=lambda c: c.value or 0.0)
        lines.append([f"never-behind-…: the other {len(behind)}, largest ({worst.id})", f"{worst.value:.4g}", worst.bound, "hold"])
    return table(("claim", "value", "bound", ""), lines)


def _seeds(found: Sequence[Row]) -> str:
    lines = [
        [f"{s['seed']}{' (shipped)' if index == 0 else ''}", f"{s['validation_pct_of_hashing']:.2f}", f"{s['test_pct_of_hashing']:.2f}",
         str(s["best_step"]), str(s["episodes"]), f"{s['seconds']:.0f}"]
        for index, s in enumerate(found)
    ]  # fmt: skip
    return table(("training seed", "validation, % of hashing", "test, % of hashing", "best step", "episodes", "seconds"), lines)


def _speed(result: Result) -> str:
    found = [s for s in result.summary if s["metric"] == "calls_per_s"]
    return table(
        ("policy", "calls/s, median round", "fastest"), [[f"`{s['policy']}`", f"{s['median']:,}", f"{s['fastest']:,}"] for s in found]
    )


def _digests(result: Result) -> str:
    return table(("model", "sha256 of the weights"), [[f"`{policy}`", f"`{digest}`"] for policy, digest in result.inputs["models"].items()])


def _mean(row: Mapping[str, Any] | None, form: str) -> str:
    return "" if row is None else format(row["mean"], form)


def _interval(row: Mapping[str, Any] | None, form: str = ".1f") -> str:
    return "" if row is None else f"{row['mean']:{form}} ({row['ci95_low']:{form}}–{row['ci95_high']:{form}})"

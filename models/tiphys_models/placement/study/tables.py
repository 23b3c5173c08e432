"""The tables of the placement study: policies, workloads, scenarios, training seeds, speed, digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiphys_models.lab.documents import Tables, claim_row
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.placement.study import kube, lives
from tiphys_models.placement.study.figures import LEARNED

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
_BEHIND = "never-behind"


def titles(policies: Sequence[str]) -> list[str]:
    """The tables that a run with these policies will have."""
    return [
        "short",
        "policies",
        "workloads",
        "scenarios",
        kube.TITLE,
        kube.NETWORK_TITLE,
        kube.BLIND_TITLE,
        kube.TRACED_TITLE,
        "speed",
        "digests",
        lives.TITLE,
        *(f"seeds-{p}" for p in LEARNED if p in policies),
    ]


def tables(result: Result) -> Tables:
    """Policies on M1-M10, by workload and by scenario; the training seeds of every network, the shipped one first."""
    training: Mapping[str, Sequence[Row]] = result.inputs.get("training", {})
    figures = _Figures(result)
    return [
        ("short", _short(figures)),
        ("policies", _policies(figures)),
        ("workloads", _workloads(figures)),
        ("scenarios", _scenarios(figures)),
        (kube.TITLE, kube.table([row for row in result.summary if "history" in row])),
        (kube.NETWORK_TITLE, kube.network_table([row for row in result.summary if "history" in row])),
        (kube.BLIND_TITLE, kube.of_one_world(result.rows, kube.BLIND_WORLD)),
        (kube.TRACED_TITLE, kube.of_one_world(result.rows, kube.TRACED_WORLD)),
        ("speed", _speed(result)),
        ("digests", [{"model": f"`{p}`", "sha256 of the weights": f"`{digest}`"} for p, digest in result.inputs["models"].items()]),
        (lives.TITLE, lives.table(result.summary)),
        *((f"seeds-{policy}", _seeds(found)) for policy, found in training.items()),
    ]


class _Figures:
    """(scenario, workload, metric) -> {policy: summary row}."""

    def __init__(self, result: Result) -> None:
        self._found: dict[tuple[str, str, str], dict[str, Row]] = {}
        for row in (row for row in result.summary if "history" not in row):
            self._found.setdefault((row["scenario"], row["workload"], row["metric"]), {})[row["policy"]] = row

    def __call__(self, scenario: str, workload: str = "M1-M10", metric: str = "pct_of_hashing") -> dict[str, Row]:
        return self._found.get((scenario, workload, metric), {})

    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(s for s, _, metric in self._found if metric == "pct_of_hashing"))

    def workloads(self) -> list[str]:
        return list(dict.fromkeys(w for s, w, metric in self._found if s == "default" and metric == "pct_of_hashing"))


def _policies(figures: _Figures) -> list[Row]:
    percents, azure = figures("default"), figures("default", "azure")
    columns = {metric: figures("default", metric=metric) for metric in _COLUMNS}
    return [
        {
            "policy": f"`{policy}`",
            "M1–M10, % of hashing": _interval(percents[policy]),
            **{title: _mean(columns[metric].get(policy), form) for metric, (title, form) in _COLUMNS.items()},
            "Azure rows, % of hashing": _interval(azure.get(policy)),
        }
        for policy in sorted(percents, key=lambda p: -float(percents[p]["mean"]))
    ]


def _short(figures: _Figures) -> list[Row]:
    percents, azure, p99 = figures("default"), figures("default", "azure"), figures("default", metric="p99_s")
    return [
        {
            "policy": f"`{policy}`",
            "mean completion, % of hashing": _interval(percents[policy]),
            "p99 s": _mean(p99.get(policy), ".1f"),
            "on rows of the Azure trace": _interval(azure.get(policy)),
        }
        for policy in ("hashing", *_SCENARIO_POLICIES)
        if policy in percents
    ]


def _workloads(figures: _Figures) -> list[Row]:
    policies = sorted(figures("default"), key=lambda p: -float(figures("default")[p]["mean"]))
    return [
        {"workload": workload, **{f"`{p}`": _mean(figures("default", workload).get(p), ".1f") for p in policies}}
        for workload in figures.workloads()
    ]


def _scenarios(figures: _Figures) -> list[Row]:
    return [
        {
            "scenario": scenario,
            "seeds": figures(scenario)["hashing"]["n"],
            **{f"`{p}`": _mean(figures(scenario).get(p), ".1f") for p in _SCENARIO_POLICIES},
            **{f"`faasrank` ÷ `{p}`": _interval(figures(scenario, metric=f"over {p}").get("faasrank"), ".2f") for p in _OVER},
        }
        for scenario in figures.scenarios()
    ]


def claim_rows(claims: Sequence[Claim]) -> list[Row]:
    """Every claim; of those never to be behind that hold, the largest stands for all."""
    lines = [claim_row(c) for c in claims if not c.id.startswith(_BEHIND) or not c.holds]
    behind = [c for c in claims if c.id.startswith(_BEHIND) and c.holds]
    if behind:
        worst = max(behind, key=lambda c: c.value or 0.0)
        lines.append({**claim_row(worst), "claim": f"{_BEHIND}-…: the other {len(behind)}, largest ({worst.id})"})
    return lines


def _seeds(found: Sequence[Row]) -> list[Row]:
    return [
        {
            "training seed": f"{s['seed']}{' (shipped)' if index == 0 else ''}",
            "validation, % of hashing": f"{s['validation_pct_of_hashing']:.2f}",
            "test, % of hashing": f"{s['test_pct_of_hashing']:.2f}",
            "best step": str(s["best_step"]),
            "episodes": str(s["episodes"]),
            "seconds": f"{s['seconds']:.0f}",
        }
        for index, s in enumerate(found)
    ]


def _speed(result: Result) -> list[Row]:
    found = [s for s in result.summary if s["metric"] == "calls_per_s"]
    return [{"policy": f"`{s['policy']}`", "calls/s, median round": f"{s['median']:,}", "fastest": f"{s['fastest']:,}"} for s in found]


def _mean(row: Mapping[str, Any] | None, form: str) -> str:
    return "" if row is None else format(row["mean"], form)


def _interval(row: Mapping[str, Any] | None, form: str = ".1f") -> str:
    if row is None or row["ci95_low"] is None:
        return _mean(row, form)
    return f"{row['mean']:{form}} ({row['ci95_low']:{form}}–{row['ci95_high']:{form}})"

"""Pictures of `tiphys bench placement`, drawn from the result alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tiphys_models.lab.report import Result

mpl.use("Agg")

_COLOURS = {"faasrank": "#d9822b", "faasrank-paper": "#e8c39e", "warm-first": "#5b8c5a", "static-rank": "#2f6f9f", "clairvoyant": "#222222"}
_OTHERS = "#c0c7cf"


def draw(result: Result, directory: Path) -> None:
    """completion.svg, inflight.svg, fairness.svg and ages.svg."""
    _completion(result, directory / "completion.svg")
    _inflight(result, directory / "inflight.svg")
    _fairness(result, directory / "fairness.svg")
    _scenarios(result, directory / "scenarios.svg")


def _policies(result: Result) -> list[str]:
    return list(dict.fromkeys(row["policy"] for row in result.rows if row["scenario"] == "default"))


def _pct(result: Result, scenario: str) -> dict[str, dict[str, Any]]:
    chosen = (s for s in result.summary if s["metric"] == "pct_of_hashing" and s["scenario"] == scenario and s["workload"] == "M1-M10")
    return {s["policy"]: s for s in chosen}


def _completion(result: Result, path: Path) -> None:
    figures = _pct(result, "default")
    names = sorted(figures, key=lambda p: figures[p]["mean"])
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    means = np.array([figures[p]["mean"] for p in names])
    ends = np.array([[figures[p]["mean"] - figures[p]["ci95_low"], figures[p]["ci95_high"] - figures[p]["mean"]] for p in names]).T
    axes.barh(names, means, xerr=ends, color=[_COLOURS.get(p, _OTHERS) for p in names])
    axes.invert_yaxis()
    axes.set_xlabel("mean completion time, % of hashing (mean over M1-M10, 95 % interval over seeds)")
    figure.savefig(path)


def _inflight(result: Result, path: Path) -> None:
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for policy, calls in result.inputs["inflight_over_time"].items():
        axes.plot(np.arange(len(calls)) * 0.5, calls, label=policy, color=_COLOURS.get(policy), alpha=1.0 if policy in _COLOURS else 0.5)
    axes.set_xlabel("seconds")
    axes.set_ylabel("calls in flight, workload M5")
    axes.legend(fontsize=8)
    figure.savefig(path)


def _fairness(result: Result, path: Path) -> None:
    rows = [row for row in result.rows if row["scenario"] == "default" and str(row["workload"]).startswith("M")]
    functions = list(dict.fromkeys(name for row in rows for name in row["stretch"]))
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    policies = [p for p in _policies(result) if p in ("hashing", "least-connections", "static-rank", "warm-first", "faasrank")]
    width = 0.8 / max(len(policies), 1)
    for index, policy in enumerate(policies):
        means = [float(np.mean([row["stretch"][f] for row in rows if row["policy"] == policy and f in row["stretch"]])) for f in functions]
        axes.bar(np.arange(len(functions)) + index * width, means, width, label=policy, color=_COLOURS.get(policy, _OTHERS))
    axes.set_xticks(np.arange(len(functions)) + 0.4, functions)
    axes.set_ylabel("mean completion ÷ a lone cold call")
    axes.legend(fontsize=8)
    figure.savefig(path)


def _scenarios(result: Result, path: Path) -> None:
    scenarios = list(dict.fromkeys(row["scenario"] for row in result.rows if row["pct_of_hashing"] is not None))
    policies = [p for p in ("least-connections", "static-rank", "warm-first", "faasrank") if p in _policies(result)]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(policies), 1)
    for index, policy in enumerate(policies):
        means = [_pct(result, s).get(policy, {}).get("mean", np.nan) for s in scenarios]
        axes.bar(np.arange(len(scenarios)) + index * width, means, width, label=policy, color=_COLOURS.get(policy, _OTHERS))
    axes.set_xticks(np.arange(len(scenarios)) + 0.4, scenarios, rotation=40, ha="right", fontsize=8)
    axes.set_ylabel("% of hashing")
    axes.legend(fontsize=8)
    figure.savefig(path)

"""Pictures of the selection study, drawn from the result alone."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tiphys_models.lab.report import Result, Row
from tiphys_models.selection.study.figures import SINGLE

mpl.use("Agg")

_COLOURS = ("#2f6f9f", "#d9822b", "#5b8c5a", "#8e6bbf", "#c94c4c", "#8c6d46", "#4aa5a5", "#c9a227", "#7f8fa6", "#444444")


def draw(result: Result, directory: Path) -> None:
    """over-time-WORKLOAD.svg (cost, with the selected policy as bands) and pareto-WORKLOAD.svg (the weight sweep)."""
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(result.inputs["candidates"])}
    for workload, trace in result.inputs["over_time"].items():
        _over_time(trace, colours, f"{workload}: USD an interval, mean of 10", directory / f"over-time-{workload}.svg")
        _pareto(result, workload, colours, directory / f"pareto-{workload}.svg")


def _over_time(trace: Row, colours: dict[str, str], title: str, path: Path) -> None:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    at = 0
    for name, stretch in groupby(trace["chosen"]):
        width = len(list(stretch))
        if name is not None:
            axes.axvspan(at, at + width, color=colours.get(name, "#ffffff"), alpha=0.25, linewidth=0)
        at += width
    curves: dict[str, Any] = trace["usd_per_interval"]
    for name, usd in curves.items():
        shown = name == trace["policy"]
        if shown or name in colours:
            axes.plot(usd, color="#000000" if shown else colours[name], linewidth=1.6 if shown else 0.7, label=name)
    axes.set_title(title)
    axes.set_xlabel("interval; the background is the policy that " + trace["policy"] + " selected")
    axes.set_ylabel("USD")
    handles, labels = axes.get_legend_handles_labels()
    bands = [Patch(color=colours[n], alpha=0.25) for n in colours]
    figure.legend([*handles, *bands], [*labels, *(f"selected: {n}" for n in colours)], loc="outside right upper", fontsize=7)
    figure.savefig(path)


def _pareto(result: Result, workload: str, colours: dict[str, str], path: Path) -> None:
    """One dot a single policy, one square a point of the sweep (means over the seeds that were played under its weights)."""
    means: dict[tuple[str, str], dict[str, float]] = {}
    for s in result.summary:
        if s["workload"] == workload and s["scenario"] == "default":
            means.setdefault((s["policy"], s["weights"]), {})[s["metric"]] = s["mean"]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, key, label in zip(figure.subplots(1, 2), ("energy_kwh", "response_s"), ("kWh", "mean response, s"), strict=True):
        for (policy, weights), figures in means.items():
            if weights == "default" and policy in SINGLE:
                axes.scatter(figures["cost_usd"], figures[key], color=colours.get(policy), s=40, zorder=3)
                axes.annotate(policy, (figures["cost_usd"], figures[key]), fontsize=7, xytext=(4, 4), textcoords="offset points")
        points = sorted((f["cost_usd"], f[key]) for (p, _), f in means.items() if p == "metanet")
        if points:
            axes.plot(*zip(*points, strict=True), marker="s", linewidth=0.8, color="#222222", alpha=0.6, label="metanet")
        axes.set_xlabel("USD")
        axes.set_ylabel(label)
        if points:
            axes.legend(fontsize=8)
    figure.suptitle(f"{workload}: single policies, and metanet over a sweep of weights")
    figure.savefig(path)

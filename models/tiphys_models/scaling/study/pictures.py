"""Pictures of the scaling study: frontiers from the result, and what agents did over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tiphys_models.lab.report import Result, Row
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO

mpl.use("Agg")

_COLOURS = ("#2f6f9f", "#d9822b", "#5b8c5a", "#8e6bbf", "#c94c4c", "#8c6d46", "#4aa5a5", "#c9a227", "#444444")


def draw(result: Result, traces: Mapping[str, Row], directory: Path) -> None:
    """frontier-SHAPE.svg, and over-time-SHAPE.svg for every shape that was traced."""
    agents = list(dict.fromkeys(r["agent"] for r in result.rows if "start_m" not in r))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(agents)}
    for shape in dict.fromkeys(r["shape"] for r in result.rows if "start_m" not in r):
        _frontier(result, shape, colours, directory / f"frontier-{shape}.svg")
    for shape, trace in traces.items():
        if trace:
            _over_time(shape, trace, colours, directory / f"over-time-{shape}.svg")


def _frontier(result: Result, shape: str, colours: Mapping[str, str], path: Path) -> None:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for agent, colour in colours.items():
        means: dict[str, dict[str, float]] = {}
        for s in result.summary:
            if (s["shape"], s["scenario"], s["agent"]) == (shape, DEFAULT_SCENARIO.name, agent):
                means.setdefault(s["setting"], {})[s["metric"]] = s["mean"]
        points = sorted((m["slo_attained"], m["cost"]) for m in means.values())
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=0.9, color=colour, label=agent)
    axes.set_xlabel("share of windows within the objective")
    axes.set_ylabel("CPU-hours, pods at their price")
    axes.set_title(f"{shape}: every setting, mean over seeds")
    axes.legend(fontsize=8)
    figure.savefig(path)


def _over_time(shape: str, trace: Row, colours: Mapping[str, str], path: Path) -> None:
    """Rate, latency against the objective, replicas, limit, and what `combined` did."""
    figure = Figure(figsize=(11, 10), layout="constrained")
    rate, latency, replicas, limit, action = figure.subplots(5, 1, sharex=True)
    for agent, t in trace.items():
        minutes = np.arange(len(t["rps"])) * DEFAULT_SCENARIO.window_s / 60
        rate.plot(minutes, t["rps"], color="#000000", linewidth=0.6)
        latency.plot(minutes, 1000 * t["p90_s"], color=colours[agent], linewidth=0.8, label=agent)
        replicas.step(minutes, t["replicas"], color=colours[agent], linewidth=0.8)
        limit.step(minutes, t["cpu_m"], color=colours[agent], linewidth=0.8)
    taken = trace.get("combined", {}).get("taken", [])
    action.scatter((np.arange(len(taken)) + 1) * DEFAULT_SCENARIO.window_s / 60, taken, s=3, color=colours.get("combined"))
    latency.axhline(1000 * DEFAULT_SCENARIO.target_s, color="#c94c4c", linewidth=0.6, linestyle="--")
    latency.set_yscale("log")
    for axes, label in ((rate, "RPS"), (latency, "p90, ms"), (replicas, "replicas"), (limit, "limit, m"), (action, "combined")):
        axes.set_ylabel(label)
    action.set_xlabel("minutes")
    figure.legend(loc="outside right upper", fontsize=7)
    figure.suptitle(f"{shape}: chosen settings, first seed")
    figure.savefig(path)

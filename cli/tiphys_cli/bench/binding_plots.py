"""Pictures of `tiphys bench binding`, drawn from the result alone: applications, success over time, success by rate."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tiphys_cli.bench.report import Result, Row
from tiphys_models.binding.rules import STATIC
from tiphys_models.sim.binding.scenario import LAMBDA, WINDOW_S
from tiphys_models.sim.binding.workloads import NAMES

mpl.use("Agg")

_LEARNED = ("score", "aset", "aset-wide")
_SMOOTH = 12


def draw(result: Result, directory: Path) -> None:
    """applications.svg, over-time.svg and rates-TOPOLOGY.svg: what the paper's Figures 4 to 6 show."""
    default = [s for s in result.summary if s["scenario"] == "default" and s["arrivals"] == "poisson" and s["metric"] == "success"]
    default = [s for s in default if s["training_seed"] in (None, 0) and s["policy"] in (*STATIC, *_LEARNED)]
    _applications([s for s in default if s["topology"] == "full-edge" and s["lambda_per_min"] == LAMBDA], directory / "applications.svg")
    _over_time(result.inputs["over_time"], directory / "over-time.svg")
    for topology in dict.fromkeys(s["topology"] for s in default):
        here = [s for s in default if s["topology"] == topology and s["application"] == "all"]
        _rates(here, topology, directory / f"rates-{topology}.svg")


def _applications(summary: list[Row], path: Path) -> None:
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    axes = figure.subplots()
    policies = list(dict.fromkeys(s["policy"] for s in summary))
    width = 0.85 / max(len(policies), 1)
    for index, policy in enumerate(policies):
        by_application = {s["application"]: 100 * s["mean"] for s in summary if s["policy"] == policy}
        places = np.arange(len(NAMES)) + index * width
        axes.bar(places, [by_application.get(a, 0.0) for a in NAMES], width, label=policy, color=f"C{index % 10}")
    axes.set_xticks(np.arange(len(NAMES)) + 0.4, NAMES)
    axes.set_ylabel("success, % of queries")
    axes.set_title(f"full-edge, lambda {LAMBDA:g}")
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path)


def _over_time(over_time: dict[str, list[float]], path: Path) -> None:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    for policy, success in over_time.items():
        smooth = np.convolve(100 * np.array(success), np.ones(_SMOOTH) / _SMOOTH, "valid")
        seconds = (np.arange(len(smooth)) + _SMOOTH) * WINDOW_S
        axes.plot(seconds, smooth, linewidth=1.8 if policy in _LEARNED else 0.9, label=policy)
    axes.set_xlabel(f"s; mean of {_SMOOTH} windows")
    axes.set_ylabel("success, % of queries")
    axes.set_title(f"full-edge, lambda {LAMBDA:g}, one seed")
    if over_time:
        figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path)


def _rates(summary: list[Row], topology: str, path: Path) -> None:
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    for policy in dict.fromkeys(s["policy"] for s in summary):
        line = sorted((s["lambda_per_min"], 100 * s["mean"]) for s in summary if s["policy"] == policy)
        axes.plot(*zip(*line, strict=True), marker="o", linewidth=1.8 if policy in _LEARNED else 0.9, label=policy)
    axes.set_xlabel("clients a minute and antenna")
    axes.set_ylabel("success, % of queries")
    axes.set_title(topology)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path)

"""Pictures of the study of streams, drawn from the result alone: applications, success over time, and what becomes of queries by rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tiphys_models.lab.report import Result, Row
from tiphys_models.streams.rules import STATIC
from tiphys_models.streams.sim.scenario import LAMBDA, WINDOW_S
from tiphys_models.streams.sim.workloads import NAMES

mpl.use("Agg")

_LEARNED = {"score": "black", "aset": "magenta", "aset-wide": "navy", "aset-paper": "gold"}
_COLOURS = {**{policy: f"C{index}" for index, policy in enumerate(STATIC)}, **_LEARNED}
_SMOOTH = 12


def draw(result: Result, directory: Path) -> None:
    """applications.svg, over-time-TOPOLOGY.svg and rates-TOPOLOGY.svg: what the paper's Figures 4 to 6 show."""
    for name, figure in _figures(result):
        _save(figure, directory / f"{name}.svg")


def illustrate(result: Result, directory: Path, files: Mapping[str, str]) -> None:
    """Into these files, by the pictures' names; the others are not drawn."""
    directory.mkdir(exist_ok=True)
    for name, figure in _figures(result):
        if name in files:
            _save(figure, directory / files[name])


def _save(figure: Figure, path: Path) -> None:
    # text stays text, which is small, and one result gives one file
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tiphys"}):
        figure.savefig(path, metadata={"Date": None})


def _figures(result: Result) -> Iterator[tuple[str, Figure]]:
    """Pictures by name; an agent is shown by its first training seed."""
    default = [
        s for s in result.summary
        if (s["scenario"], s["arrivals"]) == ("default", "poisson") and s["training_seed"] in (None, 0) and s["policy"] in _COLOURS
    ]  # fmt: skip
    edge = [s for s in default if s["topology"] == "full-edge" and s["lambda_per_min"] == LAMBDA and s["metric"] == "success"]
    yield "applications", _applications(edge)
    for topology, over_time in result.inputs["over_time"].items():
        yield f"over-time-{topology}", _over_time(over_time, topology)
    for topology in dict.fromkeys(s["topology"] for s in default):
        yield f"rates-{topology}", _rates([s for s in default if s["topology"] == topology and s["application"] == "all"], topology)


def _applications(summary: list[Row]) -> Figure:
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    axes = figure.subplots()
    policies = list(dict.fromkeys(s["policy"] for s in summary))
    width = 0.85 / max(len(policies), 1)
    for index, policy in enumerate(policies):
        by_application = {s["application"]: 100 * s["mean"] for s in summary if s["policy"] == policy}
        places = np.arange(len(NAMES)) + index * width
        axes.bar(places, [by_application.get(a, 0.0) for a in NAMES], width, label=policy, color=_COLOURS[policy])
    axes.set_xticks(np.arange(len(NAMES)) + 0.4, NAMES)
    axes.set_ylabel("success, % of queries")
    axes.set_title(f"full-edge, lambda {LAMBDA:g}")
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def _over_time(over_time: dict[str, list[float]], topology: str) -> Figure:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots()
    for policy, success in over_time.items():
        smooth = np.convolve(100 * np.array(success), np.ones(_SMOOTH) / _SMOOTH, "valid")
        seconds = (np.arange(len(smooth)) + _SMOOTH) * WINDOW_S
        axes.plot(seconds[::2], smooth[::2], linewidth=_width(policy), label=policy, color=_COLOURS[policy])
    axes.set_xlabel(f"s; mean of {_SMOOTH} windows")
    axes.set_ylabel("success, % of queries")
    axes.set_title(f"{topology}, lambda {LAMBDA:g}, one seed")
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def _rates(summary: list[Row], topology: str) -> Figure:
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = dict(zip(("success", "reject", "failure"), figure.subplots(1, 3), strict=True))
    for metric, axes in panels.items():
        for policy in dict.fromkeys(s["policy"] for s in summary):
            line = sorted((s["lambda_per_min"], 100 * s["mean"]) for s in summary if (s["policy"], s["metric"]) == (policy, metric))
            axes.plot(*zip(*line, strict=True), linewidth=_width(policy), label=policy, color=_COLOURS[policy])
        axes.set_xlabel("clients a minute and antenna")
        axes.set_ylabel(f"{metric}, % of queries")
    figure.suptitle(topology)
    figure.legend(*panels["success"].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _width(policy: str) -> float:
    return 1.8 if policy in _LEARNED else 0.9

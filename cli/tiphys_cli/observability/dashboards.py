"""Dashboards from data: the `panels.yaml` beside each system, rendered for Grafana."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import yaml

from tiphys_cli.observability.panels import Panel, dashboard, job_variable
from tiphys_cli.observability.seats import seat_row

DASHBOARDS = {"placement": "placement.json", "scaling": "scaling.json", "streams": "binding.json"}
"""Systems with a dashboard of their own, and the file in the chart; selection's rows are part of placement's."""


def render(system: str) -> dict[str, Any]:
    """The dashboard of a system."""
    data = _data(system)
    head = data["dashboard"]
    variables = [job_variable(job["name"], job["label"], job["metric"]) for job in head["jobs"]]
    return dashboard(head["name"], head["description"], head["tags"], variables, list(_rows(data)))


def _data(system: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((files(f"tiphys_models.{system}") / "panels.yaml").read_text(encoding="utf-8"))
    return found


def _rows(data: dict[str, Any]) -> Iterator[tuple[str, list[Panel]]]:
    for row in data["rows"]:
        if "rowsOf" in row:
            yield from _rows(_data(row["rowsOf"]))
        elif "seat" in row:
            yield seat_row(row["seat"]["service"], row["seat"]["system"], row["seat"]["job"])
        else:
            yield row["row"], [_panel(panel) for panel in row["panels"]]


def _panel(item: dict[str, Any]) -> Panel:
    return Panel(
        item["title"],
        item["description"],
        item["unit"],
        tuple((query["expr"], query["legend"]) for query in item["queries"]),
        kind=item.get("kind", "timeseries"),
        width=item.get("width", 8),
        stacked=item.get("stacked", False),
        thresholds=tuple((step["color"], step["from"]) for step in item.get("thresholds", ())),
        bad_below=item.get("badBelow", False),
        maximum=item.get("maximum"),
    )

"""Grafana panels as plain dictionaries (dashboard schema 39, Grafana 10 and later)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_HEIGHT = 8

Query = tuple[str, str]
"""PromQL and the legend."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a Grafana dashboard."""

    title: str
    description: str
    unit: str
    """Grafana's name of it: `s`, `percentunit`, `reqps`, `short`, `dateTimeAsIso`."""
    queries: tuple[Query, ...]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 8
    """The panel's width in columns; a dashboard has 24."""
    stacked: bool = False
    thresholds: tuple[tuple[str, float], ...] = field(default=())
    """Colour from a value on; the base is green, or the first colour if `bad_below`."""
    bad_below: bool = False
    """Values under the first threshold are bad, rather than those over it."""
    maximum: float | None = None

    def body(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel at a place of the grid."""
        return {
            "id": number,
            "title": self.title,
            "description": self.description,
            "type": self.kind,
            "datasource": DATASOURCE,
            "gridPos": {"h": _HEIGHT, "w": self.width, "x": x, "y": y},
            "targets": [self._target(index, *query) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
        }

    def _target(self, index: int, expr: str, legend: str) -> dict[str, Any]:
        target: dict[str, Any] = {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend, "refId": chr(ord("A") + index)}
        return (
            target
            if self.kind == "timeseries"
            else target | {"instant": True, "format": "table" if self.kind == "table" else "time_series"}
        )

    def _defaults(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": "red" if self.bad_below else "green", "value": None}]
        steps += [{"color": color, "value": value} for color, value in self.thresholds]
        defaults: dict[str, Any] = {"unit": self.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.maximum is not None:
            defaults["max"] = self.maximum
        if self.kind == "timeseries":
            defaults["custom"] = {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 40 if self.stacked else 8,
                "showPoints": "never",
                "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
                "thresholdsStyle": {"mode": "dashed" if self.thresholds else "off"},
            }
        return defaults

    def _options(self) -> dict[str, Any]:
        if self.kind == "timeseries":
            return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
        if self.kind == "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value", "graphMode": "none"}
        return {"showHeader": True}


def dashboard(
    name: str, description: str, tags: list[str], variables: list[dict[str, Any]], rows: list[tuple[str, list[Panel]]]
) -> dict[str, Any]:
    """A dashboard of Tiphys: what all of them have in common stands here."""
    return {
        "uid": f"tiphys-{name.lower()}",
        "title": f"Tiphys / {name}",
        "description": description,
        "tags": tags,
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [datasource_variable(), *variables]},
        "panels": layout(rows),
    }


def layout(rows: list[tuple[str, list[Panel]]]) -> list[dict[str, Any]]:
    """Rows of panels, left to right, wrapped at the grid's width."""
    numbers = count(1)
    placed: list[dict[str, Any]] = []
    y = 0
    for title, panels in rows:
        placed.append(
            {
                "id": next(numbers),
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y},
            }
        )
        y += 1
        x = 0
        for panel in panels:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + _HEIGHT
            placed.append(panel.body(next(numbers), x, y))
            x += panel.width
        y += _HEIGHT
    return placed


def datasource_variable() -> dict[str, Any]:
    """Choice of the Prometheus."""
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1}


def job_variable(name: str, label: str, metric: str) -> dict[str, Any]:
    """Choice among the jobs that deliver a metric; all of them at first."""
    query = f"label_values({metric}, job)"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"{name}-jobs"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }

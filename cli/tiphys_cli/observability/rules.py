"""Alerts, with their sections of the runbook, and recording rules: data beside each system, read here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

RUNBOOK_URL = "https://github.com/tiphys-io/tiphys/blob/main/docs/runbook.md"
SYSTEMS = ("placement", "selection", "scaling", "streams", "serving")
"""Rooms of `tiphys_models` with an `alerts.yaml`, in the order of the runbook; `serving`: the processes themselves."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule, and what the runbook says about it."""

    name: str
    severity: Literal["critical", "warning", "info"]
    pending: str
    """How long the expression must hold: a Prometheus duration."""
    expr: str
    summary: str
    description: str
    """May hold Prometheus templates, such as `{{ $value }}`."""
    meaning: str
    impact: str
    diagnosis: tuple[str, ...]
    mitigation: tuple[str, ...]

    def rule(self) -> dict[str, Any]:
        """The alert as a rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.pending,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOK_URL}#{self.name.lower()}",
            },
        }


def alerts() -> list[Alert]:
    """All alerts, those of placement first."""
    return [_alert(item) for system in SYSTEMS for item in _data(system)["alerts"]]


def rule_file() -> dict[str, Any]:
    """The whole file, which is also the spec of a PrometheusRule."""
    records = [record for system in SYSTEMS for record in _data(system).get("records", ())]
    return {
        "groups": [
            {"name": "tiphys.rules", "rules": records},
            {"name": "tiphys.alerts", "rules": [alert.rule() for alert in alerts()]},
        ]
    }


@cache
def _data(system: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((files(f"tiphys_models.{system}") / "alerts.yaml").read_text(encoding="utf-8"))
    return found


def _alert(item: dict[str, Any]) -> Alert:
    return Alert(
        item["alert"],
        item["severity"],
        item["for"],
        item["expr"],
        item["summary"],
        item["description"],
        item["meaning"],
        item["impact"],
        tuple(item["diagnosis"]),
        tuple(item["mitigation"]),
    )

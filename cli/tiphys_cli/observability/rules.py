"""What an alert and its section in the runbook are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

RUNBOOK_URL = "https://github.com/tiphys-io/tiphys/blob/main/docs/runbook.md"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule."""

    name: str
    severity: Literal["critical", "warning", "info"]
    pending: str
    """How long the expression must hold: a Prometheus duration."""
    expr: str
    summary: str
    description: str
    """May hold Prometheus templates, such as `{{ $value }}`."""

    def rule(self) -> dict[str, Any]:
        """As Prometheus reads it."""
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


@dataclass(frozen=True, slots=True)
class Entry:
    """The sections of one alert."""

    meaning: str
    impact: str
    diagnosis: tuple[str, ...]
    mitigation: tuple[str, ...]

"""What a case of an alert is, and the targets whose series it invents."""

from dataclasses import dataclass, field

Series = dict[str, str]
"""Selector → values in promtool's notation, one a minute: `0+60x30` is a counter that grows by one a second."""

AT = 'job="tiphys-extender-status",instance="10.0.0.1:8080"'
OTHER = 'job="tiphys-extender-status",instance="10.0.0.2:8080"'
BINDER = 'job="tiphys-binder-status",instance="10.0.0.5:8080"'
OP = 'job="tiphys-operator",instance="10.0.0.3:8080"'
OP2 = 'job="tiphys-operator",instance="10.0.0.4:8080"'


@dataclass(frozen=True, slots=True)
class Case:
    """One alert."""

    fires: Series
    at: str
    """When it must fire; it must also be silent on `quiet` then."""
    description: str
    """What the alert says."""
    quiet: Series
    labels: dict[str, str] = field(default_factory=dict)
    """Labels beside alertname and severity."""

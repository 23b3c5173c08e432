"""PromQL that generated rows share."""

from __future__ import annotations


def rate(metric: str, window: str = "5m", labels: str = "", by: str = "") -> str:
    """Summed rate of a counter."""
    group = f" by ({by})" if by else ""
    return f"sum{group}(rate({metric}{{{labels}}}[{window}]))" if labels else f"sum{group}(rate({metric}[{window}]))"

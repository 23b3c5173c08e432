"""PromQL that dashboard and alerts share."""

from __future__ import annotations

from tiphys_models.api.reasons import NeutralReason

SCHEDULER = "tiphys"
"""The scheduler's name as the generated files hold it; the chart replaces it where a release has another."""

BUDGET_S = 0.02
"""Time within which an answer is promised; beyond it the extender answers neutral."""
LATENCY_OBJECTIVE = 0.99
"""Share of answers inside the budget."""

TROUBLE = (
    NeutralReason.NOT_SYNCED,
    NeutralReason.NO_KNOWN_NODE,
    NeutralReason.DEADLINE,
    NeutralReason.BAD_SCORES,
    NeutralReason.INTERNAL_ERROR,
)
"""Reasons of neutral answers that nobody asked for; the others follow from a policy's mode, from routing or from the kill switch."""


def rate(metric: str, window: str = "5m", labels: str = "", by: str = "") -> str:
    """Summed rate of a counter."""
    group = f" by ({by})" if by else ""
    return f"sum{group}(rate({metric}{{{labels}}}[{window}]))" if labels else f"sum{group}(rate({metric}[{window}]))"


def answers(window: str = "5m", labels: str = "") -> str:
    """Answers the scheduler could read, a second."""
    return rate("tiphys_extender_requests_total", window, _join('code="200"', labels))


def score_calls(window: str = "5m") -> str:
    """Pods our scheduler scored, a second: it runs Score exactly when it asks its extenders."""
    labels = f'extension_point="Score",profile="{SCHEDULER}"'
    return rate("scheduler_framework_extension_point_duration_seconds_count", window, labels)


def slow_ratio(window: str) -> str:
    """Share of answers beyond the budget."""
    metric = "tiphys_extender_request_duration_seconds"
    edge = f'le="{BUDGET_S:g}"'
    inside = rate(f"{metric}_bucket", window, edge)
    return f"1 - ({inside} / {rate(f'{metric}_count', window)})"


def trouble_ratio(window: str = "5m") -> str:
    """Share of answers that are neutral for a reason nobody asked for."""
    troubled = 'reason=~"' + "|".join(TROUBLE) + '"'
    return f"{rate('tiphys_extender_neutral_answers_total', window, troubled)} / {rate('tiphys_extender_answers_total', window)}"


def scored(window: str = "5m", labels: str = "") -> str:
    """Answers by the policy that was chosen, a second."""
    return rate("tiphys_extender_answers_total", window, _join('outcome="scored"', labels))


def _join(*labels: str) -> str:
    return ",".join(label for label in labels if label)

"""The metrics of a seat, the same for every system: answers, agreement, how they ended, and how old the model is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from tiphys_models.seats.record import System
from tiphys_models.seats.seat import CONTROL, GROUPS, NO_ANSWER, POLICY_ERROR, SHADOW, Group, Outcome

Service = Literal["extender", "binder", "operator"]
_MODELS_MAX = 50
"""Models whose age is told: names come from objects, and labels are bounded."""
_SHOWN_S, _SWEEP_S = 3_600.0, 60.0
OTHER = "other"
"""Label of a reason that was not announced: labels are bounded, whatever a decider of somebody else says."""
_WITHOUT_FALLBACK: tuple[tuple[Outcome, Group, str], ...] = (
    ("rule", "", ""),
    ("rule", "", SHADOW),
    ("rule", "control", CONTROL),
    ("rule", "treated", ""),
    ("rule", "control", ""),
    ("learned", "", ""),
    ("learned", "treated", ""),
)


def metric_names(service: Service, system: System) -> dict[str, str]:
    """Names of a seat's metrics, by what they tell. The service is part of each, so that no rule about one adds up another's."""
    prefix = f"tiphys_{service}_{system}"
    return {
        "answers": f"{prefix}_answers_total",
        "compared": f"{prefix}_compared_total",
        "ended": f"{prefix}_group_ended_total",
        "ended_value": f"{prefix}_group_value_total",
        "model": f"{prefix}_model_timestamp_seconds",
    }


class SeatMetrics:
    """The counters and gauges of one system in one process."""

    def __init__(self, service: Service, system: System, reasons: Sequence[str], value: str, registry: CollectorRegistry) -> None:
        """`reasons`: of fallbacks; `value`: what is summed where an answer has ended, with its unit; empty: nobody knows how one ends."""
        names = metric_names(service, system)
        answers = Counter(
            names["answers"], f"Answers of {system}, by who gave them and why.", ("outcome", "group", "reason"), registry=registry
        )
        groups: tuple[Group, ...] = ("", "treated")
        known = dict.fromkeys((*reasons, POLICY_ERROR, NO_ANSWER, OTHER))
        fallbacks: list[tuple[Outcome, Group, str]] = [("fallback", group, reason) for group in groups for reason in known]
        self._answers = {labels: answers.labels(*labels) for labels in (*_WITHOUT_FALLBACK, *fallbacks)}
        compared = Counter(
            names["compared"], f"Answers of {system}, by what the other decider would have said.", ("would",), registry=registry
        )
        self._compared = {would: compared.labels(would) for would in ("same", "other", "nothing")}
        self._ended: dict[str, tuple[Counter, Counter]] = {}
        if value:
            ended = Counter(names["ended"], f"Answers of {system} whose end is known, by group.", ("group",), registry=registry)
            total = Counter(names["ended_value"], f"Sum of {value}, over answers of {system} that ended.", ("group",), registry=registry)
            self._ended = {group: (ended.labels(group), total.labels(group)) for group in GROUPS}
        self._model = Gauge(
            names["model"], f"Since when weights decide {system} in this process (Unix time), by model.", ("model",), registry=registry
        )
        self._used: dict[str, tuple[str, float]] = {}
        """Digest and last decision of models that are shown."""
        self._swept_s = 0.0

    def weights(self, model: str, digest: str, at_s: float) -> None:
        """Weights with this digest decide. Of the same ones as before the first time counts; without a digest it was a rule.

        What has not decided for an hour is no longer shown: another model has taken its place.
        """
        if at_s - self._swept_s > _SWEEP_S:
            self._swept_s = at_s
            for gone in [known for known, (_, used_s) in self._used.items() if at_s - used_s > _SHOWN_S]:
                del self._used[gone]
                self._model.remove(gone)
        known = self._used.get(model)
        if not digest or (known is None and len(self._used) >= _MODELS_MAX):
            return
        self._used[model] = digest, at_s
        if known is None or known[0] != digest:
            self._model.labels(model).set(at_s)

    def answered(self, outcome: Outcome, group: Group, reason: str, *, same: bool | None, later: bool = False) -> None:
        """Count one answer; `same`: whether the other decider would have said the same, None if it has nothing to say. `later`: that
        turns out afterwards, see `compared`."""
        if outcome == "fallback" and (outcome, group, reason) not in self._answers:
            reason = OTHER
        self._answers[outcome, group, reason].inc()
        if not later:
            self.compared(same=same)

    def compared(self, *, same: bool | None) -> None:
        """Count whether the other decider would have said the same."""
        self._compared["nothing" if same is None else "same" if same else "other"].inc()

    def ended(self, group: Group, value: float) -> None:
        """Count one answer that has ended; values are never negative, and NaN and infinity say nothing."""
        if not math.isfinite(value):
            return
        count, total = self._ended[group]
        count.inc()
        total.inc(max(value, 0.0))

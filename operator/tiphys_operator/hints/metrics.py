"""What writing hints tells Prometheus."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge

from tiphys_models.placement.hints import Hint


class Refusal(StrEnum):
    """Why a hint was not written."""

    CHANGED = "changed"
    """The pod was changed meanwhile; it is looked at again as the watch shows it."""
    GONE = "gone"
    FORBIDDEN = "forbidden"
    """The API server forbids it: the right, the fence, or somebody's rule of admission."""
    REFUSED = "refused"
    """The API server cannot take the pod as it would be."""
    API = "api"
    """No answer, or "later": everybody waits."""
    NO_ROOM = "no-room"
    """Too many pods wait to be written on; the next look finds this one again."""


class HintMetrics:
    """Into the operator's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        p = "tiphys_operator"
        self.written = Counter(f"{p}_hints_written", "Hints written on pods, or written anew.", ["hint"], registry=registry)
        self.removed = Counter(f"{p}_hints_removed", "Hints of ours taken off pods, for nobody wants them.", ["hint"], registry=registry)
        self.refused = Counter(f"{p}_hints_refused", "Writes of hints that came to nothing, by reason.", ["reason"], registry=registry)
        self.pods = Gauge(f"{p}_hinted_pods", "Pods that carry a hint as we wrote it.", ["hint"], registry=registry)
        self.due = Gauge(f"{p}_hints_due", "Pods that wait to be written on.", registry=registry)
        self.applications = Gauge(f"{p}_hint_applications", "Applications of which run times were seen.", registry=registry)
        for hint in Hint:
            self.written.labels(hint)
            self.removed.labels(hint)
            self.pods.labels(hint).set(0)
        for reason in Refusal:
            self.refused.labels(reason)

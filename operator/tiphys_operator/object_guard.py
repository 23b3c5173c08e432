"""The operator's counters of what objects made it trip over; the guard itself is `tiphys_models.kube.guard`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from tiphys_models.kube.guard import Troubles

KINDS = (
    "Pod", "Node", "EndpointSlice", "SchedulingPolicy", "LearnedModel", "ScalingPolicy", "InferenceSite", "ModelVariant", "StreamPolicy",
    "DecisionLog", "StreamSummary", "ModelArtifact", "Permission", "Metrics", "Loop",
)  # fmt: skip


class ObjectGuard(Troubles):
    """The process's guard: counters of failed objects, and which version of each was logged already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        errors = Counter(
            "tiphys_operator_object_errors", "Steps on one object that it made fail; all others go on.", ["kind"], registry=registry
        )
        odd = Counter(
            "tiphys_operator_odd_objects", "Objects that were taken although something about them is absurd.", ["kind"], registry=registry
        )
        for kind in KINDS:
            errors.labels(kind)
        super().__init__(lambda kind: errors.labels(kind).inc(), lambda kind: odd.labels(kind).inc())

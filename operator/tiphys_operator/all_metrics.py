"""Metrics of the whole process: what every loop counts, and what one system alone does."""

from __future__ import annotations

from tiphys_operator.gates.metrics import GateMetrics
from tiphys_operator.hints.metrics import HintMetrics
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.platforms.metrics import PlatformMetrics
from tiphys_operator.scaling.metrics import ScalingMetrics
from tiphys_operator.streams.metrics import BindingMetrics


def all_metrics() -> OperatorMetrics:
    """The metrics that one process exports; each system's are there from the start, also where its loop is off."""
    metrics = OperatorMetrics()
    metrics.part(GateMetrics)
    metrics.part(HintMetrics)
    metrics.part(ScalingMetrics)
    metrics.part(BindingMetrics)
    metrics.part(PlatformMetrics)
    return metrics

"""Metrics of the binder's process: of its callers, of calls and of streams."""

from __future__ import annotations

from tiphys_extender.serve.caller_metrics import CallerMetrics
from tiphys_extender.serve.metrics import KINDS
from tiphys_extender.streams.metrics import STREAM_KINDS, StreamMetrics
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.streams.registry import REGISTRY as STREAMS


class BinderMetrics(CallerMetrics):
    """The metrics that one process exports; those of streams are there from the start, also where none is bound."""

    kinds = (*KINDS, *STREAM_KINDS)
    deciders = (PLACEMENT, STREAMS)

    def __init__(self) -> None:
        super().__init__()
        self.of_streams = StreamMetrics(self.registry)

"""What callers send about placements, and how any body is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from tiphys_extender.serve.requests import Request
from tiphys_models.api.pod_selector import LabelKey, LabelValue, PodSelector
from tiphys_models.base.errors import TiphysError
from tiphys_models.base.quantity import MOST_BYTES, MOST_MILLI, cpu_milli, memory_bytes, quantity

_LONGEST_QUANTITY = 32


def _quantity(parse: Callable[[str | float], int], most: float) -> BeforeValidator:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or len(str(value)) > _LONGEST_QUANTITY:
            raise ValueError("give a Kubernetes quantity such as 500m, 2 or 256Mi")
        try:
            given = quantity(value)
        except TiphysError as error:
            raise ValueError(str(error)) from None
        if not 0 <= given <= most:  # what the API server has stored is clamped; who sends it to us is told
            raise ValueError(f"give a quantity between 0 and {most:g}")
        return parse(value)

    return BeforeValidator(read)


Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Function = Annotated[LabelValue, StringConstraints(min_length=1)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
CpuMilli = Annotated[int, _quantity(cpu_milli, MOST_MILLI / 1000)]
MemoryBytes = Annotated[int, _quantity(memory_bytes, MOST_BYTES)]


class NodeSelector(PodSelector):
    """Which nodes of the pool; a key that means nothing is refused, because it would select everything."""

    model_config = ConfigDict(extra="forbid")


class PlaceCall(Request):
    """One call of a function that wants a node."""

    namespace: Namespace
    function: Function
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    """Like a pod's: they choose the SchedulingPolicy."""
    cpu: CpuMilli = 0
    memory: MemoryBytes = 0
    images: list[Annotated[str, StringConstraints(min_length=1, max_length=512)]] = Field(default_factory=list, max_length=16)
    candidates: list[NodeName] | None = Field(default=None, min_length=1, max_length=100_000)
    selector: NodeSelector | None = None
    limit: int = Field(default=10, ge=1, le=100)
    """How many of the ranked nodes are answered."""
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = None
    wait_seconds: float = Field(default=0.0, ge=0, le=60)
    """How long the caller would wait for a warm instance where that is expected to pay; 0: not at all. The binder has a bound, too."""

    @model_validator(mode="after")
    def _who_waits_can_be_told_apart(self) -> PlaceCall:
        if self.wait_seconds and self.idempotency_key is None:
            raise ValueError("waitSeconds needs an idempotencyKey: whoever asks again is known by it and keeps its place")
        return self

    @model_validator(mode="after")
    def _one_way_to_name_nodes(self) -> PlaceCall:
        if (self.candidates is None) == (self.selector is None):
            raise ValueError("give either candidates or selector; an empty selector means every node of the pool")
        return self


class Ended(Request):
    """What a caller may say of a call that is over. What means nothing here is passed over: the call is over whatever was sent."""

    model_config = ConfigDict(extra="ignore")

    core_seconds: float | None = Field(default=None, ge=0, le=1e9)
    """Processor time of the run, the start not counted."""
    start_seconds: float | None = Field(default=None, ge=0, le=1e6)
    """Seconds from the placement until the call computed."""
    cold: bool | None = None
    """Whether a new instance was started for it."""


class Report(Request):
    """What a caller says of a placement it has: where it runs, and what the binder would need to know if it had forgotten it."""

    node: NodeName | None = None
    namespace: Namespace | None = None
    function: Function | None = None
    cpu: CpuMilli = 0
    memory: MemoryBytes = 0

"""What was learned of a service from its windows, as a status keeps it across restarts: CPU a request, headroom, delays."""

from __future__ import annotations

from pydantic import Field

from tiphys_models.api.base import Api
from tiphys_models.scaling.headroom import BACK


class LearnedMemory(Api):
    """What the windows of a service have taught."""

    until: float = Field(default=0.0, description="When the newest window that counts ended, in seconds since 1970.")
    measured: bool = Field(default=False, description="Whether enough requests were ever measured to know better than what was declared.")
    requests: float = Field(default=0.0, description="Requests that CPU a request is learned from, older ones counting less.")
    used_milliseconds: float = Field(default=0.0, description="CPU milliseconds that these took.")
    variance: float | None = Field(default=None, description="Variance of a window's own CPU a request, as a share of the learned one.")
    last_requests: float = Field(default=0.0, description="Requests of the newest window: two that run off to the same side are a release.")
    last_used_milliseconds: float = Field(default=0.0, description="CPU milliseconds that these took.")
    last_off: int = Field(default=0, description="Side to which the newest window ran off: -1, 0, 1.")
    headroom: float | None = Field(
        default=None, description="Factor on a predicted rate, learned from windows that were missed; absent: the agent asks for none."
    )
    former_headroom: list[float] = Field(
        default_factory=list,
        max_length=BACK,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="The same before the last windows, oldest first: a release goes back to it.",
    )
    exempt_windows: int = Field(default=0, description="Further windows in which no miss counts.")
    excused: float = Field(default=0.0, description="Share of windows that were missed because of a jump of the rate.")
    start_seconds: float | None = Field(default=None, description="From a pod's creation to its readiness; absent: none was seen to start.")
    lag_seconds: float = Field(default=0.0, description="Age of the newest readings when they are decided by.")

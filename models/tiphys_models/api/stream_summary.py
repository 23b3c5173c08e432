"""What a binder says of its streams as a whole: the answer to `GET /v1/bindings/summary`, as far as the operator reads it."""

from __future__ import annotations

from pydantic import Field

from tiphys_models.api.base import Api


class Shares(Api):
    """What became of the queries of the last minute; success, reject and failure add up to one if there were any."""

    success: float = Field(ge=0, le=1)
    reject: float = Field(ge=0, le=1)
    failure: float = Field(ge=0, le=1)
    queries: float = Field(ge=0)


class Choice(Api):
    """The last change of the policy that binds."""

    at: float = Field(ge=0)
    """Seconds since the epoch."""
    policy: str = Field(max_length=63)
    reason: str = ""


class StreamSummary(Api):
    """One process's, of one access site."""

    namespace: str
    access_site: str
    active: bool
    """Whether it binds: it holds the access site's Lease and obeys a StreamPolicy in mode Active."""
    recovering: bool = False
    """It has just started and gives away less."""
    active_policy: str = Field(max_length=63)
    fallback: str = ""
    """Why the fallback binds; empty while it does not."""
    last_decision: Choice
    streams: int = Field(ge=0)
    shares: Shares

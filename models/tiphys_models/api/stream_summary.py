"""What a binder says of its streams as a whole: the answer to `GET /v1/bindings/summary`, which the operator pulls."""

from __future__ import annotations

from pydantic import Field

from tiphys_models.api.base import Api
from tiphys_models.api.comparison import ComparisonStatus
from tiphys_models.api.stream_policy import LastChoice


class QueryCounts(Api):
    """Queries of the last minute."""

    success: int = Field(default=0, ge=0, description="Answered in time, as renewals report.")
    reject: int = Field(default=0, ge=0, description="Of streams that were not bound.")
    failure: int = Field(default=0, ge=0, description="Late or dropped, as renewals report.")
    unknown: int = Field(default=0, ge=0, description="Of streams that ended without a word.")


class SiteUse(Api):
    """What is bound at one site from here."""

    site: str = Field(description="Name of the InferenceSite.")
    streams: int = Field(default=0, ge=0, description="Streams bound.")
    use_percent: float = Field(default=0.0, ge=0, description="Load of the site's variants that are up, in percent of their capacity.")


class StreamSummary(Api):
    """One binder's, of one StreamPolicy."""

    namespace: str = Field(description="Of the StreamPolicy.")
    policy: str = Field(description="Name of the StreamPolicy; empty while there is none for the access site.")
    access_site: str = Field(description="Where its streams enter.")
    generation: int = Field(default=0, ge=0, description="Of the spec that it obeys.")
    active: bool = Field(description="Whether this process binds: it holds the access site's Lease, and the mode is not Off.")
    recovering: bool = Field(default=False, description="Whether it has just started and gives away less.")
    active_policy: str = Field(default="", description="Policy that binds now.")
    model_problem: str = Field(default="", description="Why the fallback binds; empty while it does not.")
    offers: int = Field(default=0, ge=0, description="Offers that are up and whose delay is known.")
    streams: int = Field(default=0, ge=0, description="Streams bound now.")
    minute: QueryCounts = Field(default_factory=QueryCounts, description="Queries of the last minute.")
    sites: list[SiteUse] = Field(default_factory=list, description="What is bound where.")
    last_decision: LastChoice | None = Field(default=None, description="The last change of the policy that binds.")
    comparison: ComparisonStatus | None = Field(default=None, description="Rule and named policy side by side; None: only one binds.")

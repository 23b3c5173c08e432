"""`status.comparison`: what rule and learned decider have shown side by side, the same for every kind that decides."""

from __future__ import annotations

from pydantic import Field

from tiphys_models.api.base import Api
from tiphys_models.base.quantity import rfc3339
from tiphys_models.seats.comparison import Comparison, GroupTally


class GroupStatus(Api):
    """One group of answers."""

    answers: int = Field(ge=0, description="Answers in this group.")
    fallbacks: int = Field(default=0, ge=0, description="Of these, answers of the rule where the learned policy could or may not answer.")
    ended: int = Field(default=0, ge=0, description="Of these, answers whose end is known.")
    mean: float | None = Field(default=None, description="Mean of `measure` over answers that ended.")
    standard_error: float | None = Field(
        default=None, ge=0, description="Standard error of that mean; where groups are blocks of time, from the spread of blocks."
    )
    blocks: int | None = Field(default=None, ge=0, description="Blocks of time that the answers lie in, where groups are such.")
    mean_cost: float | None = Field(
        default=None, description="Mean cost: of a window, in the service's own mean window; or of a pod, in US dollars of its node."
    )
    late_percent: float | None = Field(default=None, description="Late requests, as the mean of windows; or late pods. In percent.")


class ComparisonStatus(Api):
    """Rule and learned policy, side by side."""

    since: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="Since when it counts.")
    measure: str = Field(max_length=160, description="What `mean` is the mean of, with its unit, and whether less or more is better.")
    agreement_percent: float | None = Field(
        default=None, ge=0, le=100, description="Share of answers for which rule and learned policy would have said the same."
    )
    compared: int = Field(default=0, ge=0, description="Answers that `agreementPercent` is about.")
    all: GroupStatus | None = Field(default=None, description="Answers outside of Canary.")
    treated: GroupStatus | None = Field(default=None, description="In Canary: the share in which the learned policy is obeyed.")
    control: GroupStatus | None = Field(default=None, description="In Canary: the rest, in which the rule answers.")
    difference: float | None = Field(default=None, description="Mean of the treated blocks minus mean of the control blocks.")
    plus_minus: float | None = Field(default=None, ge=0, description="Half of that difference's 95 percent interval.")
    result: str | None = Field(
        default=None,
        max_length=63,
        description="TooEarly: a group has fewer than four blocks. Better, Worse: treated against control. NoDifferenceFound: neither.",
    )


def comparison_status(comparison: Comparison, measure: str) -> ComparisonStatus:
    """The status of what was compared."""
    agreement = comparison.agreement
    groups = {group: _group(tally) for group, tally in comparison.groups.items()}
    return ComparisonStatus(
        since=rfc3339(comparison.since_s),
        measure=measure,
        agreement_percent=None if agreement is None else round(100 * agreement, 1),
        compared=comparison.same + comparison.other,
        all=groups.get(""),
        treated=groups.get("treated"),
        control=groups.get("control"),
    )


def _group(tally: GroupTally) -> GroupStatus:
    error = tally.standard_error
    return GroupStatus(
        answers=tally.answers,
        fallbacks=tally.fallbacks,
        ended=tally.ended,
        mean=round(tally.mean, 6) if tally.ended else None,
        standard_error=None if error is None else round(error, 6),
    )

"""What the operator must not forget of a canary by blocks, and the comparison that statuses show of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tiphys_models.api.base import Api
from tiphys_models.api.comparison import ComparisonStatus, GroupStatus
from tiphys_models.base.quantity import rfc3339
from tiphys_models.seats.blocks import GroupSums, MeasuredBlock, OpenBlock, difference
from tiphys_models.seats.seat import Answer, Answered, Group

_SUM_MAX = 1e12
_COUNT_MAX = 2**53
_SINCE_MAX_S = 1e11
"""Some three thousand years: a date that can be written."""


class OpenBlockSums(Api):
    """A block of which outcomes still come in."""

    number: int = Field(description="Number of the block: time since 1970 in blocks.")
    units: int = Field(default=0, ge=0, description="Windows, or pods, that were measured.")
    total: float = Field(default=0.0, description="Sum of their outcomes.")


class GroupMemory(Api):
    """Sums of one group."""

    answers: int = Field(default=0, ge=0, description="Answers.")
    fallbacks: int = Field(default=0, ge=0, description="Of these, answers of the rule where the learned decider could or may not answer.")
    units: int = Field(default=0, ge=0, description="Windows, or pods, that were measured.")
    total: float = Field(default=0.0, description="Sum of their outcomes.")
    cost: float = Field(default=0.0, description="Sum of their cost.")
    late: float = Field(default=0.0, description="Sum of their late shares.")
    blocks: int = Field(default=0, ge=0, description="Blocks that are closed.")
    means: float = Field(default=0.0, description="Sum of the blocks' mean outcomes.")
    squares: float = Field(default=0.0, description="Sum of the squared deviations of the blocks' mean outcomes.")
    open: Annotated[list[OpenBlockSums], Field(max_length=8)] = Field(
        default_factory=list, json_schema_extra={"x-kubernetes-list-type": "atomic"}, description="Newest blocks, oldest first."
    )

    def sums(self) -> GroupSums:
        """The remembered sums in the form that a comparison counts with."""
        blocks = tuple(OpenBlock(o.number, o.units, o.total) for o in self.open)
        return GroupSums(self.units, self.total, self.cost, self.late, self.blocks, self.means, self.squares, blocks)

    def adding(self, block: int, found: MeasuredBlock) -> GroupMemory:
        """The group with what was measured in a block."""
        sums = self.sums().adding(block, found)
        kept = {name: getattr(sums, name) for name in ("units", "total", "cost", "late", "blocks", "means", "squares")}
        blocks = [OpenBlockSums(number=o.number, units=o.units, total=o.total) for o in sums.open]
        return self.model_copy(update=kept | {"open": blocks})

    @property
    def sound(self) -> bool:
        """Whether the sums can be ours: anybody who may write a status may have put anything there."""
        sums = (self.total, self.cost, self.late, self.means, *(o.total for o in self.open))
        counts = (self.answers, self.fallbacks, self.units, self.blocks, *(n for o in self.open for n in (abs(o.number), o.units)))
        small = all(abs(value) <= _SUM_MAX for value in sums) and 0 <= self.squares <= _SUM_MAX**2  # NaN is not
        return small and max(counts) <= _COUNT_MAX


class ComparisonMemory(Api):
    """Both groups, since the canary began or anything changed that makes their outcomes another thing."""

    subject: str = Field(default="", max_length=512, description="What is compared: another text begins anew.")
    since: float = Field(default=0.0, description="Seconds since 1970.")
    same: int = Field(default=0, ge=0, description="Answers for which the other decider would have said the same.")
    other: int = Field(default=0, ge=0, description="Answers for which it would have said something else.")
    treated: GroupMemory = Field(default_factory=GroupMemory, description="Where the learned decider is obeyed.")
    control: GroupMemory = Field(default_factory=GroupMemory, description="Where the rule decides.")

    def of(self, subject: str, now_s: float) -> ComparisonMemory:
        """The memory of this subject: itself, or a new one."""
        return self if self.subject == subject and self.sound else ComparisonMemory(subject=subject, since=round(now_s, 3))

    @property
    def sound(self) -> bool:
        """Whether all of it can be ours."""
        counted = 0 <= self.same <= _COUNT_MAX and 0 <= self.other <= _COUNT_MAX and 0 <= self.since <= _SINCE_MAX_S
        return counted and self.treated.sound and self.control.sound

    def answered(self, answered: Answered[Answer], *, same: bool | None) -> ComparisonMemory:
        """The memory with one more answer; `same`: whether the other decider would have said the same, None if it has said nothing."""
        update: dict[str, object] = {"same": self.same + (same is True), "other": self.other + (same is False)}
        if answered.group:
            former = self._group(answered.group)
            fallbacks = former.fallbacks + (answered.outcome == "fallback")
            update[answered.group] = former.model_copy(update={"answers": former.answers + 1, "fallbacks": fallbacks})
        return self.model_copy(update=update)

    def ended(self, group: Group, block: int, found: MeasuredBlock) -> ComparisonMemory:
        """The memory with what was measured of one group."""
        return self.model_copy(update={group: self._group(group).adding(block, found)}) if group else self

    def status(self, measure: str, *, more_is_better: bool) -> ComparisonStatus:
        """What people read of it."""
        said = difference(self.treated.sums(), self.control.sums(), more_is_better=more_is_better)
        compared = self.same + self.other
        return ComparisonStatus(
            since=rfc3339(self.since),
            measure=measure,
            agreement_percent=round(100 * self.same / compared, 1) if compared else None,
            compared=compared,
            treated=_shown(self.treated),
            control=_shown(self.control),
            difference=_short(said.difference),
            plus_minus=_short(said.plus_minus),
            result=said.result,
        )

    def _group(self, group: Group) -> GroupMemory:
        return self.treated if group == "treated" else self.control


def _shown(group: GroupMemory) -> GroupStatus:
    sums = group.sums()
    return GroupStatus(
        answers=group.answers,
        fallbacks=group.fallbacks,
        ended=sums.units,
        mean=_short(sums.mean),
        standard_error=_short(sums.standard_error),
        blocks=sums.all_closed().blocks,
        mean_cost=_short(sums.cost / sums.units) if sums.units else None,
        late_percent=_short(100 * sums.late / sums.units) if sums.units else None,
    )


def _short(value: float | None) -> float | None:
    """Six digits: what came back from the API server must equal what was sent."""
    return None if value is None else float(f"{value:.6g}")

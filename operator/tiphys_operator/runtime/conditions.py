"""What the operator finds about one object, before and after it is compared with what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from tiphys_models.api.base import Condition

Truth = Literal["True", "False", "Unknown"]
MESSAGE_MAX = 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition before it is compared with the former one."""

    type: StrEnum
    status: Truth
    reason: StrEnum
    message: str


def former(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of that type, if there was one."""
    return next((condition for condition in conditions if condition.type == kind), None)


def condition(verdict: Verdict, before: Sequence[Condition], generation: int, now_s: float) -> Condition:
    """The verdict as a condition; its time moves only with its status."""
    past = former(before, verdict.type)
    since = past.last_transition_time if past is not None and past.status == verdict.status else _time(now_s)
    return Condition(
        type=verdict.type,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message[:MESSAGE_MAX],
        observed_generation=generation,
        last_transition_time=since,
    )


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

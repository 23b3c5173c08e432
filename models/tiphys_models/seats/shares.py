"""Random shares for Canary: by object where a decision is about one, by blocks of time where it is not.

The answer depends on names only, so that every attempt, every replica and every restart finds the same one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiphys_models.base.hashing import stable_hash


def in_share(unit: str, percent: int) -> bool:
    """Whether a unit (a pod, call or stream by its id, or a block of time) belongs to the share that obeys."""
    return stable_hash(f"canary/{unit}") % 100 < percent


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of time in which one group decides."""

    number: int
    obeys: bool
    """Whether the learned decider is obeyed in it."""
    washing: bool
    """Whether what happens now still shows the group before: it is obeyed all the same, but not compared."""


def block_of(policy_uid: str, at_s: float, block_s: float, wash_s: float, percent: int) -> Block:
    """The block at a time (epoch). Blocks start at multiples of their length by the wall clock, so that restarts and replicas agree."""
    number = math.floor(at_s / block_s)
    obeys = _block_obeys(policy_uid, number, percent)
    changed = obeys != _block_obeys(policy_uid, number - 1, percent)
    return Block(number, obeys, washing=changed and at_s - number * block_s < wash_s)


def _block_obeys(policy_uid: str, number: int, percent: int) -> bool:
    return in_share(f"{policy_uid}/{number}", percent)

"""Why an offer was taken, and every other one not: the decision once more, constraint by constraint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.binding.kernels import Candidates, fits
from tiphys_models.binding.offers import Offers
from tiphys_models.binding.protocol import BindingPolicy, View, candidates_of
from tiphys_models.binding.streams import Stream
from tiphys_models.features.arrays import BoolArray, FloatArray

TASK, DOWN, TOO_SLOW, NOT_ACCURATE, FULL = "task", "down", "too-slow", "not-accurate", "full"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One stream beside all offers."""

    candidates: Candidates
    scores: FloatArray
    """The policy's, feasible or not."""
    refused: Mapping[str, BoolArray]
    """By constraint: the offers that break it."""

    @property
    def feasible(self) -> BoolArray:
        """Offers that break none."""
        return np.asarray(~np.logical_or.reduce(list(self.refused.values())))

    def of(self, place: int) -> list[str]:
        """The constraints that one offer breaks."""
        return [constraint for constraint, broken in self.refused.items() if broken[place]]


def diagnose(policy: BindingPolicy, offers: Offers, stream: Stream, view: View) -> Diagnosis:
    """What `bind` looked at."""
    c = candidates_of(offers, stream, view)
    refused: dict[str, BoolArray] = {
        TASK: ~offers.serves(stream.task),
        DOWN: ~view.up,
        TOO_SLOW: np.asarray(c.latency_ms > c.slack_ms),
        NOT_ACCURATE: np.asarray(c.accuracy < c.min_accuracy),
        FULL: ~fits(c, view.ceiling),
    }
    return Diagnosis(c, policy.score(stream, c), refused)


def why_none(diagnosis: Diagnosis, stream: Stream) -> str:
    """For a stream that was not bound: which constraint is in the way, and by how much."""
    c, refused = diagnosis.candidates, diagnosis.refused
    able = ~refused[TASK]
    if not able.any():
        return f"no offer does the task {stream.task!r}"
    up = able & ~refused[DOWN]
    if not up.any():
        return "every offer that does this task is down"
    counts = {name: int((up & refused[name]).sum()) for name in (TOO_SLOW, NOT_ACCURATE, FULL)}
    text = {
        TOO_SLOW: f"too slow (the fastest takes {_least(c.latency_ms[up]) + stream.max_delay_ms - stream.slack_ms:.1f} ms, "
        f"{stream.max_delay_ms:g} are allowed)",
        NOT_ACCURATE: f"not accurate enough (the best has {float(c.accuracy[up].max()):g}, {stream.min_accuracy:g} is wanted)",
        FULL: f"full (the most spare capacity is {float((c.capacity_qps - c.load_qps)[up].max()):.1f} queries a second, "
        f"{_least(c.added_qps[up]):g} are needed and a share is kept free)",
    }
    total = int(up.sum())
    return f"of {total} offers that do this task and are up, " + ", ".join(
        f"{'all' if counts[name] == total else counts[name]} are {text[name]}" for name in counts if counts[name]
    )


def _least(values: FloatArray) -> float:
    return float(values.min())

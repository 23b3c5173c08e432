"""Why an offer was taken, and every other one not: the decision once more, constraint by constraint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.binding.kernels import Candidates, fits
from tiphys_models.binding.offers import Offers
from tiphys_models.binding.protocol import BindingPolicy, View, candidates_of, within
from tiphys_models.binding.streams import Stream
from tiphys_models.features.arrays import BoolArray, FloatArray

TASK, DOWN, TOO_SLOW, NOT_ACCURATE, FULL, KEPT = "task", "down", "too-slow", "not-accurate", "full", "kept-for-others"


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
    possible = np.asarray(~(refused[TASK] | refused[DOWN] | refused[TOO_SLOW] | refused[NOT_ACCURATE]))
    scores = np.where(possible, policy.score(stream, within(c, possible)), policy.score(stream, c))
    refused[KEPT] = possible & np.isneginf(scores)
    return Diagnosis(c, scores, refused)


def why_none(diagnosis: Diagnosis, stream: Stream) -> str:
    """For a stream that was not bound: which constraint is in the way, and by how much."""
    c, refused = diagnosis.candidates, diagnosis.refused
    able = ~refused[TASK]
    if not able.any():
        return f"no offer does the task {stream.task!r}"
    up = able & ~refused[DOWN]
    if not up.any():
        return "every offer that does this task is down"
    total = int(up.sum())
    found = []
    for name, measure in _MEASURES.items():
        broken = int((up & refused[name]).sum())
        if broken:
            found.append(
                f"{broken} are {name.replace('-', ' ')}"
                if broken < total
                else f"all are {name.replace('-', ' ')} ({measure(c, up, stream)})"
            )
    return f"of {total} offers that do this task and are up, {', '.join(found)}"


def _fastest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    fastest_ms = float(c.latency_ms[up].min()) + stream.max_delay_ms - stream.slack_ms
    return f"the fastest takes {fastest_ms:.1f} ms, {stream.max_delay_ms:g} are allowed"


def _best(c: Candidates, up: BoolArray, stream: Stream) -> str:
    return f"the best has {float(c.accuracy[up].max()):g}, {stream.min_accuracy:g} is wanted"


def _emptiest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    spare_qps = float((c.capacity_qps - c.load_qps)[up].max())
    needed_qps = float(c.added_qps[up].min())
    return f"the most spare capacity is {spare_qps:.1f} queries a second, a share of it is kept free, {needed_qps:g} are needed"


def _dearest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    use = float((c.load_qps[up].sum()) / c.capacity_qps[up].sum())
    return f"{100 * use:.0f} % of their capacity is in use, which makes it worth more to other streams"


_MEASURES: Mapping[str, Callable[[Candidates, BoolArray, Stream], str]] = {
    TOO_SLOW: _fastest,
    NOT_ACCURATE: _best,
    FULL: _emptiest,
    KEPT: _dearest,
}

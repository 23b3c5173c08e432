"""Why an offer was taken, and every other one not: the decision once more, constraint by constraint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.streams.kernels import Candidates, fits, fits_empty
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.protocol import BindingPolicy, View, candidates_of, within
from tiphys_models.streams.stream import Stream

TASK, DOWN, TOO_SLOW, NOT_ACCURATE = "task", "down", "too-slow", "not-accurate"
TOO_LARGE, FULL, KEPT = "too-large", "full", "kept-for-others"
"""The stream is too large for the offer, load or not."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One stream beside all offers."""

    candidates: Candidates
    scores: FloatArray
    """The policy's, feasible or not."""
    refused: Mapping[str, BoolArray]
    """Offers that break each constraint, as a mask by the constraint's name."""

    @property
    def feasible(self) -> BoolArray:
        """Offers that break none."""
        return np.asarray(~np.logical_or.reduce(list(self.refused.values())))

    def of(self, place: int) -> list[str]:
        """The constraints that one offer breaks."""
        return [constraint for constraint, broken in self.refused.items() if broken[place]]


def diagnose(policy: BindingPolicy, offers: Offers, stream: Stream, view: View) -> Diagnosis:
    """The diagnosis of a stream under a view: scores and broken constraints of every offer, as `bind` sees them."""
    c = candidates_of(offers, stream, view)
    small = fits_empty(c, view.lasting_ceiling)
    refused: dict[str, BoolArray] = {
        TASK: ~offers.serves(stream.task),
        DOWN: ~view.up,
        TOO_SLOW: np.asarray(c.latency_ms > c.slack_ms),
        NOT_ACCURATE: np.asarray(c.accuracy < c.min_accuracy),
        TOO_LARGE: ~small,
        FULL: small & ~fits(c, view.ceiling),
    }
    possible = np.asarray(~(refused[TASK] | refused[DOWN] | refused[TOO_SLOW] | refused[NOT_ACCURATE]))
    scores = np.where(possible, policy.score(stream, within(c, possible)), policy.score(stream, c))
    refused[KEPT] = possible & np.isneginf(scores)
    return Diagnosis(c, scores, refused)


def why_none(diagnosis: Diagnosis, stream: Stream) -> str:
    """Reason why a stream was not bound: which constraint is in the way, and by how much."""
    refused = diagnosis.refused
    able = ~refused[TASK]
    if not able.any():
        return f"no offer does the task {stream.task!r}"
    down = refused[DOWN]
    waiting = able & down & ~(refused[TOO_SLOW] | refused[NOT_ACCURATE])
    if waiting.any() and not (able & ~down).any():
        return "every offer that does this task is down"
    looked = able & ~down if (able & ~down).any() else able
    found = list(_broken(diagnosis, looked, stream))
    if waiting.any():
        found.append(f"{int(waiting.sum())} that would do {'are' if waiting.sum() > 1 else 'is'} down")
    return f"of {int(looked.sum())} offers that do this task{' and are up' if looked is not able else ''}, {', '.join(found)}"


def _broken(diagnosis: Diagnosis, looked: BoolArray, stream: Stream) -> Iterator[str]:
    """Phrases on the offers that break each constraint, one constraint after the other."""
    total = int(looked.sum())
    for name, (words, measure) in _MEASURES.items():
        broken = int((looked & diagnosis.refused[name]).sum())
        if broken == total:
            yield f"all are {words} ({measure(diagnosis.candidates, looked, stream)})"
        elif broken:
            yield f"{broken} are {words}"


def _fastest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    if not np.isfinite(c.latency_ms[up]).any():
        return "no way to them has been measured or declared"
    fastest_ms = float(c.latency_ms[up].min()) + stream.max_delay_ms - stream.slack_ms
    return f"the fastest takes {fastest_ms:.1f} ms, {stream.max_delay_ms:g} are allowed"


def _best(c: Candidates, up: BoolArray, stream: Stream) -> str:
    return f"the best has {float(c.accuracy[up].max()):g}, {stream.min_accuracy:g} is wanted"


def _largest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    place = int(np.argmax(np.where(up, c.capacity_qps / c.added_qps, 0.0)))
    return (
        f"the largest has {float(c.capacity_qps[place]):g} queries a second, a share of it is kept free, "
        f"{float(c.added_qps[place]):g} are needed"
    )


def _emptiest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    spare_qps = float((c.capacity_qps - c.load_qps)[up].max())
    needed_qps = float(c.added_qps[up].min())
    return f"the most spare capacity is {spare_qps:.1f} queries a second, a share of it is kept free, {needed_qps:g} are needed"


def _dearest(c: Candidates, up: BoolArray, stream: Stream) -> str:
    use = float((c.load_qps[up].sum()) / c.capacity_qps[up].sum())
    return f"{100 * use:.0f} % of their capacity is in use, which makes it worth more to other streams"


_MEASURES: Mapping[str, tuple[str, Callable[[Candidates, BoolArray, Stream], str]]] = {
    TOO_SLOW: ("too slow", _fastest),
    NOT_ACCURATE: ("not accurate", _best),
    TOO_LARGE: ("too small for it, however empty", _largest),
    FULL: ("full", _emptiest),
    KEPT: ("kept for others", _dearest),
}

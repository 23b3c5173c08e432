"""What every stream policy is asked by the conformance suite (`seats.checks`), and what its answers must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.seats.checks import Exam
from tiphys_models.streams.kernels import Candidates
from tiphys_models.streams.offers import Delay, Offer, Offers, Site, Variant
from tiphys_models.streams.protocol import BindingPolicy, BindReason, View, bind, candidates_of
from tiphys_models.streams.registry import adopted
from tiphys_models.streams.stream import Stream

KIND = "stream-policy"
BUDGET_S = 0.02
"""Most seconds for five hundred offers; a client waits for the answer, and ours take a fraction of a millisecond."""
_PLAIN = Stream("detect", 200.0, 20.0, 10.0, 40.0, 100.0, 1.0, "cameras", 0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Moment:
    """A stream beside the offers of a task."""

    stream: Stream
    candidates: Candidates


def catalogue(sites: int = 4) -> tuple[Offers, View]:
    """Three variants at every site, further ones with more delay, some of them busy."""
    variants = (("tiny", 29.1, 8.0, 100.0), ("small", 37.0, 15.0, 70.0), ("large", 47.1, 30.0, 50.0))
    places = [Site(f"site-{i:03d}", ("antenna", "co", "dc", "cloud")[i % 4]) for i in range(sites)]
    offers = Offers(
        Offer(Variant(name, "detect", name, accuracy, delay, qps, 40.0), site, 1 + i % 3)
        for i, site in enumerate(places)
        for name, accuracy, delay, qps in variants
    )
    delays = {site.name: Delay(1.0 + 4.0 * (i % 9), 0.5) for i, site in enumerate(places)}
    load = offers.columns.capacity_qps * (np.arange(len(offers)) % 5) / 5
    return offers, View(offers.network_ms(delays), load, np.ones(len(offers), np.bool_))


def moment(
    stream: Stream = _PLAIN, offers: int | None = None, *, load_qps: FloatArray | None = None, network_ms: FloatArray | None = None
) -> Moment:
    """A stream beside the first so many offers, which have this load and are so far away."""
    found, seen = catalogue()
    view = replace(seen, load_qps=seen.load_qps if load_qps is None else load_qps)
    candidates = candidates_of(found, stream, view if network_ms is None else replace(view, network_ms=network_ms))
    return Moment(stream, candidates if offers is None else _taken(candidates, np.arange(offers)))


def _taken(candidates: Candidates, rows: Any) -> Candidates:
    arrays = {name: column[rows] for name, column in candidates._asdict().items() if isinstance(column, np.ndarray)}
    return candidates._replace(**arrays)


def questions() -> Mapping[str, Moment]:
    """A moment of every sort."""
    offers, _ = catalogue()
    count, capacity = len(offers), offers.columns.capacity_qps
    unreachable = np.where(np.arange(count) % 2, np.inf, 2.0)
    return {
        "several offers": moment(),
        "a single offer": moment(offers=1),
        "no offer": moment(offers=0),
        "idle offers": moment(load_qps=np.zeros(count)),
        "offers that are full and more than full": moment(load_qps=capacity * (1.0 + np.arange(count) % 2)),
        "offers without a known delay": moment(network_ms=unreachable),
        "a stream that no offer can serve": moment(replace(_PLAIN, max_delay_ms=1.0, min_accuracy=99.0)),
        "a very small stream": moment(replace(_PLAIN, rate_qps=1e-3, size_kb=1e-2)),
        "a very large stream": moment(replace(_PLAIN, rate_qps=1e5, size_kb=1e4, bit_rate_mbps=1e4)),
        "a stream without random bits": moment(replace(_PLAIN, draw=0)),
    }


def fault(asked: Moment, scores: FloatArray) -> str:
    """What is wrong with scores. Minus infinity declines an offer; of offers out of reach nothing is asked but a number."""
    count = len(asked.candidates.latency_ms)
    if not isinstance(scores, np.ndarray) or scores.shape != (count,) or scores.dtype.kind not in "fiu":
        return f"{count} offers need an array of {count} numbers, not {type(scores).__name__} {getattr(scores, 'shape', '')}"
    reachable = np.isfinite(asked.candidates.latency_ms)
    if np.isnan(scores[reachable]).any():
        return "a score is no number"
    return "a score is plus infinity" if (scores[reachable] == np.inf).any() else ""


def _same(a: FloatArray, b: FloatArray) -> bool:
    return bool(np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))


def _permuted(asked: Moment) -> tuple[Moment, Callable[[FloatArray], FloatArray]]:
    order = np.argsort((np.arange(len(asked.candidates.latency_ms)) * 7 + 3) % 11, kind="stable")
    return Moment(asked.stream, _taken(asked.candidates, order)), lambda scores: np.asarray(scores)[np.argsort(order)]


def _ask(policy: BindingPolicy, asked: Moment) -> FloatArray:
    with np.errstate(all="ignore"):  # out of reach is infinitely far: what is made of it is never looked at
        return policy.score(asked.stream, asked.candidates)


def _binds(factory: Any) -> str:
    """Beside idle offers that would all do, a stream is bound to one of them."""
    offers, view = catalogue()
    idle = replace(view, load_qps=np.zeros(len(offers)))
    found = bind(_make(factory), offers, _PLAIN, idle)
    return "" if found.reason is BindReason.BOUND else f"a stream that every offer could serve ends as {found.reason}"


def _make(factory: Any) -> BindingPolicy:
    return adopted(factory(), "checked")


def _large() -> Moment:
    offers, view = catalogue(167)
    return Moment(_PLAIN, candidates_of(offers, _PLAIN, view))


EXAMS: Mapping[str, Exam[Any, Any]] = {
    KIND: Exam(
        make=_make,
        ask=_ask,
        questions=questions,
        fault=fault,
        same=_same,
        trace=lambda asked: b"|".join(np.ascontiguousarray(c).tobytes() for c in asked.candidates) + repr(asked.stream).encode(),
        large=_large,
        budget_s=BUDGET_S,
        permuted=_permuted,
        further={"binds where everything would do": _binds},
    )
}

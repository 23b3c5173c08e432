"""What a binding policy is, and how a binder uses one: constraints make offers candidates, the policy scores them, the best is taken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.streams.kernels import Candidates, StreamNumbers, beside, best, fits, fits_empty, spare_qps, suits
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.stream import Stream

CEILING = 0.9
"""Share of a capacity that is given away: views are a little old, and queues grow before the end is reached."""


@dataclass(frozen=True, slots=True)
class View:
    """What one access site knows, offer by offer. Its own bindings count at once; those of others when they are heard of."""

    network_ms: FloatArray
    """One way, mean and two deviations (`Offers.network_ms`)."""
    load_qps: FloatArray
    """Bound load, in queries of the profiled size."""
    up: BoolArray
    """Whether the endpoint answers; nothing is bound to one that does not."""
    ceiling: float = CEILING
    policy_ceiling: float | None = None
    """What `ceiling` is when it is not lowered for a while."""

    @property
    def lasting_ceiling(self) -> float:
        """Whoever is too large for this one need not ask again."""
        return self.ceiling if self.policy_ceiling is None else self.policy_ceiling


class BindingPolicy(Protocol):
    """Scores offers for one stream. Deterministic: chance comes from the stream's own bits."""

    @property
    def name(self) -> str:
        """Name of the policy in the CRD and the tables."""
        ...

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """One number an offer, feasible or not; the highest feasible one is taken, minus infinity never."""
        ...


class BindReason(StrEnum):
    """Outcome of a request to bind a stream."""

    BOUND = "Bound"
    INFEASIBLE = "Infeasible"
    """No offer would do, even if it were up and without any load."""
    DOWN = "Down"
    """There are such offers, but they are down; how much those that are without a replica could carry is not known."""
    NO_CAPACITY = "NoCapacity"
    """There are such offers, but they are full, or the policy keeps them for others."""


@dataclass(frozen=True, slots=True)
class Binding:
    """An offer by its index, or the reason why there is none."""

    reason: BindReason
    offer: int = -1
    expected_latency_ms: float = float("nan")
    """Expected latency from the client and back, without waiting, at mean delay plus two deviations."""
    added_qps: float = 0.0
    """Load that the offer carries until the stream ends."""


def within(candidates: Candidates, possible: BoolArray) -> Candidates:
    """The rest is out of reach: a policy that looks at all that would suit must not count other tasks, nor what is down."""
    return candidates._replace(latency_ms=np.where(possible, candidates.latency_ms, np.inf))


def candidates_of(offers: Offers, stream: Stream, view: View) -> Candidates:
    """One stream beside all offers."""
    wish = StreamNumbers(stream.rate_qps, stream.size_kb, stream.max_delay_ms, stream.slack_ms, stream.min_accuracy, np.uint64(stream.draw))
    return beside(offers.columns, view.network_ms, view.load_qps, wish)


@dataclass(frozen=True, slots=True)
class Question:
    """One stream beside all offers, with what does not depend on who scores them: a second policy is asked at little cost."""

    offers: Offers
    stream: Stream
    view: View
    candidates: Candidates
    able: BoolArray
    """Offers that would do if they were up and without load."""
    possible: BoolArray
    """Able offers that are up."""
    feasible: BoolArray
    """Possible offers with room below the ceiling."""


def question_of(offers: Offers, stream: Stream, view: View) -> Question:
    """What `bind` asks a policy about."""
    candidates = candidates_of(offers, stream, view)
    able = offers.serves(stream.task) & suits(candidates)
    possible = able & view.up
    return Question(offers, stream, view, candidates, able, possible, possible & fits(candidates, view.ceiling))


def scores_of(policy: BindingPolicy, question: Question) -> FloatArray:
    """One number an offer."""
    return policy.score(question.stream, within(question.candidates, question.possible))


def taken(question: Question, scores: FloatArray) -> Binding:
    """The feasible offer with the highest score, or why there is none."""
    candidates, stream, view = question.candidates, question.stream, question.view
    chosen = best(scores, question.feasible, spare_qps(candidates))
    if chosen < 0:
        if (question.possible & fits_empty(candidates, view.lasting_ceiling)).any():
            return Binding(BindReason.NO_CAPACITY)
        return Binding(BindReason.DOWN if (question.able & ~view.up).any() else BindReason.INFEASIBLE)
    expected = float(candidates.latency_ms[chosen]) + stream.max_delay_ms - stream.slack_ms
    return Binding(BindReason.BOUND, chosen, expected, float(candidates.added_qps[chosen]))


def bind(policy: BindingPolicy, offers: Offers, stream: Stream, view: View) -> Binding:
    """Score, rank, select. Pure: whoever calls it adds `added_qps` to its view."""
    question = question_of(offers, stream, view)
    return taken(question, scores_of(policy, question))

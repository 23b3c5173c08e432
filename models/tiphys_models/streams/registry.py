"""Stream policies and agents by the names that the CRD, the command and the benchmarks use; others come through entry points."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tiphys_models.artifacts.files import card_of, has_weights
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.seats.pace import Pace
from tiphys_models.seats.registry import Entry, Registry
from tiphys_models.streams.agent import Agent, load_agent
from tiphys_models.streams.kernels import Candidates
from tiphys_models.streams.learned import load_score
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.rules import STATIC, SUMMARIES, StaticPolicy
from tiphys_models.streams.stream import Stream

GROUP = "tiphys.stream_policies"
"""Entry point group of policies from other distributions: name -> a class or function without arguments."""
FOREIGN_BUDGET_S = 0.01
"""A client waits for it; another package's policy that takes longer is set aside for a while."""
_SCORE = {"score": "A learned score: the chance of being in time, less a price of the capacity."}
_AGENTS = {
    "aset": "Names a binding policy every window, from pooled use; trained at one rate.",
    "aset-wide": "Names a binding policy every window, from pooled use; trained at many rates.",
}
LEARNED = (*_SCORE, *_AGENTS)
NAMES = (*STATIC, *LEARNED)
"""Whatever of ours a StreamPolicy may ask for, whether its weights are there or not."""

_HERE = __name__.rsplit(".", 1)[0]
REGISTRY: Registry[Callable[..., Any]] = Registry(
    "stream-policy",
    GROUP,
    (
        *(Entry(name, f"{_HERE}.rules:StaticPolicy", summary=SUMMARIES[name]) for name in STATIC),
        *(Entry(name, f"{_HERE}.learned:load_score", learned=True, model=name, summary=text) for name, text in _SCORE.items()),
        *(Entry(name, f"{_HERE}.agent:load_agent", learned=True, model=name, summary=text) for name, text in _AGENTS.items()),
    ),
)


class ForeignPolicy:
    """A stream policy of another package; what it answers is checked. Only `score` is asked of it."""

    def __init__(self, policy: Any, name: str, digest: str = "", pace: Pace | None = None) -> None:
        self._policy, self._pace, self.name = policy, pace, name
        self.digest = str(getattr(policy, "digest", "") or digest)

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """See `BindingPolicy`; ValueError for anything but one number an offer. What is no number declines the offer."""
        ask = partial(self._policy.score, stream, Candidates(*map(_unwritable, candidates)))
        scores: FloatArray = np.asarray(ask() if self._pace is None else self._pace.run(ask), np.float64)
        if scores.shape != candidates.latency_ms.shape:
            raise ValueError(f"{len(candidates.latency_ms)} offers got scores of shape {scores.shape}")
        return scores


def _unwritable(column: Any) -> Any:
    """A view that cannot be written to: columns belong to everybody, and in Shadow nothing may change by what is only asked."""
    if not isinstance(column, np.ndarray):
        return column
    view = column.view()
    view.flags.writeable = False
    return view


def adopted(policy: Any, name: str, digest: str = "", pace: Pace | None = None) -> BindingPolicy:
    """Any object with a method `score` as a stream policy; InvalidInput for another one."""
    REGISTRY.needs(REGISTRY.entry(name) or Entry(name, ""), policy, "score")
    return ForeignPolicy(policy, name, digest, pace)


def entries() -> tuple[Entry, ...]:
    """Our own that this installation has; a learned one without weights cannot serve."""
    return tuple(e for e in REGISTRY.ours.values() if not e.model or has_weights(e.model))


def unpaced(name: str) -> BindingPolicy:
    """Another package's policy for simulators, where nobody waits and a clock must not decide."""
    return adopted(REGISTRY.make(name), name, REGISTRY.foreign[name].digest)


def is_foreign(name: str) -> bool:
    """Whether it is none of ours: then another package brings it, or nobody knows it."""
    return name not in REGISTRY.ours


def make_policy(name: str) -> BindingPolicy:
    """The policy of that name; InvalidInput if there is none, or it cannot be used."""
    if name in STATIC:
        return StaticPolicy(name)
    if name in _SCORE and name in (e.name for e in entries()):
        return load_score(card_of(name))
    if (foreign := REGISTRY.foreign.get(name)) is not None:
        return adopted(REGISTRY.make(name), name, foreign.digest, Pace(FOREIGN_BUDGET_S))
    raise REGISTRY.unknown(name, (*(e.name for e in entries() if e.name not in _AGENTS), *REGISTRY.foreign))


def foreign_policy(name: str) -> BindingPolicy:
    """The policy of another package; ArtifactRefused (UnknownPolicy) if nobody brings it, or it cannot be used."""
    try:
        return make_policy(name)
    except InvalidInput as error:
        raise ArtifactRefused("UnknownPolicy", str(error)) from error


def make_agent(name: str) -> Agent:
    """The agent of that name with its shipped weights; InvalidInput if there is none."""
    there = [e.name for e in entries() if e.name in _AGENTS]
    if name not in there:
        raise REGISTRY.unknown(name, there)
    return load_agent(card_of(name))

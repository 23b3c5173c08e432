"""Every decider there is keeps what every decider must. What does not, stands in `EXEMPT` with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiphys_models.artifacts.files import card_of, directories
from tiphys_models.placement import registry as placement
from tiphys_models.placement.score_network import load_network
from tiphys_models.scaling import registry as scaling
from tiphys_models.scaling.learned import LearnedAgent
from tiphys_models.scaling.learned import load_agent as load_scaling_agent
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.seats.checks import KINDS, assert_decider
from tiphys_models.selection.planners import registry as planners
from tiphys_models.selection.planners.per_pod import make_candidate
from tiphys_models.selection.selectors import registry as selectors
from tiphys_models.streams import registry as streams
from tiphys_models.streams.agent import ACTIONS, load_agent

EXEMPT: Mapping[tuple[str, str], Mapping[str, str]] = {}
"""(kind, name) -> check -> why it cannot hold."""

Case = tuple[str, str, Callable[..., object]]


def _cards(pattern: str) -> list[Path]:
    return sorted(card for directory in directories() for card in directory.glob(pattern))


def _placement() -> Iterator[Case]:
    for name in placement.PolicyName:
        if not placement.is_learned(name):
            yield "placement-policy", str(name), partial(placement.make_policy, name)
    for card in _cards("faasrank*.json"):
        yield "placement-policy", card.stem, partial(placement.make_policy, "faasrank", load_network(card))
    yield "placement-policy", "estimator-network", partial(placement.shipped_policy, "estimator-network")


def _planners() -> Iterator[Case]:
    for entry in planners.entries():
        yield "planner", entry.name, partial(planners.make_planner, entry.name)
    for name in ("warm-first", "faasrank"):  # placement policies stand among a selector's candidates
        yield "planner", f"{name}-as-planner", partial(make_candidate, name)


def _selectors() -> Iterator[Case]:
    for entry in selectors.entries():
        yield "selector", entry.name, partial(selectors.make_selector, entry.name)


def _scaling() -> Iterator[Case]:
    for entry in scaling.entries():
        yield "scaling-agent", entry.name, partial(scaling.make_agent, entry.name)
    for card in _cards("scaling-*.json"):
        if (name := card.stem.removeprefix("scaling-")) not in scaling.REGISTRY.ours:
            yield "scaling-agent", name, partial(_of_card, card)


def _of_card(card: Any, attainment: float) -> object:
    agent = load_scaling_agent(card)
    return Threes(agent) if agent.moves.services == 3 else agent


class Threes:
    """The agent that decides for three services at once, asked about one service standing there three times."""

    def __init__(self, agent: LearnedAgent) -> None:
        self._agent = agent

    def answer(self, seen: ServiceHistory) -> Answers:
        """The first one's number and size."""
        columns: dict[str, Any] = {f.name: np.repeat(getattr(seen, f.name), 3, axis=0) for f in fields(seen) if f.name != "window_s"}
        found = self._agent.answer(replace(seen, **columns))
        return Answers(found.replicas[::3], found.cpu_m[::3])


def _streams() -> Iterator[Case]:
    for entry in streams.entries():
        if entry.model and entry.name != "score":
            agent = load_agent(card_of(entry.model))
            for action, policy in zip(ACTIONS, agent.policies, strict=True):
                yield "stream-policy", f"{entry.name}-{action}", lambda policy=policy: policy
        else:
            yield "stream-policy", entry.name, partial(streams.make_policy, entry.name)


CASES: tuple[Case, ...] = (*_placement(), *_planners(), *_selectors(), *_scaling(), *_streams())


SLOW = ("gosh", "graf", "lstm-aco")
"""Several seconds each: they search or descend in every answer."""


@pytest.mark.parametrize(
    ("kind", "name", "factory"),
    [pytest.param(*case, id="-".join(case[:2]), marks=[pytest.mark.slow] if case[1] in SLOW else []) for case in CASES],
)
def test_every_decider_passes_the_conformance_suite(kind: str, name: str, factory: Callable[..., object]) -> None:
    assert_decider(factory, kind, EXEMPT.get((kind, name), {}))


def test_every_kind_and_every_exemption_speaks_of_a_decider_that_is_there() -> None:
    assert {kind for kind, _, _ in CASES} == set(KINDS)
    assert set(EXEMPT) <= {(kind, name) for kind, name, _ in CASES}

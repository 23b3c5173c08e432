"""Transitions that operators served, as steps to learn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.learned import LearnedAgent, load_agent
from tiphys_models.scaling.train.presets import Preset
from tiphys_models.scaling.transition import Transition

OFF_MAX = 0.1
"""What was there may differ so much from what the action would have bought; else it says nothing about any action."""
_NEXT_WINDOWS = 1.5


@dataclass(frozen=True, slots=True)
class Served:
    """Rows of n-step returns, and what became of the rest."""

    inputs: FloatArray
    possible: BoolArray
    action: IntArray
    gained: FloatArray
    """Discounted rewards of the steps."""
    after: FloatArray
    possible_after: BoolArray
    foreign: int = 0
    """Transitions left out because they have other inputs or actions than the agent."""
    unlike: int = 0
    """No action comes near what was there."""
    short: int = 0
    """Too few windows follow each other."""

    def __len__(self) -> int:
        return len(self.action)


def served_steps(transitions: Iterable[Transition], agent: LearnedAgent, gamma: float, n_step: int) -> Served:
    """Windows of a policy that follow each other at one price; each counts once, however often it was read."""
    rows = sorted({(t.policy, t.number, t.at): t for t in transitions}.values(), key=lambda t: (t.policy, t.at))
    ours = [t for t in rows if _fits(t, agent)]
    found: list[tuple[Transition, float, Transition]] = []
    unlike = short = 0
    for i, first in enumerate(ours):
        steps = ours[i : i + n_step]
        if first.off > OFF_MAX:
            unlike += 1
        elif len(steps) < n_step or not all(_follows(a, b) for a, b in pairwise(steps)):
            short += 1
        else:
            found.append((first, sum(gamma**k * t.reward for k, t in enumerate(steps)), steps[-1]))
    width, actions = agent.moves.width, len(agent.moves.actions)
    return Served(
        inputs=np.array([a.inputs for a, _, _ in found], np.float64).reshape(-1, width),
        possible=np.array([a.possible for a, _, _ in found], np.bool_).reshape(-1, actions),
        action=np.array([a.action for a, _, _ in found], np.int64),
        gained=np.array([gained for _, gained, _ in found], np.float64),
        after=np.array([b.after for _, _, b in found], np.float64).reshape(-1, width),
        possible_after=np.array([b.possible_after for _, _, b in found], np.bool_).reshape(-1, actions),
        foreign=len(rows) - len(ours),
        unlike=unlike,
        short=short,
    )


def served_for(transitions: Iterable[Transition], base: Path, preset: Preset) -> Served:
    """Steps as a preset's training counts them, for the agent of a card."""
    return served_steps(transitions, load_agent(base), preset.gamma, preset.n_step)


def _fits(t: Transition, agent: LearnedAgent) -> bool:
    shape = (t.agent, t.feature_schema, len(t.inputs), len(t.possible))
    return shape == (agent.name, agent.moves.schema, agent.moves.width, len(agent.moves.actions))


def _follows(a: Transition, b: Transition) -> bool:
    near = 0 < b.at - a.at < _NEXT_WINDOWS * a.window_seconds
    return near and (a.policy, a.number + 1, a.price, a.window_seconds) == (b.policy, b.number, b.price, b.window_seconds)

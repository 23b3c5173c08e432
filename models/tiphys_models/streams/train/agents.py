"""Training of an agent: score, table, best fixed action, advantages, margin. Validation decides whether it switches at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream
from tiphys_models.lab.fit import fit
from tiphys_models.lab.nets import Trunk
from tiphys_models.streams.agent import ACTIONS, FEATURES, HIDDEN, SCHEMA, Agent, AgentCard, agent_of
from tiphys_models.streams.learned import TERMS
from tiphys_models.streams.sim.choosers import SimulatedBinder, Switching, agent_actions
from tiphys_models.streams.sim.episode import Action, FixedAction, play
from tiphys_models.streams.sim.search import Course, Tell, fit_table
from tiphys_models.streams.sim.workloads import NAMES
from tiphys_models.streams.train.clones import Lessons, gather
from tiphys_models.streams.train.presets import Preset
from tiphys_models.streams.train.score import fit_score

NEVER = 1e9
"""A margin that nothing exceeds: the agent stays with its best fixed action."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One training seed's result."""

    preset: str
    seed: int
    arrays: dict[str, FloatArray]
    card: dict[str, Any]
    """What the card has to say for the arrays to be loaded."""
    evidence: dict[str, Any]
    validation: float
    """Mean success on the validation split."""


def train(preset: Preset, seed: int, tell: Tell) -> Trained:
    """About ten minutes on one core, most of them for the score."""
    started = monotonic()
    rng = stream("binding", "trainer", preset.name, seed)
    course = Course(lambdas=preset.lambdas)
    weights = fit_score(preset.score_courses, rng, preset.effort, tell)
    table = fit_table(course, preset.table_seeds, weights=weights)
    actions = agent_actions(weights, table)
    judges = tuple(Course(lambdas=preset.lambdas, split="validation", bursty=bursty) for bursty in (False, True))
    fixed = {action.name: _of_fixed(judges, preset.validation_seeds, action) for action in actions}
    base = max(range(len(actions)), key=lambda k: float(fixed[actions[k].name].mean()))
    tell(f"  best fixed action: {actions[base].name}, success {100 * fixed[actions[base].name].mean():.2f} %")
    lessons = gather(course, preset, actions, base, rng)
    network, mean, scale = regress(lessons, preset, seed, tell)
    arrays = {"weights": weights, "table": np.array(table, np.float64), "mean": mean, "scale": scale}
    arrays |= {f"net.{i}.{part}": a for i, layer in enumerate(network) for part, a in zip(("weight", "bias"), layer, strict=True)}
    best = fixed[actions[base].name]
    found = {NEVER: (float(best.mean()), 0.0)}
    for margin in preset.margins:
        agent = agent_of(preset.name, card_of(preset.name, base, margin), arrays)
        mine = _of_switching(judges, preset.validation_seeds, agent, actions)
        found[margin] = float(mine.mean()), lower_bound(mine - best)
        tell(f"  margin {margin}: success {100 * found[margin][0]:.2f} %, gains {100 * found[margin][1]:+.2f} points at least")
    margin = chosen_margin(found)
    evidence = {
        "seed": seed, "lambdas": list(preset.lambdas), "labelled_windows": len(lessons.features), "base": actions[base].name,
        "margin": margin, "score": dict(zip(TERMS, weights.round(4).tolist(), strict=True)),
        "table": {app: ACTIONS[k] for app, k in zip(NAMES, table, strict=True)},
        "validation_success": {name: round(float(each.mean()), 5) for name, each in fixed.items()},
        "validation_success_by_margin": {("never" if m == NEVER else str(m)): round(v, 5) for m, (v, _) in found.items()},
        "validation_gain_at_least": {str(m): round(low, 5) for m, (_, low) in found.items() if m != NEVER},
        "seconds": round(monotonic() - started, 1),
    }  # fmt: skip
    card = card_of(preset.name, base, margin).model_dump(include={"base", "margin", "applications"})
    return Trained(preset.name, seed, arrays, card, evidence, found[margin][0])


def card_of(name: str, base: int, margin: float) -> AgentCard:
    """What the card has to say; its digest comes with the weights."""
    return AgentCard(name=name, policy=name, feature_schema=SCHEMA, sha256="0" * 64, base=base, margin=margin, applications=list(NAMES))


def _of_fixed(courses: Sequence[Course], seeds: Sequence[int], action: Action) -> FloatArray:
    """Success of every episode."""
    return np.array([r.outcome.success for course in courses for r in course.play(lambda: FixedAction(action), seeds)])


def _of_switching(courses: Sequence[Course], seeds: Sequence[int], agent: Agent, actions: tuple[Action, ...]) -> FloatArray:
    return np.array([
        play(where.world, streams, Switching(agent, actions, SimulatedBinder(where.offers, streams)), course.scenario).outcome.success
        for course in courses
        for where, streams in course.episodes(seeds)
    ])  # fmt: skip


def lower_bound(gains: FloatArray) -> float:
    """Lower bound of the mean of paired differences: two standard errors below it."""
    return float(gains.mean() - 2 * gains.std(ddof=1) / np.sqrt(len(gains)))


def chosen_margin(found: Mapping[float, tuple[float, float]]) -> float:
    """The margin of highest success among those whose gain has a lower bound above 0; NEVER if none. `found`: (success, bound)."""
    certain = [margin for margin, (_, low) in found.items() if low > 0]
    return max(certain, key=lambda margin: found[margin][0], default=NEVER)


def regress(
    lessons: Lessons, preset: Preset, seed: int, tell: Callable[[str], None]
) -> tuple[list[tuple[FloatArray, FloatArray]], FloatArray, FloatArray]:
    """(layers, mean, scale): what is seen, standardised, to advantages in points."""
    mean = lessons.features.mean(axis=0)
    scale = np.maximum(lessons.features.std(axis=0), 0.02)
    x = torch.as_tensor(np.clip((lessons.features - mean) / scale, -5, 5), dtype=torch.float32)
    wanted = torch.as_tensor(lessons.advantages, dtype=torch.float32)
    net = Trunk((FEATURES, HIDDEN, HIDDEN, len(ACTIONS)), seed)

    def loss(inputs: Tensor, advantages: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(net(inputs), advantages, delta=0.5)

    generator = torch.Generator().manual_seed(seed)
    fitted = fit(net, (x, wanted), loss, generator, lambda _: None, epochs=preset.epochs, rate=2e-3, batch=64, weight_decay=1e-2)
    tell(f"  {fitted.rows} labelled windows, held-out loss {fitted.held_out_loss:.4f} at epoch {fitted.best_epoch}")
    return net.layers(), mean, scale

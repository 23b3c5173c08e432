"""From a preset to an artifact: training, then the gate's margin and the table of prices by the validation split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.features.arrays import FloatArray
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.settings import RULE
from tiphys_models.sim.scaling.calibration import REQUIRED, Bench
from tiphys_models.sim.scaling.frontier import cost_at
from tiphys_models.train.scaling.dqn import Learner
from tiphys_models.train.scaling.presets import Preset

MARGINS = (0.0, 0.005, 0.01, 0.02, 0.04)
VALIDATION_SEEDS = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class Trained:
    """One training seed's result."""

    agent: LearnedAgent
    seed: int
    card: dict[str, Any]
    evidence: dict[str, Any]

    @property
    def score(self) -> float:
        """Lower is better: mean cost over the rule's at the rule's attainment; 0 for agents that are not held to the rule."""
        return float(self.evidence.get("mean_cost_over_rule", 0.0))


def train(preset: Preset, seed: int, tell: Callable[[str], None]) -> Trained:
    """One seed."""
    rule = {k: float(v) for k, v in asdict(RULE).items()}
    moves = moves_of(preset.name, rule)
    agent = Learner(preset, moves, seed).train(tell)
    card: dict[str, Any] = {"hidden": preset.hidden, "dueling": preset.dueling}
    evidence: dict[str, Any] = {"preset": preset.name, "seed": seed, "rounds": preset.rounds, "windows": preset.windows}
    if preset.name != "combined":
        return Trained(agent, seed, card, evidence)
    judged = {margin: judge(replace(agent, margin=margin), preset.judged) for margin in MARGINS}
    for margin, found in judged.items():
        tell(f"  margin {margin}: cost over the rule's at its attainment, validation, {_brief(found.over_rule)}")
    margin = min(judged, key=lambda m: judged[m].mean)
    best = judged[margin]
    card |= {"margin": margin, "rule": rule, "prices": best.prices}
    evidence |= {"cost_over_rule": {k: round(v, 4) for k, v in best.over_rule.items()}, "mean_cost_over_rule": round(best.mean, 4)}
    return Trained(replace(agent, margin=margin), seed, card, evidence)


@dataclass(frozen=True, slots=True)
class Judged:
    """An agent's frontier on the validation split beside the rule's one setting."""

    over_rule: dict[str, float]
    prices: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float:
        """Over shapes."""
        return float(np.mean(list(self.over_rule.values())))


def judge(agent: LearnedAgent, prices: tuple[float, ...]) -> Judged:
    """Every price on every shape."""
    bench = Bench("validation", VALIDATION_SEEDS)
    figures = [bench.figures(replace(agent, price=price)) for price in prices]
    attained: FloatArray = np.array([a for a, _ in figures])
    cost: FloatArray = np.array([c for _, c in figures])
    rule_attained, rule_cost = bench.figures(Rule(RULE))
    over = {
        shape: cost_at(attained[:, i], cost[:, i], float(rule_attained[i])) / float(rule_cost[i]) for i, shape in enumerate(bench.shapes)
    }
    held = [i for i, shape in enumerate(bench.shapes) if shape in REQUIRED]
    worst = tuple((price, round(float(a[held].min()), 4)) for price, a in zip(prices, attained, strict=True))
    return Judged(over, worst)


def write(directory: Path, name: str, trained: Trained, **evidence: Any) -> Path:
    """`scaling-NAME.json` beside `scaling-NAME.safetensors`."""
    artifact = f"scaling-{name}"
    arrays = trained.agent.network.arrays()
    write_tensors(
        directory, artifact, trained.agent.name, trained.agent.moves.schema, arrays, **trained.card, training=trained.evidence, **evidence
    )
    return directory / f"{artifact}.json"


def _brief(found: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.3f}" for key, value in found.items())

"""How `tiphys train placement --preset estimator-network` goes: seeds from starts of their own, the best by validation is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.trainer import Line, Tell, Training
from tiphys_models.placement.estimator_network import NAME, write
from tiphys_models.placement.residual import heads_of
from tiphys_models.placement.train.evolution import EvolutionSettings, Evolved, evolve, over_estimator

TEST_SEEDS = (0, 1)


class EvolutionTraining(Training[Evolved]):
    """Training of the network over the estimator."""

    name = NAME
    judged_by = "mean completion over the estimator's"

    def __init__(self, *, steps: int | None = None) -> None:
        if steps is not None and steps < 1:
            raise InvalidInput(f"--steps wants a whole number from 1 on, it got {steps}")
        self._settings = EvolutionSettings() if steps is None else replace(EvolutionSettings(), steps=steps)

    def train(self, seed: int, tell: Tell) -> Evolved:
        """See Training."""
        return evolve(seed, self._settings, tell)

    def seed_of(self, trained: Evolved) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: Evolved) -> float:
        """What validation says, the lowest is the best; implements `Training.order`."""
        return trained.mean_over_estimator

    def evidence(self, trained: Evolved) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        return {
            "preset": self.name,
            "seed": trained.seed,
            "episodes": trained.episodes,
            "validation_over_estimator": _rounded(trained.over_estimator),
            "seconds": round(trained.seconds, 1),
        }

    def judged(self, trained: Sequence[Evolved]) -> list[Line]:
        """What the best one's card says of every seed; implements `Training.judged`."""
        return [self.evidence(one) | {"test_over_estimator": _rounded(over_estimator(one.weights, "test", TEST_SEEDS))} for one in trained]

    def write(self, trained: Evolved, artifact: str, out: Path, **evidence: Any) -> Path:
        """Writes arrays and card; implements `Training.write`."""
        write(out, artifact, heads_of(trained.weights), **evidence)
        return out / f"{artifact}.json"

    def line(self, trained: Evolved, evidence: Line) -> Line:
        """A row of the table of seeds; implements `Training.line`."""
        test = evidence["test_over_estimator"].values()
        return {
            "seed": trained.seed,
            "validation": f"{trained.mean_over_estimator:.4f}",
            "test": f"{sum(test) / len(test):.4f}",
            "episodes": f"{trained.episodes:,}",
            "seconds": f"{trained.seconds:.0f}",
        }


def _rounded(ratios: dict[str, float]) -> dict[str, float]:
    return {world: round(ratio, 4) for world, ratio in ratios.items()}

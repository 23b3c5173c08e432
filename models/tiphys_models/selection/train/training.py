"""How `tiphys train selection` goes: presets with options, and constants that are measured instead of trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.trainer import Line, Tell, Training, preset_of
from tiphys_models.selection.planners.registry import candidates, make_planners
from tiphys_models.selection.selectors.metanet import make
from tiphys_models.selection.sim.episode import Planners
from tiphys_models.selection.train.playing import MOST_VIOLATIONS, Court, price_violations, tune_ucb
from tiphys_models.selection.train.trainers import PRESETS, Trained, Trainer

_SEEDS = (0, 1, 2)
_INTERVALS = 500
"""Played for a constant."""


class SelectionTraining(Training[Trained]):
    """Training of selection: of several seeds, the best by validation becomes NAME.json beside NAME.safetensors."""

    judged_by = "J over that of the best fixed candidate, validation"

    def __init__(
        self, name: str, out: Path, tell: Tell, *, episodes: int | None, intervals: int | None, resume: bool, resuming: bool
    ) -> None:
        preset = preset_of(PRESETS, name, others=tuple(CONSTANTS), episodes=episodes, intervals=intervals)
        preset = replace(preset, resuming=resuming, validation_intervals=min(preset.validation_intervals, preset.intervals))
        if (out / "episodes").exists() and not resume:
            raise InvalidInput(f"{out} holds the episodes of another run: pass --resume to go on with them, or another --out")
        self.name, self._trainer = name, Trainer(preset, out, tell)

    def announced(self, seed: int) -> str:
        """Message before a seed is trained; implements `Training.announced`."""
        return f"{self.name}, seed {seed}, candidates {', '.join(self._trainer.planners.names)}"

    def train(self, seed: int, tell: Tell) -> Trained:
        """Trains one seed; implements `Training.train`."""
        return self._trainer.train(seed)

    def seed_of(self, trained: Trained) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: Trained) -> float:
        """What validation says, the lowest is the best; implements `Training.order`."""
        return trained.mean

    def evidence(self, trained: Trained) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        judged = {key: round(value, 4) for key, value in trained.validation.items()}
        return {"preset": trained.preset, "seed": trained.seed, "validation_j_over_best_fixed": judged, "mean": round(trained.mean, 4)}

    def write(self, trained: Trained, artifact: str, out: Path, **evidence: Any) -> Path:
        """Writes arrays and card; implements `Training.write`."""
        write_tensors(out, artifact, self.name, trained.schema, trained.arrays, **trained.card, **evidence)
        return out / f"{artifact}.json"

    def line(self, trained: Trained, evidence: Line) -> Line:
        """A row of the table of seeds; implements `Training.line`."""
        return {"seed": trained.seed, **{k: f"{v:.3f}" for k, v in trained.validation.items()}, "mean": f"{trained.mean:.3f}"}


Constant = tuple[str, list[Line], str]
"""A title, the lines of a table, and the verdict."""


def _tuned(tell: Tell) -> Constant:
    tell("UCB plays the calibration split")
    found = tune_ucb(Planners(make_planners(candidates())), _SEEDS, _INTERVALS)
    lines = [{"c": f"{c:.3g}", "J over best fixed": f"{value:.4f}"} for c, value in found.items()]
    best = min(found, key=found.__getitem__)
    return "ucb, calibration split, default weights", lines, f"the best is c = {best:.3g}; the constant selection.ucb-c"


def _priced(tell: Tell) -> Constant:
    tell("the shipped metanet plays the validation split")
    court = Court(Planners(make_planners(candidates())), "validation", _SEEDS, _INTERVALS)
    found = price_violations(court, lambda w, d: make(candidates(), w, d, 0))
    lines = []
    for price, bills in found.items():
        shown = {f"{w}, USD": f"{usd:.4f}" for w, (usd, _) in bills.items()}
        late = {f"{w}, violations of the worst seed": f"{worst:.3f}" for w, (_, worst) in bills.items()}
        columns = {key: value for pair in zip(shown.items(), late.items(), strict=True) for key, value in pair}
        lines.append({"price of a missed deadline, USD": f"{price:.2g}", **columns})
    kept = [price for price, bills in found.items() if max(late for _, late in bills.values()) <= MOST_VIOLATIONS]
    verdict = f"{min(kept):.2g} is the least that keeps" if kept else "none keeps"
    return (
        "metanet, validation split",
        lines,
        f"{verdict} violations at {MOST_VIOLATIONS:.0%} on every seed; the constant selection.missed-usd",
    )


CONSTANTS: Mapping[str, Callable[[Tell], Constant]] = {"ucb": _tuned, "cost-at-sla": _priced}
"""What `--preset` can name besides presets."""

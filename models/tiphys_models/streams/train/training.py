"""How `tiphys train binding` goes: agents with their score, and the paper's agent, of which every seed is a comparator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.trainer import Line, Tell, Training, preset_of
from tiphys_models.streams import agent, learned
from tiphys_models.streams.paper import SCHEMA
from tiphys_models.streams.train.agents import NEVER, Trained, train
from tiphys_models.streams.train.dqn import PaperPreset, train_paper
from tiphys_models.streams.train.presets import PRESETS

PAPER = "aset-paper"


class StreamTraining(Training[Trained]):
    """Every seed's artifact lies under `seeds`, the best one's beside it."""

    def __init__(self, name: str) -> None:
        self.name, self._preset = name, preset_of(PRESETS, name, others=(PAPER,))

    def train(self, seed: int, tell: Tell) -> Trained:
        """Trains one seed; implements `Training.train`."""
        return train(self._preset, seed, tell)

    def keep(self, trained: Trained, out: Path) -> None:
        """Writes the result of a seed, the best or not; implements `Training.keep`."""
        super().keep(trained, out / "seeds")

    def seed_of(self, trained: Trained) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: Trained) -> float:
        """See Training: the most success."""
        return -trained.validation

    def evidence(self, trained: Trained) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        return trained.evidence

    def write(self, trained: Trained, artifact: str, out: Path, **evidence: Any) -> Path:
        """See Training; the best score of `aset` serves by itself, too."""
        write_tensors(out, artifact, self.name, agent.SCHEMA, trained.arrays, **trained.card, **evidence)
        if artifact == "aset":
            write_tensors(out, "score", "score", learned.SCHEMA, {"weights": trained.arrays["weights"]}, **evidence)
        return out / f"{artifact}.json"

    def line(self, trained: Trained, evidence: Line) -> Line:
        """A row of the table of seeds; implements `Training.line`."""
        never = evidence["validation_success_by_margin"]["never"]
        return {
            "seed": trained.seed,
            "best fixed action": evidence["base"],
            "its success": f"{100 * never:.2f} %",
            "margin": "never switches" if evidence["margin"] >= NEVER else f"{evidence['margin']:g}",
            "success": f"{100 * trained.validation:.2f} %",
            "seconds": f"{evidence['seconds']:.0f}",
        }


@dataclass(frozen=True, slots=True)
class TrainedPaper:
    """One seed of the paper's agent."""

    seed: int
    arrays: dict[str, FloatArray]
    seconds: float


class PaperTraining(Training[TrainedPaper]):
    """No seed is chosen: the paper's agent is a comparator, and all of them are judged."""

    name = PAPER
    keeps_best = False

    def __init__(self, episodes: int | None) -> None:
        self._preset = PaperPreset() if episodes is None else replace(PaperPreset(), episodes=episodes)

    def announced(self, seed: int) -> str:
        """Message before a seed is trained; implements `Training.announced`."""
        return f"{PAPER}, seed {seed}, {self._preset.episodes} episodes"

    def train(self, seed: int, tell: Tell) -> TrainedPaper:
        """Trains one seed; implements `Training.train`."""
        started = monotonic()
        return TrainedPaper(seed, train_paper(self._preset, seed, tell), round(monotonic() - started, 1))

    def keep(self, trained: TrainedPaper, out: Path) -> None:
        """Writes the result of a seed, the best or not; implements `Training.keep`."""
        super().keep(trained, out / "seeds")

    def seed_of(self, trained: TrainedPaper) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: TrainedPaper) -> int:
        """See Training; no seed is chosen."""
        return trained.seed

    def evidence(self, trained: TrainedPaper) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        return {"seed": trained.seed, "episodes": self._preset.episodes, "seconds": trained.seconds}

    def write(self, trained: TrainedPaper, artifact: str, out: Path, **evidence: Any) -> Path:
        """Writes arrays and card; implements `Training.write`."""
        write_tensors(out, artifact, PAPER, SCHEMA, trained.arrays, **evidence)
        return out / f"{artifact}.json"


def training_of(name: str, episodes: int | None) -> StreamTraining | PaperTraining:
    """The training of this name."""
    if name == PAPER:
        return PaperTraining(episodes)
    made = StreamTraining(name)
    if episodes is not None:
        raise InvalidInput(f"--episodes is for {PAPER} only")
    return made

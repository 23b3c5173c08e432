"""How `tiphys train placement` goes: presets with options, a learning curve beside every seed's artifact, the test split at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.lab.trainer import Line, Tell, Training, preset_of
from tiphys_models.placement.sim.workloads import KINDS
from tiphys_models.placement.train.checkpoints import CurvePoint
from tiphys_models.placement.train.export import SCRAPE_WINDOWS_S, write_artifact
from tiphys_models.placement.train.presets import PRESETS
from tiphys_models.placement.train.rolling import roller
from tiphys_models.placement.train.rollouts import play_here
from tiphys_models.placement.train.trainer import Trained, train
from tiphys_models.placement.train.validation import percent_on_test


class PlacementTraining(Training[Trained]):
    """Training of placement: of several seeds, the best by validation becomes NAME.json beside NAME.safetensors."""

    def __init__(
        self, name: str, out: Path, *, steps: int | None = None, workload: str | None = None, resume: bool = False, ray: bool = False
    ) -> None:
        if workload is not None and workload not in KINDS:
            raise InvalidInput(f"no workload is called {workload!r}: there are {', '.join(KINDS)}")
        self._preset = preset_of(PRESETS, name, steps=steps)
        if workload is not None:
            self._preset = replace(self._preset, only=workload)
        self.name, self._out, self._resume, self._ray, self._rolls = self._preset.name, out, resume, ray, play_here

    @contextmanager
    def session(self) -> Iterator[None]:
        """Workloads are played here, or on a Ray cluster."""
        with roller(ray=self._ray) as self._rolls:
            yield

    def announced(self, seed: int) -> str:
        """Message before a seed is trained; implements `Training.announced`."""
        return f"{self.name}, seed {seed}: {self._preset.episodes:,} episodes at most"

    def train(self, seed: int, tell: Tell) -> Trained:
        """See Training; with a checkpoint after every validation."""
        return train(self._preset, seed, lambda p: _tell(tell, p), checkpoint=self._out, resume=self._resume, rolls=self._rolls)

    def keep(self, trained: Trained, out: Path) -> None:
        """The artifact, and the learning curve."""
        curve = {"preset": self.name, "seed": trained.seed, "points": [asdict(p) for p in trained.curve]}
        (out / f"{self.name}-{trained.seed}.curve.json").write_bytes(orjson.dumps(curve, option=orjson.OPT_INDENT_2))
        super().keep(trained, out)

    def seed_of(self, trained: Trained) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: Trained) -> float:
        """What validation says, the lowest is the best; implements `Training.order`."""
        return trained.best_pct

    def evidence(self, trained: Trained) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        return {
            "preset": self.name,
            "seed": trained.seed,
            "episodes": trained.episodes,
            "best_step": trained.best_step,
            "validation_pct_of_hashing": round(trained.best_pct, 3),
            "seconds": round(trained.seconds, 1),
            "azure_rows_seen": [],
        }

    def check(self, best: Trained, out: Path) -> None:
        """Raises TiphysError if not even the best may be exported; implements `Training.check`."""
        if best.best_pct == float("inf"):
            raise TiphysError("every student herds on one node; nothing was exported under the preset's name")

    def judged(self, trained: Sequence[Trained]) -> list[Line]:
        """What the best one's card says of every seed; implements `Training.judged`."""
        return [self.evidence(result) | {"test_pct_of_hashing": round(percent_on_test(result.student), 3)} for result in trained]

    def write(self, trained: Trained, artifact: str, out: Path, **evidence: Any) -> Path:
        """Writes arrays and card; implements `Training.write`."""
        write_artifact(out, trained.student, artifact, SCRAPE_WINDOWS_S if self._preset.imitation else [1], **evidence)
        return out / f"{artifact}.json"

    def line(self, trained: Trained, evidence: Line) -> Line:
        """A row of the table of seeds; implements `Training.line`."""
        return {
            "seed": trained.seed,
            "validation, % of hashing": f"{trained.best_pct:.2f}",
            "test": f"{evidence['test_pct_of_hashing']:.2f}",
            "best step": trained.best_step,
            "episodes": f"{trained.episodes:,}",
            "seconds": f"{trained.seconds:.0f}",
        }


def _tell(tell: Tell, p: CurvePoint) -> None:
    if p.validation_pct is not None:
        tell(
            f"  step {p.step:>4}  {p.episodes:>6,} episodes  {p.seconds:6.0f} s  training {p.training:8.3f}  "
            f"validation {p.validation_pct:6.2f} % of hashing, fullest node {p.fullest_share:.2f}"
        )

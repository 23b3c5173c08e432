"""A study: cells are played, rows come of them, and summary, claims, tables and pictures come of rows alone.

What is the same for all benchmarks of simulators stands here; a definition of one says what its cells are, how a cell is played, and
what is promised of the rows. Randomness comes from seeds only: the same seeds and inputs give the same rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic

from tiphys_models.lab.documents import Tables, claim_row
from tiphys_models.lab.evidence import Contrast, Swap, judged, rules_of_evidence
from tiphys_models.lab.pool import Cell, Played, play_all
from tiphys_models.lab.report import Claim, Result, Row

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(ABC, Generic[Cell, Played]):
    """A definition of one benchmark, with what a run of it was asked for."""

    bench: ClassVar[str]
    contrast: ClassVar[Contrast]
    swap: ClassVar[Swap] = Swap()

    seeds: tuple[int, ...]
    quick: bool = False
    jobs: int = 0
    """Processes; 0: one a core."""
    sealed: bool = False
    """Whether the seeds are sealed ones, and the run is in the ledger."""

    @abstractmethod
    def check(self) -> None:
        """InvalidInput names what cannot be played."""

    def prepare(self, tell: Tell) -> Row:
        """What is read and measured before anything is played, handed to `cells` and `inputs`."""
        return {}

    @abstractmethod
    def cells(self, prepared: Row) -> Sequence[Cell]:
        """Everything that is played, in the order of the rows."""

    @abstractmethod
    def play(self, cell: Cell) -> Played:
        """One cell; what comes of it depends on nothing but the cell."""

    @abstractmethod
    def label(self, cell: Cell) -> str:
        """A cell for whoever waits."""

    def warm(self) -> None:
        """Compile what the cells need, once."""

    @abstractmethod
    def rows(self, played: Sequence[Played]) -> list[Row]:
        """One object a measured cell, never averaged over seeds."""

    @abstractmethod
    def inputs(self, prepared: Row, played: Sequence[Played], rows: Sequence[Row]) -> Row:
        """Everything read, models' digests, and what is told beside the rows."""

    @abstractmethod
    def summarise(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Row]:
        """One object a group and figure: mean and interval."""

    @abstractmethod
    def claims(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
        """Each figure that is promised, with its bound."""

    def swapped(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs as if the trivial policy were the learned decider."""
        return inputs

    @abstractmethod
    def digests(self) -> Mapping[str, str]:
        """The weights that are judged, by name."""

    @abstractmethod
    def titles(self) -> Sequence[str]:
        """The tables that a run will have, known before it."""

    @abstractmethod
    def tables(self, result: Result) -> Tables:
        """The tables of a result, for people and for documents."""

    def claim_rows(self, claims: Sequence[Claim]) -> Sequence[Row]:
        """The table of claims in documents."""
        return [claim_row(claim) for claim in claims]

    @abstractmethod
    def draw(self, result: Result, directory: Path) -> None:
        """Pictures of a result."""

    def check_pictures(self, document: Path) -> None:
        """InvalidInput names a picture in a document that no run draws."""

    def illustrate(self, result: Result, document: Path) -> None:
        """Draw the pictures that a document shows beside it."""


def run(study: Study[Cell, Played], tell: Tell) -> Result:
    """Play everything and judge it; InvalidInput names what cannot be played."""
    started = time.monotonic()
    study.check()
    prepared = study.prepare(tell)
    played = play_all(study.cells(prepared), study.play, study.label, tell, jobs=study.jobs, warm=study.warm)
    rows = study.rows(played)
    seconds = time.monotonic() - started
    inputs = {**study.inputs(prepared, played, rows), "wall_minutes": round(seconds / 60, 1), "evidence": _evidence(study)}
    claims = judge(study, rows, inputs)
    return Result(study.bench, study.quick, study.seeds, seconds, inputs, rows, study.summarise(rows, inputs), claims)


def judge(study: Study[Cell, Played], rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
    """The study's claims beside the trivial policy's values, and the rules of evidence."""
    contrast, swap, other = study.contrast, study.swap, study.swapped(inputs)
    made = judged(lambda found: study.claims(found, inputs), rows, contrast, swap, lambda found: study.claims(found, other))
    return [*made, *rules_of_evidence(study.bench, rows, study.seeds, contrast, swap.column)]


def _evidence(study: Study[Cell, Played]) -> Row:
    c = study.contrast
    return {
        "intervals": "Student's t of paired seeds, training seeds as a random effect; of ratios of frontiers by the jackknife or BCa",
        "learned": c.learned,
        "trivial": c.trivial,
        "same_information": c.same_information,
        "sealed": study.sealed,
    }

"""Static and learned policies on the same streams in the simulated edge and cloud.

Rows are one topology, scenario, arrivals, rate, policy, training seed, application and seed each; summaries and claims are computed
from rows alone. Policies whose weights are missing are left out, and claims about them are not made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from tiphys_models.artifacts.files import card_of
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import Tables, shown_pictures
from tiphys_models.lab.evidence import Contrast, Swap
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.lab.study import Study, Tell
from tiphys_models.streams.registry import REGISTRY
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO, HORIZON_S, LAMBDA, SENSITIVITY, UNSEEN_LAMBDAS
from tiphys_models.streams.sim.topology import ANTENNAS, TOPOLOGIES
from tiphys_models.streams.sim.workloads import read_arrivals
from tiphys_models.streams.study import figures, tables
from tiphys_models.streams.study.facts import asked_of_an_antenna, if_streams_moved, in_words, topology_facts
from tiphys_models.streams.study.play import (
    AGENTS,
    BLIND,
    PAPER_AGENT,
    POLICIES,
    TUNING_SEEDS,
    Blind,
    Cell,
    Played,
    artifacts,
    available,
    play_cell,
    tune_blind,
)

_SCENARIO_SEEDS = 10
"""When a modelling choice is changed; query by query, the next."""
_EVENT_SEEDS = 3
_ORACLE_SEEDS = 3
_MOVED_SEEDS = 10
_QUICK_HORIZON_S = 60.0
_PICTURE = "binding-"
_PICTURES = {
    name: f"{_PICTURE}{name}.svg" for name in ("applications", *(f"{kind}-{t}" for kind in ("over-time", "rates") for t in TOPOLOGIES))
}
"""Files in `images` beside a document, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStudy(Study[Cell, Played]):
    """The study, and what a run of it was asked for."""

    bench: ClassVar[str] = "binding"
    contrast: ClassVar[Contrast] = Contrast("aset", "relative-load", "relative-load-tuned")
    swap: ClassVar[Swap] = Swap(also={"training_seed": 0})

    policies: tuple[str, ...] = POLICIES
    file: Path | None = None
    sensitivity: bool = True
    """Whether modelling choices are changed one at a time, too: a third of the time."""

    @property
    def played(self) -> tuple[str, ...]:
        """Names of the policies that are played: those whose weights are here."""
        return available(self.policies)

    @property
    def horizon_s(self) -> float:
        """The length of every episode."""
        return _QUICK_HORIZON_S if self.quick else HORIZON_S

    def check(self) -> None:
        """Raises InvalidInput for what cannot be played; implements `Study.check`."""
        there = (*POLICIES, *REGISTRY.foreign)
        if unknown := [p for p in self.policies if p not in there]:
            raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(there)}")
        if self.file is not None:
            read_arrivals(self.file)

    def prepare(self, tell: Tell) -> Row:
        """The file of arrivals, and the comparators that see nothing, tuned: three quarters of a minute on one core."""
        file = None if self.file is None else read_arrivals(self.file)
        return {"file": file, "blind": self.tuned(tell)}

    def tuned(self, tell: Tell) -> dict[str, Blind]:
        """The comparators that see nothing, by topology; nothing where none is played."""
        if not set(self.played) & set(BLIND):
            return {}
        tell("tuning the blind comparators on training seeds")
        return {topology: tune_blind(topology, TUNING_SEEDS[: 1 if self.quick else None]) for topology in TOPOLOGIES}

    def cells(self, prepared: Row) -> list[Cell]:
        """Full-edge at every rate, the others at 20, 60 and 100; the file; then one modelling choice changed at a time."""
        blind: Mapping[str, Blind] = prepared.get("blind", {})
        no_oracle, edge = tuple(p for p in self.played if p != "oracle"), blind.get("full-edge")
        found = []
        for topology in TOPOLOGIES:
            for rate in sorted((LAMBDA, *UNSEEN_LAMBDAS) if topology == "full-edge" else (20.0, LAMBDA, 100.0)):
                for index, seed in enumerate(self.seeds):
                    shown = topology == "full-edge" and rate == LAMBDA
                    policies = self.played if shown and index < _ORACLE_SEEDS else no_oracle
                    traced = rate == LAMBDA and index == 0
                    found.append(Cell(topology, DEFAULT_SCENARIO, rate, seed, policies, blind.get(topology), self.horizon_s, trace=traced))
        if self.file is not None:
            file = str(self.file)
            found += [Cell("full-edge", DEFAULT_SCENARIO, LAMBDA, seed, no_oracle, edge, self.horizon_s, file) for seed in self.seeds]
        for scenario in (SENSITIVITY[:2] if self.quick else SENSITIVITY) if self.sensitivity else ():
            seeds = self.seeds[: _EVENT_SEEDS if scenario.events else _SCENARIO_SEEDS]
            found += [Cell("full-edge", scenario, LAMBDA, seed, no_oracle, edge, self.horizon_s) for seed in seeds]
        return found

    def play(self, cell: Cell) -> Played:
        """Plays one cell; implements `Study.play`."""
        return play_cell(cell)

    def label(self, cell: Cell) -> str:
        """A cell's name for progress messages; implements `Study.label`."""
        return f"{cell.topology}, {cell.scenario.name}, {cell.label}, lambda {cell.lambda_per_min:g}, seed {cell.seed}"

    def rows(self, played: Sequence[Played]) -> list[Row]:
        """Measured rows, one object a cell; implements `Study.rows`."""
        return figures.with_blind([row for p in played for row in p.rows])

    def inputs(self, prepared: Row, played: Sequence[Played], rows: Sequence[Row]) -> Row:
        """Everything read, with the models' digests; implements `Study.inputs`."""
        file = prepared["file"]
        speed = None if file is None else ANTENNAS * LAMBDA / 60 / file.rate_per_s
        everybody = figures.tables(rows).get(("full-edge", "default", "poisson", LAMBDA, "all"), {})
        return {
            "topologies": {name: topology_facts(name, self.seeds[0]) for name in TOPOLOGIES},
            "workload": asked_of_an_antenna(self.seeds),
            "if_streams_moved": if_streams_moved(self.seeds[: 1 if self.quick else _MOVED_SEEDS], self.horizon_s, file),
            "models": dict(self.digests()),
            "blind": {name: in_words(blind) for name, blind in prepared["blind"].items()},
            "arrivals": None if file is None else {"name": file.name, "sha256": file.sha256, "times": len(file.times_s), "sped_up": speed},
            "over_time": {p.cell.topology: p.over_time for p in played if p.over_time},
            "switched": {p.cell.topology: p.switched for p in played if p.cell.trace},
            "shares_of_oracle_gain": figures.oracle_shares(everybody),
        }

    def summarise(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Row]:
        """Mean and interval of each group and figure; implements `Study.summarise`."""
        return figures.summarise(rows)

    def claims(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
        """The promised figures with their bounds; implements `Study.claims`."""
        return figures.claims(rows)

    def digests(self) -> Mapping[str, str]:
        """Digests of the judged weights by name; implements `Study.digests`."""
        score = card_of("score")
        cards = [*([score] if score.exists() else []), *(path for name in (*AGENTS, PAPER_AGENT) for path in artifacts(name).values())]
        return {path.stem: sha256(path.with_suffix(".safetensors").read_bytes()).hexdigest() for path in cards}

    def titles(self) -> Sequence[str]:
        """Titles of the tables of a run; implements `Study.titles`."""
        return tables.titles(self.played, None if self.file is None else self.file.stem)

    def tables(self, result: Result) -> Tables:
        """Tables of a result; implements `Study.tables`."""
        return tables.tables(result)

    def draw(self, result: Result, directory: Path) -> None:
        """Draws the pictures of a result; implements `Study.draw`."""
        from tiphys_models.streams.study.pictures import draw  # noqa: PLC0415 - matplotlib, only where there is something to draw

        draw(result, directory)

    def check_pictures(self, document: Path) -> None:
        """Raises InvalidInput for a picture in a document that no run draws; implements `Study.check_pictures`."""
        shown = {file for file in shown_pictures(document) if file.startswith(_PICTURE)}
        if unknown := sorted(shown - set(_PICTURES.values())):
            raise InvalidInput(f"--docs: {document} shows {unknown[0]!r}, which is none of {', '.join(_PICTURES.values())}")

    def illustrate(self, result: Result, document: Path) -> None:
        """Draws the pictures that a document shows; implements `Study.illustrate`."""
        if files := {name: file for name, file in _PICTURES.items() if file in shown_pictures(document)}:
            from tiphys_models.streams.study.pictures import illustrate  # noqa: PLC0415 - as in draw

            illustrate(result, document.parent / "images", files)

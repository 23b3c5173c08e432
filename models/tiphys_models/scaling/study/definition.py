"""Agents, rules and a clairvoyant on the same arrivals of a simulated service.

Rows are one shape, agent, setting and seed each; summaries and claims are computed from rows alone. Settings are the same for all
shapes and seeds. Agents without weights are not played, and no claim is made about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tiphys_models.artifacts.files import card_of
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import Tables
from tiphys_models.lab.evidence import Contrast, Swap
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.lab.study import Study, Tell
from tiphys_models.scaling.hpa import HPA, RPSHPA
from tiphys_models.scaling.registry import REGISTRY
from tiphys_models.scaling.reward import POD_PRICE
from tiphys_models.scaling.rule_plus import RulePlus
from tiphys_models.scaling.rules import Naive, Rule, RuleHorizontal
from tiphys_models.scaling.settings import RULE, RULE_HORIZONTAL
from tiphys_models.scaling.sim.calibration import Bench, search
from tiphys_models.scaling.sim.noise import NOISES, NOISY, NOISY_S
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO, FIBONACCI, SCENARIOS, START_CPU_M
from tiphys_models.scaling.sim.shapes import BURSTY_PER_HOUR, FLASH_PER_HOUR, HOUR_S, RECURRING_PERIOD_S, SHAPES, file_label, read_shape
from tiphys_models.scaling.study import figures, tables
from tiphys_models.scaling.study.play import BESIDE, BOUND, JOINT, JOINT_CARD, SETTLING, Cell, play_any, playable, traces, warm
from tiphys_models.scaling.study.settings import CHOSEN, RESIZING, SCALERS, settings_of


def constants(tell: Callable[[str], None]) -> Row:
    """The best setting of each rule, with what it attains and costs on the train split: searched anew."""
    bench = Bench()
    return {
        "rule": asdict(search(Rule, bench, np.random.default_rng(0), tell)),
        "rule-horizontal": asdict(search(RuleHorizontal, bench, np.random.default_rng(0), tell)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy(Study[Cell, list[Row]]):
    """The study, and what a run of it was asked for."""

    bench: ClassVar[str] = "scaling"
    contrast: ClassVar[Contrast] = Contrast("combined", "rule", "rule+")
    swap: ClassVar[Swap] = Swap("agent")

    agents: tuple[str, ...] = ()
    """Empty: all that have what they need."""
    files: tuple[Path, ...] = ()
    fluid: bool = False
    """The fast simulator instead of single requests; what is quick is fluid anyway."""
    scenarios: tuple[str, ...] = ()
    """Scenarios with something wrong or late to play beside `default`; empty: all."""
    sweep: bool = False
    """Whether HPA is tuned for each shape: every pod size and stabilisation, a hundred settings more."""

    @property
    def played(self) -> tuple[str, ...]:
        """Names of the agents that are played: those asked for, or all that can be."""
        return self.agents or playable()

    @property
    def _fluid(self) -> bool:
        return self.fluid or self.quick

    def check(self) -> None:
        """Raises InvalidInput for what cannot be played; implements `Study.check`."""
        there = (*playable(), *REGISTRY.foreign)
        if unknown := [a for a in self.played if a not in there]:
            raise InvalidInput(f"--agents: {unknown[0]!r} is none of {', '.join(there)}")
        if unknown := [s for s in self.scenarios if s not in SCENARIOS]:
            raise InvalidInput(f"--scenarios: {unknown[0]!r} is none of {', '.join(SCENARIOS)}")
        stems = [f.stem for f in self.files]
        if len(set(stems)) != len(stems):
            raise InvalidInput("--shape: two files of one name would be confused in the rows")
        for file in self.files:
            read_shape(file)

    def prepare(self, tell: Tell) -> Row:
        """The files of shapes."""
        return {"files": {file_label(f): {"name": f.name, "sha256": read_shape(f)[1]} for f in self.files}}

    def cells(self, prepared: Row) -> list[Cell]:
        """Every shape and file; the named shapes with a queue for every pod, which the fluid does not have; rows of their own."""
        seconds, names = HOUR_S // 4 if self.quick else HOUR_S, (*SHAPES, *(str(f) for f in self.files))
        plain = [Cell(name, seed, self.played, seconds, fluid=self._fluid, sweep=self.sweep) for name in names for seed in self.seeds]
        queues = [replace(cell, per_pod=True) for cell in plain if cell.shape in SHAPES and not cell.fluid]
        joint = "dqn-horizontal" in self.played and JOINT_CARD.exists()
        alone = [replace(cell, shape=JOINT) for cell in plain if cell.shape == "constant"] if joint else []
        settling = [Cell(SETTLING, seed, self.played, 0) for seed in self.seeds] if "dqn-vertical" in self.played else []
        return [*plain, *queues, *alone, *settling, *self._noisy(), *self._wrong(plain)]

    def _noisy(self) -> list[Cell]:
        """Shapes and files with noise, three hours each, for agents that follow a rate; the bound beside them."""
        agents = tuple(a for a in self.played if a in (*SCALERS, BOUND))
        seconds = HOUR_S // 4 if self.quick else NOISY_S
        made = [Cell(name, 0, agents, seconds, fluid=self._fluid, points="compared", sweep=self.sweep) for name in NOISY]
        made += [replace(made[0], shape=str(file), noise=noise) for file in self.files for noise in NOISES]
        cells = [replace(cell, seed=seed) for cell in made for seed in self.seeds] if agents else []
        return [*cells, *(late for cell in cells for late in self._late(cell))]

    def _late(self, cell: Cell) -> list[Cell]:
        """The same with resizes that take their time: the headline's chosen settings, and frontiers of who resizes in place."""
        agents = tuple(a for a in cell.agents if a in RESIZING)
        chosen = replace(cell, agents=agents, scenario_name="resizes-late", points="chosen", sweep=False)
        every = replace(chosen, agents=tuple(a for a in agents if a != "combined"), scenario_name="resizes-3s", points="compared")
        return [each for each in (chosen, every) if each.agents and self._wanted(each.scenario_name)]

    def _wrong(self, plain: Sequence[Cell]) -> list[Cell]:
        """Everything wrong or late, on the shapes without noise; agents that follow a rate, at their chosen settings."""
        agents = tuple(a for a in self.played if a in SCALERS)
        late = [each for cell in plain for each in self._late(replace(cell, agents=agents))]
        others = [name for name in SCENARIOS if name not in ("default", "resizes-late", "resizes-3s") and self._wanted(name)]
        chosen = [replace(cell, agents=agents, points="chosen", sweep=False) for cell in plain] if agents else []
        return [*late, *(replace(cell, scenario_name=name) for name in others for cell in chosen)]

    def _wanted(self, scenario: str) -> bool:
        return not self.scenarios or scenario in self.scenarios

    def play(self, cell: Cell) -> list[Row]:
        """Plays one cell; implements `Study.play`."""
        return play_any(cell)

    def warm(self) -> None:
        """Compiles what the cells need, once; implements `Study.warm`."""
        warm(fluid=self._fluid)

    def label(self, cell: Cell) -> str:
        """A cell's name for progress messages; implements `Study.label`."""
        return f"{cell.label}, {cell.scenario_name}, seed {cell.seed}"

    def rows(self, played: Sequence[list[Row]]) -> list[Row]:
        """Measured rows, one object a cell; implements `Study.rows`."""
        return [row for rows in played for row in rows]

    def inputs(self, prepared: Row, played: Sequence[list[Row]], rows: Sequence[Row]) -> Row:
        """Everything read, with the models' digests; implements `Study.inputs`."""
        return {
            "chosen": {agent: CHOSEN[agent]() for agent in self.played if agent in CHOSEN},
            "settings": {agent: [name for name, _ in settings_of(agent, sweep=self.sweep)] for agent in self.played if agent != BOUND},
            "rules": {
                "rule": asdict(RULE),
                "rule+": asdict(RulePlus()),
                "rule-horizontal": asdict(RULE_HORIZONTAL),
                "hpa": asdict(HPA()),
                "rps-hpa": asdict(RPSHPA()),
                "naive": asdict(Naive()),
            },
            "scenarios": {name: asdict(scenario) for name, scenario in SCENARIOS.items() if self._wanted(name)},
            "models": dict(self.digests()),
            "shape_files": prepared["files"],
            "service": asdict(FIBONACCI),
            "scenario": asdict(DEFAULT_SCENARIO),
            "pod_price_cpu_hours": POD_PRICE,
            "start_cpu_m": START_CPU_M,
            "jumps_per_hour": {"bursty": BURSTY_PER_HOUR, "flash": FLASH_PER_HOUR},
            "recurring_period_s": RECURRING_PERIOD_S,
            "simulator": "fluid" if self._fluid else "requests",
        }

    def summarise(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Row]:
        """Mean and interval of each group and figure; implements `Study.summarise`."""
        return figures.summarise(rows)

    def claims(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
        """The promised figures with their bounds; implements `Study.claims`."""
        return figures.claims(rows, inputs)

    def swapped(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The rule at its chosen setting in the place of `combined`."""
        chosen = inputs["chosen"]
        return {**inputs, "chosen": {**chosen, "combined": chosen["rule"]} if "rule" in chosen else chosen}

    def digests(self) -> Mapping[str, str]:
        """Digests of the judged weights by name; implements `Study.digests`."""
        there = {name: card_of(f"scaling-{name}").with_suffix(".safetensors") for name in (*self.played, *BESIDE)}
        return {name: sha256(path.read_bytes()).hexdigest() for name, path in there.items() if path.exists()}

    def titles(self) -> Sequence[str]:
        """Titles of the tables of a run; implements `Study.titles`."""
        return tables.titles(self.played, requests=not self._fluid)

    def tables(self, result: Result) -> Tables:
        """Tables of a result; implements `Study.tables`."""
        return tables.tables(result)

    def draw(self, result: Result, directory: Path) -> None:
        """Frontiers from the result; what agents did over time is played again, of the first seed."""
        from tiphys_models.scaling.study.pictures import draw  # noqa: PLC0415 - matplotlib, only where there is something to draw

        alone = (JOINT, SETTLING)
        plain = [c for c in self.cells({}) if (c.seed, c.points) == (self.seeds[0], "all") and not c.per_pod and c.shape not in alone]
        draw(result, {cell.label: traces(cell) for cell in plain}, directory)

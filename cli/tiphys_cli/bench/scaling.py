"""`tiphys bench scaling`: agents and a clairvoyant on the same arrivals of a simulated service.

Rows are one shape, agent, setting and seed each; summaries and claims are computed from rows alone. Settings are the same for all
shapes and seeds. Agents without weights are not played, and no claim is made about them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tiphys_cli.bench.report import Result, Row
from tiphys_cli.bench.scaling_claims import claims, summarise
from tiphys_cli.bench.scaling_play import BESIDE, BOUND, Job, play_all, playable
from tiphys_cli.bench.scaling_settings import CHOSEN, settings_of
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.scaling.reward import POD_PRICE
from tiphys_models.scaling.rules import HPA, Naive
from tiphys_models.scaling.settings import RULE, RULE_HORIZONTAL
from tiphys_models.sim.scaling.episode import START_CPU_M
from tiphys_models.sim.scaling.scenario import DEFAULT_SCENARIO, FIBONACCI
from tiphys_models.sim.scaling.shapes import BURSTY_PER_HOUR, FLASH_PER_HOUR, HOUR_S, RECURRING_PERIOD_S, SHAPES, file_label, read_shape


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played."""

    seeds: tuple[int, ...]
    agents: tuple[str, ...]
    files: tuple[Path, ...] = ()
    quick: bool = False
    jobs: int = 0
    """Processes; 0: one a core."""
    fluid: bool = False
    """The fast simulator instead of single requests; what is quick is fluid anyway."""

    def cells(self) -> list[Job]:
        """Every shape and file, every seed."""
        seconds = HOUR_S // 4 if self.quick else HOUR_S
        names = [*SHAPES, *(str(f) for f in self.files)]
        return [Job(name, seed, self.agents, seconds, fluid=self.fluid or self.quick) for name in names for seed in self.seeds]

    def queue_cells(self) -> list[Job]:
        """The named shapes once more, with a queue for every pod, which the fluid does not have."""
        return [replace(job, per_pod=True) for job in self.cells() if job.shape in SHAPES and not job.fluid]


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Play everything; InvalidInput names what cannot be."""
    started = time.monotonic()
    there = playable()
    unknown = [a for a in plan.agents if a not in there]
    if unknown:
        raise InvalidInput(f"--agents: {unknown[0]!r} is none of {', '.join(there)}")
    stems = [f.stem for f in plan.files]
    if len(set(stems)) != len(stems):
        raise InvalidInput("--shape: two files of one name would be confused in the rows")
    digests = {file_label(f): {"name": f.name, "sha256": read_shape(f)[1]} for f in plan.files}
    rows = play_all([*plan.cells(), *plan.queue_cells()], plan.jobs or os.cpu_count() or 1, tell)
    inputs = _inputs(plan, digests)
    return Result("scaling", plan.quick, plan.seeds, time.monotonic() - started, inputs, rows, summarise(rows), claims(rows, inputs))


def _inputs(plan: Plan, digests: dict[str, Row]) -> dict[str, Any]:
    s = DEFAULT_SCENARIO
    return {
        "chosen": {agent: CHOSEN[agent]() for agent in plan.agents if agent in CHOSEN},
        "settings": {agent: [name for name, _ in settings_of(agent)] for agent in plan.agents if agent != BOUND},
        "rules": {"rule": asdict(RULE), "rule-horizontal": asdict(RULE_HORIZONTAL), "hpa": asdict(HPA()), "naive": asdict(Naive())},
        "models": {name: digest for name in (*plan.agents, *BESIDE) if (digest := _digest(name))},
        "shape_files": digests,
        "service": asdict(FIBONACCI),
        "scenario": asdict(s),
        "pod_price_cpu_hours": POD_PRICE,
        "start_cpu_m": START_CPU_M,
        "jumps_per_hour": {"bursty": BURSTY_PER_HOUR, "flash": FLASH_PER_HOUR},
        "recurring_period_s": RECURRING_PERIOD_S,
        "simulator": "fluid" if plan.fluid or plan.quick else "requests",
    }


def _digest(agent: str) -> str | None:
    path = WEIGHTS / f"scaling-{agent}.safetensors"
    return sha256(path.read_bytes()).hexdigest() if path.exists() else None


def over_time(plan: Plan) -> dict[str, Row]:
    """Of the first seed, what every shape's chosen agents did: for pictures."""
    from tiphys_cli.bench.scaling_play import traces  # noqa: PLC0415 - plays again, and only for pictures

    return {job.label: traces(job) for job in plan.cells() if job.seed == plan.seeds[0]}

"""Playing the cells of `tiphys bench binding`, several processes at a time; each cell's results depend on nothing but the cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from tiphys_cli.bench.report import Row
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.binding.agent import Agent, load_agent
from tiphys_models.binding.learned import load_score
from tiphys_models.binding.paper import load_paper
from tiphys_models.binding.rules import PAPER, STATIC
from tiphys_models.features.arrays import FloatArray
from tiphys_models.sim.binding.choosers import (
    Alternating,
    Oracle,
    PaperSwitching,
    PaperWatcher,
    RandomSwitching,
    Switching,
    Watcher,
    actions_of,
    table_action,
)
from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Action, Chooser, Fixed, Records, mean_success, play
from tiphys_models.sim.binding.kernel import Streams
from tiphys_models.sim.binding.scenario import Scenario
from tiphys_models.sim.binding.search import Course, fit_schedule, fit_table
from tiphys_models.sim.binding.topology import Topology, make_topology
from tiphys_models.sim.binding.workloads import NAMES, make_streams, read_arrivals
from tiphys_models.sim.workloads import stream as random_stream

AGENTS = ("aset", "aset-wide")
FIXED_OF = {f"{name}-fixed": name for name in AGENTS}
"""An agent's own best fixed action, without switching."""
BLIND = ("blind-schedule", "blind-table")
PAPER_AGENT = "aset-paper"
POLICIES = (*STATIC, "score", *AGENTS, *FIXED_OF, PAPER_AGENT, "random", *BLIND, "oracle")
TRACED = ("aset", "score", PAPER_AGENT, *STATIC)
"""Whose success over time is kept, of one cell a topology."""
TUNING_SEEDS = tuple(range(6))
"""Of the training split."""
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Blind:
    """Comparators that see nothing, tuned on training seeds at the calibrated rate."""

    schedule: tuple[str, str]
    table: tuple[int, ...]
    turns: int = 1
    """Windows of the schedule's first policy to one of its second."""


@dataclass(frozen=True, slots=True)
class Job:
    """One topology, scenario, arrivals, rate and seed."""

    topology: str
    scenario: Scenario
    lambda_per_min: float
    seed: int
    policies: tuple[str, ...]
    blind: Blind | None
    """None where no blind comparator is played."""
    horizon_s: float
    arrivals: str | None = None
    """Path of a file; None: Poisson."""
    trace: bool = False

    @property
    def label(self) -> str:
        """The arrivals' name in rows."""
        return "poisson" if self.arrivals is None else Path(self.arrivals).stem

    def streams(self) -> Streams:
        """What is played."""
        file = None if self.arrivals is None else read_arrivals(Path(self.arrivals))
        return make_streams("test", self.seed, self.lambda_per_min, file, self.horizon_s)


@dataclass(slots=True)
class Played:
    """What came of it."""

    job: Job
    rows: list[Row] = field(default_factory=list)
    over_time: dict[str, list[float]] = field(default_factory=dict)
    switched: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often an agent took each action."""


def tune_blind(topology: str, seeds: Sequence[int] = TUNING_SEEDS) -> Blind:
    """The best schedule of two static policies, and the best static policy for every application."""
    course = Course((topology,))
    schedule = fit_schedule(course, seeds)
    return Blind((schedule.first.name, schedule.second.name), fit_table(course, seeds), schedule.turns)


def artifacts(name: str) -> dict[int, Path]:
    """Cards by training seed: all that were trained are judged, one of them ships under the plain name."""
    return {int(path.stem.rpartition("-")[2]): path for path in sorted((SHIPPED / "seeds").glob(f"{name}-[0-9].json"))}


@lru_cache(maxsize=32)
def _agent(path: Path) -> Agent:
    return load_agent(path)


def available(policies: Sequence[str]) -> tuple[str, ...]:
    """Those whose weights are here."""
    return tuple(
        p for p in policies
        if (p not in AGENTS and p not in FIXED_OF and p not in ("score", PAPER_AGENT))
        or (p == "score" and (SHIPPED / "score.json").exists())
        or (p in (*AGENTS, PAPER_AGENT) and artifacts(p))
        or (p in FIXED_OF and artifacts(FIXED_OF[p]))
    )  # fmt: skip


def play_all(jobs: Sequence[Job], processes: int, tell: Callable[[str], None]) -> list[Played]:
    """Results in the order of the jobs. One process: here, without starting any."""
    started = time.monotonic()
    results: dict[int, Played] = {}

    def told(index: int, played: Played) -> None:
        results[index] = played
        j = played.job
        tell(
            f"{len(results)}/{len(jobs)} {j.topology}, {j.scenario.name}, {j.label}, lambda {j.lambda_per_min:g}, seed {j.seed}: "
            f"{time.monotonic() - started:.0f} s so far"
        )

    if processes == 1:
        for index, job in enumerate(jobs):
            told(index, play_cell(job))
        return [results[i] for i in range(len(jobs))]
    with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(play_cell, job): index for index, job in enumerate(jobs)}
        for future in as_completed(futures):
            told(futures[future], future.result())
    return [results[i] for i in range(len(jobs))]


def play_cell(job: Job) -> Played:
    """All policies of one cell, on the same streams."""
    where, streams = make_topology(job.topology), job.streams()
    result = Played(job)
    successes: dict[str, float] = {}
    for policy, training_seed, chooser in _choosers(job, where, streams):
        if policy == "oracle":
            continue
        records = play(where.world, streams, chooser, job.scenario, job.horizon_s)
        successes.setdefault(policy, mean_success([records]))
        result.rows += _rows(job, streams, policy, training_seed, records)
        if job.trace and policy in TRACED and training_seed in (None, 0):
            result.over_time[policy] = [round(s, 4) for s in records.success_by_window]
        if isinstance(chooser, Switching):
            result.switched[f"{policy}-{training_seed}"] = {n: records.chosen.count(n) for n in dict.fromkeys(records.chosen)}
    if "oracle" in job.policies:
        oracle = _oracle(job, where, streams, successes)
        result.rows += _rows(job, streams, "oracle", None, play(where.world, streams, oracle, job.scenario, job.horizon_s))
    return result


def _oracle(job: Job, where: Topology, streams: Streams, successes: Mapping[str, float]) -> Oracle:
    """Its base is the best of the seven on these streams; those that are not shown are played for it."""
    seven = tuple(a for a in STATIC_ACTIONS if a.name in PAPER)
    found = [
        successes[a.name] if a.name in successes else mean_success([play(where.world, streams, Fixed(a), job.scenario, job.horizon_s)])
        for a in seven
    ]
    return Oracle(seven, seven[found.index(max(found))])


def _choosers(job: Job, where: Topology, streams: Streams) -> Iterator[tuple[str, int | None, Chooser]]:
    """(policy, training seed, who chooses)."""
    static = {a.name: a for a in STATIC_ACTIONS}
    for policy in job.policies:
        if policy in static:
            yield policy, None, Fixed(static[policy])
        elif policy == "score":
            yield policy, None, Fixed(Action.score(load_score(SHIPPED / "score.json").weights))
        elif policy in AGENTS or policy in FIXED_OF:
            for seed, path in artifacts(FIXED_OF.get(policy, policy)).items():
                agent = _agent(path) if policy in AGENTS else replace(_agent(path), margin=_NEVER)
                yield policy, seed, Switching(agent, actions_of(agent, NAMES), Watcher(where.offers, streams))
        elif policy == PAPER_AGENT:
            for seed, path in artifacts(policy).items():
                yield policy, seed, PaperSwitching(load_paper(path), PaperWatcher(where.offers, streams))
        elif policy == "random":
            yield policy, None, RandomSwitching(STATIC_ACTIONS[: len(PAPER)], random_stream("binding", "switching", job.seed))
        elif policy == "blind-schedule" and job.blind is not None:
            first, second = job.blind.schedule
            yield policy, None, Alternating(static[first], static[second], job.blind.turns)
        elif policy == "blind-table" and job.blind is not None:
            yield policy, None, Fixed(table_action(job.blind.table, _NO_WEIGHTS))


_NO_WEIGHTS: FloatArray = STATIC_ACTIONS[0].weights


def _rows(job: Job, streams: Streams, policy: str, training_seed: int | None, records: Records) -> list[Row]:
    made = []
    for index, application in ((None, "all"), *enumerate(NAMES)):
        count = len(streams.start_s) if index is None else int((streams.application == index).sum())
        success, reject, failure = records.outcome.shares(index)
        made.append({
            "topology": job.topology, "scenario": job.scenario.name, "arrivals": job.label, "policy": policy,
            "training_seed": training_seed, "application": application, "lambda_per_min": job.lambda_per_min, "seed": job.seed,
            "streams": count, "success": success, "reject": reject, "failure": failure,
        })  # fmt: skip
    return made

"""Playing one cell of the study of streams: every policy on the same streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from tiphys_models.artifacts.files import card_of, has_weights
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream as random_stream
from tiphys_models.lab.report import Row
from tiphys_models.streams.agent import Agent, load_agent
from tiphys_models.streams.learned import load_score
from tiphys_models.streams.paper import load_paper
from tiphys_models.streams.registry import REGISTRY, unpaced
from tiphys_models.streams.rules import PAPER, STATIC
from tiphys_models.streams.sim.choosers import (
    ActionOracle,
    Alternating,
    PaperSwitching,
    PaperWatcher,
    RandomActions,
    SimulatedBinder,
    Switching,
    actions_of,
    table_action,
)
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action, ActionChooser, FixedAction, StreamRecords, mean_success, play
from tiphys_models.streams.sim.kernel import Streams
from tiphys_models.streams.sim.scenario import StreamScenario
from tiphys_models.streams.sim.search import Course, fit_schedule, fit_table
from tiphys_models.streams.sim.topology import Topology, make_topology
from tiphys_models.streams.sim.workloads import NAMES, make_streams, read_arrivals

AGENTS = ("aset", "aset-wide")
FIXED_OF = {f"{name}-fixed": name for name in AGENTS}
"""An agent's own best fixed action, without switching."""
BLIND = ("blind-schedule", "blind-table")
PAPER_AGENT = "aset-paper"
POLICIES = (*STATIC, "score", *AGENTS, *FIXED_OF, PAPER_AGENT, "random", *BLIND, "oracle")
TRACED = ("aset", "score", PAPER_AGENT, *STATIC)
"""Whose success over time is kept, of one cell a topology."""
TUNING_SEEDS = tuple(range(6))
"""Seeds of the training split on which blind schedules are tuned."""
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Blind:
    """Comparators that see nothing, tuned on training seeds at the calibrated rate."""

    schedule: tuple[str, str]
    table: tuple[int, ...]
    turns: int = 1
    """Windows of the schedule's first policy to one of its second."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One topology, scenario, arrivals, rate and seed."""

    topology: str
    scenario: StreamScenario
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
        """The streams that are played in this cell."""
        file = None if self.arrivals is None else read_arrivals(Path(self.arrivals))
        return make_streams("test", self.seed, self.lambda_per_min, file, self.horizon_s)


@dataclass(slots=True)
class Played:
    """What came of it."""

    cell: Cell
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
    return {seed: card_of(card) for seed in range(10) if has_weights(card := f"seeds/{name}-{seed}")}


@lru_cache(maxsize=32)
def _agent(path: Path) -> Agent:
    return load_agent(path)


def available(policies: Sequence[str]) -> tuple[str, ...]:
    """Policies whose weights are here."""
    return tuple(
        p for p in policies
        if (p not in AGENTS and p not in FIXED_OF and p not in ("score", PAPER_AGENT))
        or (p == "score" and has_weights("score"))
        or (p in (*AGENTS, PAPER_AGENT) and artifacts(p))
        or (p in FIXED_OF and artifacts(FIXED_OF[p]))
    )  # fmt: skip


def play_cell(cell: Cell) -> Played:
    """All policies of one cell, on the same streams."""
    where, streams = make_topology(cell.topology), cell.streams()
    result = Played(cell)
    successes: dict[str, float] = {}
    for policy, training_seed, chooser in _choosers(cell, where, streams):
        if policy == "oracle":
            continue
        records = play(where.world, streams, chooser, cell.scenario, cell.horizon_s)
        successes.setdefault(policy, mean_success([records]))
        result.rows += _rows(cell, streams, policy, training_seed, records)
        if cell.trace and policy in TRACED and training_seed in (None, 0):
            result.over_time[policy] = [round(s, 4) for s in records.success_by_window]
        if isinstance(chooser, Switching):
            result.switched[f"{policy}-{training_seed}"] = {n: records.chosen.count(n) for n in dict.fromkeys(records.chosen)}
    if "oracle" in cell.policies:
        oracle = _oracle(cell, where, streams, successes)
        result.rows += _rows(cell, streams, "oracle", None, play(where.world, streams, oracle, cell.scenario, cell.horizon_s))
    return result


def _oracle(cell: Cell, where: Topology, streams: Streams, successes: Mapping[str, float]) -> ActionOracle:
    """Its base is the best of the seven on these streams; those that are not shown are played for it."""
    seven = tuple(a for a in STATIC_ACTIONS if a.name in PAPER)
    found = [
        successes[a.name]
        if a.name in successes
        else mean_success([play(where.world, streams, FixedAction(a), cell.scenario, cell.horizon_s)])
        for a in seven
    ]
    return ActionOracle(seven, seven[found.index(max(found))])


def _choosers(cell: Cell, where: Topology, streams: Streams) -> Iterator[tuple[str, int | None, ActionChooser]]:
    """(policy, training seed, who chooses)."""
    static = {a.name: a for a in STATIC_ACTIONS}
    for policy in cell.policies:
        if policy in static:
            yield policy, None, FixedAction(static[policy])
        elif policy in REGISTRY.foreign:
            yield policy, None, FixedAction(Action.foreign(unpaced(policy)))
        elif policy == "score":
            yield policy, None, FixedAction(Action.score(load_score(card_of("score")).weights))
        elif policy in AGENTS or policy in FIXED_OF:
            for seed, path in artifacts(FIXED_OF.get(policy, policy)).items():
                agent = _agent(path) if policy in AGENTS else replace(_agent(path), margin=_NEVER)
                yield policy, seed, Switching(agent, actions_of(agent, NAMES), SimulatedBinder(where.offers, streams))
        elif policy == PAPER_AGENT:
            for seed, path in artifacts(policy).items():
                yield policy, seed, PaperSwitching(load_paper(path), PaperWatcher(where.offers, streams))
        elif policy == "random":
            yield policy, None, RandomActions(STATIC_ACTIONS[: len(PAPER)], random_stream("binding", "switching", cell.seed))
        elif policy == "blind-schedule" and cell.blind is not None:
            first, second = cell.blind.schedule
            yield policy, None, Alternating(static[first], static[second], cell.blind.turns)
        elif policy == "blind-table" and cell.blind is not None:
            yield policy, None, FixedAction(table_action(cell.blind.table, _NO_WEIGHTS))


_NO_WEIGHTS: FloatArray = STATIC_ACTIONS[0].weights


def _rows(cell: Cell, streams: Streams, policy: str, training_seed: int | None, records: StreamRecords) -> list[Row]:
    made = []
    for index, application in ((None, "all"), *enumerate(NAMES)):
        count = len(streams.start_s) if index is None else int((streams.application == index).sum())
        success, reject, failure = records.outcome.shares(index)
        made.append({
            "topology": cell.topology, "scenario": cell.scenario.name, "arrivals": cell.label, "policy": policy,
            "training_seed": training_seed, "application": application, "lambda_per_min": cell.lambda_per_min, "seed": cell.seed,
            "streams": count, "success": success, "reject": reject, "failure": failure,
        })  # fmt: skip
    return made

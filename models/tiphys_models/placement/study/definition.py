"""Every placement policy on the same calls in the simulated FaaS cluster.

Rows are one workload, scenario, policy and seed each; summaries and claims are computed from rows alone. Seeds name the test
split: none of them can meet a seed that was used in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tiphys_models.artifacts.files import card_of
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import Tables
from tiphys_models.lab.evidence import Contrast
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.lab.study import Study, Tell
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.registry import REGISTRY, unpaced
from tiphys_models.placement.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.sim.azure import TraceRows, read_trace, trace_workload
from tiphys_models.placement.sim.episode import CLAIRVOYANT, GREEDY_STAY, CallRecords, Player, simulate
from tiphys_models.placement.sim.kube.trace import has_durations, read_functions
from tiphys_models.placement.sim.metrics import fullest_share, inflight, jain, lower_share, stretch
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import AGES, MIXED, NODE_LOSS, PROFILED, SENSITIVITY, SIZES, FaasScenario
from tiphys_models.placement.sim.tuning import static_rank_tuned
from tiphys_models.placement.sim.workloads import KINDS, MULTI, CallWorkload, make_workload
from tiphys_models.placement.study import figures, kube, lives, tables
from tiphys_models.placement.study.figures import COMPARATORS, FIVE, LEARNED
from tiphys_models.placement.study.kube import KubeCell
from tiphys_models.placement.study.lives import LivesCell
from tiphys_models.placement.study.speed import SPEED_BARS, measure_speed, speed_claims

_QUEUED = (*FIVE, "greedy-stay", *COMPARATORS, *LEARNED, "clairvoyant")
POLICIES = tuple(dict.fromkeys((*_QUEUED, *(rule.name for rule in kube.RULES), *lives.POLICIES)))
MODELS = {name: card_of(name) for name in LEARNED}
_AZURE = "azure"
_TRACED = "M5"
"""The workload whose calls in flight are kept over time, of the first seed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload, scenario and seed."""

    workload: str
    scenario: FaasScenario
    seed: int
    policies: tuple[str, ...]
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a cell."""

    rows: list[Row]
    over_time: dict[str, list[float]] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _players(policies: tuple[str, ...], models: tuple[tuple[str, Path], ...]) -> Mapping[str, Player]:
    rules: tuple[Player, ...] = (
        Hashing(), RoundRobin(), LeastConnections(), Greedy(), StaticRank(), GREEDY_STAY, WarmFirst(), static_rank_tuned(), CLAIRVOYANT,
    )  # fmt: skip
    learned: dict[str, Player] = {name: FaaSRank(load_network(path)) for name, path in models if name in policies}
    return {player.name: player for player in rules} | learned


@lru_cache(maxsize=4)
def _trace(directory: Path, seen: frozenset[str]) -> TraceRows:
    return read_trace(directory, set(seen))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStudy(Study[Cell | KubeCell | LivesCell, Played]):
    """The study, and what a run of it was asked for."""

    bench: ClassVar[str] = "placement"
    contrast: ClassVar[Contrast] = Contrast("faasrank", "warm-first", "rule-6")

    policies: tuple[str, ...] = POLICIES
    trace_dir: Path | None = None
    models: tuple[tuple[str, Path], ...] = tuple(MODELS.items())
    """Policies with the paths of their model cards."""
    jobs: int = 1
    """One process: the simulator's speed is measured in it, too."""

    @property
    def players(self) -> Mapping[str, Player]:
        """Everybody who is played, by name."""
        return _players(self.policies, self.models)

    @property
    def _networks(self) -> dict[str, Any]:
        return {name: player.network for name, player in self.players.items() if isinstance(player, FaaSRank)}

    @property
    def trace(self) -> TraceRows | None:
        """Rows of the trace that no network has learned from."""
        if self.trace_dir is None:
            return None
        cards = [network.card for network in self._networks.values()]
        seen = (str(row) for card in cards for row in (getattr(card, "training", None) or {}).get("azure_rows_seen", []))
        return _trace(self.trace_dir, frozenset(seen))

    def check(self) -> None:
        """The models and the trace are read."""
        there = (*POLICIES, *REGISTRY.foreign)
        if unknown := [p for p in self.policies if p not in there]:
            raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(there)}")
        _, _ = self.players, self.trace
        if self.trace_dir is not None and has_durations(self.trace_dir):
            read_functions(self.trace_dir)

    def prepare(self, tell: Tell) -> Row:
        """The simulator's speed is measured."""
        players = self.players
        return {"speed": measure_speed([players[p] for p in SPEED_BARS if p in players], tell, quick=self.quick)}

    def cells(self, prepared: Row) -> list[Cell | KubeCell | LivesCell]:
        """The published table first, then one modelling choice changed at a time, then Kubernetes' filter, then pods that stay."""
        elsewhere = {*(rule.name for rule in kube.RULES), *lives.POLICIES}
        every, default = tuple(p for p in self.policies if p not in elsewhere), FaasScenario()
        lean = tuple(p for p in every if p in (*FIVE, *COMPARATORS, "faasrank"))
        bounded = tuple(p for p in every if p in (*lean, "clairvoyant"))
        groups = [(name, default, self.seeds, every) for name in (MULTI[:3] if self.quick else (*KINDS, "burst"))]
        if self.trace_dir is not None:
            groups.append((_AZURE, default, self.seeds, every))
        few = self.seeds[: max(len(self.seeds) // 4, 1)]
        for name in MULTI[:2] if self.quick else MULTI:
            groups += [(name, scenario, self.seeds, lean) for scenario in (*AGES, MIXED, SIZES[0], NODE_LOSS, *PROFILED)]
            groups += [(name, scenario, self.seeds, bounded) for scenario in SENSITIVITY]
            if not self.quick:
                groups.append((name, SIZES[1], self.seeds, lean))
                groups.append((name, SIZES[2], few, lean))  # 20 times the calls of the others
        queued = [
            Cell(name, scenario, seed, policies, (name, scenario.name, seed) == (_TRACED, "default", seeds[0]))
            for name, scenario, seeds, policies in groups
            for seed in seeds
        ]
        under_filter = kube.cells(
            self.seeds, self.policies, quick=self.quick, traced=self.trace_dir is not None and has_durations(self.trace_dir)
        )
        return [*(queued if every else ()), *under_filter, *lives.cells(self.policies, self.seeds, quick=self.quick)]

    def play(self, cell: Cell | KubeCell | LivesCell) -> Played:
        """Every policy of a cell on the same calls; hashing is always there, since shares are of its time."""
        if isinstance(cell, KubeCell):
            return Played(kube.play(cell, self.players, self.trace_dir))
        if isinstance(cell, LivesCell):
            return Played(lives.play_cell(cell))
        workload = self._workload(cell)
        played = {name: self._played(name, workload, cell.scenario) for name in dict.fromkeys(("hashing", *cell.policies))}
        return Played(_rows(workload, cell, played), _inflight(played) if cell.traced else {})

    def _played(self, name: str, workload: CallWorkload, scenario: FaasScenario) -> CallRecords:
        if name in REGISTRY.foreign:  # compiled code compiles our own kernels only: the second simulator asks any object
            return Reference(workload, unpaced(name), scenario).run()
        return simulate(workload, self.players[name], scenario)

    def _workload(self, cell: Cell) -> CallWorkload:
        if cell.workload == _AZURE and (trace := self.trace) is not None:
            return trace_workload(trace, cell.seed, cell.scenario.nodes)
        return make_workload(cell.workload, "test", cell.seed, cell.scenario.nodes)

    def label(self, cell: Cell | KubeCell | LivesCell) -> str:
        """A cell's name for progress messages; implements `Study.label`."""
        return f"{cell.workload}, {cell.scenario.name}, seed {cell.seed}"

    def rows(self, played: Sequence[Played]) -> list[Row]:
        """Measured rows, one object a cell; implements `Study.rows`."""
        return [row for p in played for row in p.rows]

    def inputs(self, prepared: Row, played: Sequence[Played], rows: Sequence[Row]) -> Row:
        """Everything read, with the models' digests; implements `Study.inputs`."""
        trace = self.trace
        return {
            "models": {name: network.card.sha256 for name, network in self._networks.items()},
            "default": kube.DEFAULT,
            "rule-6": dict(kube.TUNED_WEIGHTS),
            "training": {name: _training(network) for name, network in self._networks.items()},
            "trace": None if trace is None else self._trace_facts(trace),
            "load": "CPU seconds over cores x length of the workload",
            "inflight_over_time": next((p.over_time for p in played if p.over_time), {}),
            "speed": prepared["speed"],
            "packing": lives.settings(),
        }

    def _trace_facts(self, trace: TraceRows) -> Row:
        return {
            "directory": self.trace_dir.name if self.trace_dir else None,
            "sha256": trace.sha256,
            "rows": trace.total,
            "qualifying": len(trace.names),
            "dropped_as_seen": trace.dropped_as_seen,
        }

    def summarise(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Row]:
        """See Study; the simulator's speed stands at the end."""
        queued, under_filter = ([row for row in rows if kube.is_kube(row) is filtered] for filtered in (False, True))
        return [*figures.summarise(queued), *kube.summarise(under_filter), *lives.summarise(rows), *inputs["speed"]]

    def claims(self, rows: Sequence[Row], inputs: Mapping[str, Any]) -> list[Claim]:
        """The promised figures with their bounds; implements `Study.claims`."""
        queued, under_filter = ([row for row in rows if kube.is_kube(row) is filtered] for filtered in (False, True))
        found = [*figures.claims(queued), *kube.claims(under_filter), *lives.claims(rows)]
        return [*found, *figures.training_claims(inputs["training"]), *speed_claims(inputs["speed"])]

    def digests(self) -> Mapping[str, str]:
        """Digests of the judged weights by name; implements `Study.digests`."""
        return {name: network.card.sha256 for name, network in self._networks.items()} | {
            kube.DEFAULT: kube.digest(),
            kube.NETWORK: kube.network().digest,
        }

    def titles(self) -> Sequence[str]:
        """Titles of the tables of a run; implements `Study.titles`."""
        return tables.titles(self.policies)

    def tables(self, result: Result) -> Tables:
        """Tables of a result; implements `Study.tables`."""
        return tables.tables(result)

    def claim_rows(self, claims: Sequence[Claim]) -> Sequence[Row]:
        """Claims never to be behind are left out where they hold, but for the largest."""
        return tables.claim_rows(claims)

    def draw(self, result: Result, directory: Path) -> None:
        """Draws the pictures of a result; implements `Study.draw`."""
        from tiphys_models.placement.study.pictures import draw  # noqa: PLC0415 - matplotlib, only where there is something to draw

        draw(result, directory)


def _training(network: Any) -> list[Row]:
    """What the card tells of each training seed, the shipped one first."""
    card = network.card.model_dump()
    shipped = card.get("training", {}).get("seed")
    return sorted(card.get("training_seeds", []), key=lambda seed: bool(seed["seed"] != shipped))


def _rows(workload: CallWorkload, cell: Cell, played: dict[str, CallRecords]) -> list[Row]:
    hashing_s = float(played["hashing"].completion_s.mean())
    rows = []
    for policy, records in played.items():
        times = records.completion_s
        others = [played[p] for p in FIVE if p != policy and p in played]
        rows.append(
            {
                "workload": workload.name,
                "scenario": cell.scenario.name,
                "policy": policy,
                "nodes": cell.scenario.nodes,
                "seed": cell.seed,
                "calls": len(times),
                "mean_s": round(float(times.mean()), 5),
                "p50_s": round(float(np.percentile(times, 50)), 4),
                "p95_s": round(float(np.percentile(times, 95)), 4),
                "p99_s": round(float(np.percentile(times, 99)), 4),
                "pct_of_hashing": round(100 * float(times.mean()) / hashing_s, 3),
                "cold_starts": int(records.cold.sum()),
                "inflight_lower_share": round(lower_share(records, others), 4) if others else None,
                "jain_fairness": round(jain(list(stretch(records).values())), 4),
                "fullest_share": round(fullest_share(records, cell.scenario.nodes), 4),
                "stretch": {function: round(value, 3) for function, value in stretch(records).items()},
            }
        )
    return rows


def _inflight(played: dict[str, CallRecords]) -> dict[str, list[float]]:
    end_s = max(float(r.finish_s.max()) for r in played.values())
    grid = np.arange(0.0, end_s, 0.5)
    return {policy: inflight(records, grid).tolist() for policy, records in played.items()}

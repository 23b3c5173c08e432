"""What is to be measured: worlds, groups of lanes, pairs, a fault; and the hash by which a run is known again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

from tiphys_models.placement.patient import RULE_6_WEIGHTS, WAITS_WEIGHTS
from tiphys_models.placement.sim.workloads import MULTI, CallWorkload, first_calls, make_workload
from tiphys_models.placement.study import kube
from tiphys_models.placement.waiting import LONGEST_S
from tiphys_testbed.bench.live.journal import RunKey
from tiphys_testbed.bench.live.lanes import CHOSEN, GROUPS, TRIMARAN, rotated
from tiphys_testbed.bench.live.worlds import WORLDS, LiveWorld
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES, programs

FAULTS = ("extender", "operator", "prometheus", "opener")
"""What can be killed half way: one process, or one opener after the other."""
FAULT_WORLD = "dear-starts"
QUICK_S = 15.0
FORM = 1
"""Runs of another form of this benchmark are other runs."""


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is compared with what."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """A pair of runs a seed: seeds of the test split, which no model was trained on."""
    worlds: tuple[str, ...] = ("standard",)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {name: GROUPS[name] for name in CHOSEN})
    faults: tuple[str, ...] = ("",)
    """A run each; empty: nothing is killed."""
    quick: bool = False
    journal: Path | None = None
    fresh: bool = False
    """Whether what the journal has is measured anew; the newer run counts from then on."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes of all groups."""
        return tuple(dict.fromkeys(lane for group in self.groups.values() for lane in group))

    def runs(self, world: str) -> list[Run]:
        """All runs of a world in the order in which they are played: pair by pair, groups in turns."""
        return [
            Run(WORLDS[world], group, self.groups[group], pair, seed, fault, self.quick)
            for fault in self.faults
            for pair, seed in enumerate(self.seeds)
            for group in rotated(tuple(self.groups), pair)
        ]


@dataclass(frozen=True, slots=True)
class Run:
    """Lanes of one group at the same time on the same calls."""

    world: LiveWorld
    group: str
    lanes: tuple[str, ...]
    pair: int
    seed: int
    fault: str = ""
    quick: bool = False

    @property
    def workload_name(self) -> str:
        """One of the ten workloads of the published figures, in turns."""
        return MULTI[self.seed % len(MULTI)]

    def calls(self) -> CallWorkload:
        """The calls of every lane."""
        made = make_workload(self.workload_name, "test", self.seed, self.world.nodes)
        return first_calls(made, QUICK_S) if self.quick else made

    @property
    def key(self) -> RunKey:
        """What a journal knows it by."""
        return RunKey(self.world.name, self.group, self.seed, self.fault, self._inputs())

    def _inputs(self) -> str:
        plugins = programs()["scheduler-plugins"].module.version if set(self.lanes) & set(TRIMARAN) else ""
        scenario = replace(self.world.scenario, name="")
        parts = [
            FORM, self.quick, self.lanes, self.workload_name, repr(scenario), DEFAULT_KUBERNETES, plugins, kube.digest(), RULE_6_WEIGHTS,
            WAITS_WEIGHTS, LONGEST_S,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def code_digest() -> str:
    """A hash of the code that decides: rows of different code may stand in one journal, and say so."""
    whole = hashlib.sha256()
    room = Path(str(files("tiphys_models.placement")))
    for path in sorted(room.glob("*.py")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]

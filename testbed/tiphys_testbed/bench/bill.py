"""`tiphys bench bill`: what nodes cost that a real Karpenter opens and closes, for each way of placing pods.

One run is a fresh control plane, Karpenter with simulated nodes, a lane and a trace: services are started, then batch pods come, and after
a lead the bill runs for a fixed window. All lanes play the same traces; one of them plays each trace twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import orjson

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.report import Result, Row
from tiphys_testbed.bench.bill_journal import Journal, RunKey
from tiphys_testbed.bench.bill_plane import KARPENTER_SETTINGS, plane, programs_digest
from tiphys_testbed.bench.bill_probe import choices_digest
from tiphys_testbed.bench.bill_results import claims, summarise
from tiphys_testbed.bench.bill_run import measure
from tiphys_testbed.bench.bill_trace import Trace, make_trace
from tiphys_testbed.bench.bill_worlds import LANES, REGULAR_WORLDS, WORLDS, Lane, node_pool, plays
from tiphys_testbed.tools.programs import KARPENTER_MODEL_TIME
from tiphys_testbed.tools.toolbox import Toolbox

LEAD_S, WINDOW_S, TAIL_S = 300.0, 2250.0, 300.0
"""Model time: 20, 150 and 20 s of the wall clock."""
QUICK_WINDOW_S = 450.0
_FORM = 2
"""Counted up by whoever changes how a run is played: the journal's older runs are then of another benchmark."""
_ATTEMPTS = 3
_STAGGER_S = 12.0
"""Planes that start at the same moment make each other late."""


@dataclass(frozen=True, slots=True)
class BillPlan:
    """What is played."""

    seeds: tuple[int, ...]
    worlds: tuple[str, ...] = REGULAR_WORLDS
    lanes: tuple[str, ...] = tuple(LANES)
    planes: int = 2
    """How many runs at a time."""
    quick: bool = False

    def trace(self, seed: int) -> Trace:
        """The trace of a seed."""
        return make_trace(seed, lead_s=LEAD_S, window_s=QUICK_WINDOW_S if self.quick else WINDOW_S, tail_s=TAIL_S)


def order(plan: BillPlan) -> list[tuple[str, int, str, int]]:
    """World, seed, lane and repetition of every run: lanes of a trace beside each other, the first rotated, the repeated one, too."""
    found = []
    for pair, seed in enumerate(plan.seeds):
        for world in plan.worlds:
            own = [lane for lane in plan.lanes if plays(LANES[lane], WORLDS[world])]
            turn = pair % max(len(own), 1)
            turned = own[turn:] + own[:turn]
            found += [(world, seed, lane, 0) for lane in turned]
            every = [lane for lane in LANES if plays(LANES[lane], WORLDS[world])]
            if (again := every[pair % len(every)]) in own:
                found.append((world, seed, again, 1))
    return found


def digest_of(programs: str, trace: Trace, world: str, lane: Lane) -> str:
    """What else than its name decides a run: programs, trace, settings, and what our own policies choose."""
    own = choices_digest(lane.policy) if lane.policy else ""
    settings = [
        _FORM,
        programs,
        trace.digest,
        asdict(WORLDS[world]),
        asdict(lane),
        {**KARPENTER_SETTINGS, **WORLDS[world].karpenter_settings},
        node_pool(WORLDS[world]),
        own,
    ]
    return sha256(orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def run(plan: BillPlan, journal: Journal, tell: Callable[[str], None]) -> Result:
    """Play what the journal does not have. A run that stays void is left out, and its pair with it."""
    began_s = time.monotonic()
    toolbox = Toolbox()
    programs = {world: programs_digest(toolbox, WORLDS[world]) for world in plan.worlds}
    traces = {seed: plan.trace(seed) for seed in plan.seeds}
    keys = {
        (world, seed, lane, repetition): RunKey(world, seed, lane, repetition, digest_of(programs[world], traces[seed], world, LANES[lane]))
        for world, seed, lane, repetition in order(plan)
    }
    missing = [key for key in keys.values() if journal.done(key) is None]
    tell(f"{len(keys)} runs, {len(keys) - len(missing)} of them in {journal.path}")
    player = _Player(plan, journal, traces, toolbox, tell)
    with ThreadPoolExecutor(plan.planes, thread_name_prefix="bill") as pool:
        futures = [pool.submit(player.play, key) for key in missing]
        for future in futures:
            future.result()
    rows = journal.found(keys.values())
    return Result(
        "bill", plan.quick, plan.seeds, time.monotonic() - began_s, inputs(plan, toolbox, programs), rows, summarise(rows), claims(rows)
    )


def inputs(plan: BillPlan, toolbox: Toolbox, programs: Mapping[str, str]) -> dict[str, Any]:
    """What was played on, and by which times everything was divided."""
    one = plan.trace(plan.seeds[0])
    return {
        "karpenter": toolbox.program(KARPENTER_MODEL_TIME).module.version,
        "kubernetes": toolbox.program("kube-apiserver").module.version,
        "programs": {world: digest[:16] for world, digest in programs.items()},
        "model_time_factor": {name: WORLDS[name].factor for name in plan.worlds},
        "divided": [f"{piece.file}: {piece.now}" for piece in toolbox.program(KARPENTER_MODEL_TIME).module.substitutions]
        + ["extender: reservations, bins of lifetimes, their refreshing, half-life and foresight"],
        "waits": "behind the scheduling gate, opened by the benchmark's driver",
        "not_divided": ["Karpenter's requeues of 1 s in births and drains", "the scheduler's back-off of 1 s"],
        "window_model_s": one.window_s,
        "lead_model_s": one.lead_s,
        "worlds": {name: asdict(WORLDS[name]) for name in plan.worlds},
        "traces": {str(seed): plan.trace(seed).digest[:16] for seed in plan.seeds},
        "budget": "100%",
        "capacity_type": "on-demand",
    }


class _Player:
    def __init__(self, plan: BillPlan, journal: Journal, traces: dict[int, Trace], toolbox: Toolbox, tell: Callable[[str], None]) -> None:
        self._plan, self._journal, self._traces, self._toolbox, self._tell = plan, journal, traces, toolbox, tell
        self._lock = threading.Lock()
        self._slots = list(range(plan.planes))
        self._next_s = 0.0

    def play(self, key: RunKey) -> None:
        """One run, until it is not void."""
        for _ in range(_ATTEMPTS):
            row = self._once(key)
            with self._lock:
                self._journal.add(key, row)
            shown = f"void: {row['problems']}" if row["void"] else f"{row['usd']:.3f} $, {row['usd'] / row['bound_usd']:.2f} of the bound"
            self._tell(f"{key.world}, seed {key.seed}, {key.lane}{' again' if key.repetition else ''}: {shown}")
            if not row["void"]:
                return
        self._tell(
            f"{key.world}, seed {key.seed}, {key.lane} was void {_ATTEMPTS} times and is left out; play again when the machine is calm"
        )

    def _once(self, key: RunKey) -> Row:
        with self._lock:
            slot = self._slots.pop()
            wait_s = self._next_s - time.monotonic()
            self._next_s = time.monotonic() + max(wait_s, 0.0) + _STAGGER_S
        time.sleep(max(wait_s, 0.0))
        world, lane = WORLDS[key.world], LANES[key.lane]
        about = {
            "world": key.world,
            "run": f"{key.world}-{key.seed}-{key.lane}-{key.repetition}-{self._journal.voids(key)}",
            "pair": key.seed,
            "lane": key.lane,
            "seed": key.seed,
            "repetition": key.repetition,
        }
        try:
            with plane(f"bench-bill-{os.getpid()}-{slot}", world, lane, self._toolbox) as running:
                return about | measure(running, self._traces[key.seed], world, lane)
        except (ClusterError, Unavailable) as error:
            return about | {"void": True, "problems": str(error)[:500]}
        finally:
            with self._lock:
                self._slots.append(slot)


def unknown(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The first name that is not known."""
    return next((name for name in names if name not in known), None)

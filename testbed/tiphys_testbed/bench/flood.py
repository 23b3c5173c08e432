"""`tiphys bench extender --flood`: what a flood on the status port costs the scheduler.

Blocks of prioritize calls with the flood and without it alternate, and within a block real and floor calls do: the machine's own moods
fall on both. The flooder is a process of its own on a core of its own; extender and caller share the others.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.report import Claim, Result, Row, percentile
from tiphys_testbed.bench.closed_loop import ClosedLoop
from tiphys_testbed.bench.extender import MODELS, check_answer
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions, machine_cpu_s, peak_mib
from tiphys_testbed.bench.workload import Cell, PrioritizeBodies, write_inputs
from tiphys_testbed.cluster.nodes import fleet

RATIO_LIMIT = 1.5
_AS_SHIPPED = {"STATUS_REQUESTS_PER_SECOND": ""}
_WARM_UP_CALLS = 200
_SETTLE_S = 0.5
"""The pause until the flood flows, or its last connections are gone."""


@dataclass(frozen=True, slots=True)
class FloodPlan:
    """How much is measured."""

    nodes: int = 1_000
    pods: int = 2_000
    names: int = 500
    pairs: int = 7
    calls: int = 1_500
    """Calls of each kind in a block."""
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @classmethod
    def quickly(cls, seeds: tuple[int, ...]) -> FloodPlan:
        """The same code for a look in passing."""
        return cls(pairs=3, calls=300, seeds=seeds, quick=True)


def run(plan: FloodPlan, tell: Callable[[str], None]) -> Result:
    """Start an extender on a snapshot, call it and flood it."""
    started_s = time.monotonic()
    rows: list[Row] = []
    cores = sorted(os.sched_getaffinity(0))
    inputs: dict[str, Any] = {"nodes": plan.nodes, "pods": plan.pods, "model": MODELS[0], "cores": len(cores)}
    for seed in plan.seeds:
        with scratch("extender-flood") as table:
            cell = Cell(tuple(fleet(plan.nodes, pool="node", bare=True)), plan.pods, seed)
            snapshot, _, _ = write_inputs(cell, Path(table.run_dir), MODELS[0])
            extender = Extender.start(table, ExtenderOptions(snapshot=snapshot, expose_floor=True, settings=_AS_SHIPPED))
            extender.wait_ready()
            _keep_off(extender.process.pid, cores)
            try:
                rows += _pairs(extender, cell, plan, seed, cores[-1], tell)
            finally:
                os.sched_setaffinity(0, cores)
                extender.stop()
    ratios = [row["p99_ratio"] for row in rows if row["flood"]]
    claims = [Claim("extender-flood-p99-ratio", round(statistics.median(ratios), 3) if ratios else None, RATIO_LIMIT, "<=")]
    return Result("extender", plan.quick, plan.seeds, time.monotonic() - started_s, inputs, rows, _summary(rows), claims)


def _keep_off(pid: int, cores: list[int]) -> None:
    """Leave the last core to the flooder."""
    if len(cores) > 1:
        for process in (0, pid):
            os.sched_setaffinity(process, cores[:-1])


def _pairs(extender: Extender, cell: Cell, plan: FloodPlan, seed: int, core: int, tell: Callable[[str], None]) -> list[Row]:
    bodies = PrioritizeBodies([node.name for node in cell.nodes], plan.names)
    rows: list[Row] = []
    with ClosedLoop(extender.port) as loop:
        number = _block(loop, bodies, plan.names, 0, _WARM_UP_CALLS)[2]
        for pair in range(plan.pairs):
            blocks: dict[bool, Row] = {}
            for flooded in (False, True) if pair % 2 == 0 else (True, False):
                flooder = _flooder(extender.status_port, core) if flooded else None
                time.sleep(_SETTLE_S)
                machine_s, wall_s = machine_cpu_s(), time.monotonic()
                real_ms, floor_ms, number = _block(loop, bodies, plan.names, number, plan.calls)
                busy = (machine_cpu_s() - machine_s) / (time.monotonic() - wall_s)
                blocks[flooded] = {
                    "part": "flood",
                    "pair": pair,
                    "flood": flooded,
                    "names": plan.names,
                    "calls": plan.calls,
                    "p50_ms": round(percentile(real_ms, 50), 3),
                    "p99_ms": round(percentile(real_ms, 99), 3),
                    "floor_p50_ms": round(percentile(floor_ms, 50), 3),
                    "floor_p99_ms": round(percentile(floor_ms, 99), 3),
                    "peak_mib": round(peak_mib(extender.process.pid), 1),
                    "busy_cores": round(busy, 2),
                    "seed": seed,
                    **(_ended(flooder) if flooder is not None else {}),
                }
            for metric in ("p50", "p99", "floor_p50", "floor_p99"):
                blocks[True][f"{metric}_ratio"] = round(blocks[True][f"{metric}_ms"] / blocks[False][f"{metric}_ms"], 3)
            rows += [blocks[False], blocks[True]]
            calm, storm = blocks[False], blocks[True]
            tell(
                f"pair {pair}: p99 {calm['p99_ms']} ms, with the flood {storm['p99_ms']} ms ({storm['p99_ratio']}); "
                f"floor {calm['floor_p99_ms']} and {storm['floor_p99_ms']} ms; {storm['flood_connections_per_s']:,.0f} connections/s"
            )
    return rows


def _block(loop: ClosedLoop, bodies: PrioritizeBodies, size: int, number: int, calls: int) -> tuple[list[float], list[float], int]:
    real_ms: list[float] = []
    floor_ms: list[float] = []
    for index in range(number, number + calls):
        body = bodies.body(index)
        took_ms, answer = loop.call("/prioritize", body)
        real_ms.append(took_ms)
        took_ms, _ = loop.call("/floor", body)
        floor_ms.append(took_ms)
    check_answer(answer, size)
    return real_ms, floor_ms, number + calls


def _flooder(port: int, core: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tiphys_testbed.bench.flooder", "127.0.0.1", str(port), str(core)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ended(flooder: subprocess.Popen[bytes]) -> Row:
    try:
        said, _ = flooder.communicate(b"", timeout=10)
        counted = orjson.loads(said)
    except (subprocess.TimeoutExpired, orjson.JSONDecodeError) as error:
        flooder.kill()
        raise Unavailable(f"the flooder did not end: {error}") from error
    return {
        "flood_connections_per_s": round(counted["opened"] / counted["seconds"], 1),
        "flood_mib_per_s": round(counted["sent_bytes"] / counted["seconds"] / 2**20, 2),
    }


def _summary(rows: list[Row]) -> list[Row]:
    stormy = [row for row in rows if row["flood"]]
    return [
        {"metric": f"{metric}_ratio", "median": round(statistics.median(row[f"{metric}_ratio"] for row in stormy), 3), "n": len(stormy)}
        for metric in ("p50", "p99", "floor_p50", "floor_p99")
        if stormy
    ]

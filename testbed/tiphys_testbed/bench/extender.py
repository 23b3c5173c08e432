"""`tiphys bench extender`: what one prioritize call costs, beside the floor of the same server in the same run.

The floor is the cheapest honest answer: same server stack, same body read and decoded, every name answered neutral. Real and
floor calls alternate strictly on one connection, so that both have the same neighbours. What the server puts off until after an
answer (reservation, log) follows at once and falls on the floor call that comes next. So a second, shorter pass pauses
before every call as kube-scheduler does (`paced_…`): nothing is left over then, and caches are colder for both. Read the two
ratios together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.artifacts.shipped import SHIPPED, shipped
from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row, percentile
from tiphys_models.placement.rank import MAX_SCORE
from tiphys_testbed.bench.closed_loop import ClosedLoop
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions, cpu_s, machine_cpu_s, maps_library, peak_mib
from tiphys_testbed.bench.workload import FUNCTIONS, MANY_FUNCTIONS, MODEL, Cell, PrioritizeBodies, write_inputs
from tiphys_testbed.cluster.nodes import fleet

FAASRANK, ESTIMATOR = "faasrank", "estimator"
MODELS = tuple(name for name in SHIPPED if shipped()[name].policy == FAASRANK)
"""The shipped one looks at the clock and at all candidates with every call; the paper's 26 inputs can be kept until a node changes."""
_REAL, _FLOOR = "/prioritize", "/floor"
JUDGED_NAMES = 500
MEMORY_LIMIT_MIB = 143.0
"""150 MB (10^6 bytes) in the unit of the rows."""
_WARM_UP_CALLS = 100
_CHECK_EVERY = 20
_PACED_CALLS = 400
_PACE_S = 0.002


@dataclass(frozen=True, slots=True)
class AskedPolicy:
    """Who is asked, and what runs meanwhile."""

    policy: str
    model: str = ""
    """One of the shipped models; empty for a policy without weights."""
    pods: int = 10_000
    functions: tuple[str, ...] = FUNCTIONS

    @property
    def label(self) -> str:
        """The lane's name in rows."""
        return self.model or self.policy


LANES = (
    *(AskedPolicy(FAASRANK, model) for model in MODELS),
    AskedPolicy(ESTIMATOR, pods=500, functions=MANY_FUNCTIONS),
    AskedPolicy(ESTIMATOR, pods=5_000, functions=MANY_FUNCTIONS),
    *(AskedPolicy(shipped()[name].policy, name, 500, MANY_FUNCTIONS) for name in SHIPPED if name not in MODELS),
)
"""What the estimator looks at is calls that have not ended, so it is asked with few of them and with many; networks over it with few."""


@dataclass(frozen=True, slots=True)
class ExtenderPlan:
    """How much is measured."""

    nodes: int = 5000
    calls: tuple[tuple[int, int], ...] = ((10, 3000), (100, 3000), (500, 3000), (1000, 2000), (5000, 500))
    """(names a call, calls)."""
    lanes: tuple[AskedPolicy, ...] = LANES
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @classmethod
    def quickly(cls, seeds: tuple[int, ...], lanes: tuple[AskedPolicy, ...] = LANES) -> ExtenderPlan:
        """The same code for a look in passing."""
        return cls(calls=((10, 300), (100, 300), (500, 300), (1000, 200), (5000, 50)), lanes=lanes, seeds=seeds, quick=True)


def run(plan: ExtenderPlan, tell: Callable[[str], None]) -> Result:
    """Start an extender on a snapshot and call it; raises Unavailable if it does not answer."""
    started = time.monotonic()
    rows: list[Row] = []
    inputs: dict[str, Any] = {}
    for seed in plan.seeds:
        with scratch("extender") as table:
            inputs |= {"nodes": plan.nodes, "lanes": [], "models": {}, "torch_imported": False}
            inputs["pod_bytes"] = len(PrioritizeBodies(["n"], 1).body(0))
            for number, lane in enumerate(plan.lanes):
                tell(f"{lane.label}: making a snapshot of {plan.nodes:,} nodes and {lane.pods:,} pods, seed {seed}")
                cell = Cell(tuple(fleet(plan.nodes, pool="node", bare=True)), lane.pods, seed, lane.functions)
                snapshot, _, _ = write_inputs(cell, Path(table.run_dir), lane.model or MODEL, lane.policy)
                # the floor is on the hot path's own listener, so it is served by the very same code
                extender = Extender.start(table, ExtenderOptions(name=f"extender-{number}", snapshot=snapshot, expose_floor=True))
                extender.wait_ready()
                inputs["lanes"].append({"policy": lane.label, "pods": lane.pods, "functions": len(lane.functions)})
                if lane.model:
                    inputs["models"][lane.model] = shipped()[lane.model].sha256
                rows += [_row(extender, cell, lane, size, calls, tell) for size, calls in plan.calls]
                inputs["torch_imported"] |= _has_torch(extender)
                extender.stop()
    return Result(
        "extender",
        plan.quick,
        plan.seeds,
        time.monotonic() - started,
        inputs,
        rows,
        _summary(rows),
        _claims(rows, inputs["torch_imported"]),
    )


def _row(extender: Extender, cell: Cell, lane: AskedPolicy, size: int, calls: int, tell: Callable[[str], None]) -> Row:
    names = [node.name for node in cell.nodes]
    bodies = PrioritizeBodies(names, size, functions=cell.functions)
    pid = extender.process.pid
    real_ms: list[float] = []
    floor_ms: list[float] = []
    paced_ms: dict[str, list[float]] = {_REAL: [], _FLOOR: []}
    with ClosedLoop(extender.port) as loop:
        first = size * 1_000_000  # no pod of one size comes again in another
        for index in range(first, first + _WARM_UP_CALLS):
            body = bodies.body(index)
            loop.call(_REAL, body)
            loop.call(_FLOOR, body)
        before, machine_before, cpu_before, wall_before = _counts(extender), machine_cpu_s(), cpu_s(pid), time.monotonic()
        own_before = time.process_time()
        for index in range(first + _WARM_UP_CALLS, first + _WARM_UP_CALLS + calls):
            body = bodies.body(index)
            took_ms, real_answer = loop.call(_REAL, body)
            real_ms.append(took_ms)
            took_ms, _ = loop.call(_FLOOR, body)
            floor_ms.append(took_ms)
            if index % _CHECK_EVERY == 0:
                check_answer(real_answer, size)
        after = _counts(extender)
        first += _WARM_UP_CALLS + calls
        for index in range(first, first + min(calls, _PACED_CALLS)):
            body = bodies.body(index)
            for path, taken in paced_ms.items():
                time.sleep(_PACE_S)
                taken.append(loop.call(path, body)[0])
        used = cpu_s(pid) - cpu_before + time.process_time() - own_before
        wall_s = time.monotonic() - wall_before
        others = max(machine_cpu_s() - machine_before - used, 0.0) / wall_s
    scored = after.get(lane.policy, 0.0) - before.get(lane.policy, 0.0)
    row: Row = {
        "policy": lane.label,
        "names": size,
        "open_calls": cell.pods,
        "calls": calls,
        "p50_ms": round(percentile(real_ms, 50), 3),
        "p99_ms": round(percentile(real_ms, 99), 3),
        "floor_p50_ms": round(percentile(floor_ms, 50), 3),
        "floor_p99_ms": round(percentile(floor_ms, 99), 3),
        "paced_p50_ms": round(percentile(paced_ms[_REAL], 50), 3),
        "paced_floor_p50_ms": round(percentile(paced_ms[_FLOOR], 50), 3),
        "model_scored": round(scored / calls, 4),
        "peak_mib": round(peak_mib(pid), 1),
        "seed": cell.seed,
        "connections": loop.dialed,
        "others_cores": round(others, 2),
    }
    p50, p99 = (f"{q} {row[f'{q}_ms']} ms (floor {row[f'floor_{q}_ms']})" for q in ("p50", "p99"))
    tell(f"{lane.label}, {size:>5} names: {p50}, {p99}")
    return row


def _has_torch(extender: Extender) -> bool:
    """Whether the extender has loaded torch, by its own list of modules and by the libraries that the kernel has mapped for it."""
    _, state = extender.explain("/v1/state")
    return bool(state["torchImported"]) or maps_library(extender.process.pid, "libtorch")


def _counts(extender: Extender) -> dict[str, float]:
    metrics = extender.metrics()
    name = "tiphys_extender_policy_answers_total"
    return {dict(labels).get("policy", ""): value for (found, labels), value in metrics.samples.items() if found == name}


def check_answer(answer: bytes, size: int) -> bool:
    """Whether an answer ranks its hosts (else it is neutral); Unavailable says how it breaks the contract."""
    items = orjson.loads(answer)
    if len(items) != size or len({item["Host"] for item in items}) != size:
        raise Unavailable(f"{size} hosts were asked, the answer has {len(items)} items")
    scores = [item["Score"] for item in items]
    if not all(type(score) is int and 0 <= score <= MAX_SCORE for score in scores):
        raise Unavailable(f"a score is no whole number of 0 to {MAX_SCORE}")
    best = scores.count(MAX_SCORE)
    if best != 1 and len(set(scores)) != 1:
        raise Unavailable(f"{best} hosts hold the highest score; the best must hold it alone")
    return best == 1


def _summary(rows: list[Row]) -> list[Row]:
    summary = []
    for policy, open_calls, size in sorted({(row["policy"], row["open_calls"], row["names"]) for row in rows}):
        cells = [row for row in rows if (row["policy"], row["open_calls"], row["names"]) == (policy, open_calls, size)]
        for metric, values in (
            ("p50_ms", [row["p50_ms"] for row in cells]),
            ("p99_ms", [row["p99_ms"] for row in cells]),
            ("p50_over_floor", [row["p50_ms"] / row["floor_p50_ms"] for row in cells]),
            ("p99_over_floor", [row["p99_ms"] / row["floor_p99_ms"] for row in cells]),
            ("paced_p50_over_floor", [row["paced_p50_ms"] / row["paced_floor_p50_ms"] for row in cells]),
        ):
            summary.append({"policy": policy, "open_calls": open_calls, "names": size, "metric": metric, **interval(values).as_json(3)})
    return summary


def _claims(rows: list[Row], torch_imported: bool) -> list[Claim]:
    def worst(policy: str, of: Callable[[Row], float]) -> float | None:
        found = max((of(row) for row in rows if (row["policy"], row["names"]) == (policy, JUDGED_NAMES)), default=None)
        return None if found is None else round(found, 3)

    def over_floor(q: str) -> Callable[[Row], float]:
        return lambda row: float(row[f"{q}_ms"] / row[f"floor_{q}_ms"])

    played = {row["policy"] for row in rows}
    models = [model for model in MODELS if model in played]
    claims = [Claim(f"extender-p50-over-floor-500-names-{model}", worst(model, over_floor("p50")), 2.0, "<=") for model in models]
    claims += [Claim(f"extender-p99-ms-500-names-{model}", worst(model, lambda row: float(row["p99_ms"])), 5.0, "<=") for model in models]
    for policy in sorted(played.difference(MODELS)):
        claims.append(Claim(f"extender-p50-over-floor-500-names-{policy}", worst(policy, over_floor("p50")), 1.8, "<="))
        claims.append(Claim(f"extender-p99-over-floor-500-names-{policy}", worst(policy, over_floor("p99")), 2.0, "<="))
    return [
        *claims,
        Claim("extender-peak-mib", max((row["peak_mib"] for row in rows), default=None), MEMORY_LIMIT_MIB, "<="),
        Claim("extender-model-scored", min((row["model_scored"] for row in rows), default=None), 0.99, ">="),
        Claim("extender-torch-imported", float(torch_imported), 0.0, "<="),
    ]

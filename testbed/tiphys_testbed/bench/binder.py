"""`tiphys bench binder`: what binding a stream costs over HTTP, at a rate that does not wait for answers, in a process on one core.

Streams are what clients make of them: bound, renewed halfway through a lease, released. Only binds are timed; the others are load.
Sites and variants come from a file, so there are no watches in the figures.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row, percentile
from tiphys_models.streams.agent import LAYERS
from tiphys_testbed.bench.open_loop import Answered, OpenLoop
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions, cpu_s, fetch, machine_cpu_s, peak_mib
from tiphys_testbed.cluster.processes import ProcessTable

ACCESS_SITE = "s00"
P50_LIMIT_MS, P99_LIMIT_MS = 2.0, 5.0
_TOKEN, _STATUS_TOKEN = "the-token-of-the-benchmark", "the-token-of-the-status-pages"
_UNBOUNDED = {"requestsPerSecond": 100_000, "maxOpen": 1_000_000, "maxStreams": 1_000_000}
"""One tenant stands for all clients of a site."""
_LEASE_S = 10
_LIFE_S = 8.0
_RENEW_AFTER_S = 5.0
_RECOVERED_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class BinderPlan:
    """How much is measured."""

    sites: int = 50
    variants: int = 10
    streams_per_s: int = 500
    seconds: float = 20.0
    """Seconds of timed binds, which begin after one lifetime of streams has filled the offers."""
    policies: tuple[str, ...] = ("aset", "relative-load")
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @classmethod
    def quickly(cls, seeds: tuple[int, ...]) -> BinderPlan:
        """The same code for a look in passing."""
        return cls(seconds=4.0, seeds=seeds, quick=True)


def run(plan: BinderPlan, tell: Callable[[str], None]) -> Result:
    """Start a binder for every policy and seed; raises Unavailable if it does not answer."""
    started = time.monotonic()
    rows = [_row(plan, policy, seed, tell) for seed in plan.seeds for policy in plan.policies]
    summary = [
        {"policy": policy, "metric": metric, **interval([row[metric] for row in rows if row["policy"] == policy]).as_json()}
        for policy in plan.policies
        for metric in ("p50_ms", "p99_ms")
    ]
    inputs = {"seconds": plan.seconds, "lease_s": _LEASE_S, "life_s": _LIFE_S, "renew_after_s": _RENEW_AFTER_S, "cores": os.cpu_count()}
    claims = [
        Claim(f"binder-{metric.replace('_', '-')}-{row['policy']}", row[metric], limit, "<=")
        for row in rows
        for metric, limit in (("p50_ms", P50_LIMIT_MS), ("p99_ms", P99_LIMIT_MS))
    ]
    return Result("binder", plan.quick, plan.seeds, time.monotonic() - started, inputs, rows, summary, claims)


def _row(plan: BinderPlan, policy: str, seed: int, tell: Callable[[str], None]) -> Row:
    with scratch("binder") as table:
        binder = _start(table, plan, policy, np.random.default_rng([seed, 1]))
        pid, core = binder.process.pid, max(os.sched_getaffinity(0))
        pin(pid, core)
        tell(f"{policy}: waiting until leases of a former binder would have ended")
        _wait_recovered(binder)
        load = _Load(plan, OpenLoop(binder.port, {"authorization": f"Bearer {_TOKEN}"}), np.random.default_rng([seed, 2]))
        wall_s, cpu, own, machine = time.monotonic(), cpu_s(pid), time.process_time(), machine_cpu_s()
        asyncio.run(load.run())
        wall_s, used = time.monotonic() - wall_s, cpu_s(pid) - cpu
        others = max(machine_cpu_s() - machine - used - (time.process_time() - own), 0.0) / wall_s
        row: Row = {
            "policy": policy,
            "sites": plan.sites,
            "variants": plan.variants,
            "streams_per_s": plan.streams_per_s,
            "p50_ms": round(percentile(load.took_ms, 50), 3),
            "p99_ms": round(percentile(load.took_ms, 99), 3),
            "seed": seed,
            "binds": len(load.took_ms),
            "bound_share": round(load.bound / len(load.took_ms), 4),
            "renewals_and_releases": load.others,
            "leases_lost": load.lost,
            "binder_cores": round(used / wall_s, 3),
            "others_cores": round(others, 2),
            "peak_mib": round(peak_mib(pid), 1),
            "connections": load.loop.connections,
        }
        binder.stop()
    tell(f"{policy}: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms, {row['bound_share']:.1%} bound, {row['binder_cores']} of a core")
    return row


class _Load:
    """Streams of mixed applications; each is renewed and released as its client would."""

    def __init__(self, plan: BinderPlan, loop: OpenLoop, rng: np.random.Generator) -> None:
        self._plan, self.loop, self._rng = plan, loop, rng
        self.took_ms: list[float] = []
        self.bound = self.others = self.lost = 0

    async def run(self) -> None:
        """Schedule all binds, and play."""
        plan, start_s = self._plan, time.perf_counter() + 0.2
        total_s = _LIFE_S + plan.seconds
        gaps = self._rng.exponential(1.0 / plan.streams_per_s, int(total_s * plan.streams_per_s))
        for number, at_s in enumerate(np.cumsum(gaps)):
            timed = at_s >= _LIFE_S
            body = _wanted(self._rng, number)
            due_s = start_s + float(at_s)
            self.loop.at(due_s, "POST", "/v1/bindings", body, partial(self._bound, due_s=due_s, timed=bool(timed)))
        await self.loop.run()

    def _bound(self, answered: Answered, due_s: float, *, timed: bool) -> None:
        if answered.status not in (201, 422, 429):
            raise Unavailable(f"POST /v1/bindings was answered {answered.status}: {answered.body[:200]!r}")
        if timed:
            self.took_ms.append(answered.took_ms)
            self.bound += answered.status == 201
        if answered.status == 201:
            said = orjson.loads(answered.body)
            path, lease = f"/v1/bindings/{said['id']}", orjson.dumps({"lease": said["lease"], "served": 50})
            self.loop.at(due_s + _RENEW_AFTER_S, "POST", f"{path}/renew", lease, self._followed)
            self.loop.at(due_s + _LIFE_S, "DELETE", path, b'{"served": 80}', self._followed)

    def _followed(self, answered: Answered) -> None:
        if answered.status == 410:  # the renewal came too late: on a machine that cannot keep the pace
            self.lost += 1
            return
        if answered.status != 200:
            raise Unavailable(f"a renewal or release was answered {answered.status}: {answered.body[:200]!r}")
        self.others += 1


def _wanted(rng: np.random.Generator, number: int) -> bytes:
    return orjson.dumps(
        {
            "task": "detect",
            "maxDelayMs": (25, 50, 100, 300)[int(rng.integers(4))],
            "minAccuracy": (20, 25, 30)[int(rng.integers(3))],
            "rateQps": (2, 5, 10, 15)[int(rng.integers(4))],
            "sizeKb": float(rng.uniform(32, 48)),
            "bitRateMbps": 100,
            "accessDelayMs": 0.5,
            "application": "cars",
            "idempotencyKey": str(number),
        }
    )


def stream_objects(sites: int, variants: int, policy: str, rng: np.random.Generator) -> dict[str, Any]:
    """A List of InferenceSites near and far, each with so many ModelVariants, and a StreamPolicy of the first site."""
    items: list[dict[str, Any]] = []
    for number in range(sites):
        layer = LAYERS[min(number * len(LAYERS) // sites, len(LAYERS) - 1)]
        way_ms = {"antenna": 2.0, "co": 3.0, "dc": 6.0, "cloud": 16.0}[layer] * float(rng.uniform(0.8, 1.2))
        delays = [{"from": ACCESS_SITE, "meanMs": way_ms, "sigmaMs": way_ms / 8}]
        site = f"s{number:02d}"
        items.append(
            {"kind": "InferenceSite", "metadata": {"name": site}, "spec": {"layer": layer, "access": number == 0, "delays": delays}}
        )
        for index in range(variants):
            spec = {
                "task": "detect",
                "model": f"m{index % 3}",
                "site": site,
                "accuracy": (23.3, 29.1, 47.1)[index % 3],
                "delayMs": (8, 12, 30)[index % 3] * (1 + index // 3),
                "capacityQps": 150,
                "profiledKb": 40,
                "endpoint": {"url": f"http://{site}.example:{8000 + index}"},
            }
            items.append({"kind": "ModelVariant", "metadata": {"name": f"v{index}-{site}"}, "spec": spec})
    spec = {"accessSite": ACCESS_SITE, "mode": "Active", "policy": policy, "leaseSeconds": _LEASE_S}
    items.append({"kind": "StreamPolicy", "metadata": {"name": "bench"}, "spec": spec})
    return {"items": items}


def _start(table: ProcessTable, plan: BinderPlan, policy: str, rng: np.random.Generator) -> Extender:
    directory = Path(table.run_dir)
    files = {
        "stream_objects": stream_objects(plan.sites, plan.variants, policy, rng),
        "lease_keys_file": {"keys": [{"id": "bench", "secret": rng.bytes(32).hex()}]},
        "tenants_file": {"tenants": [{"name": "bench", "token": _TOKEN, "namespaces": ["*"], **_UNBOUNDED}]},
    }
    environment = {"TIPHYS_BINDER_ACCESS_SITE": ACCESS_SITE}
    for name, content in files.items():
        path = directory / f"{name}.json"
        path.write_bytes(orjson.dumps(content))
        environment[f"TIPHYS_BINDER_{name.upper()}"] = str(path)
    token = directory / "token"
    token.write_text(_STATUS_TOKEN)
    own = ProcessTable(table.run_dir, {**table.environment, **environment})
    # requests come on their schedule whatever the machine does: a second in which it stands still is late answers, not refused connections
    settings = {"TOKEN_FILE": str(token), "MAX_CONNECTIONS_PER_PEER": "1024"}
    binder = Extender.start(own, ExtenderOptions(name="binder", arguments=("binder",), settings=settings))
    binder.wait_ready()
    return binder


def _wait_recovered(binder: Extender) -> None:
    end_s = time.monotonic() + _RECOVERED_DEADLINE_S
    while time.monotonic() < end_s:
        status, body = fetch(f"{binder.status_url}/v1/bindings/summary", 5.0, {"Authorization": f"Bearer {_STATUS_TOKEN}"})
        if status == 200 and not orjson.loads(body)["recovering"]:
            return
        time.sleep(0.2)
    raise Unavailable(f"the binder still recovers after {_RECOVERED_DEADLINE_S:.0f} s; its log: {binder.process.log}")


def pin(pid: int, core: int) -> None:
    """All threads of a process on one core, and this process on the others, if there are any."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})
    if others := os.sched_getaffinity(0) - {core}:
        os.sched_setaffinity(0, others)

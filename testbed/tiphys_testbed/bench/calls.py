"""`tiphys bench calls`: calls placed by running binders, live, every lane at the same time on the same calls.

A lane is a binder process with a pool of its own, a policy, and a function platform that runs the calls in real time. One lane is
played twice: what it differs from itself is the noise of the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
import orjson
from aiohttp import web

from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.api.crd import render
from tiphys_models.api.resources import RESOURCES
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.placement.sim.workloads import MULTI, make_workload
from tiphys_models.placement.waiting import LONGEST_S
from tiphys_testbed.bench.calls_platform import CallTimes, Platform, PlatformOptions, completion_s, memory_of
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import POOL_LABEL, MachineType, create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.processes import ProcessTable

WORLDS: dict[str, dict[str, float]] = {
    "standard": {},
    "readings-15s": {"period_s": 15.0},
    "dear-starts": {"start_cost": 2.0},
}
"""What is different in each: the standard one has ten nodes of 8 cores and 2 GiB a lane, and samples every second."""
BASE, AGAIN = "warm-first", "warm-first-again"
PATIENT = ("warm-first-waits", "rule-6", "estimator")
LANES = (BASE, AGAIN, "rule-6", "estimator")
_TOKEN = "the-token-of-the-platform"  # noqa: S105 - of a binder on loopback that lives for minutes
_NODES, _CORES, _GIB = 10, 8, 2.0
_LATE_MS = 100.0
_CALM_S = 1.0


@dataclass(frozen=True, slots=True)
class CallsPlan:
    """What is played."""

    seeds: tuple[int, ...]
    worlds: tuple[str, ...] = ("standard",)
    lanes: tuple[str, ...] = LANES
    quick: bool = False


@dataclass(frozen=True, slots=True)
class _Lane:
    name: str
    platform: Platform
    binder: Extender

    @property
    def url(self) -> str:
        return f"{self.binder.url}/v1/placements"


def run(plan: CallsPlan, tell: Callable[[str], None]) -> Result:
    """Every world and seed, one after the other; Unavailable if something does not come up."""
    began_s = time.monotonic()
    rows: list[Row] = []
    options = LocalOptions(name="bench-calls", kwok=False, default_scheduler=False, node_monitor_grace_s=3600)
    with LocalCluster(options) as cluster:
        for resource in RESOURCES:
            cluster.apply(render(of=resource))
        for world in plan.worlds:
            rows += asyncio.run(_world(cluster, plan, world, tell))
        version = cluster.version
    inputs = {"kubernetes": version, "nodes_per_lane": _NODES, "split": "test", "wait_seconds": LONGEST_S, "noise": AGAIN}
    return Result("calls", plan.quick, plan.seeds, time.monotonic() - began_s, inputs, rows, summarise(rows), claims(rows))


async def _world(cluster: LocalCluster, plan: CallsPlan, world: str, tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    async with _lanes(cluster, plan, world) as lanes:
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit_per_host=32)) as session:
            for pair, seed in enumerate(plan.seeds):
                name = MULTI[pair % len(MULTI)]
                workload = make_workload(name, "test", seed, _NODES)
                tell(f"{world}, pair {pair + 1} of {len(plan.seeds)}: {name}, {len(workload)} calls in each of {len(lanes)} lanes")
                for lane in lanes:
                    lane.platform.reset()
                begin_s = time.monotonic() + _CALM_S
                run_name = f"{world}-{pair}"
                played = await asyncio.gather(*(lane.platform.play(workload, session, lane.url, begin_s, run_name) for lane in lanes))
                late = float(np.median([record.asked_ms for records in played for record in records])) > _LATE_MS
                rows += [_row(world, name, pair, lane.name, seed, records, void=late) for lane, records in zip(lanes, played, strict=True)]
    return rows


@asynccontextmanager
async def _lanes(cluster: LocalCluster, plan: CallsPlan, world: str) -> AsyncIterator[list[_Lane]]:
    made: list[_Lane] = []
    with ExitStack() as stack:
        runners = []
        for lane in plan.lanes:
            name = f"{world}-{lane}"
            platform, policy = _platform(cluster, world, lane, name)
            app = web.Application()
            app.router.add_route("*", "/api/v1/query", platform.query)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
            port = runner.addresses[0][1]
            starting = asyncio.to_thread(stack.enter_context, _binder(cluster, name, policy, f"http://127.0.0.1:{port}"))
            made.append(_Lane(lane, platform, await starting))
        try:
            yield made
        finally:
            for runner in runners:
                await runner.cleanup()


def _platform(cluster: LocalCluster, world: str, lane: str, name: str) -> tuple[Platform, str]:
    machine = MachineType("calls", _CORES, int(memory_of(_GIB)), 0.0)
    nodes = fleet(_NODES, pool=name, machines=(machine,), bare=True)
    create_nodes(cluster.api, nodes)
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    policy = BASE if lane == AGAIN else lane
    options = PlatformOptions(
        namespace=name,
        nodes=tuple(node.name for node in nodes),
        cores=float(_CORES),
        memory_bytes=memory_of(_GIB),
        wait_s=LONGEST_S if policy in PATIENT else 0.0,
        **WORLDS[world],
    )
    body = {
        "apiVersion": "tiphys.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "lane", "namespace": name},
        "spec": {"mode": "Active", "policy": policy, "fallback": BASE},
    }
    end_s = time.monotonic() + 30
    while True:
        try:
            cluster.api.create(f"/apis/tiphys.io/v1alpha1/namespaces/{name}/schedulingpolicies", body)
        except RequestRefused as error:
            if error.status != 404 or time.monotonic() > end_s:  # the API server does not serve a new kind at once
                raise
            time.sleep(0.2)
        else:
            return Platform(options), policy


@contextmanager
def _binder(cluster: LocalCluster, name: str, policy: str, prometheus: str) -> Iterator[Extender]:
    directory = Path(cluster.options.run_dir) / name
    directory.mkdir()
    tenants, token = directory / "tenants.json", directory / "token"
    limits = {"requestsPerSecond": 10_000, "burst": 20_000, "maxOpen": 10_000}
    tenants.write_bytes(orjson.dumps({"tenants": [{"name": "platform", "token": _TOKEN, "namespaces": [name], **limits}]}))
    token.write_text("the-token-of-the-status-pages")
    environment = {"TIPHYS_BINDER_TENANTS_FILE": str(tenants), "TIPHYS_BINDER_POOL": f"{POOL_LABEL}={name}"}
    options = ExtenderOptions(
        name=name,
        arguments=("binder",),
        kubeconfig=cluster.kubeconfig,
        settings={"TOKEN_FILE": str(token), "READINGS_INTERVAL_S": "1", "PROMETHEUS_URL": prometheus, "DEADLINE_MS": "500"},
    )
    process = Extender.start(ProcessTable(cluster.processes.run_dir, {**cluster.processes.environment, **environment}), options)
    try:
        process.wait_ready()
        _wait_until_obeyed(process, name, policy)
        yield process
    finally:
        process.stop()


def _wait_until_obeyed(binder: Extender, namespace: str, policy: str) -> None:
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        routes = binder.explain("/v1/state")[1]["routes"]
        if any((route["policy"], route["policyName"]) == (f"{namespace}/lane", policy) for route in routes):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the binder of {namespace} does not obey {policy}")


def _row(world: str, workload: str, pair: int, lane: str, seed: int, records: list[CallTimes], *, void: bool) -> Row:
    times = completion_s(records)
    waited = np.array([record.waited_s for record in records])
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(times, (50, 95, 99)))
    return {
        "world": world,
        "run": workload,
        "pair": pair,
        "lane": lane,
        "seed": seed,
        "calls": len(times),
        "mean_s": round(float(times.mean()), 4),
        "p50_s": p50,
        "p95_s": p95,
        "p99_s": p99,
        "cold_starts": sum(record.cold for record in records),
        "held_share": round(float((waited > 0).mean()), 4),
        "longest_hold_s": round(float(waited.max()), 3),
        "creation_p50_ms": round(float(np.median([record.asked_ms for record in records])), 3),
        "void": void,
    }


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Mean and p99 of each lane over warm-first's, paired; runs that were disturbed are left out."""
    result: list[Row] = []
    for world in dict.fromkeys(row["world"] for row in rows):
        for lane in dict.fromkeys(row["lane"] for row in rows):
            for metric in ("mean_s", "p99_s"):
                if found := ratios(rows, world, lane, BASE, metric):
                    line: Row = {"world": world, "lane": lane, "metric": f"{metric} over {BASE}"}
                    result.append(line | interval(found).as_json(4))
    return result


def ratios(rows: Sequence[Row], world: str, lane: str, other: str, metric: str = "mean_s") -> list[float]:
    """One a pair that was not disturbed."""
    kept = [row for row in rows if row["world"] == world and not row["void"]]
    base = {row["pair"]: row[metric] for row in kept if row["lane"] == other}
    return [row[metric] / base[row["pair"]] for row in kept if row["lane"] == lane and row["pair"] in base]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The estimator ahead of warm-first by more than the machine's noise, level with rule-6 or better, and nobody held beyond the bound."""
    result: list[Claim] = []
    for world in dict.fromkeys(row["world"] for row in rows):
        for other, bound in ((BASE, 0.9999), ("rule-6", 1.03)):
            if len(found := ratios(rows, world, "estimator", other)) > 1:
                result.append(Claim(f"calls-{world}-estimator-over-{other}-ci95-high", round(interval(found).ci95_high, 4), bound, "<="))
    longest_s = max((row["longest_hold_s"] for row in rows), default=0.0)
    return [*result, Claim("calls-longest-hold-s", longest_s, LONGEST_S + 5.0, "<=")]


def table(rows: Sequence[Row]) -> list[Row]:
    """Worlds and lanes for people: mean completion, over warm-first's and over rule-6's, p99, cold starts, and what was held."""
    lines = []
    for world, lane in dict.fromkeys((row["world"], row["lane"]) for row in rows):
        own = [row for row in rows if (row["world"], row["lane"]) == (world, lane) and not row["void"]]
        if not own:
            continue
        lines.append(
            {
                "world": world,
                "policy": f"`{BASE}`, once more" if lane == AGAIN else f"`{lane}`",
                "pairs": len(own),
                "mean s": f"{np.mean([row['mean_s'] for row in own]):.2f}",
                f"over `{BASE}`": _shown(ratios(rows, world, lane, BASE)),
                "over `rule-6`": _shown(ratios(rows, world, lane, "rule-6")),
                f"p99 over `{BASE}`": _shown(ratios(rows, world, lane, BASE, "p99_s")),
                "cold starts": f"{np.mean([row['cold_starts'] for row in own]):.0f}",
                "held": f"{np.mean([row['held_share'] for row in own]):.0%}",
                "longest s": f"{max(row['longest_hold_s'] for row in own):.1f}",
            }
        )
    return lines


def _shown(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    found = interval(list(values))
    return f"{found.mean:.3f} ({found.ci95_low:.3f}–{found.ci95_high:.3f})"

"""One run of the demo from the first process to the last: set-up, replays, figures, end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.kube.access import find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.invoker import InvokerRules
from tiphys_models.placement.sim.workloads import KINDS, CallWorkload, first_calls, make_workload
from tiphys_testbed.demo.decisions import DecisionTail, compare
from tiphys_testbed.demo.functions import BY_NAME
from tiphys_testbed.demo.kubelets import Kubelets
from tiphys_testbed.demo.lanes import CONTROL, DEFAULT_POLICIES, NODES_PER_LANE, make_lanes
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.replay import replay
from tiphys_testbed.demo.report import DemoResult
from tiphys_testbed.demo.results import ReplayResult, lane_result, problems, summarize
from tiphys_testbed.demo.stage import READY_DEADLINE_S, Scene, Stage

RUN_NAME = "demo"
WORKLOAD = "M10"
DRAIN_DEADLINE_S = 120.0
_CLEAR_DEADLINE_S = 60.0
_WATCH_S = 1.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What can be chosen."""

    policies: tuple[PolicyName, ...] = DEFAULT_POLICIES
    seeds: tuple[int, ...] = (0,)
    nodes_per_lane: int = NODES_PER_LANE
    workload: str = WORKLOAD
    """A line of the simulator's table: calls grow in proportion to the nodes of a lane."""
    first_s: float = math.inf
    """Only the calls that come before."""
    reuse: bool = True
    """Whether a container serves a second call; without it every call starts cold."""
    shadow: PolicyName | None = None
    """A policy that is asked about the calls of one more lane, and not obeyed."""
    chart: Path | None = None
    name: str = RUN_NAME
    """The name of the local cluster: two demos of different names can run side by side."""
    keep: bool = False
    """Go on after the last replay, until interrupted."""

    @property
    def span_s(self) -> float:
        """How long calls come."""
        return min(float(KINDS[self.workload].length_s), self.first_s)

    @property
    def scene(self) -> Scene:
        """What has to be set up for them."""
        lanes = make_lanes(self.policies, self.shadow)
        return Scene(self.name, tuple(lanes), self.nodes_per_lane, rules=InvokerRules(reuse=self.reuse), chart=self.chart)

    def calls(self, seed: int) -> CallWorkload:
        """What is played in every lane: seeds of the test split, which no model was trained on."""
        return first_calls(make_workload(self.workload, "test", seed, self.nodes_per_lane), self.first_s)


class Audience(Protocol):
    """The listener that is told how a demo goes."""

    def started(self, seed: int) -> None:
        """The replay of this seed begins."""
        ...

    def progress(self, elapsed_s: float, records: Sequence[CallRecord]) -> None:
        """A few times a second during a replay."""
        ...

    def finished(self, result: DemoResult) -> None:
        """All replays are over."""
        ...


async def play(stage: Stage, options: DemoOptions, audience: Audience) -> DemoResult:
    """Replay every seed; with `keep`, go on playing the nodes until cancelled."""
    async with KubeClient(find_access(stage.cluster.kubeconfig), user_agent="tiphys-demo") as client:
        kubelets = Kubelets(client, stage.fleet, BY_NAME)
        return await alongside(kubelets.run(), _script(client, stage, kubelets, options, audience))


async def _script(client: KubeClient, stage: Stage, kubelets: Kubelets, options: DemoOptions, audience: Audience) -> DemoResult:
    begin_s = time.monotonic()
    async with asyncio.timeout(READY_DEADLINE_S):
        await kubelets.ready.wait()
    replays = []
    for number, seed in enumerate(options.seeds):
        if number:
            await clear(client, stage, kubelets)
        await asyncio.sleep(options.scene.settle_s)
        audience.started(seed)
        replays.append(await _one_seed(stage, kubelets, options, seed, audience))
    result = DemoResult(
        version=metadata.version("tiphys"),
        kubernetes=stage.cluster.version,
        wall_s=time.monotonic() - begin_s,
        replays=tuple(replays),
        summaries=tuple(summarize(replays, CONTROL)),
        problems=tuple(problems(replays)),
        nodes=stage.fleet.specs,
        workload=options.workload,
        reuse=options.reuse,
    )
    audience.finished(result)
    while options.keep:
        await asyncio.sleep(_WATCH_S)
        stage.services.check()
    return result


async def alongside(background: Coroutine[Any, Any, None], work: Coroutine[Any, Any, Result]) -> Result:
    """Do some work while something endless goes on beside it; whichever fails ends both."""
    endless, finite = asyncio.ensure_future(background), asyncio.ensure_future(work)
    try:
        await asyncio.wait({endless, finite}, return_when=asyncio.FIRST_COMPLETED)
        if not finite.done():
            await endless  # it failed: say why
            raise ClusterError("the simulation of the nodes ended by itself")
        return finite.result()
    finally:
        for task in (endless, finite):
            task.cancel()
        await asyncio.gather(endless, finite, return_exceptions=True)


async def _one_seed(stage: Stage, kubelets: Kubelets, options: DemoOptions, seed: int, audience: Audience) -> ReplayResult:
    calls = options.calls(seed)
    log = DecisionTail(stage.services.status_url, stage.services.token)
    await log.skip()
    begin_s = time.monotonic()
    checked_s = begin_s

    def tick(elapsed_s: float) -> None:
        nonlocal checked_s
        if time.monotonic() - checked_s > _WATCH_S:
            checked_s = time.monotonic()
            stage.services.check()
        audience.progress(elapsed_s, list(kubelets.records.values()))

    records = await replay(kubelets, stage.lanes, calls, run=f"s{seed}", drain_deadline_s=DRAIN_DEADLINE_S, progress=tick)
    decisions = await log.read()
    span_s = options.span_s
    results = []
    for lane in stage.lanes:
        own = [record for record in records if record.lane == lane.name]
        said = None if lane.policy is None else compare(lane.namespace, own, decisions)
        results.append(lane_result(lane.name, seed, own, span_s, said))
    return ReplayResult(seed, span_s, time.monotonic() - begin_s, tuple(results), tuple(records))


async def clear(client: KubeClient, stage: Stage, kubelets: Kubelets) -> None:
    """Remove the pods and the containers of the former seed: every replay starts cold."""
    kubelets.records = {}
    for lane in stage.lanes:
        await client.request("DELETE", f"/api/v1/namespaces/{lane.namespace}/pods", params={"gracePeriodSeconds": "0"})
    end_s = time.monotonic() + _CLEAR_DEADLINE_S
    for lane in stage.lanes:
        while (await client.get(f"/api/v1/namespaces/{lane.namespace}/pods", {"limit": "1"}))["items"]:
            if time.monotonic() > end_s:
                raise ClusterError(f"pods of {lane.namespace} were not deleted within {_CLEAR_DEADLINE_S:.0f} s")
            await asyncio.sleep(0.2)
    stage.fleet.reset(time.monotonic())

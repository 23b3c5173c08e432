"""One world, live: a control plane with the pools of all lanes, and on it one run after the other.

A run begins with empty nodes, an extender that has just started, and stock schedulers that have, too: nobody has learned anything of the
functions but what is declared, as in the simulator's study.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.kube.access import find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.lab.report import Row
from tiphys_testbed.bench.live.faults import Fault
from tiphys_testbed.bench.live.lanes import KUBE_DEFAULT, STOCK, TRIMARAN, lane_of, stock_config
from tiphys_testbed.bench.live.loads import LoadWatcher
from tiphys_testbed.bench.live.plan import QUICK_S, LivePlan, Run, code_digest
from tiphys_testbed.bench.live.worlds import LiveWorld
from tiphys_testbed.cluster.options import SchedulerOptions
from tiphys_testbed.demo.kubelets import Kubelets
from tiphys_testbed.demo.lanes import Lane
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.replay import replay
from tiphys_testbed.demo.services import EXTENDER, HEALTH, wait_until_deciding
from tiphys_testbed.demo.session import DRAIN_DEADLINE_S, alongside, clear
from tiphys_testbed.demo.stage import READY_DEADLINE_S, Scene, Stage, staged
from tiphys_testbed.tools.progress import Progress
from tiphys_testbed.tools.toolbox import Toolbox

NAME = "bench-live"
LATE_S = 0.1
"""A run whose pods are created later than that in the median is void: the API server waited for a core."""
ATTEMPTS = 3
AT_ONCE_S = 0.25
"""A gate that was open sooner held nobody: it is on every pod that may wait until the extender has looked at it."""
_PLUGINS = "scheduler-plugins"

Done = Callable[[Run, list[Row]], None]


def scene_of(world: LiveWorld, lanes: Sequence[str]) -> Scene:
    """What is set up for a world."""
    return Scene(
        NAME, tuple(map(lane_of, lanes)), world.nodes, world.machine, world.rules, world.functions, world.scrape_s
    )  # fmt: skip


def play_world(world: LiveWorld, plan: LivePlan, runs: Sequence[Run], done: Done, tell: Callable[[str], None]) -> str:
    """Play these runs, and hand over the rows of each as soon as it has ended; the version of Kubernetes."""
    scene = scene_of(world, plan.lanes)
    toolbox = Toolbox(progress=Progress())
    if set(plan.lanes) & set(TRIMARAN):
        toolbox.ensure([_PLUGINS])  # once a machine; not while nodes and watches wait
    with staged(scene, toolbox) as stage, LoadWatcher(stage.fleet.counters) as watcher:
        asyncio.run(_play(_Ground(scene, stage, world, watcher, tell), runs, done))
        return stage.cluster.version


@dataclass(slots=True)
class _Ground:
    scene: Scene
    stage: Stage
    world: LiveWorld
    watcher: LoadWatcher
    tell: Callable[[str], None]
    stock: list[str] = field(default_factory=list)
    """Processes of stock schedulers that were started for the last run."""
    fallen: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Processes that ended by themselves during a run, being started again as a cluster would."""

    def lanes(self, names: Sequence[str]) -> list[Lane]:
        return [lane for lane in self.scene.lanes if lane.name in names]

    def look_after(self) -> None:
        """Start again what has ended by itself; called a few times a second."""
        for name in (*self.stage.services.ended, *(name for name in self.stock if not self.stage.cluster.process(name).alive())):
            if name not in self.fallen:
                self.fallen[name] = asyncio.get_running_loop().create_task(asyncio.to_thread(self._restart, name))

    async def ended(self) -> tuple[str, ...]:
        """What has ended by itself since it was asked last; all of it runs again."""
        fallen, self.fallen = self.fallen, {}
        await asyncio.gather(*fallen.values())
        return tuple(fallen)

    def _restart(self, name: str) -> None:
        if name in HEALTH:
            self.stage.services.begin_again(self.stage.cluster, name, READY_DEADLINE_S)
        else:
            self.stage.cluster.restart_process(name)

    def begin(self, names: Sequence[str]) -> None:
        """Nobody knows anything of former runs, and only schedulers of these lanes run."""
        for process in self.stock:
            self.stage.cluster.stop_process(process)
        wanted = {
            "stock": ([name for name in names if name in STOCK and name not in (KUBE_DEFAULT, *TRIMARAN)], "kube-scheduler"),
            "trimaran": ([name for name in names if name in TRIMARAN], _PLUGINS),
        }
        self.stock = [name for name, (lanes, _) in wanted.items() if lanes]
        services = self.stage.services
        # an operator that could not renew its Lease in time ends, and a cluster starts it again
        for name in {EXTENDER, *services.ended} & HEALTH.keys():
            services.begin_again(self.stage.cluster, name, READY_DEADLINE_S)
        services.check()
        self.watcher.forget()
        wait_until_deciding(self.stage.cluster, self.stage.services, list(self.scene.lanes), READY_DEADLINE_S)
        for name in self.stock:
            lanes, program = wanted[name]
            options = SchedulerOptions(name=name, program=program, config_text=stock_config(lanes, self.watcher.url))
            self.stage.cluster.start_scheduler(options)


async def _play(ground: _Ground, runs: Sequence[Run], done: Done) -> None:
    async with KubeClient(find_access(ground.stage.cluster.kubeconfig), user_agent="tiphys-bench") as client:
        kubelets = Kubelets(client, ground.stage.fleet, {function.name: function for function in ground.world.functions})
        await alongside(kubelets.run(), _runs(client, kubelets, ground, runs, done))


async def _runs(client: KubeClient, kubelets: Kubelets, ground: _Ground, runs: Sequence[Run], done: Done) -> None:
    async with asyncio.timeout(READY_DEADLINE_S):
        await kubelets.ready.wait()
    for run in runs:
        for attempt in range(1 if run.quick else ATTEMPTS):
            rows = await _run(client, kubelets, ground, run, attempt)
            done(run, rows)
            if not rows[0]["void"]:
                break


async def _run(client: KubeClient, kubelets: Kubelets, ground: _Ground, run: Run, attempt: int) -> list[Row]:
    calls, lanes, stage = run.calls(), ground.lanes(run.lanes), ground.stage
    what = f"{run.world.name}, pair {run.pair + 1}, {run.group}{f', {run.fault} killed' if run.fault else ''}"
    ground.tell(f"{what}: {run.workload_name}, {len(calls)} calls in each of {len(lanes)} lanes")
    await clear(client, stage, kubelets)
    stage.fleet.declare(run.world.declared(run.calls()))
    # what was read of the former run is forgotten twice: the extender is another process, and Prometheus has read empty nodes since
    await asyncio.sleep(run.world.scrape_s)
    await asyncio.to_thread(ground.begin, run.lanes)
    await asyncio.sleep(ground.scene.settle_s)
    fault = Fault(run.fault, stage, (QUICK_S if run.quick else float(calls.arrival_s[-1])) / 2) if run.fault else None

    def tick(elapsed_s: float) -> None:
        if fault is None:
            ground.look_after()
        else:
            fault.look(elapsed_s)

    name = f"p{run.pair}{run.group[0]}{attempt}"
    try:
        records = await replay(
            kubelets, lanes, calls, run=name, drain_deadline_s=DRAIN_DEADLINE_S, progress=tick, models=run.world.functions
        )  # fmt: skip
    finally:
        if fault is not None:
            await fault.over()
    ended = await ground.ended()
    rows = rows_of(run, records, attempt, whole=not ended)
    ground.tell("; ".join(f"{row['lane']} {row['mean_s']:.2f} s" for row in rows) + _why_void(rows, ended))
    return rows


def _why_void(rows: Sequence[Row], ended: Sequence[str]) -> str:
    if not rows[0]["void"]:
        return ""
    created = ", ".join(f"{row['creation_p50_ms']:.0f}" for row in rows)
    gone = "".join(f"; {name} has ended" for name in ended)
    return f" (void: pods created after {created} ms{gone})"


def rows_of(run: Run, records: Sequence[CallRecord], attempt: int = 0, *, whole: bool = True) -> list[Row]:
    """One a lane. A call that was never done makes a run void, as a slow API server does, or a process that ended and was not killed
    (`whole`: none has); calls that a fault lost are counted."""
    waits = [r.created_s - r.due_s for r in records if r.created_s is not None]
    lost = sum(record.done_s is None for record in records)
    late = not waits or float(np.median(waits)) > LATE_S
    code = code_digest()
    return [
        _row(run, lane, [record for record in records if record.lane == lane])
        | {"void": late or not whole or (lost > 0 and not run.fault), "attempt": attempt, "code": code}
        for lane in run.lanes
    ]


def _row(run: Run, lane: str, records: Sequence[CallRecord]) -> Row:
    done = [record for record in records if record.done_s is not None]
    times = np.array([record.completion_s for record in done] or [np.nan], np.float64)
    holds = [_held_s(record) for record in records]
    created = [r.created_s - r.due_s for r in records if r.created_s is not None]
    p50, p95, p99 = (round(float(value), 4) for value in np.percentile(times, (50, 95, 99)))
    return {
        "world": run.world.name,
        "run": run.workload_name,
        "pair": run.pair,
        "lane": lane,
        "seed": run.seed,
        "calls": len(records),
        "mean_s": round(float(times.mean()), 4),
        "p50_s": p50,
        "p95_s": p95,
        "p99_s": p99,
        "cold_starts": sum(bool(record.cold) for record in records),
        "held_share": round(float(np.mean([hold_s > AT_ONCE_S for hold_s in holds])), 4),
        "longest_hold_s": round(max(holds), 3),
        "creation_p50_ms": round(1e3 * float(np.median(created or [np.nan])), 3),
        "lost": len(records) - len(done),
        "gated": sum(record.gated for record in records),
        "group": run.group,
        "fault": run.fault,
    }


def _held_s(record: CallRecord) -> float:
    """How long its gate was on; one whose gate was never seen open was held until we stopped looking."""
    if record.gated and record.opened_s is None and record.node == "" and record.created_s is not None:
        return DRAIN_DEADLINE_S
    return record.held_s

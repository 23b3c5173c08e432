"""The extender's half of `tiphys bench scale`: the real process against the made-up API server, from its first list to a relist.

It is run twice through the same story. As it is served (uvloop), for memory and for the time of prioritize calls; and on asyncio's own
loop under `scale_probe`, for the longest callback, by the processor time of the loop's thread. The story: first list; calls; every Job
runs and finishes, a batch at a time; a fifth of the pods vanish unseen while all history is forgotten, so that everything is listed again,
under calls; readings, idle instances and profiles arrive every few seconds all the while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.api.base import API_VERSION, GROUP, VERSION
from tiphys_models.api.scheduling_policy import KIND, PLURAL
from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.report import Claim, Row, percentile
from tiphys_testbed.bench.closed_loop import ClosedLoop
from tiphys_testbed.bench.scale_api import Api
from tiphys_testbed.bench.scale_objects import NAMESPACES, Fleet, uid_of
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions, peak_mib

PEAK_MIB, CALLBACK_MS = 200.0, 50.0
CHART_LIMIT_MIB = 384.0
"""`extender.resources.limits.memory` of the chart; a test holds it to values.yaml."""
_POLL_S, _DEADLINE_S = 0.2, 300.0
_WARM_UP = 50
_IDLE = """
import sys, threading, time
longest = 0.0
def look():
    global longest
    last = time.monotonic()
    while True:
        time.sleep(0.005)
        now = time.monotonic()
        longest, last = max(longest, now - last - 0.005), now
threading.Thread(target=look, daemon=True).start()
sys.stdin.read()
print(longest * 1000)
"""


_FULL = Fleet(nodes=5_000, workloads=5_000, pods=50_000, jobs=100_000)


@dataclass(frozen=True, slots=True)
class ExtenderPlan:
    """How large the cluster is, and how much happens in it."""

    fleet: Fleet = _FULL
    calls: int = 2_000
    names: int = 500
    """The number of node names in a call: kube-scheduler asks about so many in a cluster of 5,000 nodes."""
    batch: int = 5_000

    @classmethod
    def quickly(cls) -> ExtenderPlan:
        """The same story in a small cluster."""
        return cls(Fleet(nodes=200, workloads=100, pods=1_000, jobs=1_000), calls=100, names=100, batch=500)


class _Story:
    """One extender and what happens around it."""

    def __init__(self, api: Api, extender: Extender, plan: ExtenderPlan) -> None:
        self._api, self._extender, self._plan = api, extender, plan
        self._asked = 0

    def play(self, tell: Callable[[str], None]) -> Row:
        """The sequence of calls and events, from when the extender is ready to a relist; returns what was measured."""
        plan, pid = self._plan, self._extender.process.pid
        row: Row = {"first_list_peak_mib": round(peak_mib(pid), 1)}
        self._extender.wait_covered(deadline_s=_DEADLINE_S)
        self._calls(_WARM_UP)
        real_ms, floor_ms = self._calls(plan.calls)
        row |= _times("", real_ms, floor_ms)
        tell(f"prioritize with {plan.names} names: {row['p99_ms']} ms p99 over a floor of {row['floor_p99_ms']}")
        for first in range(0, plan.fleet.jobs, plan.batch):
            count = min(plan.batch, plan.fleet.jobs - first)
            self._api.pods("jobs", first, count, "Running")
            self._settled(plan.fleet.pods + count)
            self._api.pods("jobs", first, count, "Succeeded")
            self._settled(plan.fleet.pods)
        row["jobs_peak_mib"] = round(peak_mib(pid), 1)
        tell(f"{plan.fleet.jobs:,} Jobs have finished: {row['jobs_peak_mib']} MiB")
        gone = plan.fleet.pods // 5
        lists = self._lists()
        self._api.vanish("pods", 0, gone)
        real_ms, floor_ms = self._calls(plan.calls)
        row |= _times("relist_", real_ms, floor_ms)
        self._settled(plan.fleet.pods - gone)
        row["relisted"] = self._lists() > lists
        row["peak_mib"] = round(peak_mib(pid), 1)
        self._api.pods("pods", 0, gone, "Running")
        self._settled(plan.fleet.pods)
        return row

    def _lists(self) -> int:
        return int(self._api.stats()["requests"].get("GET /api/v1/pods", 0))

    def _calls(self, count: int) -> tuple[list[float], list[float]]:
        """Real calls and floor calls in turns, each for a new pod of the next workload."""
        plan, times = self._plan, ([], [])  # type: tuple[ExtenderPlan, tuple[list[float], list[float]]]
        with ClosedLoop(self._extender.port) as loop:
            for _ in range(count):
                body = _body(plan, self._asked)
                self._asked += 1
                for path, taken in zip(("/prioritize", "/floor"), times, strict=True):
                    taken.append(loop.call(path, body)[0])
        return times

    def _settled(self, pods: int) -> None:
        """Wait until the extender knows exactly so many bound pods; what it has reserved is none of them."""
        end_s, known = time.monotonic() + _DEADLINE_S, -1.0
        while time.monotonic() < end_s:
            if not self._extender.process.alive():
                raise Unavailable(f"the extender ended; the end of its log:\n{self._extender.process.log_tail()}")
            metrics = self._extender.metrics()
            known = metrics.total("tiphys_extender_cache_objects", kind="pods") - metrics.total("tiphys_extender_reservations")
            if known == pods:
                return
            time.sleep(_POLL_S)
        raise Unavailable(
            f"the extender knows {known:.0f} pods after {_DEADLINE_S:.0f} s, not {pods}; its log: {self._extender.process.log}"
        )


def run(plan: ExtenderPlan, tell: Callable[[str], None]) -> tuple[Row, list[Claim]]:
    """Both runs; one row and its claims."""
    row: Row = {"part": "extender", "nodes": plan.fleet.nodes, "workloads": plan.fleet.workloads, "pods": plan.fleet.pods}
    row |= {"jobs": plan.fleet.jobs, "names": plan.names}
    with Api.start(plan.fleet) as api:
        for policy in _policies():
            api.put(f"/apis/{GROUP}/{VERSION}/{PLURAL}", policy)
        tell("as it is served")
        row |= _served(api, plan, tell)
        tell("each callback measured")
        row |= _probed(api, plan, tell)
        row["requests"] = sum(api.stats()["requests"].values())
    small = row["floor_p99_ms"] or 1.0
    return row, [
        Claim("scale-extender-peak-mib", row["peak_mib"], PEAK_MIB, "<="),
        Claim("scale-extender-peak-share-of-chart-limit", round(row["peak_mib"] / CHART_LIMIT_MIB, 3), 0.8, "<="),
        Claim("scale-extender-longest-callback-cpu-ms", row["callback_cpu_ms"], CALLBACK_MS, "<="),
        Claim("scale-extender-p99-over-floor", round(row["p99_ms"] / small, 3), 5.0, "<="),
        Claim("scale-extender-relisted", float(row["relisted"]), 1.0, ">="),
    ]


def _served(api: Api, plan: ExtenderPlan, tell: Callable[[str], None]) -> Row:
    with scratch("scale") as table:
        extender = Extender.start(table, _options(api, Path(table.run_dir)))
        extender.wait_ready(_DEADLINE_S)
        row = _Story(api, extender, plan).play(tell)
        extender.stop()
    return row


def _probed(api: Api, plan: ExtenderPlan, tell: Callable[[str], None]) -> Row:
    with scratch("scale-probe") as table:
        directory = Path(table.run_dir)
        report = directory / "callbacks.json"
        extender = Extender.start(table, _options(api, directory), probe=report)
        idle = subprocess.Popen([sys.executable, "-c", _IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            _until(lambda: _listening(extender))
            os.kill(extender.process.pid, signal.SIGUSR1)
            extender.wait_ready(_DEADLINE_S)
            _Story(api, extender, plan).play(lambda text: None)
            time.sleep(1.0)
            found = orjson.loads(report.read_bytes())
        finally:
            gap, _ = idle.communicate()
        extender.stop()
    tell(f"longest callback: {found['cpu_ms']:.1f} ms of its thread's time ({found['what']}), {found['wall_ms']:.1f} ms by the wall")
    return {
        "callback_cpu_ms": round(found["cpu_ms"], 1),
        "callback_what": found["what"],
        "callback_wall_ms": round(found["wall_ms"], 1),
        "idle_process_gap_ms": round(float(gap), 1),
        "callbacks": found["callbacks"],
        "callbacks_over_20_ms": found["over_20_ms"],
    }


def _listening(extender: Extender) -> bool:
    """Whether the extender's listener answers, ready or not: the time before that is not counted."""
    try:
        extender.metrics()
    except Unavailable:
        return False
    return True


def _until(happened: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _DEADLINE_S
    while not happened():
        if time.monotonic() > end_s:
            raise Unavailable(f"the extender does not listen after {_DEADLINE_S:.0f} s")
        time.sleep(0.02)


def _options(api: Api, directory: Path) -> ExtenderOptions:
    return ExtenderOptions(
        kubeconfig=api.kubeconfig(directory), prometheus_url=f"{api.url}/prometheus", expose_floor=True, own_namespace="tiphys-system"
    )


def _policies() -> list[dict[str, Any]]:
    spec = {"mode": "Active", "policy": "faasrank", "model": "faasrank"}
    return [
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "scale", "namespace": f"team-{n:02d}"}, "spec": spec}
        for n in range(NAMESPACES)
    ]


def _body(plan: ExtenderPlan, index: int) -> bytes:
    """What kube-scheduler sends for a new pod of one workload, with a window of nodes that goes round."""
    pod = orjson.loads(plan.fleet.pod(index, "Pending").body)
    pod["metadata"] |= {"uid": uid_of("asked", index), "name": f"asked-{index:07d}"}
    first = index * 37
    names = [f"node-{(first + n) % plan.fleet.nodes:05d}" for n in range(min(plan.names, plan.fleet.nodes))]
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})


def _times(prefix: str, real_ms: list[float], floor_ms: list[float]) -> Row:
    return {
        f"{prefix}{floor}p{q}_ms": round(percentile(values, q), 3)
        for floor, values in (("", real_ms), ("floor_", floor_ms))
        for q in (50, 99)
    }

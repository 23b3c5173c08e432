"""One billed run: a trace is played on a fresh plane, and what was seen becomes a row."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tiphys_cli.kube.api import JSON_PATCH, ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.kube.kubeconfig import Credentials
from tiphys_models.lab.report import Row, percentile
from tiphys_models.placement.gate import opening_patch
from tiphys_testbed.bench.bill_books import Books, PodLife, node_figures, pod_figures, unbound
from tiphys_testbed.bench.bill_gate import GATES, Room, Waiting, let_go
from tiphys_testbed.bench.bill_plane import Plane
from tiphys_testbed.bench.bill_trace import BatchPod, Trace, bound_usd
from tiphys_testbed.bench.bill_watch import PODS, Watcher
from tiphys_testbed.bench.bill_worlds import NAMESPACE, PROTECT, Lane, World, batch_pod, deployment
from tiphys_testbed.bench.service import ScrapedMetrics, cpu_s

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LATE_S = 0.5
"""Seconds of the wall clock; a driver that was later than this has played another trace."""
_SERVICES_DEADLINE_S = 240.0
_CALM_S = 1.0
_HANDS = 4
_LOOK_AGAIN_S = 0.1
_ENOUGH, _QUANTILE = 3, 0.9
_ALGORITHM = "scheduler_scheduling_algorithm_duration_seconds_bucket"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done at a time of the model."""

    at_s: float
    pod: BatchPod | None = None
    service: str = ""
    replicas: int = 0


def actions(trace: Trace) -> list[Action]:
    """All that comes from without, in order."""
    found = [Action(pod.arrive_s, pod=pod) for pod in trace.batch]
    for service in trace.services:
        found += [Action(at_s, service=service.name, replicas=count) for at_s, count in service.steps if at_s > -trace.lead_s]
    return sorted(found, key=lambda action: action.at_s)


class Driver:
    """Plays a trace on a plane."""

    def __init__(self, plane: Plane, trace: Trace, world: World, lane: Lane) -> None:
        self._plane, self._api, self._trace, self._world, self._lane = plane, plane.cluster.api, trace, world, lane
        self._room = Room() if lane.wait_s else None
        self._waiting: list[Waiting] = []
        self._gone = threading.Event()
        self._by_name = {pod.name: pod for pod in trace.batch}
        self._again: queue.SimpleQueue[tuple[BatchPod, int] | None] = queue.SimpleQueue()
        self._attempts: dict[str, int] = {}
        self.watcher = Watcher(self._api, self._lost, self._room)
        self.late_s = 0.0
        self.created_s: list[float] = []
        """How long after they were due pods were there."""
        self.begin_s = math.nan

    def play(self) -> None:
        """Start services, wait until they run, play the trace, and come back when the window is over."""
        for service in self._trace.services:
            self._api.create(DEPLOYMENTS, deployment(service, service.replicas_at(-self._trace.lead_s)))
        # Karpenter is to see all of them at once: else chance packs the first nodes, and that is half of the noise
        self._wait_for_services(lambda life: True)
        self._plane.open_pool()
        self._wait_for_services(lambda life: life.ready_s < math.inf and life.ended_s == math.inf)
        self.begin_s = time.monotonic() + self._trace.lead_s / self._world.factor + _CALM_S
        threads = [threading.Thread(target=work, daemon=True) for work in (self._repeat, self._open)]
        for thread in threads:
            thread.start()
        # an API server that is slow with one pod must not make the next one late
        with ThreadPoolExecutor(_HANDS, thread_name_prefix="bill-hand") as hands:
            done = []
            for action in actions(self._trace):
                due_s = self.begin_s + action.at_s / self._world.factor
                time.sleep(max(due_s - time.monotonic(), 0.0))
                self.late_s = max(self.late_s, time.monotonic() - due_s)
                done.append(hands.submit(self._act, action, due_s))
            time.sleep(max(self.begin_s + self._trace.window_s / self._world.factor - time.monotonic(), 0.0))
            self.watcher.close()
        self._again.put(None)
        self._gone.set()
        for thread in threads:
            thread.join(10)
        for future in done:
            future.result()

    def _act(self, action: Action, due_s: float) -> None:
        if action.pod is None:
            self._api.patch(f"{DEPLOYMENTS}/{action.service}", {"spec": {"replicas": action.replicas}})
            return
        self._create(action.pod, 0)
        self.created_s.append(time.monotonic() - due_s)

    def _create(self, pod: BatchPod, attempt: int) -> None:
        with self.watcher.lock:
            ended = [life for life in self.watcher.books.pods.values() if life.succeeded]
        body = batch_pod(pod, attempt, self._world.factor, marks(self._world, self._lane, self._run_times(pod, ended)))
        if self._room is None or self._room.take(body):
            self._api.create(PODS, body)
            return
        body["spec"]["schedulingGates"] = GATES
        made = self._api.create(PODS, body)
        with self._room.lock:
            self._waiting.append(Waiting(made, time.monotonic() + self._lane.wait_s / self._world.factor))

    def _open(self) -> None:
        """Take the gate off those who have room now, or have waited for long enough."""
        while self._room is not None and not self._gone.wait(_LOOK_AGAIN_S):
            with self._room.lock:
                waiting = list(self._waiting)
            for one in let_go(waiting, self._room, time.monotonic()):
                self._api.patch(f"{PODS}/{one.pod['metadata']['name']}", opening_patch(one.pod), JSON_PATCH)
                with self._room.lock:
                    self._waiting.remove(one)

    def _run_times(self, pod: BatchPod, ended: Iterable[PodLife]) -> list[float]:
        """Run times, on the wall clock, of pods of its application that were seen to end."""
        return [
            life.ended_s - life.ready_s
            for life in ended
            if life.trace_name and self._by_name[life.trace_name].application == pod.application
        ]

    def _lost(self, life: PodLife) -> None:
        pod = self._by_name[life.trace_name]
        self._attempts[pod.name] = self._attempts.get(pod.name, 0) + 1
        self._again.put((pod, self._attempts[pod.name]))

    def _repeat(self) -> None:
        """Create lost pods anew, as a workflow engine does."""
        while (wanted := self._again.get()) is not None:
            self._create(*wanted)

    def _wait_for_services(self, come_so_far: Callable[[PodLife], bool]) -> None:
        wanted = sum(service.replicas_at(-self._trace.lead_s) for service in self._trace.services)
        end_s = time.monotonic() + _SERVICES_DEADLINE_S
        while True:
            with self.watcher.lock:
                there = sum(come_so_far(life) for life in self.watcher.books.pods.values())
            if there >= wanted:
                return
            if time.monotonic() > end_s:
                raise ClusterError(f"{there} of {wanted} pods of services had come so far after {_SERVICES_DEADLINE_S:.0f} s")
            time.sleep(0.1)


def marks(world: World, lane: Lane, run_times_s: list[float]) -> dict[str, str]:
    """What a batch pod tells Karpenter: that it must not be disrupted, and for how long."""
    found = {PROTECT: "true"} if world.protected else {}
    if lane.protect == "learned" and len(run_times_s) >= _ENOUGH:
        ordered = sorted(run_times_s)
        found[PROTECT] = f"{math.ceil(ordered[min(int(_QUANTILE * len(ordered)), len(ordered) - 1)])}s"
    return found


def shifted(books: Books, begin_s: float, factor: float) -> Books:
    """The same books in model time from the beginning of the bill."""

    def model(at_s: float) -> float:
        return (at_s - begin_s) * factor

    claims = {name: replace(c, begin_s=model(c.begin_s), end_s=model(c.end_s)) for name, c in books.claims.items()}
    pods = {
        name: replace(p, created_s=model(p.created_s), bound_s=model(p.bound_s), ready_s=model(p.ready_s), ended_s=model(p.ended_s))
        for name, p in books.pods.items()
    }
    return Books(claims, pods)


def measure(plane: Plane, trace: Trace, world: World, lane: Lane) -> Row:
    """Play the trace; the figures of its row, void if something was not as it should be."""
    began_s = time.monotonic()
    driver = Driver(plane, trace, world, lane)
    driver.play()
    books = shifted(driver.watcher.books, driver.begin_s, world.factor)
    claims, pods = list(books.claims.values()), list(books.pods.values())
    problems = [*driver.watcher.troubles, *(f"{name} has ended" for name in plane.dead())]
    if driver.late_s > LATE_S:
        problems.append(f"the driver was {driver.late_s:.2f} s late")
    created_s = percentile(driver.created_s, 95)
    if created_s > LATE_S:
        problems.append(f"pods were there {created_s:.2f} s late")
    if left := unbound(trace, pods):
        problems.append(f"{left} pods had no node at the end")
    figures = node_figures(claims, pods, trace.window_s) | pod_figures(trace, pods)
    wall_s = time.monotonic() - began_s
    figures |= {
        "bound_usd": bound_usd(trace),
        "decision_p50_ms": decision_p50_ms(plane),
        "karpenter_cores": cpu_s(plane.karpenter.pid) / wall_s,
        "late_s": driver.late_s,
        "created_p95_s": created_s,
        "void": bool(problems),
        "problems": "; ".join(problems),
    }
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in figures.items()}


def decision_p50_ms(plane: Plane) -> float | None:
    """The scheduler's median time for one decision, filters and our extender included."""
    cluster = plane.cluster
    pair = cluster.admin_pair
    url = cluster.process("tiphys-scheduler").url
    credentials = Credentials(url, cluster.ca_file.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes())
    with ApiClient(credentials) as client:
        status, body = client.raw("GET", "/metrics")
    return histogram_p50_ms(ScrapedMetrics.parse(body.decode()).samples) if status == 200 else None


def histogram_p50_ms(samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> float | None:
    """The median of the scheduler's histogram, on a straight line within its bucket."""
    buckets = sorted((float(dict(labels)["le"]), count) for (name, labels), count in samples.items() if name == _ALGORITHM)
    if not buckets or not buckets[-1][1]:
        return None
    half, edge_s, below = buckets[-1][1] / 2, 0.0, 0.0
    for upper_s, count in buckets:
        if count >= half:
            return 1000 * (edge_s + (upper_s - edge_s) * (half - below) / (count - below)) if upper_s < math.inf else 1000 * edge_s
        edge_s, below = upper_s, count
    return None

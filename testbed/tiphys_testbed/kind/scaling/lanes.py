"""One lane after the other on a cluster that runs: deploy, warm up, play the load, look, take away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.cluster.base import KubeCluster
from tiphys_testbed.kind import monitoring
from tiphys_testbed.kind.scaling.objects import DEPLOYMENTS, POLICIES, PORT, App, scaler, service
from tiphys_testbed.kind.scaling.plan import ComparisonPlan, LaneLoad, Start, start
from tiphys_testbed.kind.scaling.watching import LaneWatcher, PodsLook, Samples, samples_of
from tiphys_testbed.workloads.load import Sent, play
from tiphys_testbed.workloads.metrics import parse

LANES = ("tiphys", "hpa", "vpa", "peak")
READY_S = 90.0
GONE_S = 90.0
_CALIBRATION_RPS = 20.0
_CALIBRATION_S = 12.0
_CALIBRATION_M = 400
_SETTLED_PHASES = ("Intended", "Done")


@dataclass(frozen=True, slots=True)
class PlayedLane:
    """What a lane left behind."""

    lane: str
    begin_s: float
    """The end of the warm-up, from which on everything counts, in seconds since the epoch."""
    sent: Sequence[Sent]
    """Without the warm-up, timed from its end."""
    looks: Sequence[PodsLook]
    granted: Samples
    started: Mapping[str, Start]
    """The number and size of pods that each service began with."""


def missing(api: ApiClient, lane: str) -> str:
    """Why a lane cannot be played here; empty if it can."""
    needed = {
        "tiphys": ("/apis/tiphys.io/v1alpha1/scalingpolicies", "no release of Tiphys is installed: no ScalingPolicy"),
        "hpa": ("/apis/metrics.k8s.io/v1beta1/nodes", "no metrics-server answers: HPA would see nothing"),
        "vpa": ("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", "no vertical pod autoscaler is installed"),
    }
    if lane not in needed:
        return ""
    path, why = needed[lane]
    try:
        api.get(path)
    except RequestRefused as error:
        return f"{why} ({error.status})"
    return missing(api, "hpa") if lane == "vpa" else ""


def request_cpu_s(cluster: KubeCluster, app: App, image: str) -> dict[str, float]:
    """CPU seconds that one request takes in each service's pod of this cluster, as the pods' own clocks say."""
    namespace = f"tiphys-scaling-{app.name}"
    with LaneStage(cluster, namespace, image, app, {part.name: Start(1, _CALIBRATION_M) for part in app.parts}) as stage:

        def counted() -> dict[str, tuple[float, float]]:
            found = {}
            for name, pod in stage.pods().items():
                path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy/metrics"
                status, body = cluster.api.raw("GET", path)
                if status != 200:
                    raise ClusterError(f"{path} answered {status}")
                series = parse(body.decode())
                found[name] = series["process_cpu_seconds_total"], series["http_request_duration_seconds_count"]
            return found

        before = counted()
        asyncio.run(play(list(np.arange(0, _CALIBRATION_S, 1 / _CALIBRATION_RPS)), stage.addresses(), app.path))
        after = counted()
    answered = after[app.parts[0].name][1] - before[app.parts[0].name][1]
    if answered < _CALIBRATION_RPS * _CALIBRATION_S / 2:
        raise ClusterError(f"only {answered:.0f} calibration requests were answered")
    return {name: (after[name][0] - before[name][0]) / answered for name in after}


def play_lane(cluster: KubeCluster, lane: str, plan: ComparisonPlan, load: LaneLoad, image: str, agent: str, app: App) -> PlayedLane:
    """A namespace of its own, so that nobody inherits anything."""
    namespace = f"tiphys-scaling-{lane}"
    begin = {name: start(lane, load, plan.sizes, share) for name, share in load.shares.items()}
    with LaneStage(cluster, namespace, image, app, begin) as stage:
        for part in app.parts:
            if (wanted := scaler(lane, namespace, plan, agent, part.name)) is not None:
                cluster.api.create(*wanted)
        with LaneWatcher(cluster.api, namespace) as watcher:
            begin_s = time.time() + load.warm_up_s
            sent = asyncio.run(_play_and_check(cluster.api, lane, namespace, load, stage.addresses(), app))
        span_s = round(time.time() - begin_s) + 10
        query = f'container_granted_cores{{namespace="{namespace}"}}[{span_s}s]'
        granted = samples_of(cluster.api.get(f"{monitoring.PROXY}/api/v1/query", query=query))
    counted = [Sent(s.due_s - load.warm_up_s, s.latency_s, s.behind_s) for s in sent if s.due_s >= load.warm_up_s]
    return PlayedLane(lane, begin_s, counted, watcher.looks, granted, begin)


async def _play_and_check(
    api: ApiClient, lane: str, namespace: str, load: LaneLoad, addresses: Sequence[tuple[str, int]], app: App
) -> list[Sent]:
    playing = asyncio.create_task(play([float(due) for due in load.due_s], addresses, app.path))
    if lane == "tiphys":
        await asyncio.sleep(max(load.warm_up_s - 2.0, 0.0))
        for part in app.parts:
            status = (await asyncio.to_thread(api.get, f"{POLICIES.format(namespace)}/{part.name}")).get("status") or {}
            decision = status.get("lastDecision") or {}
            if decision.get("phase") not in _SETTLED_PHASES:
                playing.cancel()
                raise ClusterError(f"the policy of {part.name} does not act at the end of the warm-up: {decision or status}")
    return await playing


class LaneStage:
    """A namespace with the services, ready; taken away at the end."""

    def __init__(self, cluster: KubeCluster, namespace: str, image: str, app: App, begin: Mapping[str, Start]) -> None:
        self._cluster, self._namespace, self._image, self._app, self._begin = cluster, namespace, image, app, begin

    def __enter__(self) -> LaneStage:
        api = self._cluster.api
        if _there(api, f"/api/v1/namespaces/{self._namespace}"):
            self.__exit__()  # left by a run that was killed
        api.create("/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        try:
            objects = [each for part in self._app.parts for each in service(self._image, self._begin[part.name], part)]
            self._cluster.apply(yaml.safe_dump_all(objects), self._namespace)
            _until(self._ready, READY_S, f"all pods of {self._app.name} are ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        api, pods = self._cluster.api, f"/api/v1/namespaces/{self._namespace}/pods"
        api.delete(f"/api/v1/namespaces/{self._namespace}")
        _until(lambda: not api.items(pods), GONE_S, f"pods of {self._namespace} are gone")
        _until(lambda: not _there(api, f"/api/v1/namespaces/{self._namespace}"), GONE_S, f"{self._namespace} is gone")

    def pods(self) -> dict[str, str]:
        """The name of a pod of each service; of several, the one listed last."""
        found = self._cluster.api.items(f"/api/v1/namespaces/{self._namespace}/pods")
        return {pod["metadata"]["labels"]["app"]: pod["metadata"]["name"] for pod in found}

    def addresses(self) -> list[tuple[str, int]]:
        """The first service's node port on every node; each leads to all pods."""
        api, asked = self._cluster.api, self._app.parts[0].name
        port = int(api.get(f"/api/v1/namespaces/{self._namespace}/services/{asked}")["spec"]["ports"][0]["nodePort"])
        nodes = api.items("/api/v1/nodes")
        return [(a["address"], port) for node in nodes for a in node["status"]["addresses"] if a["type"] == "InternalIP"]

    def _ready(self) -> bool:
        path = DEPLOYMENTS.format(self._namespace)
        found = {name: self._cluster.api.get(f"{path}/{name}").get("status") or {} for name in self._begin}
        return all(int(found[name].get("readyReplicas") or 0) == begin.pods for name, begin in self._begin.items())


def _there(api: ApiClient, path: str) -> bool:
    try:
        api.get(path)
    except RequestRefused as error:
        if error.status == 404:
            return False
        raise
    return True


def _until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise ClusterError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(0.5)

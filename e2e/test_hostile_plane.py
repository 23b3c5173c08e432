"""A plane with every part of Tiphys at work, under objects and statuses that an ordinary API server accepts and nobody should believe."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from tests.fuzz.grammar import GRAMMAR

from e2e.conftest import wait_until
from e2e.hostile import HOSTILE, Case, Step, all_cases
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.bench.service import ScrapedMetrics, fetch
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.plane.objects import INTERVAL_S, WINDOW_S
from tiphys_testbed.plane.plane import Plane, start_plane
from tiphys_testbed.plane.pulse import BEAT_S

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(600)]

NODES = 8
LEAST_ACCEPTED = 40
APART_S = 1.0
"""Between two hostile objects: those of one window or beat meet different ones."""
TOGETHER_S = 25.0
GAP_S = 2.5
"""Longest time between two windows, in windows: one may be late by a stall of the machine, none may be left out twice."""
GENERATED = 600
STEPS_S = 0.5
MOST_OWNERS = 50
"""A thousand of them on a custom resource keep the API server itself busy for minutes."""
CREATED_KINDS = {
    "Pod": ("v1", True),
    "Node": ("v1", False),
    "Deployment": ("apps/v1", True),
    "StatefulSet": ("apps/v1", True),
    "ResourceQuota": ("v1", True),
    "LimitRange": ("v1", True),
    "HorizontalPodAutoscaler": ("autoscaling/v2", True),
    "EndpointSlice": ("discovery.k8s.io/v1", True),
    "ConfigMap": ("v1", True),
    **dict.fromkeys(
        ("SchedulingPolicy", "ScalingPolicy", "PlacementPlan", "InferenceSite", "ModelVariant", "StreamPolicy", "LearnedModel"),
        ("tiphys.io/v1alpha1", True),
    ),
}


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with LocalCluster(LocalOptions(name=f"e2e-plane-{os.getpid()}")) as cluster:
        made = start_plane(cluster, NODES)
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": HOSTILE}})
        path = f"/api/v1/namespaces/{HOSTILE}/serviceaccounts/default"
        wait_until(lambda: _exists(made, path), 30, "a ServiceAccount for the hostile pods")
        yield made


@dataclass
class Observed:
    """When windows and intervals of the healthy policies came, seen every half second by a thread."""

    plane: Plane
    windows: list[tuple[float, int]] = field(default_factory=list)
    intervals: list[tuple[float, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._began_s = time.time()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(STEPS_S):
            try:
                self.plane.check()
                for seen, number in ((self.windows, self.plane.windows()), (self.intervals, self.plane.intervals())):
                    if not seen or seen[-1][1] != number:
                        seen.append((time.time(), number))
            except (ClusterError, OSError) as error:
                self.problems.append(str(error))

    def judge(self) -> None:
        """Every window, interval, pod and stream came in time, and no process ended."""
        assert not self.problems, self.problems[:3]
        ended_s = time.time()
        for what, seen, period_s in (("window", self.windows, WINDOW_S), ("interval", self.intervals, INTERVAL_S)):
            times = [self._began_s, *(at_s for at_s, _ in seen), ended_s]
            gap_s = max(later - earlier for earlier, later in pairwise(times))
            assert gap_s <= GAP_S * period_s, (
                f"a {what} came after {gap_s:.1f} s; they came at {[round(t - self._began_s, 1) for t in times]}"
            )
        pulse = self.plane.pulse()
        for what in ("pods", "streams"):
            beats = [beat for beat in pulse[what] if beat["at_s"] >= self._began_s]
            troubles = [beat["trouble"] for beat in beats if beat["trouble"]]
            assert not troubles, f"{what}: {troubles[:3]}"
            wanted = int((ended_s - self._began_s) / BEAT_S) - 1
            assert len(beats) >= wanted, f"{len(beats)} {what} bound in {ended_s - self._began_s:.0f} s"
        assert pulse["lost"] == 0, f"{pulse['lost']} streams that were bound were lost: {pulse['lastTrouble']}"


@contextmanager
def observed(plane: Plane) -> Iterator[None]:
    identities = {process.name: process.identity for process in plane.processes}
    with Observed(plane) as seen:
        yield
    seen.judge()
    now = {process.name: process.identity for process in plane.cluster.processes.all() if process.name in identities}
    assert now == identities


@pytest.fixture(scope="module")
def accepted(plane: Plane) -> list[Case]:
    """All hostile cases, sent one after the other and left in place, with the plane observed throughout."""
    refused: dict[str, str] = {}
    cases = all_cases()
    with observed(plane):
        for case in cases:
            if why := case.send(plane.cluster.api):
                refused[case.name] = why
            time.sleep(APART_S)
        time.sleep(TOGETHER_S)
    taken = [case for case in cases if case.name not in refused]
    assert len(taken) >= LEAST_ACCEPTED, refused
    return taken


def test_one_hostile_object_after_the_other_and_all_together_stop_nothing(accepted: list[Case]) -> None:
    assert len(accepted) >= LEAST_ACCEPTED


def test_every_hostile_object_is_named_in_a_condition_or_in_a_log_line_and_a_metric(plane: Plane, accepted: list[Case]) -> None:
    unnamed = [case.name for case in accepted if not case.restores and not _named(plane, case)]
    assert not unnamed
    assert _oddities(plane) > 0


def test_no_workload_left_its_bounds(plane: Plane, accepted: list[Case]) -> None:
    web = plane.cluster.api.get("/apis/apps/v1/namespaces/shop/deployments/web")
    assert accepted
    assert 1 <= web["spec"]["replicas"] <= 4
    pods = plane.cluster.api.items("/api/v1/namespaces/shop/pods", labelSelector="app=web")
    assert {pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] for pod in pods} <= {f"{m}m" for m in range(50, 401)}


def test_hundreds_of_generated_objects_and_statuses_stop_nothing(plane: Plane) -> None:
    seed = int(os.environ.get("TIPHYS_FUZZ_SEED", "20261119"))
    random = Random(seed)
    taken: dict[str, int] = {}
    with observed(plane):
        number = 0
        while sum(taken.values()) < GENERATED and number < 12 * GENERATED:
            number += 1
            kind = random.choice(sorted(CREATED_KINDS))
            taken[kind] = taken.get(kind, 0) + _create(plane, GRAMMAR[kind](random), kind, number)
        time.sleep(2 * WINDOW_S)
    print(f"seed {seed}: accepted {taken}")  # noqa: T201 - shown when the test fails
    assert sum(taken.values()) >= GENERATED, taken


def _create(plane: Plane, obj: dict[str, Any], kind: str, number: int) -> int:
    """Whether the API server took the object; its status is sent as well, where it has one."""
    version, namespaced = CREATED_KINDS[kind]
    metadata = {key: value for key, value in obj["metadata"].items() if key in ("annotations", "labels", "ownerReferences")}
    if owners := metadata.get("ownerReferences"):
        metadata["ownerReferences"] = owners[:MOST_OWNERS]
    body = obj | {"apiVersion": version, "kind": kind, "metadata": metadata | {"name": f"fuzz-{number}"}}
    if namespaced:
        body["metadata"]["namespace"] = HOSTILE
    if kind == "Pod":
        body["spec"] = _startable(body.get("spec") or {})
    if kind in ("Deployment", "StatefulSet"):
        body["spec"] = _rollable(body.get("spec") or {}, kind, number)
    status = body.pop("status", None)
    try:
        if kind == "Node":
            body["status"] = status
        Step(body).send(plane.cluster.api)
    except (RequestRefused, TypeError):
        return 0  # TypeError: a number of more than 64 bits, which our client cannot send
    if status:
        try:
            Step(body | {"status": status}, "/status", change=True).send(plane.cluster.api)
        except (RequestRefused, TypeError):
            return 1  # the object was taken, this status was not
    return 1


def _startable(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec without what the API server refuses anyway: what is left of it is hostile enough."""
    containers = [
        {"name": f"c{index}", "image": "registry.example/x:1", "resources": (made or {}).get("resources") or {}}
        for index, made in enumerate(spec.get("containers") or [{}])
    ]
    kept = {key: spec[key] for key in ("nodeName", "schedulerName", "nodeSelector") if spec.get(key)}
    return kept | {"containers": containers[:20], "terminationGracePeriodSeconds": 0}


def _rollable(spec: dict[str, Any], kind: str, number: int) -> dict[str, Any]:
    """A workload's spec with a selector of its own and few replicas: the controllers make as many pods as are asked for."""
    labels = {"app": f"fuzz-{number}"}
    template = {"metadata": {"labels": labels}, "spec": _startable((spec.get("template") or {}).get("spec") or {})}
    more = {"serviceName": "none"} if kind == "StatefulSet" else {}
    return {"replicas": number % 3, "selector": {"matchLabels": labels}, "template": template, **more}


def _named(plane: Plane, case: Case) -> bool:
    namespace, name = case.where
    return _in_a_condition(plane, case.steps[0].obj, name) or _in_a_log(plane, f"{namespace}/{name}" if namespace else name)


def _in_a_condition(plane: Plane, obj: dict[str, Any], name: str) -> bool:
    if not obj["apiVersion"].startswith("tiphys.io"):
        return False
    found = plane.cluster.api.get(f"{Step(obj).collection}/{name}").get("status") or {}
    return any(c["status"] != "True" and c["type"] in ("Ready", "Reachable") for c in found.get("conditions") or ()) or any(
        c["type"] in ("Conflict", "Limited", "RolledBack") and c["status"] == "True" for c in found.get("conditions") or ()
    )


def _in_a_log(plane: Plane, where: str) -> bool:
    logs = [Path(process.log) for process in plane.processes if process.name in ("tiphys-operator", "tiphys-extender", "tiphys-binder")]
    return any(f'"{where}"' in line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines())


def _oddities(plane: Plane) -> float:
    total = 0.0
    for url in (plane.services.status_url, plane.operator_status_url, plane.binder_status_url):
        metrics = ScrapedMetrics.parse(fetch(f"{url}/metrics", 5.0)[1].decode())
        total += sum(metrics.total(f"tiphys_{part}_odd_objects_total") for part in ("extender", "binder", "operator"))
    return total


def _exists(plane: Plane, path: str) -> bool:
    try:
        plane.cluster.api.get(path)
    except RequestRefused:
        return False
    return True

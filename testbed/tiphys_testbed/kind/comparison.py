"""The same calls of real functions placed by one policy after the other, and how long they took."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_cli.support.extenders import ask_extenders
from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_testbed.kind.workloads import FUNCTIONS, RealFunction, call_pod, duration_s

LANES: Mapping[str, Mapping[str, str] | None] = {
    "default-scheduler": None,
    "static-rank": {"policy": "static-rank"},
    "faasrank-paper": {"policy": "faasrank", "model": "faasrank-paper"},
}
"""The model with the paper's inputs: the other one needs a function runtime that reports profiles."""
_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One call of a function, and when it is due."""

    at_s: float
    function: RealFunction


@dataclass(frozen=True, slots=True)
class Round:
    """All calls under one policy."""

    lane: str
    durations_s: dict[str, list[float]]
    """Function → one duration a call."""
    nodes: dict[str, int]
    """Node → number of calls."""
    scored: int
    """Calls that the policy itself judged, not its fallback."""


def arrivals(count: int, rate_per_s: float, rng: np.random.Generator) -> list[Arrival]:
    """A Poisson stream over all functions."""
    at = np.cumsum(rng.exponential(1.0 / rate_per_s, count))
    return [Arrival(float(when), FUNCTIONS[int(which)]) for when, which in zip(at, rng.integers(len(FUNCTIONS), size=count), strict=True)]


def play(api: ApiClient, kubeconfig: Path, image: str, calls: Sequence[Arrival], rounds: int) -> list[Round]:
    """Every lane once a round, each round starting with another one: drifts of the machine fall on all alike."""
    lanes = tuple(LANES)
    orders = [(*lanes[first % len(lanes) :], *lanes[: first % len(lanes)]) for first in range(rounds)]
    return [
        _play(api, kubeconfig, image, calls, lane, f"tiphys-calls-{number}-{lane}") for number, order in enumerate(orders) for lane in order
    ]


def _play(api: ApiClient, kubeconfig: Path, image: str, calls: Sequence[Arrival], lane: str, namespace: str) -> Round:
    api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    scheduler, chosen = lane, LANES[lane]
    if chosen is not None:
        spec = {**chosen, "mode": "Active"}
        body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "all"}, "spec": spec}
        api.create(f"/apis/tiphys.io/v1alpha1/namespaces/{namespace}/schedulingpolicies", body)
        scheduler = DEFAULT_SCHEDULER_NAME
    try:
        time.sleep(3.0)  # the namespace's ServiceAccount, and the policy in every extender
        begun = time.monotonic()
        for index, call in enumerate(calls):
            time.sleep(max(0.0, begun + call.at_s - time.monotonic()))
            api.create(pods, call_pod(f"call-{index:03d}", call.function, image, scheduler=scheduler))
        ended = _wait_all(api, pods, len(calls))
        decisions = [] if chosen is None else [_decision(api, kubeconfig, pod) for pod in ended]
    finally:
        api.delete(f"/api/v1/namespaces/{namespace}")
        _wait_gone(api, pods)
    durations: dict[str, list[float]] = {function.name: [] for function in FUNCTIONS}
    nodes: dict[str, int] = {}
    for index, pod in enumerate(sorted(ended, key=lambda pod: str(pod["metadata"]["name"]))):
        durations[calls[index].function.name].append(duration_s(pod))
        nodes[pod["spec"]["nodeName"]] = nodes.get(pod["spec"]["nodeName"], 0) + 1
    return Round(lane, durations, nodes, decisions.count("scored"))


def _decision(api: ApiClient, kubeconfig: Path, pod: dict[str, Any]) -> str:
    record, _ = ask_extenders(api, kubeconfig, "", "", pod["metadata"]["namespace"], pod["metadata"]["name"], pod)
    return str(record.get("outcome", ""))


def _wait_all(api: ApiClient, pods: str, count: int) -> list[dict[str, Any]]:
    end = time.monotonic() + _DEADLINE_S
    while True:
        found = api.items(pods)
        if failed := [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Failed"]:
            raise ClusterError(f"calls failed: {', '.join(failed)}")
        if sum(pod["status"].get("phase") == "Succeeded" for pod in found) == count:
            return found
        if time.monotonic() > end:
            raise ClusterError(f"{count} calls did not end within {_DEADLINE_S:.0f} s")
        time.sleep(0.5)


def _wait_gone(api: ApiClient, pods: str) -> None:
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        try:
            if not api.items(pods):
                return
        except RequestRefused as error:
            if error.status == 404:
                return
            raise
        time.sleep(0.5)

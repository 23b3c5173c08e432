"""An extender and a scheduler of our own beside the session's cluster, for tests that watch them place pods."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import orjson

from e2e.conftest import ready_nodes, wait_until
from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.api.crd import render
from tiphys_models.api.resources import RESOURCES
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_testbed.bench.service import Extender, ExtenderOptions, fetch
from tiphys_testbed.bench.workload import MODEL, Cell, write_inputs
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import POOL_LABEL, SimulatedNode, create_nodes, fleet
from tiphys_testbed.cluster.options import SchedulerOptions
from tiphys_testbed.cluster.processes import Process

SCHEDULER = "tiphys"
OWN_NAMESPACE = "tiphys-e2e-own"
SWITCH = f"/api/v1/namespaces/{OWN_NAMESPACE}/configmaps/tiphys-switch"
POLICIES = "/apis/tiphys.io/v1alpha1/namespaces/{}/schedulingpolicies"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What extenders of a test session are given."""

    nodes: list[SimulatedNode]
    readings: Path
    models: Path
    token_file: Path

    @property
    def pool(self) -> str:
        """The pool that all these nodes are in, and nobody else's."""
        return self.nodes[0].pool


def make_inputs(cluster: LocalCluster, count: int, pool: str) -> Inputs:
    """Simulated nodes, Ready, with readings and untrained weights for them; the CRD is installed."""
    for resource in RESOURCES:
        cluster.apply(render(of=resource))
    try:
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": OWN_NAMESPACE}})
    except RequestRefused as error:
        if error.reason != "AlreadyExists":
            raise
    nodes = fleet(count, pool=pool)
    create_nodes(cluster.api, nodes)
    names = {node.name for node in nodes}
    wait_until(lambda: names <= ready_nodes(cluster.api), 90, f"{count} simulated nodes Ready", poll_s=1.0)
    directory = cluster.options.run_dir / f"inputs-{pool}"
    directory.mkdir()
    readings, models, _ = write_inputs(Cell(tuple(nodes), 0, seed=3), directory)
    token_file = directory / "token"
    token_file.write_text(token_hex(16))
    return Inputs(nodes, readings, models, token_file)


@dataclass(frozen=True, slots=True)
class Lane:
    """A running pair of extender and scheduler, and a namespace for its pods."""

    cluster: LocalCluster
    namespace: str
    inputs: Inputs
    extender: Extender
    scheduler: Process

    def policy(self, mode: str = "Active", policy: str = "least-connections", name: str = "test", **spec: Any) -> None:
        """Create or change the SchedulingPolicy for all pods of the namespace, and wait until the extender obeys it."""
        wanted: dict[str, Any] = {"mode": mode, "policy": policy, **spec}
        if policy == "faasrank":
            wanted["model"] = MODEL
        body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": name}, "spec": wanted}
        path = f"{POLICIES.format(self.namespace)}/{name}"
        end = time.monotonic() + 30
        while True:
            try:
                self.cluster.api.request(
                    "PATCH",
                    path,
                    body,
                    content_type="application/apply-patch+yaml",
                    query={"fieldManager": "e2e", "force": "true"},
                )
                break
            except RequestRefused as error:
                if error.status != 404 or time.monotonic() > end:  # the API server does not serve a new kind at once
                    raise
                time.sleep(0.2)
        key = f"{self.namespace}/{name}"

        def obeyed() -> bool:
            routes = self.extender.explain("/v1/state")[1]["routes"]
            return any((r["policy"], r["mode"], r["policyName"]) == (key, mode, policy) for r in routes)

        wait_until(obeyed, 15, f"the extender obeys {key} in mode {mode} with {policy}")

    def make_pods(self, count: int, prefix: str = "pod", scheduler: str = SCHEDULER, **spec: Any) -> list[str]:
        """Create function pods on this pool's nodes; their names."""
        return make_pods(self.cluster, self.namespace, self.inputs.pool, count, prefix, scheduler, **spec)

    def placed(self, names: list[str], deadline_s: float) -> dict[str, str]:
        """Node of each of these pods, once all are bound."""
        return placed(self.cluster, self.namespace, names, deadline_s)

    def decisions(self, outcome: str = "") -> list[dict[str, Any]]:
        """What the extender's log holds of this namespace, oldest first."""
        headers = {"Authorization": f"Bearer {self.inputs.token_file.read_text()}"}
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            status, body = fetch(f"{self.extender.status_url}/v1/decisions?after={after}&limit=1000", 5.0, headers)
            assert status == 200, body
            page = orjson.loads(body)
            found += [d for d in page["items"] if d["namespace"] == self.namespace and outcome in ("", d["outcome"])]
            if not page["items"]:
                return found
            after = page["items"][-1]["seq"]


@contextmanager
def lane(
    cluster: LocalCluster,
    namespace: str,
    inputs: Inputs,
    *,
    settings: Mapping[str, str] | None = None,
    prometheus_url: str = "",
    http_timeout_s: float = 0.2,
) -> Iterator[Lane]:
    """Start both, wait until they are ready, end them afterwards."""
    options = ExtenderOptions(
        kubeconfig=cluster.kubeconfig,
        models_dir=inputs.models,
        readings_file=None if prometheus_url else inputs.readings,
        prometheus_url=prometheus_url,
        own_namespace=OWN_NAMESPACE,
        settings={"TOKEN_FILE": str(inputs.token_file), "READINGS_INTERVAL_S": "1", **(settings or {})},
    )
    extender = Extender.start(cluster.processes, options)
    try:
        extender.wait_ready()
        # the session's other nodes have no readings
        extender.wait_covered(0.9 if len(inputs.nodes) > 100 else 0.4)
        scheduler = cluster.start_scheduler(
            SchedulerOptions(name="e2e-tiphys", scheduler_name=SCHEDULER, extender_url=extender.url, http_timeout_s=http_timeout_s)
        )
        try:
            yield Lane(cluster, namespace, inputs, extender, scheduler)
        finally:
            cluster.stop_process("e2e-tiphys")
    finally:
        if cluster.processes.find("extender") is not None:
            extender.stop()


def make_pods(
    cluster: LocalCluster, namespace: str, pool: str, count: int, prefix: str = "pod", scheduler: str = SCHEDULER, **spec: Any
) -> list[str]:
    names = [f"{prefix}-{index:04d}" for index in range(count)]
    selector = {POOL_LABEL: pool, **spec.pop("nodeSelector", {})}

    def create(index: int) -> None:
        pod = {
            "metadata": {"name": names[index], "labels": {FUNCTION_LABEL: f"function-{index % 12:02d}"}},
            "spec": {
                "schedulerName": scheduler,
                "nodeSelector": selector,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "main", "image": "registry.example/f:1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
                ],
                **spec,
            },
        }
        cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    cluster.api.each(create, range(count))
    return names


def nodes_of(cluster: LocalCluster, namespace: str) -> dict[str, str]:
    """Node of every pod of a namespace; empty if it has none."""
    return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")}


def placed(cluster: LocalCluster, namespace: str, names: list[str], deadline_s: float) -> dict[str, str]:
    found: dict[str, str] = {}

    def all_bound() -> bool:
        found.update(nodes_of(cluster, namespace))
        return all(found.get(name) for name in names)

    wait_until(all_bound, deadline_s, f"{len(names)} pods of {namespace} bound", poll_s=0.3)
    return {name: found[name] for name in names}


def fullest_share(nodes: Mapping[str, str]) -> float:
    """Share of the pods that is on the fullest node."""
    return Counter(nodes.values()).most_common(1)[0][1] / len(nodes)


def retry_condition(what: Any) -> Any:
    """A condition for `wait_until` that counts a refused request as not yet."""

    def condition() -> bool:
        try:
            return bool(what())
        except RequestRefused:
            return False

    return condition

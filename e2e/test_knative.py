"""Knative's real queue-proxies, asked by an operator, scraped by a Prometheus, read by a binder: who is idle is known, and when it was so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from e2e.conftest import wait_until
from e2e.live import OWN_NAMESPACE, Inputs, Lane, make_inputs
from e2e.operators import OperatorProcess, grant
from e2e.queue_proxies import METRICS_PORT, QueueProxy
from e2e.test_binder import TOKEN, Binder
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.kube.prometheus import PrometheusClient, Provenance
from tiphys_models.placement.schema import IDLE_INSTANCES, idle_times_query
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import POOL_LABEL, delete_nodes
from tiphys_testbed.cluster.options import PrometheusOptions, ScrapeJob
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.prometheus import query
from tiphys_testbed.tools.toolbox import Toolbox

PROGRAM = Toolbox().find("knative-queue")
pytestmark = [
    pytest.mark.needs_local,
    pytest.mark.needs_kwok,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAM is None, reason="build it: tiphys tools build knative-queue"),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
FUNCTION, REVISION = "resize", "resize-00001"
SEEN_S = 30.0


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, 2, "knative")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


def start_instance(
    local: LocalCluster, namespace: str, name: str, node: str, directory: Path, stack: ExitStack, concurrency: int = 1
) -> QueueProxy:
    """A pod of a revision as Knative makes it, as far as anybody of ours reads it, and a queue-proxy at its address."""
    assert PROGRAM is not None
    proxy = stack.enter_context(QueueProxy(PROGRAM, namespace, REVISION, name, directory / f"{name}.log", concurrency))
    labels = {"serving.knative.dev/revision": REVISION, FUNCTION_LABEL: FUNCTION}
    containers = [
        {"name": "user-container", "image": "registry.example/resize:1"},
        {"name": "queue-proxy", "image": "registry.example/queue:1"},
    ]
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": containers, "terminationGracePeriodSeconds": 0},
    }
    local.api.create(path, pod)

    def ready() -> bool:
        conditions = local.api.get(f"{path}/{name}")["status"].get("conditions") or ()
        return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)

    wait_until(ready, 30, f"{name} is ready")
    address = {"status": {"podIP": proxy.address, "podIPs": [{"ip": proxy.address}]}}
    local.api.request("PATCH", f"{path}/{name}/status", address, content_type="application/merge-patch+json")
    return proxy


def start_binder(local: LocalCluster, namespace: str, inputs: Inputs, prometheus: str, directory: Path, stack: ExitStack) -> Binder:
    tenants = directory / "tenants.json"
    tenants.write_bytes(orjson.dumps({"tenants": [{"name": "platform", "token": TOKEN, "namespaces": [namespace]}]}))
    environment = {"TIPHYS_BINDER_TENANTS_FILE": str(tenants), "TIPHYS_BINDER_POOL": f"{POOL_LABEL}={inputs.pool}"}
    options = ExtenderOptions(
        name="binder",
        arguments=("binder",),
        kubeconfig=local.kubeconfig,
        prometheus_url=prometheus,
        own_namespace=OWN_NAMESPACE,
        settings={"TOKEN_FILE": str(inputs.token_file), "READINGS_INTERVAL_S": "1", "DEADLINE_MS": "500"},
    )
    process = Extender.start(ProcessTable(local.processes.run_dir, {**local.processes.environment, **environment}), options)
    stack.callback(process.stop)
    process.wait_ready()
    return Binder(Lane(local, namespace, inputs, process, process.process))


class Scene:
    """Everything from the queue-proxies to the binder."""

    def __init__(self, local: LocalCluster, inputs: Inputs, namespace: str, directory: Path, stack: ExitStack) -> None:
        settings = {"KNATIVE": "true", "KNATIVE_INTERVAL_S": "1"}
        kubeconfig = grant(local, namespace)
        self.operator = stack.enter_context(OperatorProcess(kubeconfig, namespace, directory / "operator.log", settings=settings))
        target = ScrapeJob("tiphys-operator", f"http://127.0.0.1:{self.operator.port}/metrics", {"namespace": namespace, "pod": "operator"})
        self.url = local.start_prometheus(PrometheusOptions(jobs=(target,), name="knative"))
        stack.callback(local.stop_process, "knative")
        self.binder = start_binder(local, namespace, inputs, self.url, directory, stack)
        self.binder.lane.policy(policy="warm-first")
        self.function, self.provenance = f"{namespace}/{FUNCTION}", Provenance(runtime={"job": "tiphys-operator"})

    def idle(self) -> tuple[dict[str, float], dict[str, float]]:
        """Idle instances of the function by node, and when they were so, as extender and binder ask."""

        async def asked() -> tuple[dict[str, dict[str, float]], dict[str, float]]:
            async with PrometheusClient(self.url, window_s=60, provenance=self.provenance) as client:
                return await client.idle_instances()

        counts, times = asyncio.run(asked())
        return counts.get(self.function, {}), times

    def warm_nodes(self) -> list[str]:
        """Nodes on which the binder sees an idle instance for a call: `warm-first` gives them more than 1,000."""
        answer = self.binder.place(FUNCTION)
        self.binder.post(f"/{answer['id']}/finished")
        return sorted(node["node"] for node in answer["nodes"] if node["raw"] > 1000)

    def settles(self, counts: dict[str, float], warm: list[str], what: str) -> None:
        wait_until(lambda: self.idle()[0] == counts, SEEN_S, f"{what}: Prometheus has {counts}")
        wait_until(lambda: self.warm_nodes() == warm, SEEN_S, f"{what}: the binder sees idle instances on {warm}")


def test_idle_instances_of_knative_are_known_while_they_are_idle_and_no_longer(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    node, other = inputs.nodes[1].name, inputs.nodes[0].name
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with ExitStack() as stack:
        scene = Scene(local, inputs, namespace, tmp_path, stack)
        assert scene.warm_nodes() == []
        first_stack = stack.enter_context(ExitStack())
        first = start_instance(local, namespace, f"{REVISION}-first", node, tmp_path, first_stack)
        second = start_instance(local, namespace, f"{REVISION}-second", node, tmp_path, stack)
        scene.settles({node: 2.0}, [node], "two idle instances")
        scraped = f"min by (node) (timestamp({IDLE_INSTANCES}))"
        (age,) = query(scene.url, f"{scraped} - on (node) ({idle_times_query('node', scene.provenance.runtime)})")
        assert 1.0 <= float(age["value"][1]) < 30.0, "it was asked before the scrape, about the second before"

        calls = [first.hold(), second.hold()]
        scene.settles({node: 0.0}, [], "both have a call in progress")
        first.holding.set()
        calls[0].join(10)
        scene.settles({node: 1.0}, [node], "one call has ended")
        # what the same queue-proxy tells Prometheus itself still shows a request in its queue: it cannot be used
        assert b"\nkn_serving_queue_depth{" in first.get("/metrics", METRICS_PORT)
        depth = next(line for line in first.get("/metrics", METRICS_PORT).splitlines() if line.startswith(b"kn_serving_queue_depth{"))
        assert depth.endswith(b" 1")

        first_stack.close()
        scene.settles({node: 0.0}, [], "one has died and the other is busy")
        assert scene.operator.metric('tiphys_operator_instances_asked_total{result="no-answer"}') >= 1
        second.holding.set()
        calls[1].join(10)
        scene.settles({node: 1.0}, [node], "the other is idle again")

        wide = start_instance(local, namespace, f"{REVISION}-wide", other, tmp_path, stack, concurrency=10)
        scene.settles({node: 1.0, other: 1.0}, sorted([node, other]), "one with room for ten calls has none")
        wide.hold()
        scene.settles({node: 1.0, other: 0.0}, [node], "it has a call in progress, and room that nobody counts")

        for name in (first.pod, second.pod):
            local.api.delete(f"{pods}/{name}", gracePeriodSeconds=0)
        scene.settles({node: 0.0, other: 0.0}, [], "both pods are deleted, though one still answers")
        scene.operator.stop()
        wait_until(lambda: scene.idle() == ({}, {}), SEEN_S, "nobody asks any more, and nothing is known")

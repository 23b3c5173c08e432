"""Calls placed over real HTTP by a binder that watches a real API server."""

import http.client
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e.conftest import wait_until
from e2e.live import OWN_NAMESPACE, SWITCH, Inputs, Lane, make_inputs, make_pods, nodes_of
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import POOL_LABEL, delete_nodes
from tiphys_testbed.cluster.processes import ProcessTable

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok]

NODES = 8
TOKEN = "the-token-of-the-platform"


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, NODES, "calls")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


@dataclass(frozen=True, slots=True)
class Binder:
    """A running binder, and how a platform asks it."""

    lane: Lane

    @property
    def process(self) -> Extender:
        return self.lane.extender

    def post(self, path: str = "", body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.process.port, timeout=10)
        try:
            content = b"" if body is None else orjson.dumps(body)
            connection.request("POST", f"/v1/placements{path}", content, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, orjson.loads(answer.read())
        finally:
            connection.close()

    def place(self, function: str = "f", **more: Any) -> dict[str, Any]:
        status, answer = self.post("", self.call(function, **more))
        assert status == 200, answer
        return answer  # type: ignore[no-any-return]

    def call(self, function: str = "f", **more: Any) -> dict[str, Any]:
        return {"namespace": self.lane.namespace, "function": function, "cpu": "100m", "memory": "128Mi", "selector": {}} | more

    def total(self, name: str, **labels: str) -> float:
        return self.process.metrics().total(f"tiphys_binder_{name}", **labels)


@contextmanager
def binder(
    cluster: LocalCluster,
    namespace: str,
    inputs: Inputs,
    directory: Path,
    ports: tuple[int, int, int] | None = None,
    **settings: str,
) -> Iterator[Binder]:
    tenants = directory / "tenants.json"
    tenants.write_bytes(orjson.dumps({"tenants": [{"name": "platform", "token": TOKEN, "namespaces": [namespace]}]}))
    own = {"TENANTS_FILE": str(tenants), "POOL": f"{POOL_LABEL}={inputs.pool}", **settings}
    environment = {f"TIPHYS_BINDER_{name}": value for name, value in own.items()}
    options = ExtenderOptions(
        name="binder",
        arguments=("binder",),
        kubeconfig=cluster.kubeconfig,
        models_dir=inputs.models,
        readings_file=inputs.readings,
        own_namespace=OWN_NAMESPACE,
        settings={"TOKEN_FILE": str(inputs.token_file), "READINGS_INTERVAL_S": "1", "DEADLINE_MS": "500"},
    )
    table = ProcessTable(cluster.processes.run_dir, {**cluster.processes.environment, **environment})
    process = Extender.start(table, options, ports)
    try:
        process.wait_ready()
        yield Binder(Lane(cluster, namespace, inputs, process, process.process))
    finally:
        process.stop()


def test_calls_that_come_together_are_spread_counted_explained_and_released(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    with binder(local, namespace, inputs, tmp_path) as platform:
        platform.lane.policy(policy="least-connections")
        with ThreadPoolExecutor(8) as threads:
            placed = list(threads.map(lambda index: platform.place(f"f{index % 3}", idempotencyKey=str(index)), range(4 * NODES)))
        assert Counter(answer["node"] for answer in placed) == {node.name: 4 for node in inputs.nodes}
        assert {(answer["outcome"], answer["policyName"], answer["candidates"]) for answer in placed} == {
            ("scored", "least-connections", NODES)
        }
        assert platform.post("", platform.call("f0", idempotencyKey="0")) == (200, placed[0])
        assert platform.post("", platform.call(), token="somebody-elses-token")[0] == 401
        assert platform.post("", platform.call() | {"namespace": "default"})[0] == 403
        wait_until(lambda: platform.total("open_placements") == 4 * NODES, 5, "open placements counted")
        decided = {d["uid"]: d for d in platform.lane.decisions("scored")}
        assert {answer["id"]: answer["node"] for answer in placed} == {uid: d["would"] for uid, d in decided.items()}
        with ThreadPoolExecutor(8) as threads:
            ended = list(threads.map(lambda answer: platform.post(f"/{answer['id']}/finished")[1], placed))
        assert all(answer["released"] for answer in ended)
        assert all(d["chosen"] == d["would"] for d in platform.lane.decisions("scored"))
        wait_until(lambda: platform.total("open_placements") == 0, 5, "all placements released")
        # what was released is free again: the next round is as even as the first
        assert set(Counter(platform.place()["node"] for _ in range(NODES)).values()) == {1}


def test_policy_mode_and_kill_switch_reach_calls_without_a_restart(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    with binder(local, namespace, inputs, tmp_path) as platform:
        seen = [platform.place()]
        for mode, policy in (("Off", "hashing"), ("Shadow", "greedy"), ("Active", "faasrank")):
            platform.lane.policy(mode, policy)
            if policy == "faasrank":
                platform.process.wait_covered(0.4)
            seen.append(platform.place())
        assert [(answer["outcome"], answer["reason"], answer["policyName"], answer["reserved"]) for answer in seen] == [
            ("neutral", "no-policy", "", False),
            ("neutral", "mode-off", "", False),
            ("neutral", "shadow", "greedy", False),
            ("scored", "", "faasrank", True),
        ]
        assert len(seen[-1]["modelDigest"]) == 64
        switch = {"metadata": {"name": "tiphys-switch"}, "data": {"enabled": "false"}}
        local.api.create(SWITCH.rpartition("/")[0], switch)
        try:
            wait_until(lambda: platform.place()["reason"] == "disabled", 10, "the kill switch reaches the binder")
        finally:
            local.api.delete(SWITCH)


def test_a_restart_loses_open_placements_says_so_and_learns_them_from_renewals(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    with binder(local, namespace, inputs, tmp_path) as platform:
        platform.lane.policy(policy="least-connections")
        open_before = [platform.place() for _ in range(NODES // 2)]
        ports = platform.process.ports
    with binder(local, namespace, inputs, tmp_path, ports) as platform:
        wait_until(lambda: platform.place()["reserved"], 10, "the policy is known again")
        for answer in open_before:
            status, body = platform.post(f"/{answer['id']}/renew")
            assert (status, body["error"]) == (404, "unknown-placement")
            report = {key: value for key, value in platform.call().items() if key != "selector"} | {"node": answer["node"]}
            status, body = platform.post(f"/{answer['id']}/renew", report)
            assert (status, body["relearnt"]) == (200, True)
        assert platform.total("placements_relearned_total") == len(open_before)
        # the nodes that hold relearnt calls are as full as the one placed since: the rest comes first
        busy = {answer["node"] for answer in open_before}
        new = {platform.place()["node"] for _ in range(NODES - len(busy) - 1)}
        assert new.isdisjoint(busy)


def test_leases_run_out_and_a_platform_may_choose_another_node(local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path) -> None:
    with binder(local, namespace, inputs, tmp_path, LEASE_S="2") as platform:
        platform.lane.policy(policy="least-connections")
        answer = platform.place()
        other = next(entry["node"] for entry in answer["nodes"] if entry["node"] != answer["node"])
        assert platform.post(f"/{answer['id']}/started", {"node": other})[1]["node"] == other
        assert platform.total("choices_total", result="other", mode="Active") == 1
        wait_until(lambda: platform.total("leases_expired_total") == 1, 10, "the lease ran out")
        status, body = platform.post(f"/{answer['id']}/renew")
        assert (status, body["error"]) == (404, "unknown-placement")


def test_the_pool_follows_node_labels_and_pods_of_the_tiphys_scheduler_on_it_are_noticed(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    gone = inputs.nodes[0].name

    def label(value: str) -> None:
        body = {"metadata": {"labels": {POOL_LABEL: value}}}
        local.api.request("PATCH", f"/api/v1/nodes/{gone}", body, content_type="application/merge-patch+json")

    with binder(local, namespace, inputs, tmp_path) as platform:
        platform.lane.policy(policy="least-connections")
        wait_until(lambda: platform.total("pool_nodes") == NODES, 10, "the pool is known")
        label("elsewhere")
        try:
            wait_until(lambda: platform.total("pool_nodes") == NODES - 1, 10, "a node left the pool")
            answer = platform.place(selector=None, candidates=[gone, inputs.nodes[1].name])
            assert (answer["node"], answer["outsidePool"]) == (inputs.nodes[1].name, 1)
            assert gone not in {platform.place()["node"] for _ in range(2 * NODES)}
        finally:
            label(inputs.pool)
        wait_until(lambda: platform.total("pool_nodes") == NODES, 10, "the node is back")
        assert platform.total("pool_nodes_of_both_doors") == 0
        make_pods(local, namespace, inputs.pool, 1, nodeName=inputs.nodes[2].name)
        wait_until(lambda: platform.total("pool_nodes_of_both_doors") == 1, 10, "a pod of our scheduler on the pool is noticed")
        assert set(nodes_of(local, namespace).values()) == {inputs.nodes[2].name}

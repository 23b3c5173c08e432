"""Whatever happens to the extender or to what it reads from, every pod is placed, and placed apart."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from e2e.broken import BrokenExtender, Deaf, wrong_answers
from e2e.conftest import wait_until
from e2e.live import Inputs, fullest_share, lane, make_inputs, make_pods, nodes_of, placed, retry_condition
from tiphys_cli.kube.kubeconfig import read_kubeconfig
from tiphys_testbed.bench.binds import BindWatch, middle_rate
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.counters import NodeCounters, NodeLoad
from tiphys_testbed.cluster.exporter import Exporter
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import delete_nodes
from tiphys_testbed.cluster.options import PrometheusOptions, SchedulerOptions

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

NODES = 120
BURST = 1000


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, NODES, "faults")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


def assert_spread(nodes: Mapping[str, str]) -> None:
    """Without an answer the default plugins decide. They do not shuffle equals then (since 1.35 only hosts of an answer get a random
    tie-breaker), so a node takes a few pods in a row; what must not happen is a herd."""
    counts = Counter(nodes.values())
    assert len(counts) >= len(nodes) / 4, counts.most_common(5)
    assert counts.most_common(1)[0][1] <= max(len(nodes) / 10, 3), counts.most_common(5)


def test_extender_down_every_pod_is_placed_and_spread(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with lane(local, namespace, inputs) as tiphys:
        tiphys.policy()
        tiphys.placed(tiphys.make_pods(5, "before"), 30)
        tiphys.extender.process.kill()
        nodes = tiphys.placed(tiphys.make_pods(100, "after"), 60)
        assert_spread(nodes)
        # a successor on the same address is asked again without anybody restarting the scheduler
        successor = Extender.start(
            local.processes,
            ExtenderOptions(
                name="extender-successor",
                kubeconfig=local.kubeconfig,
                models_dir=inputs.models,
                readings_file=inputs.readings,
                settings={"TOKEN_FILE": str(inputs.token_file)},
            ),
            tiphys.extender.ports,
        )
        try:
            successor.wait_ready()
            wait_until(lambda: successor.explain("/v1/state")[1]["routes"], 10, "the successor reads the policy")
            tiphys.placed(tiphys.make_pods(5, "again"), 30)
            assert successor.metrics().total("tiphys_extender_answers_total", outcome="scored") == 5
        finally:
            successor.stop()


def test_hung_extender_still_lets_4_pods_a_second_through(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with lane(local, namespace, inputs) as tiphys:
        tiphys.policy()
        tiphys.placed(tiphys.make_pods(5, "before"), 30)
        tiphys.extender.process.pause()
        try:
            with BindWatch(read_kubeconfig(local.kubeconfig), namespace, allow_bound=True) as watch:
                names = tiphys.make_pods(80, "hung")
                watch.wait(80, 60)
                rate = middle_rate(watch.times_s)
            nodes = tiphys.placed(names, 10)
        finally:
            tiphys.extender.process.send(signal.SIGCONT)
        assert rate >= 4.0, f"{rate:.2f} pods/s"
        assert_spread(nodes)


def test_while_packets_to_the_extender_are_dropped_4_pods_a_second_go_through(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    deaf = Deaf()
    try:
        local.start_scheduler(SchedulerOptions(name="e2e-deaf", scheduler_name="deaf", extender_url=deaf.url))
        try:
            with BindWatch(read_kubeconfig(local.kubeconfig), namespace, allow_bound=True) as watch:
                names = make_pods(local, namespace, inputs.pool, 80, scheduler="deaf")
                watch.wait(80, 60)
                rate = middle_rate(watch.times_s)
            nodes = placed(local, namespace, names, 10)
        finally:
            local.stop_process("e2e-deaf")
        assert not deaf.answers(), "packets are still dropped"
    finally:
        deaf.close()
    # each pod waits for its httpTimeout: without the extender there would be hundreds a second
    assert 4.0 <= rate <= 10.0, f"{rate:.2f} pods/s"
    assert_spread(nodes)


def test_malformed_answers_place_and_spread_every_pod(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    broken = BrokenExtender()
    try:
        options = SchedulerOptions(name="e2e-broken", scheduler_name="broken", extender_url=broken.url)
        local.start_scheduler(options)
        try:
            names = make_pods(local, namespace, inputs.pool, 130, scheduler="broken")
            nodes = placed(local, namespace, names, 60)
        finally:
            local.stop_process("e2e-broken")
    finally:
        broken.close()
    assert broken.given.keys() == wrong_answers(["a"]).keys()
    assert min(broken.given.values()) >= 8
    assert_spread(nodes)


def test_extender_killed_in_a_burst_leaves_all_bound_and_spread(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    plain = make_pods(local, namespace, inputs.pool, BURST, "plain", "default-scheduler")
    plain_share = fullest_share(placed(local, namespace, plain, 120))
    local.api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    wait_until(lambda: not nodes_of(local, namespace), 60, "the plain scheduler's pods are gone", poll_s=0.5)
    with lane(local, namespace, inputs) as tiphys:
        tiphys.policy()
        killed_at: list[int] = []

        def kill() -> None:
            tiphys.extender.process.kill()
            killed_at.append(len(watch.times_s))

        with BindWatch(read_kubeconfig(local.kubeconfig), namespace, ((250, kill),)) as watch:
            started = time.monotonic()
            names = tiphys.make_pods(BURST, "burst")
            nodes = tiphys.placed(names, 120)
            took_s = time.monotonic() - started
        assert killed_at, "the extender was never killed"
        assert 200 <= killed_at[0] <= 500
        assert took_s <= 120
        assert fullest_share(nodes) <= 2 * plain_share, f"plain: {plain_share}, {Counter(nodes.values()).most_common(3)}"


def test_api_server_restart_is_survived(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    # time enough for each answer: a busy machine must not make it neutral, this is about what is known after an outage
    with lane(local, namespace, inputs, settings={"DEADLINE_MS": "1000"}, http_timeout_s=2.0) as tiphys:
        tiphys.policy()
        tiphys.placed(tiphys.make_pods(5, "before"), 30)
        pid = tiphys.extender.process.pid
        local.restart_apiserver(downtime_s=3.0)
        wait_until(retry_condition(lambda: local.api.get("/api/v1/namespaces/default")), 30, "the API server answers")
        names = tiphys.make_pods(20, "after")
        tiphys.placed(names, 90)
        assert tiphys.extender.process.alive()
        assert tiphys.extender.process.pid == pid
        decided = {d["pod"]: (d["outcome"], d["reason"]) for d in tiphys.decisions() if d["pod"] in names}
        assert decided == dict.fromkeys(names, ("scored", ""))
        # and the watches go on: a change made now is obeyed
        tiphys.policy(policy="hashing")
        wait_until(
            lambda: all(d["chosen"] for d in tiphys.decisions("scored") if d["pod"] in names), 20, "binds after the restart are seen"
        )


def test_prometheus_gone_lets_the_fallback_decide(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    counters = {node.name: NodeCounters(node.machine.cores, node.machine.memory_bytes) for node in inputs.nodes}
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.5):
            for index, counter in enumerate(counters.values()):
                counter.advance(0.5, NodeLoad(busy_cores=(index % 8) / 4, memory_used_bytes=index * 1e7))

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    exporter = Exporter(counters).start()
    try:
        options = PrometheusOptions(node_urls=exporter.node_urls(), name="prometheus-faults")
        url = local.start_prometheus(options)
        settings = {"SCRAPE_WINDOW_S": "5"}
        with lane(local, namespace, inputs, prometheus_url=url, settings=settings) as tiphys:
            tiphys.policy(policy="faasrank", guardrails={"maxReadingAgeSeconds": 5})
            measured = tiphys.make_pods(5, "measured")
            tiphys.placed(measured, 30)
            assert {d["outcome"] for d in tiphys.decisions() if d["pod"] in measured} == {"scored"}
            local.stop_process("prometheus-faults")
            time.sleep(8)
            blind = tiphys.make_pods(20, "blind")
            nodes = tiphys.placed(blind, 30)
            outcomes = {(d["outcome"], d["reason"], d["policyName"]) for d in tiphys.decisions() if d["pod"] in blind}
            assert outcomes == {("fallback", "readings-missing", "warm-first")}
            assert len(set(nodes.values())) >= 10
            assert tiphys.extender.metrics().total("tiphys_extender_readings_errors_total", reason="unavailable") >= 1
    finally:
        done.set()
        ticker.join(5)
        exporter.stop()
        if local.processes.find("prometheus-faults") is not None:
            local.stop_process("prometheus-faults")

"""One object can spoil only itself: whatever it makes a sink trip over, the watch goes on, and a watch that trips starts again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders import node, pod, policy_object, request, state
from tests.extender.binder_harness import PLATFORM, Binder, node_object
from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.harness import Extender, connected, listening, pod_json
from tests.extender.test_watches import NODES, PODS, QUICK, bound_json, node_json, running
from tiphys_extender.placement.objects import PodSink, policy_objects
from tiphys_extender.serve.loops import DEAD_AFTER_S, Loops
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.watchdog import Watchdog
from tiphys_extender.status_app import Health, StatusTokens, make_status_app
from tiphys_extender.ticker import Ticker
from tiphys_extender.watches import POLICIES_PATH, Watches, watch_troubles
from tiphys_models.artifacts.directory import scan
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.guard import GuardedSink
from tiphys_models.serving.bearer import BearerTokens


class Tripping:
    """A sink that trips over what is named so, in a way that no list of errors foresees."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def put(self, obj: dict[str, Any]) -> None:
        if obj["metadata"]["name"] == "hostile":
            raise OverflowError("cannot convert float infinity to integer")
        self.taken.append(obj["metadata"]["name"])

    def drop(self, obj: dict[str, Any]) -> None:
        self.put(obj)

    def listed(self, uids: set[str]) -> None:
        raise RecursionError

    def __len__(self) -> int:
        return len(self.taken)


async def until(what: Callable[[], bool], within_s: float = 3.0) -> None:
    async with asyncio.timeout(within_s):
        while not what():  # noqa: ASYNC110 - caches have no event for everything a test may wait for
            await asyncio.sleep(0.01)


def named(name: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version}}


def test_any_error_of_a_put_a_drop_or_a_list_stays_with_the_object_and_is_said_once_a_version(caplog: pytest.LogCaptureFixture) -> None:
    metrics, sink = Metrics(), Tripping()
    guarded = GuardedSink("pods", sink, watch_troubles(metrics))
    with caplog.at_level(logging.WARNING):
        for step in (guarded.put, guarded.drop, guarded.put):
            step(named("hostile"))
        guarded.put(named("healthy"))
        assert len(caplog.records) == 1
        guarded.put(named("hostile", version="2"))
        assert len(caplog.records) == 2
        guarded.listed(set())
        guarded.put({})
    assert sink.taken == ["healthy"]
    assert metrics.registry.get_sample_value("tiphys_extender_watch_errors_total", {"kind": "pods", "reason": "bad-object"}) == 6
    fields = caplog.records[0].__dict__["fields"]
    assert {**fields, "error": ""} == {"kind": "pods", "object": "shop/hostile", "error": ""}
    assert fields["error"].startswith("OverflowError (test_blast_radius.py:")  # where, without the words: they may quote a pod


async def test_a_page_item_without_metadata_ends_no_watch() -> None:
    def prepare(api: FakeApi) -> None:
        api.objects[NODES]["/nobody"] = {"metadata": None}
        api.objects[PODS]["/nothing"] = None  # type: ignore[assignment]

    async with running(prepare) as run:
        await run.synced()
        assert run.nodes == {"n0", "n1"}
        assert run.extender.counted("watch_errors_total", kind="nodes", reason="bad-object") >= 1
        assert run.extender.counted("watch_errors_total", kind="pods", reason="bad-object") >= 1
        run.api.put(NODES, node_json("n2"))
        await run.until(lambda: "n2" in run.nodes)


class Mistaken(KubeClient):
    """A client whose lists of pods trip over a mistake of its own, three times."""

    mistakes = 3

    def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "application/json") -> AsyncGenerator[Any, None]:
        if path == PODS and self.mistakes:
            self.mistakes -= 1
            raise RuntimeError("nobody foresaw this")
        return super().pages(path, params, accept=accept)


async def test_a_watch_that_trips_unexpectedly_starts_again_and_the_others_never_notice() -> None:
    async with fake_api() as (api, access):
        api.put(NODES, node_json("n0"))
        api.put(POLICIES_PATH, policy_object(mode="Active", policy="least-connections"))
        extender = Extender(nodes=0, policies=[], clock=SystemClock())
        extender.world.synced = False
        async with Mistaken(access, request_timeout_s=2) as client:
            loops = Loops(extender.metrics, extender.clock, first_wait_s=0.02)
            watches = Watches(
                client, extender.world, extender.decisions, extender.metrics, extender.clock, "tiphys-switch", limits=QUICK, loops=loops
            )
            task = asyncio.create_task(watches.run())
            try:
                await until(lambda: extender.counted("loop_failures_total", loop="watch-pods") == 3)
                api.put(NODES, node_json("n1"))
                await until(lambda: set(extender.state.nodes.row_of) == {"n0", "n1"})
                api.put(PODS, bound_json("late", "n0"))
                await until(lambda: extender.state.pods == 1)
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def test_a_pod_that_cannot_be_read_counts_as_nothing_until_it_can_again() -> None:
    extender = Extender(nodes=1)
    sink = PodSink(extender.world, extender.decisions, extender.clock)
    guarded = GuardedSink("pods", sink, watch_troubles(extender.metrics))
    guarded.put(bound_json("a", "n0"))
    assert extender.state.nodes.cpu_requested_milli.sum() == 100
    unreadable = bound_json("a", "n0")
    unreadable["spec"]["containers"] = [None]
    guarded.put(unreadable)
    assert (extender.state.pods, extender.state.nodes.cpu_requested_milli.sum()) == (0, 0)
    guarded.put(bound_json("a", "n0"))
    assert extender.state.nodes.cpu_requested_milli.sum() == 100


def test_a_pod_whose_times_cannot_be_read_is_load_all_the_same() -> None:
    extender = Extender(nodes=1)
    sink = PodSink(extender.world, extender.decisions, extender.clock)
    strange = bound_json("a", "n0")
    strange["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": "0000-01-01T00:00:00Z"}]
    sink.put(strange)
    assert extender.state.pods == 1
    ancient = pod("b", node="n0", scheduled_s=-6e10, ready_s=1.0)
    extender.state.put_pod(ancient, 0.0)
    assert extender.state.init_time_s("default/f") == 3600  # nothing starts for two thousand years


def test_in_the_binder_too_a_pod_that_cannot_be_read_counts_as_nothing() -> None:
    binder = Binder(nodes=1)
    guarded = GuardedSink("pods", binder.pods, watch_troubles(binder.metrics))
    foreign = pod_json("p", spec={"nodeName": "n0"})
    guarded.put(foreign)
    assert binder.pool.touched_by_both() == 1
    guarded.put(foreign | {"spec": foreign["spec"] | {"containers": [None]}})
    assert binder.pool.touched_by_both() == 0
    nodes = GuardedSink("nodes", binder.nodes, watch_troubles(binder.metrics))
    nodes.put(node_object("n1") | {"status": {"allocatable": {"cpu": "many"}}})
    nodes.put(node_object("n2"))
    assert set(binder.state.nodes.row_of) == {"n0", "n2"}


def test_a_policy_that_trips_the_parser_keeps_its_last_valid_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    extender = Extender(nodes=1, policies=[])
    good = policy_object("p", mode="Active")
    extender.policies.put(good)

    def trip(obj: dict[str, Any]) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("tiphys_models.api.routing.parse_spec", trip)
        extender.policies.put(good)
    assert [route.name for route in extender.world.router] == ["p"]
    assert extender.counted("invalid_policies") == 1
    extender.policies.put(policy_object("q", mode="Shadow"))
    assert extender.counted("routes", mode="Shadow") == 1


async def test_probes_say_which_loop_stands_still() -> None:
    clock, metrics = ManualClock(), Metrics()
    loops = Loops(metrics, clock)
    loops.expect("ticker", 30, essential=True, fatal=True)
    loops.expect("readings", 30)
    extender = Extender(nodes=1)
    nobody = BearerTokens("NO_TOKEN_FILE")
    app = make_status_app(metrics, Health(lambda: (), loops), extender.decisions, extender.models, StatusTokens(nobody, nobody))
    async with listening(app) as port, connected(port) as connection:

        async def asked(path: str) -> tuple[int, str]:
            status, _, body = await connection.get(path)
            return status, body.decode()

        assert (await asked("/readyz"), await asked("/healthz")) == ((200, "ok"), (200, "ok"))
        clock.advance(31)
        loops.beat("ticker")
        assert await asked("/readyz") == (200, "ok")  # only the readings stand still: policies fall back, answers go on
        clock.advance(31)
        assert await asked("/readyz") == (503, "ticker has done nothing for 31 s")
        assert await asked("/healthz") == (200, "ok")
        _, exported = await asked("/metrics")
        assert 'tiphys_extender_loop_age_seconds{loop="ticker"} 31.0' in exported
        assert 'tiphys_extender_loop_age_seconds{loop="readings"} 62.0' in exported
        clock.advance(DEAD_AFTER_S)
        assert (await asked("/healthz"))[0] == 503
        loops.beat("ticker")
        assert (await asked("/readyz"), await asked("/healthz")) == ((200, "ok"), (200, "ok"))


async def test_a_loop_that_trips_is_counted_and_runs_again_after_a_growing_wait() -> None:
    metrics, tries = Metrics(), 0
    loops = Loops(metrics, SystemClock(), first_wait_s=0.01)

    async def job() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ArithmeticError

    async with asyncio.timeout(2):
        await loops.keep("streams", job)
    assert tries == 3
    assert metrics.registry.get_sample_value("tiphys_extender_loop_failures_total", {"loop": "streams"}) == 2


def test_a_file_that_trips_the_checks_of_artifacts_is_refused_and_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "huge.json").write_text('{"inputs": 1e999}')
    names, changed = scan(tmp_path, {})
    assert names == {"deep", "huge", "list"}
    assert all(isinstance(scanned.found, Exception) for scanned in changed)


def test_thousands_of_policies_cost_no_more_a_change_than_one() -> None:
    extender = Extender(nodes=1, policies=[])
    sink = policy_objects(extender.world, extender.metrics)
    objects = [policy_object(f"p{n}", namespace=f"ns{n % 40}", mode="Active") for n in range(4_000)]
    for obj in objects:
        sink.put(obj)
    assert extender.counted("routes", mode="Active") == 4_000
    assert len(list(extender.world.router)) == 4_000
    sink.put(policy_object("p7", namespace="ns7", mode="Shadow"))
    sink.drop(objects[8])
    assert (extender.counted("routes", mode="Active"), extender.counted("routes", mode="Shadow")) == (3_998, 1)
    assert len(list(extender.world.router)) == 3_999
    sink.listed(set())
    assert (len(sink), len(list(extender.world.router)), extender.counted("routes", mode="Active")) == (0, 0, 0)


def test_a_request_of_any_size_leaves_the_books_as_they_were() -> None:
    filled = state(2)
    filled.bound(pod("small", node="n0", cpu_milli=2_000, memory_bytes=2**30 + 1), 0.0)
    numbers = filled.nodes.numbers.copy()
    for cpu, memory in ((10**23, 10**30), (2**40, 2**50), (2**40 - 1, 2**50 - 1)):
        for uid in range(20):
            filled.bound(pod(f"huge-{uid}", node="n0", cpu_milli=cpu, memory_bytes=memory), 1.0)
            filled.decided(request(f"asked-{uid}", cpu_milli=cpu, memory_bytes=memory), "n0", 1.0)
        shown = filled.nodes.numbers
        assert (shown[filled.nodes.row_of["n0"]] <= 41 * 16 * 2**30).all()  # each counts as the whole node at most
        for uid in range(20):
            filled.finished(f"huge-{uid}")
            filled.finished(f"asked-{uid}")
        assert (filled.nodes.numbers == numbers).all()


def test_what_asks_for_more_than_its_node_is_counted_anew_when_the_node_grows() -> None:
    filled = state(1, cpu_milli=1_000, memory_bytes=2**30)
    filled.bound(pod("a", node="n0", cpu_milli=3_000, memory_bytes=2**32), 0.0)
    row = filled.nodes.row_of["n0"]
    assert (filled.nodes.cpu_requested_milli[row], filled.nodes.memory_requested[row]) == (1_000, 2**30)
    filled.put_node(node("n0", cpu_milli=8_000, memory_bytes=2**34))
    assert (filled.nodes.cpu_requested_milli[row], filled.nodes.memory_requested[row]) == (3_000, 2**32)
    filled.drop_node("n0")
    filled.put_node(node("n0", cpu_milli=2_000, memory_bytes=2**31))
    row = filled.nodes.row_of["n0"]
    assert (filled.nodes.cpu_requested_milli[row], filled.nodes.memory_requested[row]) == (2_000, 2**31)
    filled.finished("a")
    assert not filled.nodes.numbers[row, 2:].any()


def test_a_page_of_policies_takes_no_longer_among_thousands() -> None:
    extender = Extender(nodes=1, policies=[])
    sink = policy_objects(extender.world, extender.metrics)
    objects = [policy_object(f"p{n}", namespace=f"ns{n % 3}", mode="Active") for n in range(4_000)]
    for obj in objects[:3_500]:
        sink.put(obj)
    began_s = time.thread_time()
    for obj in objects[3_500:]:
        sink.put(obj)
    assert time.thread_time() - began_s < 0.4, "6 ms where nothing else runs; 2.2 s when every policy made the whole router anew"


def test_a_tenant_that_makes_up_functions_pushes_out_its_own() -> None:
    binder = Binder(nodes=2)
    binder.state.functions.most = 50
    for number in range(400):
        uid = f"call-{number:032x}"
        binder.report(uid, node="n0", namespace="default", function=f"made-up-{number}", cpu="100m", memory="1Mi")
        binder.placer.finished(PLATFORM, uid)
    assert binder.state.kept["functions"] == 50
    assert binder.inflight() == {}


async def test_gauges_and_counters_tell_what_is_kept_and_what_was_let_go() -> None:
    extender = Extender(nodes=1)
    extender.state.functions.most = 3
    ticker = Ticker(extender.world, extender.decisions, extender.metrics, extender.models, extender.answerer, Watchdog(1.0), extender.clock)
    for number in range(10):
        extender.state.put_pod(pod(f"u{number}", node="n0", function=f"a/f{number}"), 0.0)
        extender.state.finished(f"u{number}")
    for _ in range(2):
        await ticker.tick()
    assert extender.counted("kept_entries", store="functions") == 3
    assert extender.counted("evicted_entries_total", store="functions") == 7

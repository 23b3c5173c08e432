"""Readings from a Prometheus that misbehaves in every way one does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from tests.builders import request
from tests.extender.harness import Extender
from tiphys_extender.placement.readings import FixedReadings, PrometheusReadings, coverage, readings_from_file
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.base.errors import TiphysError
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.schema import COLUMN, NODE_READINGS
from tiphys_models.placement.snapshot import Snapshot, write_snapshot

LOAD = "node_load1"
PROFILE = FunctionProfile(2.34, 4.45, 18.72, 23.2, 8.0)


def vector(values: dict[str, Any], at_s: float | None = None) -> web.Response:
    """An instant vector; a list of values makes several series of one node."""
    result = [
        {"metric": {"node": node} if node else {}, "value": [at_s if at_s is not None else time.time(), str(value)]}
        for node, found in values.items()
        for value in (found if isinstance(found, list) else [found])
    ]
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


Answer = Callable[[str], web.StreamResponse]


@contextlib.asynccontextmanager
async def polling(answer: Answer, timeout_s: float = 2.0) -> AsyncGenerator[tuple[Extender, PrometheusReadings]]:
    """An extender with three nodes whose Prometheus answers queries as told."""

    async def query(request: web.Request) -> web.StreamResponse:
        found = answer((await request.post())["query"])  # type: ignore[arg-type]
        return await found if asyncio.iscoroutine(found) else found

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        extender = Extender(nodes=3, clock=SystemClock())
        async with PrometheusClient(f"http://127.0.0.1:{runner.addresses[0][1]}", window_s=5, timeout_s=timeout_s) as client:
            yield extender, PrometheusReadings(client, extender.state, extender.metrics, extender.clock, 5.0)
    finally:
        await runner.cleanup()


def reading(extender: Extender, node: str, feature: str = "cpu_load_avg") -> float:
    return float(extender.state.nodes.readings[extender.state.nodes.row_of[node], COLUMN[feature]])


async def test_readings_arrive_with_their_time() -> None:
    asked: list[str] = []

    def answer(query: str) -> web.Response:
        asked.append(query)
        return vector({} if "idle" in query else {"n0": 1.5, "n1": 2.5, "n2": 3.5})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        assert [reading(extender, f"n{i}") for i in range(3)] == [1.5, 2.5, 3.5]
        assert coverage(extender.state, time.time()) == 1.0
        assert coverage(extender.state, time.time() + 100) == 0.0
        assert abs(extender.counted("readings_timestamp_seconds") - time.time()) < 5
        assert len(asked) == len(NODE_READINGS) + 3
        assert 'rate(node_cpu_seconds_total{mode="user"}[5s])' in asked[0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [("NaN", "not-finite"), ("+Inf", "not-finite"), ("-3", "negative"), ("1e308", "too-large"), (["1", "2"], "duplicate-series")],
    ids=str,
)
async def test_a_sample_that_cannot_be_true_is_refused_and_counted(value: Any, reason: str) -> None:
    def answer(query: str) -> web.Response:
        bad = {"n0": value} if LOAD in query else {"n0": 1}
        return vector({} if "idle" in query else {**bad, "n1": 1})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        assert extender.counted("invalid_readings_total", feature="cpu_load_avg", reason=reason) == 1
        expected = 1.0 if reason == "duplicate-series" else np.nan
        assert reading(extender, "n0") == pytest.approx(expected, nan_ok=True)
        assert reading(extender, "n1") == 1.0


async def test_a_series_without_a_node_is_refused_and_one_of_an_unknown_node_left_out() -> None:
    def answer(query: str) -> web.Response:
        return vector({} if "idle" in query else {"": 1, "stranger": 2, "n0": 3})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        assert extender.counted("invalid_readings_total", feature="cpu_load_avg", reason="no-node-label") == 1
        assert reading(extender, "n0") == 3.0
        assert coverage(extender.state, time.time()) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "answer",
    [
        lambda query: web.Response(status=500, body=b"oops"),
        lambda query: web.Response(body=b"not json"),
        lambda query: web.json_response({"status": "error", "error": "x", "data": {}}),
        lambda query: web.json_response([1, 2]),
        lambda query: web.json_response({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": "x"}]}}),
    ],
    ids=["500", "not-json", "error", "array", "strange-value"],
)
async def test_a_broken_answer_keeps_the_last_readings_until_they_are_old(answer: Answer) -> None:
    broken = False

    def sometimes(query: str) -> web.StreamResponse:
        return answer(query) if broken else vector({} if "idle" in query else {"n0": 7})

    async with polling(sometimes) as (extender, readings):
        await readings.poll()
        broken = True
        await readings.poll()
        assert reading(extender, "n0") == 7.0
        assert extender.counted("readings_errors_total", reason="unavailable") == 1
        assert extender.counted("readings_errors_total", reason="idle-unavailable") == 1
        extender.state.expire(time.time() + 4000)
        assert np.isnan(reading(extender, "n0"))


async def test_call_profiles_reach_the_policies_and_a_broken_answer_keeps_the_last_ones() -> None:
    value = {"warm_seconds": 2.34, "cold_seconds": 4.45, "warm_core_seconds": 18.72, "cold_core_seconds": 23.2, "parallelism": 8.0}
    broken = False

    def answer(query: str) -> web.StreamResponse:
        if "call_profile" not in query:
            return vector({} if "idle" in query else {"n0": 1})
        if broken:
            return web.Response(status=500, body=b"oops")
        series = [("default/f", quantity, number) for quantity, number in value.items()]
        series += [("default/half", "warm_seconds", 1.0), ("", "parallelism", 1.0), ("default/f", "colour", 1.0)]
        result = [{"metric": {"function": f, "quantity": q}, "value": [time.time(), str(number)]} for f, q, number in series]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        broken = True
        await readings.poll()
        assert extender.state.profile("default/f") == PROFILE
        assert extender.state.profile("default/half") is None
        assert extender.counted("readings_errors_total", reason="profiles-unavailable") == 1


async def test_nothing_at_all_is_counted_and_harmless() -> None:
    async with polling(lambda query: vector({})) as (extender, readings):
        await readings.poll()
        assert extender.counted("readings_errors_total", reason="partly-missing") == 1
        assert coverage(extender.state, time.time()) == 0.0


async def test_a_clock_ahead_does_not_keep_readings_young_for_ever() -> None:
    ahead_s = time.time() + 3600
    async with polling(lambda query: vector({} if "idle" in query else {"n0": 7}, ahead_s)) as (extender, readings):
        await readings.poll()
        assert coverage(extender.state, time.time() + 61) == 0.0


async def test_a_slow_prometheus_does_not_delay_answers() -> None:
    async def slow(query: str) -> web.StreamResponse:
        await asyncio.sleep(5)
        return vector({})

    async with polling(slow, timeout_s=0.05) as (extender, readings):  # type: ignore[arg-type]
        poll = asyncio.create_task(readings.poll())
        took_s: list[float] = []
        while not poll.done():
            began_s = time.monotonic()
            extender.ask(f"u{len(took_s)}")
            took_s.append(time.monotonic() - began_s)
            await asyncio.sleep(0.002)
        await poll
        assert len(took_s) > 20, "a poll that held the loop would leave no room for questions"
        assert median(took_s) < 0.02, "the median: these machines stand still for up to 0.3 s now and then"
        assert extender.counted("readings_errors_total", reason="unavailable") == 1


async def test_idle_instances_count_as_warm_nodes() -> None:
    def answer(query: str) -> web.Response:
        if "timestamp" in query:
            return vector({"n1": time.time()})
        if "idle" not in query:
            return vector({"n0": 1, "n1": 1, "n2": 1})
        result = [{"metric": {"node": "n1", "function": "default/f"}, "value": [time.time(), "2"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    from tests.builders import policy_object

    async with polling(answer) as (extender, readings):
        extender.policies.put(policy_object("active", mode="Active", policy="warm-first"))
        await readings.poll()
        assert [extender.ask(f"u{i}")["n1"] for i in range(2)] == [10, 10]
        assert extender.ask("third")["n1"] < 10  # both idle instances are taken


def test_readings_of_a_file_count_as_fresh_for_ever(tmp_path: Path) -> None:
    clock = ManualClock()
    extender = Extender(nodes=2, clock=clock)
    write_snapshot(
        Snapshot(1.0, [], [], [], {"n0": [1.0] * 21, "n1": [None] * 20 + [2.0]}, {"default/f": {"n0": 3}}, {"default/f": PROFILE}),
        tmp_path / "s.json",
    )
    readings = FixedReadings(*readings_from_file(tmp_path / "s.json"), extender.state, extender.metrics, clock, 5.0)
    for _ in range(3):
        readings.put()
        assert coverage(extender.state, clock.now_s()) == 1.0
        clock.advance(5000)
        extender.state.expire(clock.now_s())
        assert coverage(extender.state, clock.now_s()) == 0.0
    assert extender.state.profile("default/f") == PROFILE


def test_a_file_without_readings_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_snapshot(Snapshot(1.0, [], [], []), tmp_path / "s.json")
    with pytest.raises(TiphysError, match="tiphys snapshot --prometheus"):
        readings_from_file(tmp_path / "s.json")


async def test_an_answer_that_trips_the_parser_spoils_neither_the_other_answers_nor_the_next_poll() -> None:
    strange = True

    def answer(query: str) -> web.StreamResponse:
        if "tiphys_runtime_idle_instances" in query:
            labels = {"node": "n0", "function": "default/f"}
            sample = {"metric": labels, "value": [time.time(), str(time.time()) if "timestamp" in query else "2"]}
            return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})
        if strange:
            return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [{"metric": ["n0"], "value": {}}]}})
        return vector({"n0": 1.5, "n1": 2.5, "n2": 3.5}) if LOAD in query else vector({})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        assert extender.state.kept["idle-functions"] == 1
        strange = False
        await readings.poll()
        assert extender.state.nodes.readings[extender.state.nodes.row_of["n1"], COLUMN["cpu_load_avg"]] == 2.5


async def test_a_clock_of_prometheus_that_runs_two_hours_ahead_makes_no_report_younger_than_it_is() -> None:
    ahead_s = 7200.0

    def answer(query: str) -> web.Response:
        there_s = time.time() + ahead_s
        if "timestamp" in query:
            return vector({"n1": there_s - 100, "n2": there_s - 1}, there_s)
        if "idle" not in query:
            return vector({"n0": 1, "n1": 1, "n2": 1}, there_s)
        result = [{"metric": {"node": node, "function": "default/f"}, "value": [there_s, "2"]} for node in ("n1", "n2")]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    async with polling(answer) as (extender, readings):
        await readings.poll()
        assert coverage(extender.state, time.time()) == 1.0
        extender.state.expire(time.time())
        idle = extender.state.view(request("u"), extender.state.nodes.rows(["n1", "n2"])).idle_instances
        assert idle.tolist() == pytest.approx([np.nan, 2.0], nan_ok=True), "the report of n1 is 100 s old"

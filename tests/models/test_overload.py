"""Caches and an API server that is slow, throttles or compacts: how often it is asked, and that nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.fast_time import LoopClock, run_fast
from tests.models.watched import NODES, Kept, Stormy, answering
from tests.operator.api_server import FakeApiServer, status
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube import unroute as unrouting
from tiphys_models.kube.backoff import RETRY_AFTER_MAX_S, Backoff, parse_retry_after, patiently
from tiphys_models.kube.client import ApiError
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_models.kube.reflector import Reflector

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


# ---- what a server may ask for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None), ("0", 0.0), ("7", 7.0), ("2.5", 2.5), ("-3", 0.0), ("99999999999", RETRY_AFTER_MAX_S), ("inf", RETRY_AFTER_MAX_S),
        ("nan", None), ("soon", None), ("", None), (format_datetime(NOW + timedelta(seconds=12), usegmt=True), 12.0),
        (format_datetime(NOW - timedelta(days=3), usegmt=True), 0.0), (format_datetime(NOW + timedelta(days=3), usegmt=True), RETRY_AFTER_MAX_S),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_and_never_more_than_a_minute(header: str | None, wanted: float | None) -> None:
    assert parse_retry_after(header, NOW.timestamp()) == wanted


@given(st.text(max_size=40))
def test_no_header_whatever_raises(header: str) -> None:
    found = parse_retry_after(header, NOW.timestamp())
    assert found is None or 0 <= found <= RETRY_AFTER_MAX_S


def test_pauses_double_with_jitter_up_to_a_limit_and_are_never_shorter_than_the_server_wants() -> None:
    backoff = Backoff(1.0, 30.0, random.Random(1))
    pauses = [backoff.next_s() for _ in range(8)]
    for pause, step in zip(pauses, (1, 2, 4, 8, 16, 30, 30, 30), strict=True):
        assert step / 2 <= pause <= step
    assert 30 <= backoff.next_s(ApiError(429, "TooManyRequests", "", retry_after_s=30.0)) <= 36
    backoff.reset()
    assert backoff.next_s() <= 1
    assert 5 <= backoff.next_s(ApiError(429, "TooManyRequests", "", retry_after_s=5.0)) <= 6


async def test_an_answer_says_how_long_its_server_wants_to_be_left_alone() -> None:
    async with FakeApiServer() as server, server.client() as client:

        async def throttle(_: web.Request) -> web.Response:
            return status(429, "TooManyRequests", **{"Retry-After": "17"})

        server.fault = throttle
        with pytest.raises(ApiError) as refused:
            await client.get(NODES)
        assert refused.value.retry_after_s == 17.0


def test_whoever_asks_patiently_waits_as_told_and_gives_up_in_time() -> None:
    async def asked(refusals: list[Unavailable], within_s: float) -> tuple[str, float]:
        began_s = asyncio.get_running_loop().time()

        async def ask() -> str:
            if refusals:
                raise refusals.pop(0)
            return "answer"

        try:
            said = await patiently(ask, within_s)
        except Unavailable as error:
            said = str(getattr(error, "status", "unreachable"))
        return said, asyncio.get_running_loop().time() - began_s

    throttled = ApiError(429, "TooManyRequests", "", retry_after_s=6.0)
    said, took_s = run_fast(asked([throttled, throttled], 20))
    assert (said, 12 <= took_s <= 15) == ("answer", True)
    said, took_s = run_fast(asked([throttled] * 9, 20))
    assert (said, took_s <= 20) == ("429", True)
    assert run_fast(asked([ApiError(403, "Forbidden", "")], 20))[0] == "403"
    assert run_fast(asked([Unavailable("gone"), Unavailable("gone")], 20))[0] == "answer"


# ---- storms, in a time that runs by itself ------------------------------------------------------------------------------


MOODS = (
    "compacts", "compacts-pages", "one-event-then-gone", "ends-at-once", "one-event-then-ends", "throttles", "fails", "slow", "silent",
)  # fmt: skip


@pytest.mark.parametrize("mood", MOODS)
def test_in_any_storm_a_watch_asks_a_few_times_a_minute_and_nothing_is_lost(mood: str) -> None:
    """A list is three pages here. Two lists never follow each other without a pause, but once."""
    server, sink = Stormy(), Kept()

    async def storm() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(Reflector(server, NODES, sink, LoopClock()).run())
        await asyncio.sleep(60)
        assert sink.names == server.names
        server.mood, began_s = mood, loop.time()
        for index in range(0, 900, 7):
            server.change(index)
        await asyncio.sleep(1800)
        calm_s = loop.time()
        server.mood = "calm"
        server.change(1100)
        await asyncio.sleep(120)  # a request under way may still take its minute, and the pause after it half of one
        assert not task.done()
        assert sink.names == server.names
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        stormy = [at_s - began_s for at_s in server.requests_s if began_s <= at_s < calm_s]
        return len([at_s for at_s in stormy if at_s < 60]), len(stormy)

    first_minute, requests = run_fast(storm())
    assert first_minute <= 40
    assert requests <= 40 + 1800 / 15 * 4  # pauses of 15 to 30 s, a list of three pages and a watch each
    gaps = [b - a for a, b in pairwise(server.lists_s)]
    assert sum(gap < 0.05 for gap in gaps) <= 1
    if mood in ("throttles", "ends-at-once", "one-event-then-ends"):
        assert len(server.lists_s) == 1  # nothing made a new one necessary


def test_the_first_too_old_of_a_sound_watch_costs_no_pause() -> None:
    server, sink = Stormy(), Kept()

    async def once() -> float:
        task = asyncio.create_task(Reflector(server, NODES, sink, LoopClock()).run())
        await asyncio.sleep(32)
        server.mood = "one-event-then-gone"
        await asyncio.sleep(300)
        server.mood = "calm"
        await asyncio.sleep(300)
        before = len(server.lists_s)
        server.mood = "compacts"
        await asyncio.sleep(6)
        refused_s = max(at_s for at_s in server.watches_s if at_s <= server.lists_s[before])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return server.lists_s[before] - refused_s

    assert run_fast(once()) < 0.05


def test_a_page_that_fails_is_asked_for_again_and_not_the_pages_before_it() -> None:
    server, sink = Stormy(), Kept()

    async def listed() -> None:
        task = asyncio.create_task(Reflector(server, NODES, sink, LoopClock()).run())
        await server.second_page.wait()
        server.mood = "throttles"
        await asyncio.sleep(80)
        server.mood = "calm"
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_fast(listed())
    assert len(sink.names) == 1200
    assert len(server.lists_s) == 1
    assert 4 <= len(server.pages_s) <= 7


def test_a_list_without_end_is_given_up() -> None:
    class Endless(Stormy):
        list_s = 100.0

        async def page(self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "") -> dict[str, Any]:
            self.pages_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
            return {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}

    errors: list[str] = []

    async def listed() -> None:
        reflector = Reflector(
            Endless(),
            NODES,
            Kept(),
            LoopClock(),
            on_error=lambda _, error: errors.append(str(error)),
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(150)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_fast(listed())
    assert any("took more than 100 s" in error for error in errors)


# ---- others who ask -----------------------------------------------------------------------------------------------------


async def test_a_throttled_candidate_waits_as_told_and_a_throttled_holder_keeps_its_lease() -> None:
    async with FakeApiServer() as server, server.client() as client:
        holder = Lease(client, LeaseOptions("n", "l", "a", duration_s=3.0, renew_s=2.0, retry_s=0.05), SystemClock())
        assert await holder.try_acquire_or_renew()
        candidate = Lease(client, LeaseOptions("n", "l", "b", duration_s=3.0, renew_s=2.0, retry_s=0.05), SystemClock())
        refused: list[float] = []

        async def throttle(_: web.Request) -> web.Response:
            refused.append(asyncio.get_running_loop().time())
            return status(429, "TooManyRequests", **{"Retry-After": "1"})

        server.fault = throttle
        waiting = asyncio.create_task(candidate.acquire())
        await asyncio.sleep(0.3)
        assert len(refused) == 1
        waiting.cancel()
        refused.clear()
        holding = asyncio.create_task(holder.hold())
        await asyncio.sleep(0.6)
        assert len(refused) <= 2
        server.fault = None
        await asyncio.sleep(0.5)
        assert holder.held
        assert not holding.done()
        holding.cancel()
        await asyncio.gather(holding, waiting, return_exceptions=True)


async def test_unroute_asks_a_throttling_api_server_again_and_reports_a_silent_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrouting, "_LIST_S", 0.1)
    refusals = 2

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal refusals
        if request.method == "DELETE":
            if refusals:
                refusals -= 1
                return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "0"})
            return web.json_response({})
        if request.path.endswith("/jobs"):
            return web.Response(text="<html>", content_type="text/html")
        return web.json_response({"metadata": {}, "items": []})

    async with answering(handle) as client:
        report = await unrouting.unroute(client)
    assert [ref.kind for ref in report.removed] == ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] * 2
    assert [problem.split(" ")[0] for problem in report.problems] == ["jobs"]

"""Caches and an API server that is slow, throttles or compacts: how often it is asked, and that nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.extender.fake_api import fake_api
from tests.fast_time import LoopClock, run_fast
from tests.operator.api_server import FakeApiServer, status
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube import client as kube
from tiphys_models.kube import unroute as unrouting
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.backoff import RETRY_AFTER_MAX_S, Backoff, parse_retry_after, patiently
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_models.kube.paging import Paging
from tiphys_models.kube.reflector import BadObject, Reflector

NODES = "/api/v1/nodes"
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Kept:
    """A sink that keeps names."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def put(self, obj: dict[str, Any]) -> None:
        self.names[obj["metadata"]["uid"]] = obj["metadata"]["name"]

    def drop(self, obj: dict[str, Any]) -> None:
        self.names.pop(obj["metadata"]["uid"], None)

    def listed(self, uids: set[str]) -> None:
        self.names = {uid: name for uid, name in self.names.items() if uid in uids}


def node(index: int, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": f"n{index}", "uid": f"u{index}", "resourceVersion": str(version)}}


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


class Stormy(Paging):
    """What a reflector asks of a client, from a server with 1,200 objects and a mood. Time is the loop's."""

    def __init__(self) -> None:
        self.version, self.objects = 10, {index: node(index) for index in range(1200)}
        self.mood = "calm"
        self.lists_s: list[float] = []
        self.pages_s: list[float] = []
        self.watches_s: list[float] = []
        self.second_page = asyncio.Event()
        self._events: list[dict[str, Any]] = []

    @property
    def requests_s(self) -> list[float]:
        return sorted(self.pages_s + self.watches_s)

    @property
    def names(self) -> dict[str, str]:
        return {obj["metadata"]["uid"]: obj["metadata"]["name"] for obj in self.objects.values()}

    def change(self, index: int) -> None:
        self.version += 1
        obj = node(index, self.version)
        gone = self.objects.pop(index, None) is not None
        if not gone:
            self.objects[index] = obj
        self._events.append({"type": "DELETED" if gone else "ADDED", "object": obj})

    async def page(self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "") -> dict[str, Any]:
        now_s = asyncio.get_running_loop().time()
        self.pages_s.append(now_s)
        if not token:
            self.lists_s.append(now_s)
        else:
            self.second_page.set()
        await self._refuse()
        if token and self.mood == "compacts-pages":
            raise ApiError(410, "Expired", "the continue token is too old")
        items = list(self.objects.values())
        start = int(token or 0)
        metadata = {"resourceVersion": str(self.version)} | ({"continue": str(start + 500)} if start + 500 < len(items) else {})
        return {"metadata": metadata, "items": items[start : start + 500]}

    async def watch(self, path: str, resource_version: str, **_: Any) -> AsyncGenerator[dict[str, Any], None]:
        self.watches_s.append(asyncio.get_running_loop().time())
        await self._refuse()
        if self.mood.startswith("compacts"):
            raise ApiError(410, "Expired", "too old resource version")
        if self.mood.startswith("one-event"):
            yield {"type": "BOOKMARK", "object": node(0, int(resource_version))}
        if self.mood == "one-event-then-gone":
            yield {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
        if self.mood.endswith(("at-once", "then-ends")):
            return
        sent = int(resource_version)
        while self.mood == "calm":
            for event in self._events:
                if (version := int(event["object"]["metadata"]["resourceVersion"])) > sent:
                    sent = version
                    yield event
            yield {"type": "BOOKMARK", "object": node(0, sent)}
            await asyncio.sleep(5)
        raise Unavailable("connection reset")

    async def _refuse(self) -> None:
        if self.mood == "throttles":
            raise ApiError(429, "TooManyRequests", "later", retry_after_s=30.0)
        if self.mood == "fails":
            raise ApiError(500, "InternalError", "etcd")
        if self.mood == "slow":
            await asyncio.sleep(30)
        if self.mood == "silent":
            await asyncio.sleep(60)
            raise Unavailable("no answer")


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


# ---- what comes over the wire -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(handle: Any, *, request_timeout_s: float = 1.0) -> AsyncGenerator[KubeClient, None]:
    """A client of a server with one handler."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        access = ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
        async with KubeClient(access, request_timeout_s=request_timeout_s) as client:
            yield client
    finally:
        await runner.cleanup()


async def streamed(request: web.Request, parts: Any) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        async for part in parts:
            await response.write(part)
    return response


async def first_error(client: KubeClient, *, stall_s: float = 0.3, server_timeout_s: int = 1) -> str:
    events = client.watch(NODES, "1", server_timeout_s=server_timeout_s, stall_s=stall_s)
    try:
        async with asyncio.timeout(4), contextlib.aclosing(events):
            async for _ in events:
                pass
    except Unavailable as error:
        return str(error)
    return ""


async def test_a_watch_that_drips_and_never_ends_an_event_is_a_dead_one() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes, None]:
            while True:
                yield b" "
                await asyncio.sleep(0.05)

        return await streamed(request, parts())

    async with answering(drip) as client:
        assert "no whole event" in await first_error(client)


async def test_an_event_without_end_is_refused_before_it_fills_the_memory() -> None:
    sent = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes, None]:
            nonlocal sent
            while True:
                yield b"x" * 2**20
                sent += 2**20

        return await streamed(request, parts())

    async with answering(pour) as client:
        assert "more than" in await first_error(client, stall_s=3)
    assert sent < 4 * kube.MAX_LINE_BYTES


@pytest.mark.parametrize("line", [b"[]", b"3", b"null", b'"text"', b"<html>", b"\xff\xfe", b'{"type":'])
async def test_a_line_that_is_no_event_is_an_error_and_no_crash(line: bytes) -> None:
    async def garbage(request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes, None]:
            yield line + b"\n"

        return await streamed(request, parts())

    async with answering(garbage) as client:
        assert await first_error(client)


async def test_a_watch_has_an_end_even_where_the_server_keeps_it_open() -> None:
    async def bookmarks(request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes, None]:
            while True:
                yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}\n'
                await asyncio.sleep(0.05)

        return await streamed(request, parts())

    async with answering(bookmarks) as client:
        began_s = asyncio.get_running_loop().time()
        assert await first_error(client, stall_s=0.3, server_timeout_s=1)
        assert asyncio.get_running_loop().time() - began_s < 4


async def test_a_page_that_drips_has_a_deadline() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes, None]:
            while True:
                yield b" "
                await asyncio.sleep(0.02)

        return await streamed(request, parts())

    async with answering(drip, request_timeout_s=0.2) as client:
        async with asyncio.timeout(3):
            with pytest.raises(Unavailable):
                await client.page(NODES)


async def test_pages_are_as_long_as_a_good_size_to_parse_holds_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "PAGE_BYTES", 50_000)
    limits, sizes = await _paged()
    assert limits[0] == 50
    assert max(sizes[1:]) <= 55_000
    assert max(limits[1:]) < 25


async def test_a_page_too_large_is_asked_for_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may make hundreds of objects as large as can be: a page of 500 would be 125 MB of annotations."""
    monkeypatch.setattr(kube, "_LARGE_PAGE_BYTES", 20_000)
    limits, _ = await _paged()
    assert limits[:2] == [50, 6]


async def _paged() -> tuple[list[int], list[int]]:
    """How many of 300 objects of 2.4 kB were asked for with each page, and the bytes of the answers."""
    items = [{**node(index), "annotations": "x" * 2_000} for index in range(300)]
    limits: list[int] = []
    sizes: list[int] = []

    async def page(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        limits.append(limit)
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        answer = web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": items[start : start + limit]})
        sizes.append(len(answer.body or b""))  # type: ignore[arg-type]
        return answer

    async with answering(page) as client:
        found = [item async for one in client.pages(NODES) for item in one["items"]]
    assert [item["metadata"]["name"] for item in found] == [f"n{index}" for index in range(300)]
    return limits, sizes


@pytest.mark.parametrize(
    "answer", ["[]", "null", "3", '{"items": []}', '{"metadata": null, "items": []}', '{"metadata": {}, "items": {"a": 1}}']
)
async def test_an_answer_that_is_no_list_is_an_error_and_no_crash(answer: str) -> None:
    async def strange(_: web.Request) -> web.Response:
        return web.Response(text=answer, content_type="application/json")

    async with answering(strange) as client:
        with pytest.raises(Unavailable, match="no list"):
            await client.page(NODES)


@pytest.mark.parametrize(
    "strange",
    [None, 3, [], {}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": "x"}}, {"metadata": {"uid": 7, "name": "x"}}],
    ids=str,
)
async def test_an_object_without_a_name_is_left_out_of_list_and_watch_and_told_of(strange: Any) -> None:
    class One(Stormy):
        async def page(self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "") -> dict[str, Any]:
            return {"metadata": {"resourceVersion": "5"}, "items": [node(1), strange, node(2)]}

        async def watch(self, path: str, resource_version: str, **_: Any) -> AsyncGenerator[dict[str, Any], None]:
            yield {"type": "ADDED", "object": strange}
            yield {"type": "DELETED", "object": strange}
            yield {"type": "ADDED", "object": node(3, 8)}
            await asyncio.sleep(60)

    sink, errors = Kept(), list[Unavailable]()
    task = asyncio.create_task(Reflector(One(), NODES, sink, SystemClock(), on_error=lambda _, error: errors.append(error)).run())
    async with asyncio.timeout(2):
        while "u3" not in sink.names:
            assert not task.done()
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(sink.names) == ["u1", "u2", "u3"]
    assert {type(error) for error in errors} == {BadObject}


async def test_an_error_event_with_a_strange_code_is_an_error_like_any() -> None:
    reflector = Reflector(Stormy(), NODES, Kept(), SystemClock())
    for event in ({}, {"type": "ERROR"}, {"type": "ERROR", "object": []}, {"type": 4}, {"type": "ERROR", "object": {"code": "many"}}):
        with pytest.raises(ApiError) as error:
            reflector._take(event)
        assert error.value.status == 500


async def test_through_real_sockets_a_storm_of_compactions_is_paused_for() -> None:
    async with fake_api() as (api, access), KubeClient(access, request_timeout_s=2) as client:
        for index in range(3):
            api.put(NODES, {"metadata": {"name": f"n{index}"}})
        api.faults[NODES] = [None, *[410] * 400]
        sink = Kept()
        task = asyncio.create_task(Reflector(client, NODES, sink, SystemClock()).run())
        await asyncio.sleep(1.2)
        assert len(sink.names) == 3
        assert len(api.queries) <= 14
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


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
    assert [ref.kind for ref in report.removed] == ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"]
    assert [problem.split(" ")[0] for problem in report.problems] == ["jobs"]

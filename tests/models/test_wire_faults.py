"""What comes over the wire of an API server that drips, never ends, or says what is no answer: an error, and no crash."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from aiohttp import web

from tests.extender.fake_api import fake_api
from tests.models.watched import NODES, Kept, Stormy, answering, node
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube import client as kube
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.reflector import BadObject, Reflector


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

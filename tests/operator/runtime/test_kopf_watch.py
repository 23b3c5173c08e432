from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.operator.api_server import FakeApiServer, Fault, status
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.kube.access import ApiAccess
from tiphys_operator import app
from tiphys_operator.runtime.kopf_watch import KopfWatch, SeenVersions
from tiphys_operator.settings import Settings


def obj(uid: str = "u", version: str = "1", generation: int = 1, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": version, "generation": generation} | metadata}


def test_new_changed_and_deleted_policies_wake_but_a_new_status_does_not() -> None:
    seen = SeenVersions(ManualClock())
    assert seen.event(None, obj())
    assert not seen.event("MODIFIED", obj(version="2"))
    assert seen.event("MODIFIED", obj(version="3", generation=2))
    assert seen.event("MODIFIED", obj(version="4", generation=2, deletionTimestamp="now"))
    assert seen.event("DELETED", obj(version="5"))
    assert seen.event("ADDED", obj(version="6"))


def test_a_watch_that_keeps_up_is_never_dead_however_quiet() -> None:
    clock = ManualClock()
    seen = SeenVersions(clock)
    seen.event(None, obj(version="5"))
    for _ in range(100):
        seen.listed({"u": "5"})
        clock.advance(30)
        assert not seen.dead()


def test_a_watch_that_misses_what_lists_show_is_dead_after_its_grace() -> None:
    clock = ManualClock()
    seen = SeenVersions(clock, grace_s=120)
    seen.event(None, obj(version="5"))
    seen.listed({"u": "6"})
    clock.advance(119)
    seen.listed({"u": "6"})
    assert not seen.dead()
    clock.advance(2)
    seen.listed({"u": "6"})
    assert seen.dead()
    seen.event("MODIFIED", obj(version="6"))
    seen.listed({"u": "6"})
    assert not seen.dead()


def test_one_object_that_does_not_come_proves_nothing_while_others_do() -> None:
    clock = ManualClock()
    seen = SeenVersions(clock, grace_s=120)
    seen.listed({"u": "6", "v": "7"})
    for version in range(20):
        clock.advance(60)
        seen.event("MODIFIED", obj("v", version=str(version)))
        seen.listed({"u": "6", "v": str(version)})
        assert not seen.dead()
    clock.advance(121)
    assert not seen.dead(), "nothing was missed since"
    seen.listed({"u": "6", "v": "21"})
    clock.advance(121)
    assert seen.dead()


def test_an_object_that_changes_all_the_time_does_not_make_a_late_watch_dead() -> None:
    clock = ManualClock()
    seen = SeenVersions(clock, grace_s=120)
    for version in range(20):
        seen.listed({"u": str(version)})
        clock.advance(60)
        seen.event("MODIFIED", obj(version=str(version)))
        assert not seen.dead()


class Watching:
    """A KopfWatch on a fake API server, and the names it delivered."""

    def __init__(self, server: FakeApiServer, inactivity_s: float = 0.5, access: ApiAccess | None = None) -> None:
        self.server = server
        self.names: list[str] = []
        self.types: list[str | None] = []
        self.watch = KopfWatch(
            access or server.access,
            asyncio.get_running_loop(),
            self._take,
            inactivity_s=inactivity_s,
            retry_delays_s=(0.1,),
            reconnect_s=0.1,
        )

    def _take(self, kind: str | None, found: Mapping[str, Any]) -> None:
        self.types.append(kind)
        self.names.append(found["metadata"]["name"])

    async def until(self, condition: Callable[[], bool], deadline_s: float = 20.0) -> None:
        async with asyncio.timeout(deadline_s):
            while not condition():  # noqa: ASYNC110 - the fake server's log is a plain list
                await asyncio.sleep(0.02)


@pytest.fixture
async def watching() -> AsyncIterator[Watching]:
    async with FakeApiServer() as server:
        made = Watching(server)
        made.watch.start()
        yield made
        await made.watch.stop()


def watches(server: FakeApiServer) -> int:
    return sum("watch=true" in path for _, path in server.requests)


def lists(server: FakeApiServer) -> int:
    return sum("/schedulingpolicies" in path and "watch=true" not in path for _, path in server.requests)


async def test_it_delivers_what_is_there_and_what_comes_and_writes_nothing(watching: Watching) -> None:
    watching.server.add_policy("early")
    await watching.until(lambda: "early" in watching.names)
    await watching.until(lambda: watches(watching.server) > 0)
    watching.server.add_policy("late")
    await watching.until(lambda: "late" in watching.names)
    assert watching.server.writes == []
    assert {method for method, _ in watching.server.requests} == {"GET"}


async def test_a_silent_watch_is_opened_again(watching: Watching) -> None:
    await watching.until(lambda: watches(watching.server) >= 3)
    assert not watching.watch.ended.done()


async def test_a_watch_error_410_is_answered_with_a_new_list(watching: Watching) -> None:
    await fail_watches(watching, 410)
    before = lists(watching.server)
    await watching.until(lambda: lists(watching.server) > before)
    watching.server.fault = None
    watching.server.add_policy("after")
    await watching.until(lambda: "after" in watching.names)
    assert not watching.watch.ended.done()


async def test_what_vanished_while_its_watch_was_down_kopf_never_tells(watching: Watching) -> None:
    """Why it wakes and feeds no store: should this ever fail, ADR 5 has one reason less."""
    watching.server.add_policy("early")
    await watching.until(lambda: "early" in watching.names)
    await fail_watches(watching, 410)
    del watching.server.policies["default", "early"]
    before = lists(watching.server)
    await watching.until(lambda: lists(watching.server) > before + 1)
    watching.server.fault = None
    watching.server.add_policy("after")
    await watching.until(lambda: "after" in watching.names)
    assert "DELETED" not in watching.types, "a list is told object by object, and its end not at all"


async def test_a_watch_error_500_ends_kopf_so_that_the_process_ends_too(watching: Watching) -> None:
    await fail_watches(watching, 500)
    await watching.until(watching.watch.ended.done)
    with pytest.raises(Exception, match="500"):
        watching.watch.ended.result()


async def test_a_rotated_token_is_taken_without_a_restart(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    valid = "Bearer one"

    async def authenticate(request: web.Request) -> web.Response | None:
        return None if request.headers.get("Authorization") == valid else status(401, "Unauthorized")

    async with FakeApiServer() as server:
        server.fault = authenticate
        watching = Watching(server, inactivity_s=0.5, access=ApiAccess(server.url, None, token_file=token))
        watching.watch.start()
        try:
            server.add_policy("early")
            await watching.until(lambda: "early" in watching.names)
            valid = "Bearer two"
            token.write_text("two")
            server.add_policy("late")
            await watching.until(lambda: "late" in watching.names)
            assert not watching.watch.ended.done()
        finally:
            await watching.watch.stop()


async def test_a_connection_cut_in_the_middle_is_opened_again(watching: Watching) -> None:
    cut = 0

    async def reset(request: web.Request) -> web.StreamResponse | None:
        nonlocal cut
        if "watch" not in request.query or cut >= 2:
            return None
        cut += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "ADD')
        assert request.transport is not None
        request.transport.abort()
        return response

    watching.server.fault = reset
    await watching.until(lambda: cut == 2)
    watching.server.add_policy("after")
    await watching.until(lambda: "after" in watching.names)
    assert not watching.watch.ended.done()


@pytest.mark.parametrize(
    "kinds", [("/schedulingpolicies",), ("/schedulingpolicies", "/learnedmodels")], ids=["of one kind", "of every kind"]
)
async def test_a_refused_watch_ends_kopf(kinds: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: web.Request) -> web.Response | None:
        return status(403, "Forbidden") if "watch" in request.query and request.path.endswith(kinds) else None

    await expect_forbidden_end(refuse, caplog)


async def test_a_refused_watch_ends_kopf_while_another_waits_for_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def refuse(request: web.Request) -> web.Response | None:
        if "watch" not in request.query:
            return None
        if request.path.endswith("/learnedmodels"):
            asked.set()
            await asyncio.sleep(60)  # longer than anybody waits: whoever asked goes first
        await asked.wait()
        return status(403, "Forbidden")

    await expect_forbidden_end(refuse, caplog)


async def expect_forbidden_end(fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """kopf ends for the refusal, and nothing of it is left."""
    async with FakeApiServer() as server:
        server.fault = fault
        watching = Watching(server, inactivity_s=5)
        watching.watch.start()
        try:
            await watching.until(watching.watch.ended.done)
            assert "Forbidden" in repr(watching.watch.ended.exception())
        finally:
            await watching.watch.stop()
    assert "did not stop" not in caplog.text


async def fail_watches(watching: Watching, code: int) -> None:
    """From now on every watch starts with an ERROR event."""
    await watching.until(lambda: watches(watching.server) > 0)

    async def error(request: web.Request) -> web.StreamResponse | None:
        if "watch" not in request.query:
            return None
        event = {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "Trouble", "message": f"{code} on purpose"}}
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps(event).encode() + b"\n")
        return response

    watching.server.fault = error


HOSTILE_METADATA: dict[str, dict[str, Any]] = {
    "a framework's own note that is no JSON": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{not json"}},
    "a note that is JSON of another kind": {"annotations": {"kopf.zalando.org/last-handled-configuration": "[1]"}},
    "a note on progress": {"annotations": {"kopf.zalando.org/on_object": "null", "kopf.zalando.org/touch-dummy": "x"}},
    "no labels, no annotations": {"labels": None, "annotations": None},
    "large annotations": {"annotations": {"a": "x" * 250_000}},
    "finalizers and owners": {"finalizers": ["kopf.zalando.org/KopfFinalizerMarker"], "ownerReferences": [{}]},
}


@pytest.mark.parametrize("name", HOSTILE_METADATA)
async def test_whatever_stands_in_an_objects_metadata_it_is_delivered_like_any_other(watching: Watching, name: str) -> None:
    await watching.until(lambda: watches(watching.server) > 0)
    hostile = watching.server.add_policy("hostile")
    watching.server.watch_log[-1][1]["metadata"] |= HOSTILE_METADATA[name]
    hostile["metadata"] |= HOSTILE_METADATA[name]
    await watching.until(lambda: "hostile" in watching.names, 5.0)
    watching.server.add_policy("healthy")
    await watching.until(lambda: "healthy" in watching.names, 5.0)
    assert watching.server.writes == []


class Woken:
    """A reconciler as far as the watch knows it."""

    def __init__(self) -> None:
        self.count = 0

    def wake(self) -> None:
        self.count += 1


@pytest.mark.parametrize("how", ["error-500", "gone"])
async def test_a_watch_that_ends_is_made_again_and_ends_nothing_else(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_WATCH_AGAIN_S", 0.05)
    failing = True

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if not failing or "watch" not in request.query:
            return None
        if how == "gone":
            return status(410, "Expired")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "Trouble", "message": "etcd"}}\n')
        return response

    async with FakeApiServer() as server:
        server.fault = fault
        operator = app.Operator(Settings(namespace="tiphys-system"), server.access, SystemClock())
        reconciler = Woken()

        def ended() -> float:
            return operator._metrics.registry.get_sample_value("tiphys_operator_errors_total", {"reason": "watch-ended"}) or 0.0

        async with operator._client:
            task = asyncio.create_task(operator._watch(reconciler))  # type: ignore[arg-type]
            try:
                async with asyncio.timeout(15):
                    while ended() < 2:  # noqa: ASYNC110 - a metric is a plain number
                        await asyncio.sleep(0.02)
                    failing = False
                    server.add_policy("after")
                    while not reconciler.count:  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0.02)
                assert not task.done()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

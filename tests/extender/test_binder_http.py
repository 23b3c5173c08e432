"""The binder's HTTP: who may call, what is refused and how, and what a retry gets."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.extender.binder_harness import OTHER_TOKEN, TOKEN, Binder, Caller, call, calling, open_to_callers, tenants_file
from tests.extender.harness import connected
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.calls.replies import Replies
from tiphys_extender.calls.requests import PlaceCall
from tiphys_extender.serve.refused import REASONS
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenants
from tiphys_models.base.errors import InvalidInput

NEXT_TOKEN = "the-next-token-of-the-platform"


async def test_a_placement_from_first_call_to_last(tmp_path: Path) -> None:
    binder = Binder(nodes=3)
    async with calling(binder, tmp_path) as caller:
        status, placed = await caller.post("", call())
        assert (status, placed["outcome"], placed["reserved"], placed["leaseSeconds"]) == (200, "scored", True, 60)
        assert [entry["score"] for entry in placed["nodes"]] == [10, 9, 4]
        path = f"/{placed['id']}"
        assert (await caller.post(f"{path}/started", json.dumps({"node": placed["node"]}).encode()))[0] == 200
        assert (await caller.post(f"{path}/renew"))[1] == {
            "id": placed["id"],
            "node": placed["node"],
            "relearnt": False,
            "leaseSeconds": 60,
        }
        status, _, explained = await caller.send("GET", path)
        assert (status, explained["open"], explained["chosen"]) == (200, True, placed["node"])
        assert await caller.post(f"{path}/finished") == (200, {"id": placed["id"], "released": True})
        assert await caller.post(f"{path}/finished") == (200, {"id": placed["id"], "released": False})
    assert binder.inflight() == {}
    assert binder.counted("requests_total", code="200") == 6


@pytest.mark.parametrize("given", ["", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff\xfe"], ids=repr)
async def test_without_a_known_token_nothing_is_read_or_said(tmp_path: Path, given: str) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        status, headers, body = await caller.send("POST", "", b"not even JSON", Authorization=given)
        assert (status, headers["www-authenticate"], body["error"]) == (401, "Bearer", "unauthorised")
    assert binder.counted("bad_requests_total", reason="unauthorised") == 1
    assert binder.decisions.last == 0


async def test_a_token_is_good_for_its_own_namespaces(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        _, placed = await caller.post("", call())
        stranger = Caller(caller.connection, OTHER_TOKEN)
        assert (await stranger.post("", call()))[0] == 403
        status, _, body = await stranger.send("GET", f"/{placed['id']}")
        assert (status, body["error"]) == (404, "unknown-placement")
        assert (await stranger.post(f"/{placed['id']}/renew"))[0] == 404
        assert (await stranger.post("", call(namespace="elsewhere")))[1]["reason"] == "no-policy"


@pytest.mark.parametrize(
    ("body", "status", "error", "said"),
    [
        (b"{", 400, "not-json", "JSON"),
        (b"[]", 400, "not-an-object", "object"),
        (call(function=None), 422, "invalid", "function"),
        (call(function="a/b"), 422, "invalid", "function"),
        (call(namespace="No"), 422, "invalid", "namespace"),
        (call(cpu="many"), 422, "invalid", "cpu"),
        (call(cpu=True), 422, "invalid", "cpu"),
        (call(cpu="1e400"), 422, "invalid", "cpu"),
        (call(memory=-1), 422, "invalid", "memory"),
        (call(memory="9" * 33), 422, "invalid", "memory"),
        (call(limit=0), 422, "invalid", "limit"),
        (call(labels={"a b": "c"}), 422, "invalid", "labels"),
        (call(selector=None), 422, "invalid", "candidates or selector"),
        (call(candidates=["n0"]), 422, "invalid", "candidates or selector"),
        (call(selector=None, candidates=[]), 422, "invalid", "candidates"),
        (call(selector=None, candidates=["N 0"]), 422, "invalid", "candidates"),
        (call(selector={"matchLabel": {"a": "b"}}), 422, "invalid", "selector.matchLabel"),
        (call(environment={"PASSWORD": "hunter2-in-env"}), 422, "invalid", "environment"),
        (call(idempotencyKey="k" * 129), 422, "invalid", "idempotencyKey"),
    ],
)
async def test_what_cannot_be_placed_is_refused_with_the_field_that_is_wrong(
    tmp_path: Path, body: bytes, status: int, error: str, said: str
) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        answered, content = await caller.post("", body)
        assert (answered, content["error"]) == (status, error)
        assert said in content["message"]
        assert "hunter2" not in json.dumps(content)
        assert (await caller.post("", call()))[0] == 200  # the connection lives on
    assert binder.counted("bad_requests_total", reason=error) == 1
    assert binder.counted("requests_total", code=str(status)) == 1


async def test_bodies_are_bounded_plain_and_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binder = Binder()
    async with calling(binder, tmp_path, max_body_bytes=1_000) as caller:
        status, headers, body = await caller.send("POST", "", b"x" * 1_001)
        assert (status, headers["connection"], body["error"]) == (413, "close", "body-too-large")
    async with calling(binder, tmp_path) as caller:
        assert (await caller.send("POST", "", b"x", Content_Encoding="gzip"))[0] == 415
    monkeypatch.setattr("tiphys_models.serving.bounds.RECEIPT_LIMIT_S", 0.1)
    async with calling(binder, tmp_path) as caller:
        writer = caller.connection.writer
        writer.write(f"POST /v1/placements HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\n{{".encode())
        assert (await caller.connection.closed(2)).startswith(b"HTTP/1.1 408 ")
    assert binder.counted("requests_total", code="408") == 1


async def test_other_paths_and_verbs(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        for path in ("/", "/x/y/z", "/x/cancel"):
            status, _, body = await caller.send("POST", path)
            assert (status, body["error"]) == (404, "not-found")
        for method, path, allowed in (("GET", "", "POST"), ("DELETE", "/x", "GET"), ("GET", "/x/finished", "POST")):
            status, headers, body = await caller.send(method, path)
            assert (status, headers["allow"], body["error"]) == (405, allowed, "method")
        assert (await caller.post("/x/started", b"{}"))[1]["message"].startswith("node")


async def test_above_the_limit_of_open_placements_callers_are_told_when_to_come_back(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path, maxOpen=1) as caller:
        _, first = await caller.post("", call())
        status, headers, body = await caller.send("POST", "", call())
        assert (status, headers["retry-after"], body["error"]) == (429, "1", "too-many-open")
        await caller.post(f"/{first['id']}/finished")
        assert (await caller.post("", call()))[0] == 200


async def test_an_unknown_placement_says_how_to_have_it_counted_again(tmp_path: Path) -> None:
    binder = Binder()
    uid = f"call-{7:032x}"
    async with calling(binder, tmp_path) as caller:
        status, body = await caller.post(f"/{uid}/renew")
        assert (status, body["error"]) == (404, "unknown-placement")
        assert all(word in body["message"] for word in ("node", "namespace", "function", "cpu", "memory", "restarted"))
        known = {"node": "n1", "namespace": "default", "function": "f", "cpu": "1", "memory": "1Gi"}
        assert (await caller.post(f"/{uid}/renew", json.dumps(known).encode()))[1]["relearnt"] is True
        await caller.post(f"/{uid}/finished")
        status, body = await caller.post(f"/{uid}/renew", json.dumps(known).encode())
        assert (status, body["error"]) == (409, "finished")


async def test_a_call_sent_again_is_answered_again_and_placed_once(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        first = await caller.post("", call(idempotencyKey="k1"))
        assert await caller.post("", call(idempotencyKey="k1")) == first
        status, body = await caller.post("", call(idempotencyKey="k1", function="g"))
        assert (status, body["error"]) == (422, "key-reused")
        assert (await caller.post("", call(idempotencyKey="k2")))[1]["id"] != first[1]["id"]
        stranger = Caller(caller.connection, OTHER_TOKEN)
        assert (await stranger.post("", call(idempotencyKey="k1", namespace="elsewhere")))[1]["id"] != first[1]["id"]
    assert sum(binder.inflight().values()) == 2
    assert binder.counted("replayed_answers_total") == 1


def test_kept_answers_take_bounded_memory_and_the_newest_stay() -> None:
    replies = Replies(10_000)
    calls = [parse(PlaceCall, call(idempotencyKey=f"k{index}")) for index in range(50)]
    for one in calls:
        replies.keep("t", one, b"x" * 500)
    found = [replies.find("t", one) is not None for one in calls]
    assert found == [False] * 40 + [True] * 10


async def test_fifty_callers_at_once_get_fifty_places_and_no_node_is_crowded(tmp_path: Path) -> None:
    binder = Binder(nodes=5)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(open_to_callers(binder, tmp_path))
        callers = [Caller(await stack.enter_async_context(connected(port))) for _ in range(10)]

        async def ask(caller: Caller) -> list[str]:
            return [(await caller.post("", call()))[1]["node"] for _ in range(5)]

        nodes = [node for answers in await asyncio.gather(*map(ask, callers)) for node in answers]
    assert sorted(nodes.count(f"n{index}") for index in range(5)) == [10] * 5


async def test_no_token_reaches_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        await caller.post("", call())
        binder.placer.place = lambda tenant, call: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        assert (await caller.post("", call()))[0] == 500
    assert TOKEN not in caplog.text
    assert "ZeroDivisionError" in str([record.__dict__.get("fields") for record in caplog.records])


def test_every_reason_has_a_counter_that_starts_at_zero() -> None:
    metrics = BinderMetrics()
    for reason in REASONS:
        assert metrics.registry.get_sample_value("tiphys_binder_bad_requests_total", {"reason": reason}) == 0
    names = [family.name for family in metrics.registry.collect()]
    assert [name for name in names if name.startswith("tiphys_") and not name.startswith("tiphys_binder_")] == []


def test_tenants_change_without_a_restart_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    metrics = BinderMetrics()
    path = tenants_file(tmp_path)
    tenants = Tenants(path, metrics)
    assert not tenants.reload_if_changed()
    path.write_text("{")
    assert not tenants.reload_if_changed()
    assert not tenants.reload_if_changed()  # said and counted once
    path.unlink()
    assert not tenants.reload_if_changed()
    assert tenants.of(f"bearer {TOKEN}") is not None
    tenants_file(tmp_path, token="another-token-of-theirs")
    assert tenants.reload_if_changed()
    assert tenants.of(f"Bearer {TOKEN}") is None
    assert tenants.of("Bearer another-token-of-theirs") is not None
    assert metrics.registry.get_sample_value("tiphys_binder_tenants_file_refused_total") == 2
    assert metrics.registry.get_sample_value("tiphys_binder_tenants") == 2


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "token": "x" * 16, "namespaces": ["n"]} | changes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ({}, "tenants"),
        ({"tenants": []}, "tenants"),
        ({"tenants": [entry(token="hunter2")]}, "token"),
        ({"tenants": [entry(token="hunter2 with a space")]}, "token"),
        ({"tenants": [entry(namespaces=[])]}, "namespaces"),
        ({"tenants": [entry(maxOpen=0)]}, "maxOpen"),
        ({"tenants": [entry(admin=True)]}, "admin"),
        ({"tenants": [entry(), entry(name="b")]}, "gives a token twice"),
        ({"tenants": [entry(), entry(token="y" * 16)]}, "gives a name twice"),
    ],
    ids=str,
)
def test_a_tenants_file_that_says_nothing_clear_is_refused_without_quoting_it(tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "tenants.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InvalidInput, match=said) as caught:
        Tenants(path, BinderMetrics())
    assert "hunter2" not in str(caught.value)


def test_tokens_of_a_tenant_overlap_while_they_rotate_and_end_when_they_say(tmp_path: Path) -> None:
    binder, now_s = Binder(), [1_798_718_399.0]
    rotating = [{"token": NEXT_TOKEN}, {"token": TOKEN, "notAfter": "2026-12-31T12:00:00Z"}]
    tenants = Tenants(tenants_file(tmp_path, token=None, tokens=rotating), binder.metrics, now_s=lambda: now_s[0])
    old, new = tenants.of(f"Bearer {TOKEN}"), tenants.of(f"Bearer {NEXT_TOKEN}")
    assert old is not None
    assert old == new, "one tenant, whichever token it shows: leases and streams belong to its name"
    now_s[0] += 1
    assert tenants.of(f"Bearer {TOKEN}") is None
    assert tenants.of(f"Bearer {NEXT_TOKEN}") is not None


def test_a_tenant_whose_last_token_has_ended_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    binder = Binder()
    path = tenants_file(tmp_path, token=None, tokens=[{"token": TOKEN, "notAfter": "2020-01-01T00:00:00Z"}])
    tenants = Tenants(path, binder.metrics)
    for _ in range(3):
        tenants.reload_if_changed()
    assert [record.fields for record in caplog.records] == [{"tenant": "platform"}]  # type: ignore[attr-defined]
    assert binder.counted("tenants_expired") == 1
    assert tenants.of(f"Bearer {TOKEN}") is None
    assert tenants.of(f"Bearer {OTHER_TOKEN}") is not None


async def test_a_call_placed_with_the_old_token_is_finished_with_the_new_one(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path, tokens=[{"token": NEXT_TOKEN}]) as caller:
        _, placed = await caller.post("", call())
        caller.token = NEXT_TOKEN
        assert (await caller.post(f"/{placed['id']}/finished"))[0] == 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token": None}, "no token"),
        ({"tokens": [{"token": TOKEN}]}, "a token twice"),
        ({"tokens": [{"token": OTHER_TOKEN}]}, "a token twice"),
        ({"tokens": [{"token": "short"}]}, "tokens"),
        ({"tokens": [{"token": NEXT_TOKEN, "notAfter": "tomorrow"}]}, "notAfter"),
        ({"tokens": [{"token": NEXT_TOKEN, "notAfter": "2026-12-31T12:00:00"}]}, "notAfter"),
        ({"tokens": [{"token": f"{NEXT_TOKEN}{i}"} for i in range(9)]}, "tokens"),
    ],
)
def test_tokens_that_say_nothing_clear_are_refused_without_quoting_them(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        Tenants(tenants_file(tmp_path, **changes), Binder().metrics)
    assert TOKEN not in str(refused.value)
    assert NEXT_TOKEN not in str(refused.value)

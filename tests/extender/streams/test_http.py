"""Streams over real HTTP at the callers' listener."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.extender.binder_harness import OTHER_TOKEN, TOKEN, tenants_file
from tests.extender.binder_harness import Binder as Placements
from tests.extender.harness import Connection, connected, listening
from tests.extender.streams.builders import WANTED, Binder
from tiphys_extender.binder.app import make_binder_app
from tiphys_extender.calls.replies import Replies
from tiphys_extender.serve.tenants import Tenants
from tiphys_extender.serve.throttle import Throttle


class Caller:
    def __init__(self, connection: Connection, placements: Placements) -> None:
        self._connection, self.placements = connection, placements

    async def send(self, method: str, path: str = "", body: Any = None, token: str = TOKEN) -> tuple[int, dict[str, str], Any]:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {token}"}
        status, headers, answer = await self._connection.send(method, f"/v1/bindings{path}", content, **given)
        return status, headers, json.loads(answer)


@contextlib.asynccontextmanager
async def calling(binder: Binder, directory: Path) -> AsyncGenerator[Caller]:
    placements = Placements()
    tenants = Tenants(tenants_file(directory), placements.metrics)
    throttle = Throttle(binder.clock, binder.streams.held_by)
    app = make_binder_app(
        placements.placer, Replies(1_000), tenants, placements.metrics, throttle=throttle, max_body_bytes=10_000, streams=binder.streams
    )
    async with listening(app) as port, connected(port) as connection:
        yield Caller(connection, placements)


async def test_a_stream_is_bound_renewed_explained_and_released(tmp_path: Path) -> None:
    async with calling(Binder(), tmp_path) as caller:
        status, _, bound = await caller.send("POST", "", WANTED)
        assert status == 201
        assert set(bound) == {"id", "variant", "site", "endpoint", "expectedLatencyMs", "policy", "lease", "expiresAt"}
        path = f"/{bound['id']}"
        status, _, renewed = await caller.send("POST", f"{path}/renew", {"lease": bound["lease"], "served": 3, "late": 0, "refused": 0})
        assert (status, renewed["up"]) == (200, True)
        status, _, why = await caller.send("GET", path)
        assert (status, why["open"], why["queries"]) == (200, True, {"served": 3, "late": 0, "refused": 0})
        assert {offer["offer"] for offer in why["decision"]["offers"] if not offer["refusedBy"]} >= {f"{bound['site']}/{bound['variant']}"}
        assert why["decision"]["stream"]["maxDelayMs"] == 200
        status, _, over = await caller.send("DELETE", path, {"served": 4})
        assert (status, over) == (200, {"id": bound["id"], "released": True})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"task": None}, "task"),
        ({"task": "a b"}, "task"),
        ({"maxDelayMs": 0}, "maxDelayMs"),
        ({"maxDelayMs": "fast"}, "maxDelayMs"),
        ({"minAccuracy": 101}, "minAccuracy"),
        ({"rateQps": -1}, "rateQps"),
        ({"rateQps": 1e300}, "rateQps"),
        ({"sizeKb": 0}, "sizeKb"),
        ({"bitRateMbps": 0}, "bitRateMbps"),
        ({"accessDelayMs": -0.1}, "accessDelayMs"),
        ({"application": "x" * 64}, "application"),
        ({"idempotencyKey": ""}, "idempotencyKey"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_cannot_be_bound_is_refused_with_the_field_that_is_wrong(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    body = {key: value for key, value in (WANTED | change).items() if value is not None}
    async with calling(Binder(), tmp_path) as caller:
        status, _, answer = await caller.send("POST", "", body)
    assert (status, answer["error"]) == (422, "invalid")
    assert field in answer["message"]


async def test_every_refusal_has_its_status_and_says_when_to_come_again(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        assert (await caller.send("POST", "", WANTED, "no-token-of-anybody"))[0] == 401
        assert (await caller.send("POST", "", WANTED, OTHER_TOKEN))[2]["error"] == "namespace-forbidden"
        assert (await caller.send("POST", "", b"{"))[2]["error"] == "not-json"
        assert (await caller.send("PUT", "/stream-1"))[1]["allow"] == "GET, DELETE"
        assert (await caller.send("POST", "", {**WANTED, "maxDelayMs": 3}))[0] == 422
        assert (await caller.send("GET", "/stream-1"))[0] == 404
        assert (await caller.send("POST", "/stream-1/renew", {"lease": "made-up"}))[0] == 403
        assert (await caller.send("POST", "/stream-1/renew", {}))[2]["message"].startswith("lease")
        binder.fill()
        status, headers, answer = await caller.send("POST", "", WANTED)
        assert (status, headers["retry-after"], answer["error"]) == (429, "5", "no-capacity")
        status, _, why = await caller.send("GET", f"/{answer['id']}")
        assert (status, why["open"], why["decision"]["outcome"]) == (200, False, "NoCapacity")
        binder.streams.stand_by()
        status, headers, answer = await caller.send("POST", "", WANTED)
        assert (status, headers["retry-after"], answer["error"]) == (503, "1", "standby")
        assert caller.placements.counted("bad_requests_total", reason="standby") == 1
        assert caller.placements.counted("requests_total", code="503") == 1


async def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    async with calling(Binder(), tmp_path) as caller:
        assert (await caller.send("POST", "", b" " * 10_001))[0] == 413

"""A binder process of its own, killed while streams are bound; objects from a file, so that no API server is needed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.binding_corpus import POLICY, VARIANT
from tests.extender.binder_harness import TOKEN, tenants_file
from tests.extender.streams.builders import WANTED
from tests.extender.test_live_process import until
from tests.extender.test_process import Process, environment, started_as
from tiphys_extender.binder_settings import read_binder_settings
from tiphys_models.base.errors import InvalidInput

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def settings(directory: Path) -> dict[str, object]:
    site = {"layer": "antenna", "access": True, "delays": [{"from": "a1", "meanMs": 1}]}
    items = [
        {"kind": "InferenceSite", "metadata": {"name": "a1"}, "spec": site},
        {"kind": "ModelVariant", "metadata": {"name": "yolo"}, "spec": VARIANT | {"capacityQps": 100}},
        {"kind": "StreamPolicy", "metadata": {"name": "p"}, "spec": POLICY | {"mode": "Active", "leaseSeconds": 10}},
    ]
    (directory / "objects.json").write_text(json.dumps({"items": items}))
    (directory / "keys.json").write_text(json.dumps({"keys": [{"id": "one", "secret": "s" * 40}]}))
    (directory / "token").write_text("status")
    return {
        "BINDER_TENANTS_FILE": tenants_file(directory),
        "BINDER_ACCESS_SITE": "a1",
        "BINDER_STREAMS_NAMESPACE": "default",
        "BINDER_LEASE_KEYS_FILE": directory / "keys.json",
        "BINDER_STREAM_OBJECTS": directory / "objects.json",
        "TOKEN_FILE": directory / "token",
    }


def ask(binder: Process, method: str, path: str = "", body: Any = None) -> tuple[int, Any]:
    status, answer = binder.call(
        "calls", method, f"/v1/bindings{path}", b"" if body is None else json.dumps(body).encode(), Authorization=f"Bearer {TOKEN}"
    )
    return status, json.loads(answer)


def summary(binder: Process) -> dict[str, Any]:
    status, body = binder.call("status", "GET", "/v1/bindings/summary", Authorization="Bearer status")
    assert status == 200
    return json.loads(body)  # type: ignore[no-any-return]


def first_life(binder: Process) -> dict[str, Any]:
    assert binder.call("status", "GET", "/v1/bindings/summary")[0] == 401
    bound = ask(binder, "POST", "", WANTED | {"idempotencyKey": "camera"})[1]
    assert bound["endpoint"] == VARIANT["endpoint"]["url"]
    assert ask(binder, "POST", f"/{bound['id']}/renew", {"lease": bound["lease"], "served": 1})[0] == 200
    return bound  # type: ignore[no-any-return]


def second_life(binder: Process, bound: dict[str, Any]) -> None:
    for _ in range(2):
        status, renewed = ask(binder, "POST", f"/{bound['id']}/renew", {"lease": bound["lease"], "served": 5})
        assert (status, renewed["site"]) == (200, "a1")
    assert ask(binder, "POST", "", WANTED | {"idempotencyKey": "camera"})[1]["id"] == bound["id"]
    found = summary(binder)
    assert (found["streams"], found["active"]) == (1, True)
    assert ask(binder, "DELETE", f"/{bound['id']}")[1]["released"] is True
    assert summary(binder)["streams"] == 0
    status, body = binder.call("status", "GET", "/v1/bindings/decisions?after=0", Authorization="Bearer status")
    assert (status, json.loads(body)["items"]) == (200, []), "it decided nothing: the stream came with its token, the key with the stream"


async def test_a_binder_that_is_killed_is_followed_by_one_that_knows_its_streams_from_their_tokens(tmp_path: Path) -> None:
    given = settings(tmp_path)
    # the second one runs already: a start may take longer on a busy machine than a lease lasts
    with started_as(tmp_path, ["binder"], "calls", given) as first, started_as(tmp_path, ["binder"], "calls", given) as second:
        await until(lambda: summary(first)["offers"] == summary(second)["offers"] == 1, 20)
        bound = await asyncio.to_thread(first_life, first)
        first.process.kill()
        await asyncio.to_thread(second_life, second, bound)
        text = second.log.read_text()
        assert TOKEN not in text
        assert "ssss" not in text


@pytest.mark.parametrize(
    ("without", "words"), [("BINDER_LEASE_KEYS_FILE", "LEASE_KEYS_FILE"), ("BINDER_ACCESS_SITE", "STREAM_OBJECTS needs")]
)
def test_what_an_access_site_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str, words: str) -> None:
    given = {name: value for name, value in settings(tmp_path).items() if name != without}
    for name, value in environment(**given).items():
        if name.startswith("TIPHYS_BINDER_"):
            monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=words):
        read_binder_settings()

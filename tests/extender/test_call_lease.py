"""Two binders of one pool: one places calls, the other answers 503 until it is its turn; a change costs what a restart costs."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.extender.binder_harness import PLATFORM, TOKEN, Binder, call
from tests.extender.fake_api import fake_api
from tests.extender.test_binder_process import metrics, post, settings, small
from tests.extender.test_live_process import ready, until
from tests.extender.test_process import Process, started_as
from tiphys_extender.serve.refused import Refused


def places(binder: Process) -> bool:
    return "tiphys_binder_calls_active 1.0" in metrics(binder)


def asked(binder: Process, path: str = "") -> tuple[int, Any, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", binder.ports["calls"], timeout=5)
    try:
        connection.request("POST", f"/v1/placements{path}", call(), {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.getheader("retry-after")
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_of_two_binders_one_answers_and_the_other_follows_it(tmp_path: Path) -> None:
    async with fake_api() as (api, access):
        small(api)
        directories = [tmp_path / name for name in "ab"]
        for directory in directories:
            directory.mkdir()
        given = [
            settings(directory, access) | {"BINDER_CALLS_LEASE": "tiphys-binder-calls", "BINDER_LEASE_S": 60} for directory in directories
        ]
        with started_as(directories[0], ["binder"], "calls", given[0]) as first:
            await until(lambda: ready(first) and places(first), 20)
            with started_as(directories[1], ["binder"], "calls", given[1]) as second:
                await until(lambda: ready(second), 20)
                placed = (await asyncio.to_thread(post, first, "", call()))[1]
                assert placed["reserved"] is True
                for path in ("", f"/{placed['id']}/renew", f"/{placed['id']}/finished"):
                    status, body, again_s = await asyncio.to_thread(asked, second, path)
                    assert (status, body["error"], again_s) == (503, "standby", "1"), path
                first.process.send_signal(signal.SIGKILL)
                await until(lambda: places(second), 10)
                report = {"node": placed["node"], "namespace": "default", "function": "f", "cpu": "100m", "memory": "256Mi"}
                answer = await asyncio.to_thread(post, second, f"/{placed['id']}/renew", json.dumps(report).encode())
                assert answer[1]["relearnt"] is True
                api.faults["leases"] = [500]
                await until(lambda: asked(second)[0] == 503, 10)
                api.faults["leases"] = []
                await until(lambda: asked(second)[0] == 200, 15)
                answer = await asyncio.to_thread(post, second, f"/{placed['id']}/renew", json.dumps(report).encode())
                assert answer[1]["relearnt"] is True, "who lost the Lease forgot: another may have booked and finished meanwhile"


def test_whoever_stands_by_refuses_everything_and_forgets_what_it_has_booked() -> None:
    binder = Binder()
    placed = binder.place()
    assert binder.inflight() == {placed["node"]: 1}
    binder.placer.stand_by()
    assert binder.inflight() == {}
    with pytest.raises(Refused) as refused:
        binder.placer.admit()
    assert (refused.value.reason, refused.value.retry_after_s) == ("standby", 1)
    binder.placer.owned = lambda: True
    again = binder.report(placed["id"], node=placed["node"], namespace="default", function="f", cpu="100m", memory="256Mi")
    assert again["relearnt"] is True
    assert binder.placer.finished(PLATFORM, placed["id"])["released"] is True

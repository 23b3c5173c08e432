"""A binder process against an API server: its life, what a restart loses, and the settings it refuses."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.builders import policy_object
from tests.extender.binder_harness import TOKEN, call, node_object, tenants_file
from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.harness import pod_json
from tests.extender.test_live_process import kubeconfig, ready, until
from tests.extender.test_process import Process, environment, started_as
from tests.extender.test_tls import Files, client
from tests.extender.test_watches import NODES, PODS
from tiphys_extender.watches import POLICIES_PATH
from tiphys_models.kube.access import ApiAccess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def post(binder: Process, path: str, body: bytes = b"") -> tuple[int, Any]:
    status, answer = binder.call("calls", "POST", f"/v1/placements{path}", body, Authorization=f"Bearer {TOKEN}")
    return status, json.loads(answer)


def small(api: FakeApi) -> None:
    for index in range(3):
        api.put(NODES, node_object(f"n{index}"))
    api.put(NODES, node_object("not-for-calls", {}))
    api.put(PODS, pod_json("ours", spec={"nodeName": "n0"}))
    api.put(POLICIES_PATH, policy_object(mode="Active", policy="least-connections"))


def settings(directory: Path, access: ApiAccess) -> dict[str, object]:
    kept = directory / "kept"
    kept.mkdir(exist_ok=True)
    return {
        "KUBECONFIG": kubeconfig(directory, access),
        "BINDER_TENANTS_FILE": tenants_file(directory),
        "BINDER_LEASE_S": 2,
        "DECISION_LOG_DIR": kept,
        "OWN_NAMESPACE": "tiphys-system",
    }


def first_life(binder: Process) -> dict[str, Any]:
    placed = [post(binder, "", call())[1] for _ in range(6)]
    assert sorted(answer["node"] for answer in placed) == ["n0", "n0", "n1", "n1", "n2", "n2"]
    assert post(binder, f"/{placed[0]['id']}/finished")[1]["released"] is True
    assert binder.call("calls", "GET", "/metrics")[0] == 404
    assert binder.call("calls", "POST", "/prioritize", b"{}")[0] == 404
    return placed[1]  # type: ignore[no-any-return]


def second_life(binder: Process, before: dict[str, Any]) -> None:
    status, body = post(binder, f"/{before['id']}/renew")
    assert (status, body["error"]) == (404, "unknown-placement")
    report = {"node": before["node"], "namespace": "default", "function": "f", "cpu": "100m", "memory": "256Mi"}
    assert post(binder, f"/{before['id']}/renew", json.dumps(report).encode())[1]["relearnt"] is True
    status, body = binder.call("calls", "GET", f"/v1/placements/{before['id']}", Authorization=f"Bearer {TOKEN}")
    explained = json.loads(body)
    assert (status, explained["asked"], explained["would"]) == (200, True, before["node"])  # the log was read again


def metrics(binder: Process) -> str:
    return binder.call("status", "GET", "/metrics")[1].decode()


async def test_a_whole_life_and_what_a_restart_loses(tmp_path: Path) -> None:
    async with fake_api() as (api, access):
        small(api)
        given = settings(tmp_path, access)
        with started_as(tmp_path, ["binder"], "calls", given) as binder:
            await until(lambda: ready(binder), 20)
            before = await asyncio.to_thread(first_life, binder)
            await until(lambda: "tiphys_binder_open_placements 5.0" in metrics(binder), 2)
            await until(lambda: "tiphys_binder_pool_nodes_of_both_doors 1.0" in metrics(binder), 2)
            await until(lambda: "tiphys_binder_leases_expired_total 5.0" in metrics(binder), 5)
            binder.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(binder.process.wait, 10) == 0
            assert TOKEN not in binder.log.read_text()
            assert "hunter2" not in binder.log.read_text()
        with started_as(tmp_path, ["binder"], "calls", given) as binder:
            await until(lambda: ready(binder), 20)
            await asyncio.to_thread(second_life, binder, before)


def over_tls(port: int, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", port, timeout=5, context=context)
    try:
        connection.request("POST", "/v1/placements", call(), {"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status
    finally:
        connection.close()


async def test_with_mutual_tls_a_token_alone_is_not_enough(tmp_path: Path) -> None:
    server_ca, callers_ca = trustme.CA(), trustme.CA()
    files = Files(tmp_path)
    files.serve(server_ca)
    files.trust(callers_ca)
    tls = {"TLS_CERT_FILE": files.cert, "TLS_KEY_FILE": files.key, "TLS_CLIENT_CA_FILE": files.ca}
    async with fake_api() as (api, access):
        small(api)
        with started_as(tmp_path, ["binder"], "calls", settings(tmp_path, access) | tls) as binder:
            await until(lambda: ready(binder), 20)
            assert await asyncio.to_thread(over_tls, binder.ports["calls"], client(server_ca, callers_ca)) == 200
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                await asyncio.to_thread(over_tls, binder.ports["calls"], client(server_ca, None))
            with pytest.raises((ConnectionError, http.client.HTTPException)):  # plain HTTP
                await asyncio.to_thread(post, binder, "", call())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"BINDER_TENANTS_FILE": ""}, "TIPHYS_BINDER_TENANTS_FILE"),
        ({"BINDER_TENANTS_FILE": "/does/not/exist"}, "/does/not/exist"),
        ({"BINDER_POOL": "a b"}, "TIPHYS_BINDER_POOL"),
        ({"BINDER_LEASE_S": "0"}, "TIPHYS_BINDER_LEASE_S"),
        ({"SNAPSHOT": "/x"}, "TIPHYS_EXTENDER_SNAPSHOT"),
    ],
    ids=str,
)
def test_wrong_settings_end_the_start_with_a_name_and_a_reason(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    env = environment(**({"BINDER_TENANTS_FILE": tenants_file(tmp_path)} | changes)) | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tiphys_extender", "binder"], env=env, capture_output=True, timeout=30)
    assert done.returncode == 2
    (line,) = [json.loads(text) for text in done.stderr.splitlines()]
    assert line["message"] == "cannot start"
    assert said in line["why"]


def test_an_unknown_argument_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "tiphys_extender", "bindr"], env=environment(), capture_output=True, timeout=30)
    assert (done.returncode, b"usage" in done.stderr) == (2, True)

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.access import ApiAccess, find_access, kubeconfig_access
from tiphys_models.kube.client import KubeClient


def kubeconfig(tmp_path: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {"token": "t0ken"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_token_is_sent_and_never_shown(tmp_path: Path) -> None:
    access = kubeconfig_access(kubeconfig(tmp_path))
    assert access.server == "https://127.0.0.1:6443"
    assert access.headers() == {"Authorization": "Bearer t0ken"}
    assert "t0ken" not in repr(access)


def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    access = kubeconfig_access(kubeconfig(tmp_path, user={"tokenFile": str(token)}))
    assert access.headers()["Authorization"] == "Bearer one"
    token.write_text("two\n")
    assert access.headers()["Authorization"] == "Bearer two"


def test_inline_certificates_make_a_verifying_context(tmp_path: Path) -> None:
    ca = trustme.CA()
    client = ca.issue_cert("client")

    def encode(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    user = {
        "client-certificate-data": encode(client.cert_chain_pems[0].bytes()),
        "client-key-data": encode(client.private_key_pem.bytes()),
    }
    access = kubeconfig_access(kubeconfig(tmp_path, {"certificate-authority-data": encode(ca.cert_pem.bytes())}, user))
    context = access.ssl_context()
    assert context is not None
    assert context.check_hostname
    assert access.client_key_file is not None
    assert access.client_key_file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"insecure-skip-tls-verify": True}, None, "skips TLS"),
        (None, {"exec": {"command": "aws"}}, "kubectl create token"),
    ],
)
def test_what_we_will_not_do_is_said_with_the_way_out(tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        kubeconfig_access(kubeconfig(tmp_path, cluster, user))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "current-context: c"])
def test_a_broken_kubeconfig_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        kubeconfig_access(path)


def test_without_any_cluster_the_message_lists_the_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidInput, match="--kubeconfig"):
        find_access()


def account(directory: Path, token: str) -> Path:
    directory.mkdir()
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_text(trustme.CA().cert_pem.bytes().decode())
    return directory


def test_a_process_can_be_given_another_account_than_its_pods_and_reads_its_token_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    own = account(tmp_path / "own", "mine\n")
    access = find_access(account_dir=own)
    assert access.server == "https://10.0.0.1:443"
    assert access.headers() == {"Authorization": "Bearer mine"}
    (own / "token").write_text("renewed\n")
    assert access.headers() == {"Authorization": "Bearer renewed"}
    assert access.ssl_context() is not None


def test_an_account_that_is_not_mounted_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InvalidInput, match="cannot read the account"):
        find_access(account_dir=tmp_path)


async def look_at_nodes(client: KubeClient, directory: Path) -> None:
    """With one token, another, none and a third in the file."""
    token = directory / "token"
    async with client:
        await client.get("/api/v1/nodes")
        token.write_text("two")
        await client.get("/api/v1/nodes")
        token.unlink()
        with pytest.raises(Unavailable):
            await client.get("/api/v1/nodes")
        token.write_text("three")
        await client.get("/api/v1/nodes")


async def test_a_client_that_runs_on_sends_the_token_that_is_in_the_file_now(tmp_path: Path) -> None:
    """What takes effect when the Secret of the extender's account changes under it."""
    sent: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return web.json_response({"items": []})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", answer)
    token = tmp_path / "token"
    token.write_text("one")
    async with TestServer(app) as server:
        client = KubeClient(ApiAccess(str(server.make_url("")).rstrip("/"), None, token_file=token), user_agent="test")
        await look_at_nodes(client, tmp_path)
    assert sent == ["Bearer one", "Bearer two", "Bearer three"]

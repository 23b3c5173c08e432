"""Kubeconfig files: written for the parts of a local cluster, read for any cluster."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tiphys_cli.kube.errors import ClusterError


def kubeconfig_path(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The given one, else the first of `$KUBECONFIG`, else `~/.kube/config`."""
    if given is not None:
        return given
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]) if listed else Path.home() / ".kube" / "config"


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach an API server and who to be there. PEM texts, not paths."""

    server: str
    ca_pem: bytes | None
    cert_pem: bytes | None = None
    key_pem: bytes | None = None
    token: str | None = None
    insecure: bool = False
    """No check of the server's certificate: only where the kubeconfig says so."""


def write_kubeconfig(path: Path, credentials: Credentials, user: str, namespace: str = "default") -> Path:
    """Write a self-contained kubeconfig that only we can read."""
    identity: dict[str, str] = {}
    if credentials.cert_pem is not None and credentials.key_pem is not None:
        identity["client-certificate-data"] = _encode(credentials.cert_pem)
        identity["client-key-data"] = _encode(credentials.key_pem)
    if credentials.token is not None:
        identity["token"] = credentials.token
    cluster: dict[str, Any] = {"server": credentials.server}
    if credentials.ca_pem is not None:
        cluster["certificate-authority-data"] = _encode(credentials.ca_pem)
    if credentials.insecure:
        cluster["insecure-skip-tls-verify"] = True
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tiphys", "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "tiphys", "context": {"cluster": "tiphys", "user": user, "namespace": namespace}}],
        "current-context": "tiphys",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.new")
    staged.touch(mode=0o600)
    staged.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    staged.rename(path)
    return path


def read_kubeconfig(path: Path) -> Credentials:
    """The current context's server and identity."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClusterError(f"no kubeconfig at {path}; set KUBECONFIG") from None
    context = _named(document, "contexts", document.get("current-context"), path)["context"]
    cluster = _named(document, "clusters", context.get("cluster"), path)["cluster"]
    user = _named(document, "users", context.get("user"), path)["user"] or {}
    if "exec" in user or "auth-provider" in user:
        return _read_with_official_client(path)
    token = user.get("token")
    if token is None and user.get("tokenFile"):
        token = (path.parent / user["tokenFile"]).read_text(encoding="utf-8").strip()
    return Credentials(
        server=cluster["server"],
        ca_pem=_pem(cluster, "certificate-authority", path),
        cert_pem=_pem(user, "client-certificate", path),
        key_pem=_pem(user, "client-key", path),
        token=token,
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _read_with_official_client(path: Path) -> Credentials:
    # Cloud log-ins run a program; the official client knows how. Imported here: it costs most of a second.
    from kubernetes import config as official  # noqa: PLC0415
    from kubernetes.client import Configuration  # noqa: PLC0415

    configuration = Configuration()
    official.load_kube_config(str(path), client_configuration=configuration)  # type: ignore[no-untyped-call]
    bearer = configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""  # the alias is older clients' key

    def text(file: str | None) -> bytes | None:
        return Path(file).read_bytes() if file else None

    return Credentials(
        server=configuration.host,
        ca_pem=text(configuration.ssl_ca_cert),
        cert_pem=text(configuration.cert_file),
        key_pem=text(configuration.key_file),
        token=bearer.removeprefix("Bearer ") or None,
        insecure=not configuration.verify_ssl,
    )


def _named(document: dict[str, Any], kind: str, name: str | None, path: Path) -> dict[str, Any]:
    for entry in document.get(kind) or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry
            return found
    raise ClusterError(f"{path} has no entry {name!r} in {kind}; choose a context with `kubectl config use-context`")


def _pem(source: dict[str, Any], key: str, path: Path) -> bytes | None:
    if data := source.get(f"{key}-data"):
        return base64.b64decode(data)
    if file := source.get(key):
        content: bytes = (path.parent / file).read_bytes()
        return content
    return None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()

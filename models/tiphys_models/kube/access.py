"""Where the API server is and who we are: from a kubeconfig or from the service account of a pod."""

from __future__ import annotations

import base64
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tiphys_models.base.errors import InvalidInput

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Everything a client needs; secrets never appear in its repr."""

    server: str
    ca_pem: str | None
    token: str | None = None
    token_file: Path | None = None
    """Read again for every request: bound tokens rotate."""
    client_cert_file: Path | None = None
    client_key_file: Path | None = None

    def __repr__(self) -> str:
        return f"ApiAccess(server={self.server!r})"

    def headers(self) -> dict[str, str]:
        """The Authorization header of this moment."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def ssl_context(self) -> ssl.SSLContext | None:
        """Verifying context; None for plain http."""
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(cadata=self.ca_pem)
        if self.client_cert_file and self.client_key_file:
            context.load_cert_chain(self.client_cert_file, self.client_key_file)
        return context


def find_access(kubeconfig: Path | None = None, *, account_dir: Path | None = None) -> ApiAccess:
    """The given kubeconfig or account, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    if kubeconfig is not None:
        return kubeconfig_access(kubeconfig)
    if account_dir is not None:
        return in_cluster_access(account_dir)
    if from_env := os.environ.get("KUBECONFIG"):
        return kubeconfig_access(Path(from_env.split(os.pathsep)[0]))
    if (_SERVICE_ACCOUNT / "token").exists():
        return in_cluster_access()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return kubeconfig_access(default)
    raise InvalidInput("no cluster: set KUBECONFIG, pass --kubeconfig, or run in a pod with a service account")


def in_cluster_access(account_dir: Path = _SERVICE_ACCOUNT) -> ApiAccess:
    """Access by a mounted service account: the pod's, or another that was mounted into this container."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InvalidInput("KUBERNETES_SERVICE_HOST is not set: this is not a pod")
    address = f"[{host}]" if ":" in host else host
    try:
        ca_pem = (account_dir / "ca.crt").read_text()
    except OSError as error:
        raise InvalidInput(f"cannot read the account in {account_dir}: {error.strerror}") from error
    return ApiAccess(f"https://{address}:{port}", ca_pem, token_file=account_dir / "token")


def kubeconfig_access(path: Path) -> ApiAccess:
    """Access by the current context of a kubeconfig; exec plugins are refused with a hint."""
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"], "context")
        cluster = _named(config, "clusters", context["cluster"], "cluster")
        user = _named(config, "users", context["user"], "user")
    except OSError as error:
        raise InvalidInput(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidInput(f"kubeconfig {path} is not usable: {error!r}") from error
    if "exec" in user or "auth-provider" in user:
        raise InvalidInput(f"kubeconfig {path} logs in with a plugin: use a token (kubectl create token) or client certificates")
    if cluster.get("insecure-skip-tls-verify"):
        raise InvalidInput(f"kubeconfig {path} skips TLS verification: give certificate-authority instead")
    return ApiAccess(
        server=cluster["server"].rstrip("/"),
        ca_pem=_pem(cluster, "certificate-authority", path),
        token=user.get("token"),
        token_file=Path(user["tokenFile"]) if user.get("tokenFile") else None,
        client_cert_file=_file(user, "client-certificate", path),
        client_key_file=_file(user, "client-key", path),
    )


def _named(config: dict[str, Any], kind: str, name: str, inner: str) -> dict[str, Any]:
    for item in config[kind]:
        if item["name"] == name:
            return dict(item[inner] or {})
    raise KeyError(f"{kind} has no {name}")


def _pem(section: dict[str, Any], key: str, path: Path) -> str | None:
    if data := section.get(f"{key}-data"):
        return base64.b64decode(data).decode("ascii")
    if file := section.get(key):
        return (path.parent / str(file)).read_text()
    return None


def _file(section: dict[str, Any], key: str, path: Path) -> Path | None:
    """ssl wants files: inline data is written once beside nothing secret, in a private directory of this process."""
    if file := section.get(key):
        return path.parent / str(file)
    if data := section.get(f"{key}-data"):
        return _private_file(base64.b64decode(data))
    return None


def _private_file(content: bytes) -> Path:
    import atexit  # noqa: PLC0415 - only for kubeconfigs with inline keys
    import tempfile  # noqa: PLC0415

    handle, name = tempfile.mkstemp(prefix="tiphys-", suffix=".pem")  # mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)

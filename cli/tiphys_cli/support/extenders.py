"""Listeners of extenders, binders and operators: directly where they run on this machine, through a port-forward where they are pods."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import orjson

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.support.installation import EXPLAIN_PORT, STATUS_PORT, extender_pods, find_installation, pods_of
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.serving.bearer import Token, TokenFile

TIMEOUT_S = 10.0


class Door(Protocol):
    """A way to ask one extender."""

    @property
    def label(self) -> str:
        """Where it is, for people."""
        ...

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """GET; status and decoded body."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a listener wants to see; loopback listeners want nothing."""

    token: str = ""
    tls: ssl.SSLContext | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class DirectDoor:
    """A process on this machine, or behind somebody's own port-forward."""

    def __init__(self, url: str, option: str = "--extender-url", credentials: Credentials = Credentials()) -> None:
        parts = urlsplit(url)
        schemes = ("http", "https") if credentials.tls is not None else ("http",)
        if parts.scheme not in schemes or not parts.hostname:
            raise InvalidInput(f"{option} wants something like http://127.0.0.1:{EXPLAIN_PORT}, it got {url!r}")
        self._host, self._port, self._secure = parts.hostname, parts.port or EXPLAIN_PORT, parts.scheme == "https"
        self._credentials = credentials
        self.label = url

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """GET over a connection of its own."""
        connection: http.client.HTTPConnection
        if self._secure:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._credentials.tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return _get(connection, path, query, self.label, self._credentials.headers)


class ForwardedDoor:
    """A process in a pod. Who may create pods/portforward there may ask it; nothing else reaches its loopback."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        pod: str,
        port: int = EXPLAIN_PORT,
        credentials: Credentials = Credentials(),
    ) -> None:
        self._kubeconfig, self._namespace, self._pod, self._port = kubeconfig, namespace, pod, port
        self._credentials = credentials
        self.label = f"pod {namespace}/{pod}"

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """GET through the API server; each call forwards anew, which a support tool can afford."""
        with self._forwarded() as forwarded:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            tls = self._credentials.tls
            connection.sock = forwarded if tls is None else tls.wrap_socket(forwarded)
            return _get(connection, path, query, self.label, self._credentials.headers)

    @contextmanager
    def _forwarded(self) -> Iterator[socket.socket]:
        # imported here: the official client takes most of a second to load
        from kubernetes import client, config  # noqa: PLC0415
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415
        from kubernetes.stream import portforward  # noqa: PLC0415

        settings = client.Configuration()
        config.load_kube_config(str(self._kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
        with client.ApiClient(settings) as api:
            core = client.CoreV1Api(api)
            try:
                forward = portforward(core.connect_get_namespaced_pod_portforward, self._pod, self._namespace, ports=str(self._port))
            except (ApiException, OSError) as error:
                detail = getattr(error, "reason", None) or error
                raise Unavailable(
                    f"cannot forward a port to {self.label}: {detail}. "
                    "You need the verb create on pods/portforward there; or give the address yourself, see --help"
                ) from error
            opened = forward.socket(self._port)
            opened.settimeout(TIMEOUT_S)
            try:
                yield opened
            finally:
                opened.close()


def doors(api: ApiClient, kubeconfig: Path, extender_url: str, namespace: str) -> Sequence[Door]:
    """All extenders there are to ask: the one named, else every running pod of the installation."""
    if extender_url:
        return [DirectDoor(extender_url)]
    installation = find_installation(api, namespace)
    if installation is None:
        raise InvalidInput(
            "no Tiphys found in this cluster (no Deployment with the chart's labels): give --extender-url or --tiphys-namespace"
        )
    pods = extender_pods(api, installation)
    if not pods:
        raise Unavailable(
            f"no running pod holds an extender: see `kubectl -n {installation.namespace} get pods`, or ask for advice with `tiphys doctor`"
        )
    return [ForwardedDoor(kubeconfig, installation.namespace, pod) for pod in pods]


def ask_extenders(
    api: ApiClient, config: Path, extender_url: str, tiphys_namespace: str, namespace: str, name: str, pod: dict[str, Any] | None
) -> tuple[dict[str, Any], str]:
    """The first extender that knows the pod; of several replicas only the one beside the leading scheduler was asked."""
    # by uid where there is one: a name may have belonged to another pod before
    query = {"uid": pod["metadata"]["uid"]} if pod is not None else {"namespace": namespace, "pod": name}
    return first_that_knows(doors(api, config, extender_url, tiphys_namespace), **query)


def first_that_knows(to_ask: Sequence[Door], **query: str) -> tuple[dict[str, Any], str]:
    """The first process that knows the thing, or holds the pod; Unavailable if none could be asked."""
    troubles, asked = [], []
    held: tuple[dict[str, Any], str] | None = None
    for door in to_ask:
        try:
            status, answer = door.ask("/v1/explain", **query)
        except Unavailable as error:
            troubles.append(str(error))
            continue
        asked.append(door.label)
        if status == 200 and isinstance(answer, dict) and answer.get("asked"):
            return answer, door.label
        if held is None and status == 200 and isinstance(answer, dict) and answer.get("held"):
            held = answer, door.label
    if not asked:
        raise Unavailable("; ".join(troubles))
    return held or ({}, ", ".join(asked))


def binder_doors(api: ApiClient, kubeconfig: Path, namespace: str) -> Sequence[Door]:
    """All running binders of the installation."""
    installation = find_installation(api, namespace)
    if installation is None:
        raise InvalidInput("no Tiphys found in this cluster (no Deployment with the chart's labels): give --extender-url")
    pods = pods_of(api, installation, "binder")
    if not pods:
        raise Unavailable(f"no binder runs in namespace {installation.namespace}: is binder.enabled set in the chart?")
    return [ForwardedDoor(kubeconfig, installation.namespace, pod) for pod in pods]


def operator_doors(api: ApiClient, kubeconfig: Path, namespace: str, token_file: Path | None) -> Sequence[Door]:
    """The status listeners of all running operators; only the leader has decided something."""
    installation = find_installation(api, namespace)
    deployment = installation.deployment("operator") if installation is not None else None
    if installation is None or deployment is None:
        raise InvalidInput("no operator found in this cluster (no Deployment with the chart's labels): give --operator-url")
    token = token_of(token_file) if token_file is not None else _release_token(api, installation.namespace, deployment)
    secure = any(p.get("scheme") == "HTTPS" for c in _containers(deployment) if (p := (c.get("readinessProbe") or {}).get("httpGet") or {}))
    credentials = Credentials(token, _inside_a_tunnel() if secure else None)
    pods = pods_of(api, installation, "operator")
    if not pods:
        raise Unavailable(f"no operator runs in namespace {installation.namespace}: see `tiphys doctor`")
    return [ForwardedDoor(kubeconfig, installation.namespace, pod, _status_port(deployment), credentials) for pod in pods]


def token_of(path: Path) -> str:
    """The token of a file that is shown, as services do it; InvalidInput if there is none."""
    try:
        return TokenFile(path).to_send()
    except OSError as error:
        raise InvalidInput(f"cannot read the token in {path}: {error.strerror or error}") from error


def _release_token(api: ApiClient, namespace: str, deployment: Mapping[str, Any]) -> str:
    """The token that the release's own Secret holds for the operator's pages."""
    volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
    secret = next((v["secret"] for v in volumes if v.get("name") == "token" and v.get("secret")), None)
    if secret is None:
        raise InvalidInput("the operator's Deployment mounts no token: give --token-file")
    keys = {item["path"]: item["key"] for item in secret.get("items") or ()}
    try:
        data = api.get(f"/api/v1/namespaces/{namespace}/secrets/{secret['secretName']}").get("data") or {}
    except RequestRefused as error:
        raise Unavailable(f"the token in Secret {namespace}/{secret['secretName']} cannot be read ({error}): give --token-file") from error
    text = base64.b64decode(data.get(keys.get("transitions") or keys.get("token") or "token") or "").decode("utf-8", "replace")
    for line in text.splitlines():
        token = Token.of_line(line)
        if token is not None and not token.expired(time.time()):
            return token.text
    raise InvalidInput(f"Secret {namespace}/{secret['secretName']} holds no token that counts now: give --token-file")


def _containers(deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(deployment["spec"]["template"]["spec"]["containers"])


def _status_port(deployment: Mapping[str, Any]) -> int:
    ports = (port for container in _containers(deployment) for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "status"), STATUS_PORT)


def _inside_a_tunnel() -> ssl.SSLContext:
    """TLS without a check of the name: the API server has led us to this very pod, whose certificate is for its Service's name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _get(
    connection: http.client.HTTPConnection, path: str, query: dict[str, str], where: str, headers: Mapping[str, str]
) -> tuple[int, Any]:
    target = path + (f"?{urlencode(query)}" if query else "")
    try:
        connection.request("GET", target, headers={"Host": "127.0.0.1", "Connection": "close", **headers})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, orjson.loads(body) if body else None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        raise Unavailable(f"{where} gave no answer to GET {path}: {error or type(error).__name__}") from error
    finally:
        connection.close()

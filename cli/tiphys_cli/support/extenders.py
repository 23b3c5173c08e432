"""The loopback listener of an extender: directly where it runs on this machine, through a port-forward where it runs in a pod."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import orjson

from tiphys_cli.cluster.api import ApiClient
from tiphys_cli.support.installation import EXPLAIN_PORT, extender_pods, find_installation
from tiphys_models.domain.errors import InvalidInput, Unavailable

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


class DirectDoor:
    """An extender on this machine, or behind somebody's own port-forward."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidInput(f"--extender-url wants something like http://127.0.0.1:{EXPLAIN_PORT}, it got {url!r}")
        self._host, self._port = parts.hostname, parts.port or EXPLAIN_PORT
        self.label = url

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """GET over a connection of its own."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return _get(connection, path, query, f"the extender at {self.label}")


class ForwardedDoor:
    """An extender in a pod. Who may create pods/portforward there may ask it; nothing else reaches that listener."""

    def __init__(self, kubeconfig: Path, namespace: str, pod: str) -> None:
        self._kubeconfig, self._namespace, self._pod = kubeconfig, namespace, pod
        self.label = f"pod {namespace}/{pod}"

    def ask(self, path: str, **query: str) -> tuple[int, Any]:
        """GET through the API server; each call forwards anew, which a support tool can afford."""
        with self._forwarded() as forwarded:
            connection = http.client.HTTPConnection("127.0.0.1", EXPLAIN_PORT, timeout=TIMEOUT_S)
            connection.sock = forwarded
            return _get(connection, path, query, self.label)

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
                forward = portforward(core.connect_get_namespaced_pod_portforward, self._pod, self._namespace, ports=str(EXPLAIN_PORT))
            except (ApiException, OSError) as error:
                detail = getattr(error, "reason", None) or error
                raise Unavailable(
                    f"cannot forward a port to {self.label}: {detail}. "
                    "You need the verb create on pods/portforward there; or give --extender-url"
                ) from error
            opened = forward.socket(EXPLAIN_PORT)
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


def _get(connection: http.client.HTTPConnection, path: str, query: dict[str, str], where: str) -> tuple[int, Any]:
    target = path + (f"?{urlencode(query)}" if query else "")
    try:
        connection.request("GET", target, headers={"Host": "127.0.0.1", "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, orjson.loads(body) if body else None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        raise Unavailable(f"{where} gave no answer to GET {path}: {error or type(error).__name__}") from error
    finally:
        connection.close()

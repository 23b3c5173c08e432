"""Waiting for a server: its own health path under a deadline, and its log when it dies instead."""

import http.client
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.cluster.processes import Process


class PortTakenError(ClusterError):
    """Somebody took the port between our look and the server's start: try again on another one."""


def wait_healthy(process: Process, path: str, ca: Path | None, deadline_s: float) -> None:
    """Wait until `process.url + path` answers 200."""
    context = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
    end = time.monotonic() + deadline_s
    while True:
        seen = probe(process.url + path, context)
        alive = process.alive()
        if seen == "200" and alive:  # not another program's answer on a port that ours did not get
            return
        if not alive:
            tail = process.log_tail()
            if "address already in use" in tail.lower():
                raise PortTakenError(f"{process.name}: its port was taken by another program")
            raise ClusterError(f"{process.name} ended at its start; the end of its log ({process.log}):\n{tail}")
        if time.monotonic() > end:
            raise ClusterError(
                f"{process.name} was not healthy within {deadline_s:.0f} s ({seen}); the end of its log "
                f"({process.log}):\n{process.log_tail()}"
            )
        time.sleep(0.05)


def probe(url: str, context: ssl.SSLContext | None = None, timeout_s: float = 2.0) -> str:
    """The status of one GET as text, or why there is none."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPConnection(host, port, timeout=timeout_s)
        if parts.scheme == "http"
        else http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    )
    try:
        connection.request("GET", parts.path or "/")
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def until_served(request: Callable[[], object], what: str, deadline_s: float) -> None:
    """Send a request until the API server serves what it is about: new custom resources and accounts of new namespaces take a moment."""
    end_s = time.monotonic() + deadline_s
    while True:
        try:
            request()
        except RequestRefused as error:
            # 404: not there yet; 429: "storage is (re)initializing", which a fresh custom resource says for a moment
            if error.status not in (404, 429) or time.monotonic() > end_s:
                raise ClusterError(f"{what}: {error}") from error
            time.sleep(0.1)
        else:
            return

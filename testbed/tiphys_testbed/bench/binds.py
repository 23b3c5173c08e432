"""When pods were bound: a thin watch that costs the machine next to nothing while it is being measured."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlencode, urlsplit

import orjson

from tiphys_cli.kube.api import tls_context
from tiphys_cli.kube.kubeconfig import Credentials
from tiphys_models.base.errors import TiphysError, Unavailable

# Only names and versions are sent, not whole pods; a pod enters this watch when it is bound.
_METADATA_ONLY = "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
_ADDED = b'{"type":"ADDED"'
_VERSION = b'"resourceVersion":"'
_POLL_S = 0.02


@dataclass(slots=True)
class BindWatch:
    """Counts pods of a namespace as they are bound. `marks` are (count, action): each runs once, when so many are bound."""

    credentials: Credentials
    namespace: str
    marks: tuple[tuple[int, Callable[[], None]], ...] = ()
    allow_bound: bool = False
    """Whether pods may be bound already; those do not count."""
    times_s: list[float] = field(default_factory=list)
    """Monotonic time of each bind, in order."""
    reopened: int = 0
    """How often the API server ended the watch: it drops whoever reads slowly, and a full machine makes slow readers."""
    _failure: str = ""
    _version: str = ""
    _connection: http.client.HTTPConnection | None = None
    _thread: threading.Thread | None = None
    _closing: bool = False

    def __enter__(self) -> Self:
        """Counting begins with the binds after this moment."""
        answer = self._get("List", {"limit": "1"})
        listed = orjson.loads(answer.read())
        if listed.get("items") and not self.allow_bound:
            raise Unavailable(f"namespace {self.namespace} has bound pods already")
        self._version = listed["metadata"]["resourceVersion"]
        answer = self._watch()
        self._thread = threading.Thread(target=self._run, args=(answer,), name="bind-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.close()

    def wait(self, count: int, deadline_s: float) -> None:
        """The wait until this many pods are bound; Unavailable at the deadline."""
        end = time.monotonic() + deadline_s
        while len(self.times_s) < count:
            if self._failure or time.monotonic() > end:
                why = self._failure or f"the deadline of {deadline_s:.0f} s is over"
                raise Unavailable(f"{len(self.times_s)} of {count} pods of {self.namespace} were bound: {why}")
            time.sleep(_POLL_S)  # a condition would wake this thread for every bind

    def _watch(self) -> http.client.HTTPResponse:
        return self._get("", {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": "3600"})

    def _get(self, kind: str, query: dict[str, str]) -> http.client.HTTPResponse:
        if self._connection is not None:
            self._connection.close()
        parts = urlsplit(self.credentials.server)
        host, port = parts.hostname or "127.0.0.1", parts.port
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(host, port, timeout=300, context=tls_context(self.credentials))
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=300)
        headers = {"Accept": _METADATA_ONLY.format(list=kind)}
        if self.credentials.token:
            headers["Authorization"] = f"Bearer {self.credentials.token}"
        path = f"/api/v1/namespaces/{self.namespace}/pods?{urlencode({'fieldSelector': 'spec.nodeName!=', **query})}"
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise Unavailable(f"cannot watch pods of {self.namespace}: {answer.status} {answer.read()[:200]!r}")
        return answer

    def _run(self, answer: http.client.HTTPResponse) -> None:
        marks = list(self.marks)
        try:
            while not self._closing:
                self._read(answer, marks)
                if not self._closing:
                    self.reopened += 1
                    answer = self._watch()
        except (OSError, http.client.HTTPException, ValueError, AttributeError, TiphysError) as error:
            if not self._closing:
                self._failure = f"the watch broke: {error!r}"

    def _read(self, answer: http.client.HTTPResponse, marks: list[tuple[int, Callable[[], None]]]) -> None:
        rest = b""
        while chunk := answer.read1(65536):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b'{"type":"ERROR"'):
                    raise Unavailable(line[:300].decode("utf-8", "replace"))
                start = line.find(_VERSION) + len(_VERSION)
                self._version = line[start : line.index(b'"', start)].decode()
                if line.startswith(_ADDED):
                    self.times_s.append(now)
            while marks and len(self.times_s) >= marks[0][0]:
                marks.pop(0)[1]()


def middle_rate(times_s: list[float]) -> float:
    """Pods a second between the first and the last tenth of the binds."""
    ordered = sorted(times_s)
    first, last = len(ordered) // 10, len(ordered) - len(ordered) // 10 - 1
    took_s = ordered[last] - ordered[first] if last > first else 0.0
    if took_s <= 0:
        raise Unavailable(f"{len(ordered)} binds are too few to give a rate")
    return (last - first) / took_s

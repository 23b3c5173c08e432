"""A load-watcher: what Trimaran's plugins ask for the load of nodes, answered from what the simulated nodes export.

Trimaran's own load-watcher averages over fifteen minutes. A run lasts one: here it is the last minute, so that the plugins see the run
that they place at all. They ask every thirty seconds, as they always do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson

from tiphys_testbed.cluster.counters import NodeCounters

WINDOW_S = 60.0
_SAMPLE_S = 1.0
_STOP_DEADLINE_S = 5.0


class LoadWindow:
    """Samples of the last minute: the share of its cores that each node used, and of its memory."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[str, tuple[float, float]]]] = deque()
        self._busy: dict[str, tuple[float, float]] = {}

    def add(self, now_s: float, loads: Mapping[str, tuple[float, float, int]]) -> None:
        """Busy core-seconds so far, share of memory and cores of each node, as of now."""
        shares = {}
        for name, (busy_core_s, memory, cores) in loads.items():
            before = self._busy.get(name)
            self._busy[name] = (now_s, busy_core_s)
            if before is not None and now_s > before[0]:
                shares[name] = (min(max((busy_core_s - before[1]) / (now_s - before[0]) / cores, 0.0), 1.0), memory)
        if shares:
            self._samples.append((now_s, shares))
        while self._samples and self._samples[0][0] < now_s - WINDOW_S:
            self._samples.popleft()

    def forget(self) -> None:
        """Start anew: what was before is another run."""
        self._samples.clear()

    def answer(self, now_s: float) -> dict[str, Any]:
        """The document that a load-watcher serves, in percent."""
        nodes: dict[str, list[tuple[float, float]]] = {}
        for _, shares in self._samples:
            for name, share in shares.items():
                nodes.setdefault(name, []).append(share)
        window = {"duration": f"{WINDOW_S:.0f}s", "start": int(now_s - WINDOW_S), "end": int(now_s)}
        data = {"NodeMetricsMap": {name: {"metrics": _metrics(shares), "tags": {}, "metadata": {}} for name, shares in nodes.items()}}
        return {"timestamp": int(now_s), "window": window, "source": "tiphys", "data": data}


def _metrics(shares: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    percent = 100.0 * np.array(shares)
    return [
        {"name": name, "type": kind, "operator": operator, "rollup": f"{WINDOW_S:.0f}s", "value": round(float(value), 4)}
        for column, (name, kind) in enumerate((("node_cpu", "CPU"), ("node_memory", "Memory")))
        for operator, value in (("AVG", percent[:, column].mean()), ("STD", percent[:, column].std()))
    ]


class LoadWatcher:
    """Serves `GET /watcher` on a loopback port."""

    def __init__(self, nodes: Mapping[str, NodeCounters]) -> None:
        self._nodes, self._window, self._lock = nodes, LoadWindow(), threading.Lock()
        self._ended = threading.Event()
        self._server = _Server(self)
        self._threads = (
            threading.Thread(target=self._server.serve_forever, args=(0.1,), name="load-watcher", daemon=True),
            threading.Thread(target=self._sample, name="load-sampler", daemon=True),
        )

    @property
    def url(self) -> str:
        """What the plugins are told as `watcherAddress`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def forget(self) -> None:
        """Start anew: what was before is another run."""
        with self._lock:
            self._window.forget()

    def body(self) -> bytes:
        """What is answered now."""
        with self._lock:
            return orjson.dumps(self._window.answer(time.time()))

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            loads = {name: (*counters.load(), counters.cores) for name, counters in self._nodes.items()}
            with self._lock:
                self._window.add(time.time(), loads)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(_STOP_DEADLINE_S)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a kept-alive connection must not hold the program open

    def __init__(self, watcher: LoadWatcher) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.watcher = watcher


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        known = self.path.partition("?")[0] == "/watcher"
        body = self.server.watcher.body() if known else b"{}"
        self.send_response(HTTPStatus.OK if known else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not logged."""

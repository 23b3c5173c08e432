"""A Prometheus of our own for `tiphys bench scale`: a process that tells of a steady load on every pod it is asked about.

Each pod answers so many requests a second, all of them in time, each for 2 ms of CPU, and is scraped every 5 s.

    python -m tiphys_testbed.bench.scale_requests

prints one line of JSON, {"url": ...}, when it serves, and ends with its standard input. GET /-/stats tells how many queries it was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
import urllib.parse
from typing import Any, cast

import orjson

_SCRAPE_S, _AN_HOUR_S = 5.0, 3600.0
_RATE, _CPU_S = 20.0, 0.002
_EDGES = ("0.1", "0.2", "0.4", "0.8", "+Inf")
_PODS, _SPAN, _NAMES = re.compile(r'pod=~"([^"]*)"'), re.compile(r"\[(\d+)ms"), re.compile(r'__name__=~"([^"]*)"')
_ONE = 'le="+Inf"'


def answer(query: str, now_s: float, began_s: float) -> dict[str, Any]:
    """The matrix that a query selects; empty for what is no range of one workload's pods."""
    pods, span, metric = _PODS.search(query), _SPAN.search(query), query.partition("{")[0]
    rows: list[dict[str, Any]] = []
    if pods is not None and span is not None and not query.startswith("sum("):
        first = int((now_s - int(span.group(1)) / 1000) // _SCRAPE_S) + 1
        times_s = [number * _SCRAPE_S for number in range(first, int(now_s // _SCRAPE_S) + 1)]
        named = _NAMES.search(query)
        for name in named.group(1).split("|") if named is not None else (metric,):
            for pod in pods.group(1).split("|"):
                rows += _rows(name, pod, [t - began_s + _AN_HOUR_S for t in times_s], times_s, one_edge=_ONE in query)
    return {"status": "success", "data": {"resultType": "matrix", "result": rows}}


def _rows(name: str, pod: str, ages_s: list[float], times_s: list[float], *, one_edge: bool) -> list[dict[str, Any]]:
    labels = {"__name__": name, "pod": pod, "job": "made-up"}
    if name.endswith("_bucket"):
        edges = _EDGES[-1:] if one_edge else _EDGES
        return [{"metric": labels | {"le": le}, "values": _values(times_s, ages_s, _RATE)} for le in edges]
    rate = {"container_cpu_usage_seconds_total": _RATE * _CPU_S, "container_cpu_cfs_periods_total": 10.0}.get(name, 0.0)
    return [{"metric": labels, "values": _values(times_s, ages_s, rate)}] if name.startswith("container_") else []


def _values(times_s: list[float], ages_s: list[float], rate: float) -> list[tuple[float, str]]:
    return [(at_s, f"{age_s * rate:.6f}") for at_s, age_s in zip(times_s, ages_s, strict=True)]


class _Http(asyncio.Protocol):
    """The part of HTTP that the one client needs: half a thousand queries a second must cost next to nothing here."""

    asked = 0
    began_s = time.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport, self._buffer = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].decode("latin-1")
            found = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
            whole = end + 4 + (int(found.group(1)) if found is not None else 0)
            if len(self._buffer) < whole:
                return
            body, self._buffer = self._buffer[end + 4 : whole], self._buffer[whole:]
            self._answer(head.split(" ", 2)[1], body)

    def _answer(self, path: str, body: bytes) -> None:
        if path == "/-/stats":
            found: dict[str, Any] = {"queries": _Http.asked}
        else:
            _Http.asked += 1
            query = dict(urllib.parse.parse_qsl(body.decode())).get("query", "")
            found = answer(query, time.time(), self.began_s)
        text = orjson.dumps(found)
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(orjson.dumps({"url": f"http://127.0.0.1:{port}"}).decode() + "\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())

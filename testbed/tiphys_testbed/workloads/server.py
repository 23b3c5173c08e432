"""A service that does one request at a time, in order of arrival, as FaaS runtimes do; and answers scrapes meanwhile.

The event loop stamps a request when it arrives; one thread works (more, for a service that mostly waits for others). A request that has
waited longer than `give_up_s` is refused, so that a backlog cannot outlive the load, and counted by its latency like any other: given up
is late, never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tiphys_testbed.workloads.metrics import RequestMetrics

GIVE_UP_S = 5.0
READ_S = 10.0
"""The time-out for reading the head of a request."""
Query = dict[str, str]
Work = Callable[[Query], Any]
"""What the query asks → what is sent as JSON. ValueError and KeyError: the query is wrong."""


class _GivenUp(Exception):
    """The request waited too long and is given up."""


class WorkServer:
    """Paths and what each does."""

    def __init__(self, routes: dict[str, Work], give_up_s: float = GIVE_UP_S, threads: int = 1) -> None:
        self.metrics = RequestMetrics()
        self._routes, self._give_up_s = routes, give_up_s
        self._worker = ThreadPoolExecutor(threads, thread_name_prefix="work")
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen; the caller closes it."""
        return await asyncio.start_server(self._connected, host, port)

    async def finish(self, deadline_s: float) -> None:
        """Let those who are here be answered."""
        if self._open:
            await asyncio.wait(self._open, timeout=deadline_s)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection: a new pod behind a Service gets its share at once."""
        arrived_s = time.monotonic()
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                async with asyncio.timeout(READ_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                status, body, kind = await self._answer(head, arrived_s)
                lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes, arrived_s: float) -> tuple[str, bytes, str]:
        words = head.split(b" ", 2)
        parts = urlsplit(words[1].decode("latin-1")) if len(words) == 3 else urlsplit("")
        if parts.path == "/metrics":
            return "200 OK", self.metrics.render().encode(), "text/plain; version=0.0.4"
        if parts.path == "/healthz":
            return "200 OK", b"ok", "text/plain"
        work = self._routes.get(parts.path)
        if work is None:
            return "404 Not Found", b"{}", "application/json"
        self.metrics.taken()
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._worker, self._work, work, dict(parse_qsl(parts.query)), arrived_s)
            return "200 OK", json.dumps(found).encode(), "application/json"
        except _GivenUp:
            return "503 Service Unavailable", b"{}", "application/json"
        except (ValueError, KeyError) as error:
            return "400 Bad Request", json.dumps({"error": str(error)}).encode(), "application/json"
        except OSError as error:
            return "502 Bad Gateway", json.dumps({"error": str(error)}).encode(), "application/json"
        finally:
            self.metrics.answered(time.monotonic() - arrived_s)

    def _work(self, work: Work, query: Query, arrived_s: float) -> Any:
        if time.monotonic() - arrived_s > self._give_up_s:
            raise _GivenUp
        return work(query)


def run(routes: dict[str, Work], host: str, port: int, threads: int = 1) -> None:
    """Serve until SIGTERM; requests that were taken are finished."""
    asyncio.run(_run(WorkServer(routes, threads=threads), host, port))


async def _run(server: WorkServer, host: str, port: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    listener = await server.start(host, port)
    await ended.wait()
    listener.close()
    await server.finish(GIVE_UP_S)

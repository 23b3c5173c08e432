"""One probe: how long a site takes to answer. Neither follows redirects nor sends credentials, and an answer's body is not kept."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp

from tiphys_models.api.inference_site import Probe
from tiphys_models.domain.errors import Unavailable

_SERVER_ERROR = 500
_BODY_MAX_BYTES = 65_536
"""A longer answer ends the connection: the next probe opens another."""


class Probes:
    """Sends them, at most so many at once. HTTP connections are kept, so that a round trip is one and not three."""

    def __init__(self, at_once: int = 256) -> None:
        self._limit = asyncio.Semaphore(at_once)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_sent)
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, trace_configs=[trace], cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def round_trip_ms(self, probe: Probe) -> float:
        """Unavailable says why there is none: no answer in time, or one that does not count."""
        async with self._limit:
            try:
                async with asyncio.timeout(probe.timeout_seconds):
                    return await (self._http(probe.url) if probe.url is not None else _tcp(str(probe.host), int(probe.port or 0)))
            except TimeoutError as error:
                raise Unavailable(f"no answer within {probe.timeout_seconds} s") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise Unavailable(str(error) or type(error).__name__) from error

    async def _http(self, url: str) -> float:
        if self._session is None:
            raise Unavailable("the prober is not open: use it in an async with block")
        times = SimpleNamespace(sent_s=time.perf_counter())
        async with self._session.get(url, allow_redirects=False, trace_request_ctx=times) as response:
            round_trip_s: float = time.perf_counter() - times.sent_s
            await response.content.read(_BODY_MAX_BYTES)
            if response.status >= _SERVER_ERROR:
                raise Unavailable(f"answered {response.status}")
        return 1000 * round_trip_s


async def _sent(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceRequestHeadersSentParams) -> None:
    """The request leaves now: names are resolved, the connection stands, TLS included."""
    context.trace_request_ctx.sent_s = time.perf_counter()


async def _tcp(host: str, port: int) -> float:
    """A handshake is one round trip."""
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    with socket.socket(family, kind, protocol) as connection:
        connection.setblocking(False)
        since_s = time.perf_counter()
        await loop.sock_connect(connection, address)
        return 1000 * (time.perf_counter() - since_s)

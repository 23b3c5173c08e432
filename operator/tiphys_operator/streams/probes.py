"""One probe: how long a site takes to answer. Neither follows redirects nor sends credentials, and an answer's body is not kept."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextvars import ContextVar
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp

from tiphys_models.api.inference_site import Probe
from tiphys_models.api.stream_reasons import ProbeMiss
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import Names, NamesResolver
from tiphys_operator.streams.addresses import AddressRules, ProbeRefused

_SERVER_ERROR = 500
_BODY_MAX_BYTES = 65_536
"""A longer answer ends the connection: the next probe opens another."""
_refused: ContextVar[list[ProbeRefused]] = ContextVar("_refused")
"""Refusals within the running probe: a connect to several addresses at once would only report that all of them failed."""
_owner: ContextVar[str] = ContextVar("_owner", default="")
"""The namespace whose probe runs: name lookups are charged to it."""


class ProbeMissed(Unavailable):
    """No answer that counts. Says so in a fixed word: the text of an error could tell what stands behind an address."""

    def __init__(self, why: ProbeMiss) -> None:
        super().__init__(str(why))
        self.why = why


class Probes:
    """Sends them, at most so many at once. HTTP connections are kept, so that a round trip is one and not three."""

    def __init__(self, rules: AddressRules | None = None, at_once: int = 256) -> None:
        self._rules, self._names = rules or AddressRules(), Names()
        self._limit = asyncio.Semaphore(at_once)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_sent)
        # without the library's own cache, in which one owner's lookup is also what another waits for
        resolver = NamesResolver(self._names, lambda _: _owner.get())
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._socket, resolver=resolver, use_dns_cache=False)
        self._session = aiohttp.ClientSession(
            connector=connector, trace_configs=[trace], cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def round_trip_ms(self, probe: Probe, owner: str = "") -> float:
        """ProbeMissed says why there is none: no answer in time, or one that does not count. ProbeRefused: nobody was asked."""
        async with self._limit:
            refused: list[ProbeRefused] = []
            _refused.set(refused)
            _owner.set(owner)
            try:
                async with asyncio.timeout(probe.timeout_seconds):
                    return await (self._http(probe.url) if probe.url is not None else self._tcp(str(probe.host), int(probe.port or 0)))
            except ProbeMissed:
                raise
            except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
                if refused:
                    raise refused[0] from None
                raise ProbeMissed(_why(error)) from error

    async def _http(self, url: str) -> float:
        if self._session is None:
            raise ProbeMissed(ProbeMiss.FAILED)
        times = SimpleNamespace(sent_s=time.perf_counter())
        async with self._session.get(url, allow_redirects=False, trace_request_ctx=times) as response:
            round_trip_s: float = time.perf_counter() - times.sent_s
            await response.content.read(_BODY_MAX_BYTES)
            if response.status >= _SERVER_ERROR:
                raise ProbeMissed(ProbeMiss.SERVER_ERROR)
        return 1000 * round_trip_s

    async def _tcp(self, host: str, port: int) -> float:
        """A handshake is one round trip."""
        loop = asyncio.get_running_loop()
        found = (await self._names.look_up(host, port, _owner.get()))[0]
        with self._socket(found) as connection:
            connection.setblocking(False)
            since_s = time.perf_counter()
            await loop.sock_connect(connection, found[4])
            return 1000 * (time.perf_counter() - since_s)

    def _socket(self, found: Any) -> socket.socket:
        """The socket for one address, checked right before it is connected to: by then a name may mean another address than before."""
        family, kind, protocol, _, address = found
        try:
            self._rules.check(str(address[0]))
        except ProbeRefused as refused:
            _refused.get([]).append(refused)
            raise
        return socket.socket(family, kind, protocol)


def _why(error: Exception) -> ProbeMiss:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    # a failed handshake is a connection error to the library, and a name that does not resolve an OSError: the special ones first
    kinds: tuple[tuple[ProbeMiss, type[BaseException] | tuple[type[BaseException], ...]], ...] = (
        (ProbeMiss.TLS, (aiohttp.ClientSSLError, ssl.SSLError)),
        (ProbeMiss.NAME, (aiohttp.ClientConnectorDNSError, socket.gaierror)),
        (ProbeMiss.TIMEOUT, TimeoutError),
        (ProbeMiss.REFUSED, ConnectionRefusedError),
    )
    return next((word for word, kind in kinds if isinstance(error, kind) or isinstance(cause, kind)), ProbeMiss.FAILED)


async def _sent(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceRequestHeadersSentParams) -> None:
    """The request leaves now: names are resolved, the connection stands, TLS included."""
    context.trace_request_ctx.sent_s = time.perf_counter()

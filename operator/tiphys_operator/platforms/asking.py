"""Asks instances for their statistics. Neither follows redirects nor sends credentials, and reads no more than statistics can be long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp

from tiphys_models.base.errors import InvalidInput
from tiphys_operator.cluster.instances import Instance
from tiphys_operator.platforms.knative import LARGEST_BYTES, STATS_PATH, STATS_PORT, InstanceStats, stats_of
from tiphys_operator.platforms.metrics import PlatformMetrics

TIMEOUT_S = 1.0
ROUND_S = 4.0
"""A round takes no longer, however many do not answer."""
_AT_ONCE, _OF_SILENT = 64, 8
"""Those that were silent last time have few places of their own: nobody waits behind them."""


class InstanceReader:
    """One round after the other; who did not answer the last one is known."""

    def __init__(self, metrics: PlatformMetrics, port: int = STATS_PORT, timeout_s: float = TIMEOUT_S, round_s: float = ROUND_S) -> None:
        self._metrics, self._port, self._timeout_s, self._round_s = metrics, port, timeout_s, round_s
        self._places, self._of_silent = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_OF_SILENT)
        self._silent: set[str] = set()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, instances: Mapping[str, Instance]) -> dict[str, InstanceStats]:
        """The statistics of those that answered, by uid."""
        asking = {uid: asyncio.create_task(self._stats(instance, silent=uid in self._silent)) for uid, instance in instances.items()}
        try:
            if asking:
                await asyncio.wait(asking.values(), timeout=self._round_s)
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)
        found: dict[str, InstanceStats] = {}
        for uid, task in asking.items():
            if task.cancelled():
                self._metrics.asked["no-answer"].inc()
            elif task.exception() is not None:  # whatever one instance makes us trip over, the others have answered
                self._metrics.asked["unreadable"].inc()
            elif (stats := task.result()) is not None:
                found[uid] = stats
        self._silent = instances.keys() - found.keys()
        return found

    async def _stats(self, instance: Instance, *, silent: bool) -> InstanceStats | None:
        async with self._of_silent if silent else self._places:
            try:
                async with asyncio.timeout(self._timeout_s):
                    stats = stats_of(await self._body(instance.address))
            except InvalidInput:
                self._metrics.asked["unreadable"].inc()
                return None
            except (aiohttp.ClientError, OSError, ValueError):  # TimeoutError is an OSError
                self._metrics.asked["no-answer"].inc()
                return None
        if stats.pod != instance.pod:  # the address has been given to another one
            self._metrics.asked["another-pod"].inc()
            return None
        self._metrics.asked["answered"].inc()
        return stats

    async def _body(self, address: str) -> bytes:
        if self._session is None:
            raise ValueError("the reader is not open: use it in an async with block")
        host = f"[{address}]" if ":" in address else address
        async with self._session.get(f"http://{host}:{self._port}{STATS_PATH}", allow_redirects=False) as response:
            body = b""
            async for piece in response.content.iter_any():
                body += piece
                if response.status != 200 or len(body) > LARGEST_BYTES:
                    response.close()  # what is still to come is not read to keep the connection
                    raise InvalidInput(f"answer {response.status}, or too long for statistics")
        return body

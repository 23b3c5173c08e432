"""Pulls what binders say of their streams. A failure is counted; whoever is silent for a while is not believed any more."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from tiphys_models.api.stream_summary import StreamSummary
from tiphys_models.clients.names import Names
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import Unavailable
from tiphys_models.serving.bearer import TokenFile
from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.binding.metrics import BindingError, BindingMetrics

log = logging.getLogger(__name__)

PULL_S = 5.0
FRESH_S = 3 * PULL_S
_TIMEOUT_S = 3.0
_BODY_MAX_BYTES = 1024 * 1024
_PATH = "/v1/bindings/summary"


class SummaryReader:
    """Asks every address behind the URLs: only the one that holds an access site's Lease binds, and it says so."""

    def __init__(
        self,
        urls: tuple[str, ...],
        token_file: Path | None,
        metrics: BindingMetrics,
        clock: Clock,
        authority: TrustedAuthority | None = None,
    ) -> None:
        self._urls, self._token_file, self._metrics, self._clock = urls, token_file, metrics, clock
        self._authority = authority or TrustedAuthority(None)
        self._heard: dict[tuple[str, str], tuple[float, StreamSummary]] = {}
        self._failing: set[str] = set()
        self._names = Names(of_one=1)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def of(self, namespace: str, access_site: str) -> StreamSummary | None:
        """Of the binder that is active there; None: none has said so lately."""
        at_s, summary = self._heard.get((namespace, access_site), (0.0, None))
        return summary if summary is not None and self._clock.monotonic_s() - at_s <= FRESH_S else None

    async def pull(self) -> None:
        """Ask all of them once."""
        found = await asyncio.gather(*(self._addresses(url) for url in self._urls))
        answers = await asyncio.gather(*(self._visit(url, ip) for url, ips in zip(self._urls, found, strict=True) for ip in ips))
        now_s = self._clock.monotonic_s()
        for summary in answers:
            if summary is not None and summary.active:
                self._heard[summary.namespace, summary.access_site] = now_s, summary

    async def _addresses(self, url: str) -> list[str]:
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await self._names.look_up(parts.hostname or "", parts.port or 0, url)
        except OSError as error:
            self._failed(url, str(error) or f"no address within {_TIMEOUT_S:.0f} s")
            return []
        return sorted({str(address[4][0]) for address in found})

    async def _visit(self, url: str, ip: str) -> StreamSummary | None:
        try:
            summary = await self._get(url, ip)
        except Unavailable as error:
            self._failed(f"{url} at {ip}", str(error))
            return None
        self._failing.discard(f"{url} at {ip}")
        return summary

    async def _get(self, url: str, ip: str) -> StreamSummary:
        if self._session is None:
            raise Unavailable("the reader is not open: use it in an async with block")
        parts = urlsplit(url)
        host = f"[{ip}]" if ":" in ip else ip
        address = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{_PATH}"
        headers = {"Host": parts.netloc}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {TokenFile(self._token_file).to_send()}"
            name = parts.hostname if parts.scheme == "https" else None
            async with self._session.get(
                address, headers=headers, ssl=self._authority.context(), server_hostname=name, allow_redirects=False
            ) as response:
                body = await response.content.read(_BODY_MAX_BYTES)
                while not response.content.at_eof() and len(body) < _BODY_MAX_BYTES:
                    body += await response.content.read(_BODY_MAX_BYTES - len(body))
                if response.status != 200:
                    raise Unavailable(f"answered {response.status}")
            return StreamSummary.model_validate_json(body)
        except ValidationError as error:
            raise Unavailable(f"the answer is not readable: {error.errors(include_url=False)[0]['msg']}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(str(error) or type(error).__name__) from error

    def _failed(self, where: str, why: str) -> None:
        self._metrics.errors[BindingError.SUMMARY].inc()
        level = logging.DEBUG if where in self._failing else logging.WARNING  # once an outage
        log.log(level, "a binder's summary could not be read", extra={"fields": {"binder": where, "error": why}})
        self._failing.add(where)

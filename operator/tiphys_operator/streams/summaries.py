"""Pulls what binders say of their streams. A failure is counted; whoever is silent for a while is not believed any more."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from pydantic import ValidationError

from tiphys_models.api.stream_summary import StreamSummary
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import Names
from tiphys_models.kube.peers import Address, Peers, Service, addresses_of
from tiphys_models.serving.bearer import TokenFile
from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.streams.metrics import BindingError, BindingMetrics

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
        self._services, self._metrics, self._clock = [Service.of(url) for url in urls], metrics, clock
        self._token = TokenFile(token_file).to_send if token_file is not None else None
        self._authority = authority or TrustedAuthority(None)
        self._heard: dict[tuple[str, str], tuple[float, StreamSummary]] = {}
        self._failing: set[str] = set()
        self._names = Names(of_one=1)
        self._peers: Peers | None = None

    async def __aenter__(self) -> Self:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        self._peers = Peers(session, self._token, self._authority, _BODY_MAX_BYTES)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._peers is not None:
            await self._peers.session.close()
            self._peers = None

    def of(self, namespace: str, access_site: str) -> StreamSummary | None:
        """The summary of the binder that is active at this access site; None if no binder has reported it lately."""
        at_s, summary = self._heard.get((namespace, access_site), (0.0, None))
        return summary if summary is not None and self._clock.monotonic_s() - at_s <= FRESH_S else None

    async def pull(self) -> None:
        """Ask all of them once."""
        found = await asyncio.gather(*map(self._addresses, self._services))
        answers = await asyncio.gather(*(self._visit(address) for of_service in found for address in of_service))
        now_s = self._clock.monotonic_s()
        for summary in answers:
            if summary is not None and summary.active:
                self._heard[summary.namespace, summary.access_site] = now_s, summary

    async def _addresses(self, service: Service) -> list[Address]:
        try:
            return await addresses_of(self._names, service, _TIMEOUT_S)
        except Unavailable as error:
            self._failed(service.host, str(error))
            return []

    async def _visit(self, address: Address) -> StreamSummary | None:
        where = f"{address.service.host} at {address.ip}"
        try:
            if self._peers is None:
                raise Unavailable("the reader is not open: use it in an async with block")
            summary = StreamSummary.model_validate_json(await self._peers.get(address, _PATH))
        except ValidationError as error:
            self._failed(where, f"the answer is not readable: {error.errors(include_url=False)[0]['msg']}")
            return None
        except Unavailable as error:
            self._failed(where, str(error))
            return None
        self._failing.discard(where)
        return summary

    def _failed(self, where: str, why: str) -> None:
        self._metrics.errors[BindingError.SUMMARY].inc()
        level = logging.DEBUG if where in self._failing else logging.WARNING  # once an outage
        log.log(level, "a binder's summary could not be read", extra={"fields": {"binder": where, "error": why}})
        self._failing.add(where)

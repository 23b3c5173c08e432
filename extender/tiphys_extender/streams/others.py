"""What binders of other access sites have bound: asked every second, because offers are shared and each
binder knows its own streams only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import orjson

from tiphys_extender.streams.binder import StreamBinder

_log = logging.getLogger(__name__)
PERIOD_S = 1.0
_TIMEOUT_S = 1.0
_FORGET_AFTER = 10
"""Rounds without a word of what is bound: as long as a lease lasts at most. Until then what was last heard counts."""
LOADS = "/v1/bindings/loads"


class Others:
    """One loop over the status addresses of all of them.

    Until each has said once all that it has bound nothing is known of what is free: see `known`.
    """

    def __init__(self, streams: StreamBinder, urls: Sequence[str], token_file: Path) -> None:
        self._streams, self._urls, self._token_file = streams, tuple(urls), token_file
        self._site: dict[str, str] = {}
        self._silent = dict.fromkeys(self._urls, 0)
        self._unheard = set(self._urls)
        self._rounds = 0

    @property
    def known(self) -> bool:
        """Whether all were heard; who has not been for as long as a lease lasts is not waited for."""
        return not self._unheard or self._rounds >= _FORGET_AFTER

    async def run(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
            while True:
                await self.round(session)
                await asyncio.sleep(PERIOD_S)

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask all, once."""
        await asyncio.gather(*(self._ask(session, url) for url in self._urls))
        self._rounds += 1

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> None:
        try:
            headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}  # read again: it is rotated in place
            async with session.get(url + LOADS, headers=headers) as response:
                if response.status != 200:
                    raise ValueError(f"status {response.status}")
                said = orjson.loads(await response.read())
                site, loads = str(said["accessSite"]), {str(offer): float(qps) for offer, qps in said["loads"].items()}
                active, recovering = bool(said["active"]), bool(said.get("recovering"))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self._missed(url, error)
            return
        if not recovering:
            self._unheard.discard(url)
        if not active or site == self._streams.access_site:  # a standby there, or one of our own: says nothing of what is bound
            self._count_silence(url)
            return
        self._silent[url] = 0
        self._site[url] = site
        self._streams.hear(site, loads, complete=not recovering)

    def _missed(self, url: str, error: Exception) -> None:
        if self._silent[url] == 0:
            _log.warning(
                "another binder does not answer, its last word counts", extra={"fields": {"url": url, "error": type(error).__name__}}
            )
        self._count_silence(url)

    def _count_silence(self, url: str) -> None:
        self._silent[url] += 1
        if self._silent[url] == _FORGET_AFTER and (site := self._site.pop(url, None)) is not None and site not in self._site.values():
            self._streams.forget(site)

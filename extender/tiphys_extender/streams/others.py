"""What binders of other access sites have bound: asked every second, because offers are shared and each
binder knows its own streams only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import aiohttp
import orjson

from tiphys_extender.status_app import LOADS_PATH
from tiphys_extender.streams.binder import StreamBinder
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import NamesResolver
from tiphys_models.kube.peers import Peers
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.certificates import TrustedAuthority

_log = logging.getLogger(__name__)
PERIOD_S = 1.0
_TIMEOUT_S = 1.0
_FORGET_AFTER = 10
"""Rounds without a word of what is bound: as long as a lease lasts at most. Until then what was last heard counts."""
LOADS = LOADS_PATH
_BODY_MAX_BYTES = 2**20
_LOADS_MAX = 10_000
_LARGEST_QPS = 1e6


class OtherBinders:
    """One loop over the status addresses of all of them.

    Until each has said once all that it has bound nothing is known of what is free: see `known`.
    """

    def __init__(self, streams: StreamBinder, urls: Sequence[str], tokens: BearerTokens, authority: TrustedAuthority) -> None:
        self._streams, self._urls, self._tokens, self._authority = streams, tuple(urls), tokens, authority
        self._site: dict[str, str] = {}
        self._silent = dict.fromkeys(self._urls, 0)
        self._unheard = set(self._urls)
        self._rounds = 0

    @property
    def known(self) -> bool:
        """Whether all were heard; who has not been for as long as a lease lasts is not waited for."""
        return not self._unheard or self._rounds >= _FORGET_AFTER

    async def run(self) -> None:
        """Ask the other binders again and again, until cancelled."""
        async with self.session() as session:
            while True:
                await self.round(session)
                await asyncio.sleep(PERIOD_S)

    def session(self) -> aiohttp.ClientSession:
        """HTTP session for all rounds."""
        connector = aiohttp.TCPConnector(resolver=NamesResolver())
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask all other binders once."""
        await asyncio.gather(*(self._ask(session, url) for url in self._urls))
        self._rounds += 1

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> None:
        try:
            peers = Peers(session, self._tokens.to_send, self._authority, _BODY_MAX_BYTES)
            said = _parse(await peers.get(url, LOADS))
        except (Unavailable, ValueError, LookupError, TypeError, AttributeError) as error:
            self._missed(url, error)
            return
        site, loads, active, recovering = said
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
            why = str(error) if isinstance(error, Unavailable) else type(error).__name__
            _log.warning("another binder does not answer, its last word counts", extra={"fields": {"url": url, "error": why}})
        self._count_silence(url)

    def _count_silence(self, url: str) -> None:
        self._silent[url] += 1
        if self._silent[url] == _FORGET_AFTER and (site := self._site.pop(url, None)) is not None and site not in self._site.values():
            self._streams.forget(site)


def _parse(body: bytes) -> tuple[str, dict[str, float], bool, bool]:
    """(access site, load by offer, whether it binds, whether it still learns what is bound); else an error that says what is wrong."""
    said = orjson.loads(body)
    loads = {str(offer): float(qps) for offer, qps in said["loads"].items()}
    if len(loads) > _LOADS_MAX or not all(0.0 <= qps <= _LARGEST_QPS for qps in loads.values()):
        raise ValueError("loads that cannot be")
    return str(said["accessSite"]), loads, bool(said["active"]), bool(said.get("recovering"))

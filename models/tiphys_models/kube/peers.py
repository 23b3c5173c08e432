"""Other processes of ours: found by the name of their Service, each asked at its own address, with bounded answers and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import Names
from tiphys_models.serving.certificates import TrustedAuthority

_QUOTED_BYTES = 200
"""So much of a refusal is told: enough to recognise a proxy's page."""


class Service(NamedTuple):
    """A name that stands for some addresses."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Service:
        """The service of a URL; its path is not looked at."""
        parts = urlsplit(url)
        return cls(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))


class Address(NamedTuple):
    """One process behind a service."""

    service: Service
    ip: str

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.service.port}" if ":" in self.ip else f"{self.ip}:{self.service.port}"


async def addresses_of(names: Names, service: Service, timeout_s: float) -> list[Address]:
    """All addresses behind a service, in a fixed order; Unavailable if it has none that can be found in time."""
    try:
        async with asyncio.timeout(timeout_s):
            found = await names.look_up(service.host, service.port, service.host)
    except OSError as error:
        raise Unavailable(f"cannot resolve {service.host}: {str(error) or 'no answer in time'}") from error
    return [Address(service, ip) for ip in sorted({str(address[4][0]) for address in found})]


@dataclass(slots=True)
class Peers:
    """GET with our token, over one session."""

    session: aiohttp.ClientSession
    token: Callable[[], str] | None = None
    """Read anew for every request: tokens rotate."""
    authority: TrustedAuthority = field(default_factory=lambda: TrustedAuthority(None))
    body_max_bytes: int = 16 * 2**20

    async def get(self, where: Address | str, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """The body of a 200; Unavailable for anything else. `where`: one process, or a URL whose name the session resolves."""
        url, name, headers = f"{where}{path}", None, {}
        if isinstance(where, Address):
            service = where.service
            url, headers = f"{service.scheme}://{where}{path}", {"Host": f"{service.host}:{service.port}"}
            name = service.host if service.scheme == "https" else None
        try:
            if self.token is not None:
                headers["Authorization"] = f"Bearer {self.token()}"
            # a redirect would carry the token to whoever it names
            async with self.session.get(
                url, params=params, headers=headers, ssl=self.authority.context(), server_hostname=name, allow_redirects=False
            ) as response:
                body = await self._body(response, url)
                if response.status != 200:
                    raise Unavailable(f"{url} answered {response.status}: {body[:_QUOTED_BYTES].decode('utf-8', 'replace')}")
                return body
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{url}: {error or type(error).__name__}") from error

    async def get_object(self, where: Address | str, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The decoded JSON object of an answer; Unavailable if it is none."""
        try:
            page = orjson.loads(await self.get(where, path, params))
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"{where}{path}: {error}") from error
        if not isinstance(page, dict):
            raise Unavailable(f"{where}{path} sent something that is no object")
        return page

    async def _body(self, response: aiohttp.ClientResponse, url: str) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self.body_max_bytes:
                raise Unavailable(f"{url} sent more than {self.body_max_bytes} bytes")
        return bytes(body)

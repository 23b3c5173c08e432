"""The few verbs both services use, with a deadline on each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from tiphys_models.clients.access import ApiAccess
from tiphys_models.domain.errors import Unavailable

PAGE = 500  # a list of 10,000 pods at once costs 338 MB, in pages of 500 it costs 79
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
"""Accept header of a list without spec and status: a tenth of the bytes where labels are all that is asked for."""
METADATA_OF_ONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
"""The same of one object: whether it changed, without its bytes."""
_CLIP = 300


class ApiError(Unavailable):
    """An answer of the API server other than 2xx."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"API server answered {status} {reason}: {message[:_CLIP]}")
        self.status = status
        self.reason = reason


class KubeClient:
    """One connection pool to one API server."""

    def __init__(self, access: ApiAccess, request_timeout_s: float = 30.0, user_agent: str = "tiphys") -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, connect=10.0)
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = self._access.ssl_context()
        connector = aiohttp.TCPConnector(ssl=context if context is not None else True)
        self._session = aiohttp.ClientSession(connector=connector, headers={"User-Agent": self._user_agent})
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "application/json") -> Any:
        """GET one object or list."""
        return await self.request("GET", path, params=params, accept=accept)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Any:
        """Any verb; the decoded answer, or ApiError, or Unavailable."""
        data = None if body is None else orjson.dumps(body)
        try:
            headers = {"Content-Type": content_type, "Accept": accept, **self._access.headers()}
            async with self._opened().request(
                method, self._access.server + path, data=data, headers=headers, params=params, timeout=self._timeout
            ) as response:
                return await self._decoded(response)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise Unavailable(f"{method} {path}: {error or type(error).__name__}") from error

    async def apply(self, path: str, body: Any, field_manager: str, *, force: bool = True) -> Any:
        """Server-side apply."""
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self.request("PATCH", path, body=body, content_type="application/apply-patch+yaml", params=params)

    async def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "application/json"
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A list, page by page; the last page's metadata.resourceVersion is where a watch goes on."""
        query = {"limit": str(PAGE), **(params or {})}
        while True:
            page = await self.get(path, query, accept=accept)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    async def watch(
        self,
        path: str,
        resource_version: str,
        *,
        server_timeout_s: int,
        stall_s: float,
        rest_s: float = 0.0,
        params: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Events after a version, bookmarks included, until the server ends the watch or nothing comes for `stall_s`.

        After events have come, those of the next `rest_s` are read together: in a burst each would wake the process by itself.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_timeout_s),
            **(params or {}),
        }
        timeout = aiohttp.ClientTimeout(total=None, connect=10.0, sock_read=stall_s)
        try:
            headers = {"Accept": "application/json", **self._access.headers()}
            async with self._opened().get(self._access.server + path, params=query, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    await self._decoded(response)
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield orjson.loads(line)
                    if rest_s:
                        await asyncio.sleep(rest_s)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise Unavailable(f"watch {path}: {error or type(error).__name__}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise Unavailable("the client is not open: use it in an async with block")
        return self._session

    async def _decoded(self, response: aiohttp.ClientResponse) -> Any:
        body = await response.read()
        if 200 <= response.status < 300:
            return orjson.loads(body) if body else None
        try:
            status = orjson.loads(body)
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        except (orjson.JSONDecodeError, AttributeError):
            reason, message = response.reason or "", body.decode("utf-8", "replace")
        raise ApiError(response.status, reason, message)

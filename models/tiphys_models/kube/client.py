"""The few verbs both services use, with a deadline on each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.backoff import parse_retry_after, wall_s
from tiphys_models.kube.paging import Paging

PAGE = 500
"""Objects of a page at most."""
_FIRST_PAGE = 50
PAGE_BYTES = 2**20
"""A page is parsed in one go, to ten times its bytes: so many take some 5 ms and 10 MB. The page before says how many objects that are."""
_LARGE_PAGE_BYTES = 4 * PAGE_BYTES
_PATHS = 256
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
"""Accept header of a list without spec and status: a tenth of the bytes where labels are all that is asked for."""
METADATA_OF_ONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
"""Accept header of one object without spec and status: whether it changed, without its bytes."""
MAX_BODY_BYTES = 16 * 2**20
"""Most bytes of one answer, unpacked: five times the largest object that an API server stores."""
_BEHIND_BYTES = 2**15
"""A watch that brings so much at once has more to come."""
MAX_LINE_BYTES = 8 * 2**20
"""Most bytes of one event of a watch."""
_CLIP = 300


class ApiError(Unavailable):
    """An answer of the API server other than 2xx."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"API server answered {status} {reason}: {message[:_CLIP]}")
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        """How long the server wants to be left alone; None if it did not say."""


class TooLarge(Unavailable):
    """An answer, or an event of a watch, of more bytes than are taken."""


class KubeClient(Paging):
    """One connection pool to one API server."""

    def __init__(self, access: ApiAccess, request_timeout_s: float = 30.0, user_agent: str = "tiphys") -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, connect=10.0)
        # as long as an API server itself works at a request: to give up earlier would only make it begin again
        self._page_timeout = aiohttp.ClientTimeout(total=2 * request_timeout_s, connect=10.0)
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._limits: dict[str, int] = {}
        """Objects of the next page, by path."""

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
        deadline: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        """Any verb; the decoded answer, or ApiError, or Unavailable."""
        headers = {"Content-Type": content_type, "Accept": accept}
        data = None if body is None else orjson.dumps(body)
        return (await self._exchange(method, path, data, headers, params, deadline or self._timeout, MAX_BODY_BYTES))[0]

    async def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None,
        deadline: aiohttp.ClientTimeout,
        most_bytes: int,
    ) -> tuple[Any, int]:
        """The decoded answer and its bytes."""
        try:
            asked = {**headers, **self._access.headers()}
            async with self._opened().request(
                method, self._access.server + path, data=data, headers=asked, params=params, timeout=deadline
            ) as response:
                return await self._decoded(response, most_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise Unavailable(f"{method} {path}: {error or type(error).__name__}") from error

    async def apply(self, path: str, body: Any, field_manager: str, *, force: bool = True) -> Any:
        """Create or change an object by server-side apply."""
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        return await self.request("PATCH", path, body=body, content_type="application/apply-patch+yaml", params=params)

    async def page(
        self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "application/json"
    ) -> dict[str, Any]:
        """One page of a list, the first one or where `token` of the page before goes on; it has metadata and a list of items.

        No resourceVersion is asked for: with "0" an API server before 1.34 ignores the limit, and one that lags behind shows the past.
        """
        limit = self._limits.pop(path, _FIRST_PAGE)
        while True:
            query = {"limit": str(limit), **(params or {})} | ({"continue": token} if token else {})
            most_bytes = _LARGE_PAGE_BYTES if int(query["limit"]) > 1 else MAX_BODY_BYTES
            try:
                answer, size = await self._exchange("GET", path, None, {"Accept": accept}, query, self._page_timeout, most_bytes)
            except TooLarge:  # hundreds of objects as large as can be: anybody may make those
                if limit <= 1:
                    raise
                limit = max(limit // 8, 1)
                continue
            found = _page(path, answer)
            # objects of one kind are alike: the next page has as many as are a good size to parse
            self._limits[path] = min(max(max(len(found["items"]), 1) * PAGE_BYTES // max(size, 1), 1), PAGE)
            while len(self._limits) > _PATHS:
                del self._limits[next(iter(self._limits))]
            return found

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
        """Events after a version, bookmarks included, until the server ends the watch or no whole event comes for `stall_s`.

        After events have come, those of the next `rest_s` are read together: in a burst each would wake the process by itself.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_timeout_s),
            **(params or {}),
        }
        timeout = aiohttp.ClientTimeout(total=server_timeout_s + stall_s, connect=10.0, sock_read=stall_s)
        try:
            headers = {"Accept": "application/json", **self._access.headers()}
            async with self._opened().get(self._access.server + path, params=query, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    await self._decoded(response, MAX_BODY_BYTES)
                lines = _Lines(stall_s)
                async for chunk in response.content.iter_any():
                    for line in lines.take(chunk):
                        event = orjson.loads(line)
                        if not isinstance(event, dict):
                            raise Unavailable(f"watch {path}: the server sent what is no event")
                        yield event
                    # whoever is behind reads on: what has piled up is no burst to wait for, but it lets others through
                    await asyncio.sleep(rest_s if len(chunk) < _BEHIND_BYTES else 0)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise Unavailable(f"watch {path}: {error or type(error).__name__}") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise Unavailable("the client is not open: use it in an async with block")
        return self._session

    async def _decoded(self, response: aiohttp.ClientResponse, most_bytes: int) -> tuple[Any, int]:
        body = await _read(response, most_bytes)
        if 200 <= response.status < 300:
            return (orjson.loads(body) if body else None), len(body)
        try:
            status = orjson.loads(body)
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        except (orjson.JSONDecodeError, AttributeError):
            reason, message = response.reason or "", body.decode("utf-8", "replace")
        raise ApiError(response.status, reason, message, parse_retry_after(response.headers.get("Retry-After"), wall_s()))


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The whole body, as far as it is one that can be taken."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise TooLarge(f"the API server's answer has more than {most_bytes} bytes")
    return b"".join(parts)


def _page(path: str, answer: Any) -> dict[str, Any]:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(metadata, dict) or not isinstance(answer.get("items") or [], list):
        raise Unavailable(f"GET {path}: the answer is no list")
    return {**answer, "metadata": metadata, "items": answer.get("items") or []}


class _Lines:
    """Bytes of a stream as lines; a line has a largest size and a longest time."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._rest: list[bytes] = []
        self._size = 0
        self._line_s = time.monotonic()

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk, without the empty ones."""
        now_s = time.monotonic()
        if b"\n" not in chunk:
            self._rest.append(chunk)
            self._size += len(chunk)
            if now_s - self._line_s > self._stall_s:  # a byte now and then is no sign of life
                raise TimeoutError(f"no whole event for {self._stall_s:.0f} s")
        else:
            *lines, rest = b"".join((*self._rest, chunk)).split(b"\n")
            self._rest, self._size, self._line_s = [rest], len(rest), now_s
            yield from filter(None, lines)
        if self._size > MAX_LINE_BYTES:
            raise TooLarge(f"an event of more than {MAX_LINE_BYTES} bytes")

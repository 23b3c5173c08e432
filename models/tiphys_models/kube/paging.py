"""Lists in pages: a page that fails is asked for again, and the whole has a deadline."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.backoff import Backoff

_log = logging.getLogger(__name__)

LIST_S = 300.0
"""Most seconds for a whole list: the token that its pages go on with is good for five minutes."""
_GONE = 410


class Paging(ABC):
    """Whoever can get one page can get a list."""

    list_s = LIST_S

    @abstractmethod
    async def page(
        self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "application/json"
    ) -> dict[str, Any]:
        """One page, the first one or where `token` of the page before goes on; it has metadata and a list of items."""

    async def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "application/json"
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A list, page by page; the last page's metadata.resourceVersion is where a watch goes on.

        The first page may fail like any request. A later one is asked for again: to begin anew would cost the server all before it.
        """
        loop = asyncio.get_running_loop()
        end_s, token, backoff = loop.time() + self.list_s, "", Backoff(0.2, 30.0)
        while True:
            try:
                async with asyncio.timeout_at(end_s):
                    page = await self.page(path, params, token, accept=accept)
            except TimeoutError as error:
                raise Unavailable(f"GET {path}: the list took more than {self.list_s:.0f} s") from error
            except Unavailable as error:
                wait_s = backoff.next_s(error)
                if not token or getattr(error, "status", 0) == _GONE or loop.time() + wait_s > end_s:
                    raise
                _log.warning("a page is asked for again", extra={"fields": {"path": path, "why": str(error), "pause": round(wait_s, 1)}})
                await asyncio.sleep(wait_s)
                continue
            token = str(page["metadata"].get("continue") or "")
            yield page
            del page  # it must not stand in memory beside the next one
            if not token:
                return

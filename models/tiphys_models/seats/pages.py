"""Pages of a record log by HTTP: how they are written, and one reader that goes on by sequence number and counts what it missed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.record import RecordLog

PAGE_MAX = 1_000
Fetch = Callable[[int, int], Awaitable[Mapping[str, Any]]]
"""(after, limit) -> a page; Unavailable if there is none."""
Item = Mapping[str, Any]


def page_of(log: RecordLog[Any], after: str, limit: str) -> bytes:
    """The page that a query asks for, both as they stand in the URL; InvalidInput says what is wrong."""
    return orjson.dumps(log.after(_whole("after", after, 0), min(_whole("limit", limit, PAGE_MAX), PAGE_MAX)))


def _whole(name: str, text: str, default: int) -> int:
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput(f"{name} must be a whole number, not negative")
    return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as a reader sees it that has counted up to some number."""

    new: list[Item]
    again: list[Item]
    """Items that were counted before."""
    lost: int
    """Items between, which were forgotten before they were read."""
    read_to: int
    """Number of the last item; 0 without any."""
    more: bool
    restarted: bool
    """The log has started anew: it must be read from its beginning."""


@dataclass(slots=True)
class Cursor:
    """How far one log has been read."""

    counted: int = 0
    """The last sequence number counted."""
    known: bool = False
    """Whether it ever answered: before that its old records are history, not loss."""

    def take(self, page: Mapping[str, Any]) -> Page:
        """Count a page; KeyError, TypeError or ValueError for anything that is none."""
        last = int(page.get("last") or 0)
        if last < self.counted:
            self.counted = 0
            return Page([], [], 0, 0, more=True, restarted=True)
        items = sorted(page.get("items") or (), key=lambda item: int(item["seq"]))
        new: list[Item] = []
        again: list[Item] = []
        lost = 0
        for item in items:
            seq = int(item["seq"])
            if seq <= self.counted:
                again.append(item)
                continue
            if self.known:
                lost += seq - self.counted - 1
            self.counted, self.known = seq, True
            new.append(item)
        self.known = True
        read_to = int(items[-1]["seq"]) if items else 0
        return Page(new, again, lost, read_to, more=bool(items) and read_to < last, restarted=False)


@dataclass(slots=True)
class RecordReader:
    """Reads a log on from where it stopped."""

    fetch: Fetch
    limit: int = PAGE_MAX
    most_pages: int = 20
    cursor: Cursor = field(default_factory=Cursor)

    async def read(self, after: int | None = None) -> AsyncIterator[Page]:
        """The pages that are there now, at most `most_pages`; from another number on where some records are looked at again.

        A page has been counted when it is handed out: whoever stops in between, or is stopped by an error, loses no page before.
        """
        at = self.cursor.counted if after is None else after
        for _ in range(self.most_pages):
            page = self.cursor.take(await self.fetch(at, self.limit))
            yield page
            if not page.more:
                return
            at = page.read_to

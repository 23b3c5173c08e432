"""Pages of records, read by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.seats.test_record import record
from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.pages import PAGE_MAX, Cursor, Page, RecordReader, page_of
from tiphys_models.seats.record import Record, RecordLog


class Server:
    """A log that is read as over HTTP: everything goes through JSON."""

    def __init__(self, capacity: int = 100) -> None:
        self.log: RecordLog[Record] = RecordLog(capacity)
        self.asked: list[tuple[int, int]] = []

    def decide(self, count: int) -> None:
        for _ in range(count):
            self.log.append(record("a"))

    async def fetch(self, after: int, limit: int) -> Mapping[str, Any]:
        self.asked.append((after, limit))
        page: dict[str, Any] = orjson.loads(page_of(self.log, str(after), str(limit)))
        return page


async def read(reader: RecordReader, after: int | None = None) -> list[Page]:
    return [page async for page in reader.read(after)]


def seqs(pages: list[Page]) -> list[int]:
    return [item["seq"] for page in pages for item in page.new]


async def test_a_reader_goes_on_where_it_stopped() -> None:
    server = Server()
    reader = RecordReader(server.fetch, limit=4)
    server.decide(10)
    assert seqs(await read(reader)) == list(range(1, 11))
    assert seqs(await read(reader)) == []
    server.decide(2)
    assert seqs(await read(reader)) == [11, 12]


async def test_what_was_forgotten_before_it_was_read_is_counted_but_history_is_not() -> None:
    server = Server(capacity=5)
    reader = RecordReader(server.fetch)
    server.decide(20)
    assert sum(page.lost for page in await read(reader)) == 0
    server.decide(8)
    assert sum(page.lost for page in await read(reader)) == 3


async def test_a_log_that_starts_anew_is_read_from_its_beginning() -> None:
    server = Server()
    reader = RecordReader(server.fetch)
    server.decide(9)
    await read(reader)
    server.log = RecordLog(100)
    server.decide(3)
    pages = await read(reader)
    assert seqs(pages) == [1, 2, 3]
    assert [page.restarted for page in pages] == [True, False]


async def test_records_can_be_looked_at_again_without_being_counted_twice() -> None:
    server = Server()
    reader = RecordReader(server.fetch)
    server.decide(5)
    await read(reader)
    server.decide(1)
    (page,) = await read(reader, after=3)
    assert ([item["seq"] for item in page.again], [item["seq"] for item in page.new], page.lost) == ([4, 5], [6], 0)


async def test_one_reading_ends_however_fast_a_log_grows() -> None:
    server = Server(capacity=1_000)
    reader = RecordReader(server.fetch, limit=2, most_pages=3)
    server.decide(50)
    assert seqs(await read(reader)) == [1, 2, 3, 4, 5, 6]
    assert seqs(await read(reader))[0] == 7


@pytest.mark.parametrize(("after", "limit"), [("-1", ""), ("", "x"), ("1e3", ""), ("", "9" * 30)])
def test_a_query_that_is_no_number_is_refused_with_its_name(after: str, limit: str) -> None:
    with pytest.raises(InvalidInput, match="must be a whole number"):
        page_of(RecordLog(3), after, limit)


def test_a_page_is_bounded_whatever_is_asked_for() -> None:
    server = Server(capacity=3_000)
    server.decide(2_000)
    assert len(orjson.loads(page_of(server.log, "", "1000000"))["items"]) == PAGE_MAX


@pytest.mark.parametrize("page", [{"items": [{}], "last": 1}, {"items": 7, "last": 1}, {"items": [{"seq": None}]}, {"last": "x"}])
def test_what_is_no_page_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Cursor().take(page)

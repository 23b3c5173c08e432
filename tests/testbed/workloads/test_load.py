"""The open-loop load: it does not wait for answers, and times requests from when they were due."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tiphys_testbed.workloads.load import Sent, fell_behind, histogram, play, windows

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def answering(answer: Callable[[], Awaitable[bytes]]) -> AsyncIterator[tuple[str, int]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(await answer())
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def test_it_does_not_wait_for_answers_and_charges_a_stall_to_everybody_who_came_meanwhile() -> None:
    free = asyncio.Event()
    here = 0

    async def stalled() -> bytes:
        nonlocal here
        here += 1
        if here == 5:
            asyncio.get_running_loop().call_later(0.3, free.set)
        await free.wait()
        return OK

    async with answering(stalled) as address:
        # a closed loop would never send the fifth, and nobody would be freed
        sent = await play([0.0, 0.01, 0.02, 0.03, 0.04], [address], "/")
    assert [each.due_s for each in sent] == [0.0, 0.01, 0.02, 0.03, 0.04]
    assert all(each.latency_s >= 0.29 for each in sent)


async def test_who_gets_no_good_answer_in_time_has_an_infinite_latency() -> None:
    async def refused() -> bytes:
        return b"HTTP/1.1 503 Service Unavailable\r\n\r\n"

    async def never() -> bytes:
        await asyncio.sleep(1)
        return OK

    async with answering(refused) as full, answering(never) as silent:
        sent = await play([0.0, 0.0], [full, silent], "/", time_out_s=0.2)
    gone = await play([0.0], [full], "/", time_out_s=0.2)
    assert [each.latency_s for each in [*sent, *gone]] == [math.inf] * 3


def test_quantiles_of_the_histogram_are_within_its_ratio_and_count_the_unanswered() -> None:
    found = histogram([0.001 * number for number in range(1, 1001)])
    for share in (0.5, 0.9, 0.99):
        assert share <= found.quantile(share) <= share * 1.05 * 1.001
    assert histogram([0.1] * 8 + [math.inf] * 2).quantile(0.9) == math.inf
    assert histogram([0.1] * 9 + [math.inf]).quantile(0.9) == pytest.approx(0.1, rel=0.05)
    assert math.isnan(histogram([]).quantile(0.9))


def test_windows_count_by_the_time_at_which_requests_were_due() -> None:
    sent = [Sent(0.1, 0.3, 0.0), Sent(0.2, 5.0, 0.0), Sent(4.9, 0.3, 0.0), Sent(5.0, 0.1, 0.0), Sent(11.0, 0.1, 0.0)]
    first, second = windows(sent, 5.0, 2, 0.4)
    assert (first.requests, first.good, first.kept(0.6), first.kept(0.9)) == (3, 2, True, False)
    assert (second.requests, second.good, second.kept(0.9)) == (1, 1, True)
    (empty,) = windows([], 5.0, 1, 0.4)
    assert empty.kept(0.9)


def test_a_generator_that_was_late_itself_says_so() -> None:
    assert fell_behind([Sent(0.0, 0.1, 0.0), Sent(0.1, 1.0, 0.9)]) == 0.5

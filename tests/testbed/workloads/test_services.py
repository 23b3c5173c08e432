"""The services that are scaled on real nodes: what they answer, what they count, and that they serve in order."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tiphys_testbed.workloads import fibonacci, hotel
from tiphys_testbed.workloads.metrics import EDGES_S, RequestMetrics, granted_cores, parse
from tiphys_testbed.workloads.server import Query, Work, WorkServer


@asynccontextmanager
async def serving(routes: dict[str, Work], give_up_s: float = 5.0, threads: int = 1) -> AsyncIterator[tuple[WorkServer, int]]:
    server = WorkServer(routes, give_up_s, threads)
    listener = await server.start("127.0.0.1", 0)
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a counter that a thread moves
            await asyncio.sleep(0.001)


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body.decode()


async def test_fibonacci_answers_and_counts_its_requests_by_latency() -> None:
    async with serving(fibonacci.ROUTES) as (_, port):
        assert await get(port, "/?n=10") == (200, '{"n": 10, "fib": 55}')
        assert (await get(port, "/?n=31"))[0] == 400
        assert (await get(port, "/?n=ten"))[0] == 400
        assert (await get(port, "/elsewhere"))[0] == 404
        assert await get(port, "/healthz") == (200, "ok")
        series = parse((await get(port, "/metrics"))[1])
    assert series['http_request_duration_seconds_bucket{le="+Inf"}'] == series["http_request_duration_seconds_count"] == 3
    assert series["http_requests_in_flight"] == 0
    assert 'http_request_duration_seconds_bucket{le="0.4"}' in series
    assert series["process_cpu_seconds_total"] > 0


class Gate:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.free, self.order, self.together = threading.Event(), list[str](), 0

    def work(self, query: Query) -> str:
        self.together += 1
        assert self.together == 1, "one at a time"
        assert self.free.wait(10)
        self.order.append(query["n"])
        self.together -= 1
        return query["n"]


async def test_requests_are_served_one_at_a_time_in_order_and_timed_from_their_arrival() -> None:
    gate = Gate()
    async with serving({"/": gate.work}) as (server, port):
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(get(port, f"/?n={number}")))
            await until(partial(lambda here: server.metrics.in_flight == here, number + 1))
        await asyncio.sleep(0.06)
        gate.free.set()
        assert [status for status, _ in await asyncio.gather(*tasks)] == [200] * 4
        series = parse(server.metrics.render())
    assert gate.order == ["0", "1", "2", "3"]
    # nobody's work took long, but all had waited
    assert series['http_request_duration_seconds_bucket{le="0.05"}'] == 0
    assert series["http_request_duration_seconds_sum"] >= 4 * 0.05


async def test_a_service_that_waits_for_others_serves_several_at_a_time() -> None:
    both = threading.Barrier(2, timeout=5)
    async with serving({"/": lambda _: both.wait() < 2}, threads=2) as (_, port):
        answers = await asyncio.gather(get(port, "/"), get(port, "/"))
    assert list(answers) == [(200, "true")] * 2


async def test_who_waited_too_long_is_given_up_and_counted_as_late() -> None:
    gate = Gate()
    async with serving({"/": gate.work}, give_up_s=1.0) as (server, port):
        tasks = [asyncio.create_task(get(port, "/?n=0"))]
        await until(lambda: gate.together)
        tasks += [asyncio.create_task(get(port, f"/?n={number}")) for number in (1, 2)]
        await until(lambda: server.metrics.in_flight == 3)
        await asyncio.sleep(1.05)
        gate.free.set()
        found = [status for status, _ in await asyncio.gather(*tasks)]
        series = parse(server.metrics.render())
    assert found == [200, 503, 503]
    assert series["http_request_duration_seconds_count"] == 3
    assert series['http_request_duration_seconds_bucket{le="1"}'] == 0


async def test_scrapes_are_answered_while_work_is_done() -> None:
    gate = Gate()
    async with serving({"/": gate.work}) as (_, port):
        working = asyncio.create_task(get(port, "/?n=0"))
        await until(lambda: gate.together)
        series = parse((await get(port, "/metrics"))[1])
        assert series["http_requests_in_flight"] == 1
        gate.free.set()
        await working


def test_buckets_hold_what_is_at_most_their_edge_and_add_up() -> None:
    metrics = RequestMetrics((0.1, 0.4))
    for latency_s in (0.05, 0.1, 0.4, 0.41):
        metrics.taken()
        metrics.answered(latency_s)
    series = parse(metrics.render())
    assert [series[f'http_request_duration_seconds_bucket{{le="{edge}"}}'] for edge in ("0.1", "0.4", "+Inf")] == [2, 3, 4]
    assert 0.4 in EDGES_S, "the objective of the policies that scale these services"


def test_granted_cores_are_those_of_the_cgroup_files_of_either_version(tmp_path: Path) -> None:
    assert granted_cores(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("25000\n")
    assert granted_cores(tmp_path) == 0.25
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert granted_cores(tmp_path) is None
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert granted_cores(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert granted_cores(tmp_path) is None


async def test_the_hotel_front_end_asks_geo_and_profile_and_tells_what_they_know() -> None:
    async with serving(hotel.routes("geo")) as (_, geo), serving(hotel.routes("profile")) as (_, profile):
        async with serving(hotel.routes("front", f"127.0.0.1:{geo}", f"127.0.0.1:{profile}")) as (_, front):
            status, body = await get(front, "/?lat=37.8&lon=-122.4")
            assert (await get(front, "/?lat=37.8"))[0] == 400
        names = json.loads((await get(geo, "/nearest?lat=37.8&lon=-122.4"))[1])
        assert (await get(profile, "/describe?ids=nobody"))[0] == 400
        assert (await get(geo, "/nearest?lat=nan&lon=0"))[0] == 400
    assert status == 200
    found = json.loads(body)["hotels"]
    assert [each["name"] for each in found] == names
    here = (37.8, -122.4)
    far = [hotel.distance_km(here, (each["latitude"], each["longitude"])) for each in found]
    nearest = min(hotel.distance_km(here, (each.latitude, each.longitude)) for each in hotel.hotels())
    assert far == sorted(far)
    assert far[0] == pytest.approx(nearest)


async def test_a_front_end_without_geo_says_bad_gateway() -> None:
    async with serving({}) as (_, gone):
        pass
    async with serving(hotel.routes("front", f"127.0.0.1:{gone}", f"127.0.0.1:{gone}")) as (_, front):
        assert (await get(front, "/?lat=1&lon=2"))[0] == 502

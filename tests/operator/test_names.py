"""Names that nobody answers for: whoever asked waits, until its deadline, and nobody else does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from tests.dead_names import DEAD, dead_names
from tests.operator.streams.test_probes import HERE, serving
from tiphys_models.api.inference_site import Probe
from tiphys_models.api.stream_reasons import ProbeMiss
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.names import Names
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement import decision_reader
from tiphys_operator.placement.decision_reader import DecisionReader
from tiphys_operator.streams import addresses, summaries
from tiphys_operator.streams.addresses import ApiServer
from tiphys_operator.streams.metrics import BindingMetrics
from tiphys_operator.streams.probes import ProbeMissed, Probes
from tiphys_operator.streams.summaries import SummaryReader


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with dead_names(monkeypatch) as names:
        yield names


async def others_go_on() -> None:
    """The threads in which windows are measured and plans are made take work at once."""
    async with asyncio.timeout(1):
        await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(8)))


async def missed(probes: Probes, probe: Probe, owner: str) -> ProbeMiss:
    with pytest.raises(ProbeMissed) as told:
        await probes.round_trip_ms(probe, owner)
    return told.value.why


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_a_hundred_sites_with_names_that_nobody_answers_for_stall_nobody_else(asked: list[str], kind: str) -> None:
    def probe(number: int) -> Probe:
        host = f"site-{number}{DEAD}"
        return Probe(url=f"http://{host}/", timeout_seconds=1) if kind == "http" else Probe(host=host, port=80, timeout_seconds=1)

    async with serving() as site, Probes(HERE) as probes:
        hung = [asyncio.create_task(missed(probes, probe(number), "greedy")) for number in range(100)]
        while not asked:  # noqa: ASYNC110 - told by threads
            await asyncio.sleep(0.01)
        await others_go_on()
        port = site.url.rstrip("/").rpartition(":")[2]
        socket_of = Probe(host="127.0.0.2", port=int(port), timeout_seconds=1)
        assert await probes.round_trip_ms(socket_of, "other") < 1000
        assert await probes.round_trip_ms(Probe(url=site.url, timeout_seconds=1), "other") < 1000
        assert set(await asyncio.gather(*hung)) == {ProbeMiss.TIMEOUT}
        assert len(asked) <= 8, "a namespace has so many lookups under way, however many sites"


async def test_names_of_one_namespace_wait_for_none_of_another(asked: list[str]) -> None:
    names = Names(of_one=2)
    waiting = [asyncio.create_task(names.look_up(f"{n}{DEAD}", 80, "greedy")) for n in range(20)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(1):
        assert {found[4][0] for found in await names.look_up("localhost", 80, "other")} & {"127.0.0.1", "::1"}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(asked) == 2


async def test_a_lookup_that_was_given_up_is_not_begun_again_while_it_is_under_way(asked: list[str]) -> None:
    names = Names(of_one=1)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await names.look_up(f"status{DEAD}", 80)
    assert len(asked) == 1


async def test_an_answer_makes_room_and_a_name_of_nobody_is_an_error() -> None:
    names = Names(of_one=1)
    for _ in range(3):
        with pytest.raises(socket.gaierror):
            await names.look_up("nobody.invalid", 80)
        assert await names.look_up("127.0.0.1", 80)
    with pytest.raises(OSError, match="not a name"):
        await names.look_up("x" * 300, 80)
    assert names.owners == 0, "who asks for nothing is not remembered"


async def test_decision_logs_are_read_although_the_name_of_one_is_not_answered_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_reader, "_TIMEOUT_S", 0.2)
    errors: list[str] = []
    urls = f"http://extender{DEAD}:8080,http://127.0.0.1:1"
    read = DecisionReader(urls, None, SystemClock(), on_error=lambda: errors.append("error"), on_lost=lambda _: None)
    since_s = time.monotonic()
    async with read:
        for _ in range(3):
            await read.pull()
    assert time.monotonic() - since_s < 3.0
    assert len(errors) == 6, "each pull counts both"
    assert len(asked) == 1
    await others_go_on()


async def test_summaries_are_read_although_the_name_of_one_binder_is_not_answered_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "_TIMEOUT_S", 0.2)
    read = SummaryReader((f"http://binder{DEAD}:8080",), None, OperatorMetrics().part(BindingMetrics), SystemClock())
    since_s = time.monotonic()
    async with read:
        for _ in range(3):
            await read.pull()
    assert time.monotonic() - since_s < 3.0
    assert len(asked) == 1
    await others_go_on()


async def test_the_api_servers_name_is_not_waited_for(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_RESOLVED_WITHIN_S", 0.1)
    server = ApiServer("10.96.0.1", f"api{DEAD}")
    for _ in range(3):
        await server.refresh()
    assert "10.96.0.1" in {str(address) for address in server.addresses()}
    assert asked == [f"api{DEAD}"]
    await others_go_on()

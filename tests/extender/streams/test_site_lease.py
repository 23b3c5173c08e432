"""Who binds for an access site, over a Lease at a fake API server; the clock is moved by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web

from tests.extender.streams.builders import Binder
from tests.operator.api_server import FakeApiServer, status
from tiphys_extender.streams import site_lease
from tiphys_extender.streams.site_lease import hold_site
from tiphys_models.base.clock import ManualClock
from tiphys_models.kube.client import KubeClient

DEADLINE_S = 30.0


async def until_active(binder: Binder, active: bool) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while binder.streams.active is not active:  # noqa: ASYNC110 - a Lease tells nobody that it has ended
            await asyncio.sleep(0.01)


async def test_who_loses_its_lease_and_takes_it_up_again_is_careful_though_nobody_else_ever_had_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_lease, "_RETRY_S", 0.05)
    binder = Binder()
    binder.streams.stand_by()
    async with FakeApiServer() as server, server.client() as client:
        holding = asyncio.create_task(hold_site(client, binder.streams, "me", binder.clock))
        try:
            await until_active(binder, True)
            assert not binder.streams.summary().recovering, "nobody had it before"
            bound = binder.fill()

            async def refuse(_: web.Request) -> web.Response:
                return status(503, "ServiceUnavailable")

            server.fault = refuse
            binder.clock.advance(site_lease._RENEW_S + 0.1)
            await until_active(binder, False)
            async with asyncio.timeout(DEADLINE_S):
                while binder.streams.ledger.open:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            server.fault = None
            await until_active(binder, True)
            assert binder.streams.summary().recovering
            assert len(binder.fill()) < len(bound), "what was bound before is out: only what is certainly free is given away"
        finally:
            holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await holding


@contextlib.asynccontextmanager
async def held_by(client: KubeClient, binder: Binder) -> AsyncGenerator[None]:
    holding = asyncio.create_task(hold_site(client, binder.streams, "somebody", binder.clock))
    try:
        await until_active(binder, True)
        yield
    finally:
        holding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await holding


def note_of(server: FakeApiServer) -> str:
    return str(server.leases[site_lease.lease_name("edge")]["metadata"]["annotations"]["tiphys.io/note"])


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
async def test_a_successor_whose_clock_differs_by_two_hours_goes_on_with_the_leases_that_are_out(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    monkeypatch.setattr(site_lease, "_RETRY_S", 0.02)
    clock = ManualClock()
    first = Binder(clock)
    clock.set_forward(step_s)
    second = Binder(clock)
    for binder in (first, second):
        binder.streams.stand_by()
    async with FakeApiServer() as server, server.client() as client:
        async with held_by(client, first):
            waiting = asyncio.create_task(hold_site(client, second.streams, "me", clock))
            bound = first.bind()
            await asyncio.sleep(1.3)  # whoever stands by looks twice a second
        try:
            await until_active(second, True)
            assert second.renew(bound)["id"] == bound["id"], "it has not expired"
            assert abs(second.streams.now_s() - first.streams.now_s()) < 2, "and ends when it was meant to"
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting


@pytest.mark.parametrize("note", ["", "@", "0.9", "nan@nan", "0.9@1e300", "2@-5", "x@y", "0.5@inf"])
def test_a_note_that_nobody_of_us_wrote_tells_no_time(note: str) -> None:
    assert site_lease._told(note)[1] is None


async def test_a_successor_gives_away_what_its_predecessor_promised_to_have_left_and_nothing_without_a_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_lease, "_RETRY_S", 0.02)
    clock = ManualClock()
    first, second, third = (Binder(clock) for _ in range(3))
    for binder in (first, second, third):
        binder.streams.stand_by()
    async with FakeApiServer() as server, server.client() as client:
        async with held_by(client, first):
            assert first.fill()
            async with asyncio.timeout(DEADLINE_S):
                while note_of(server).startswith("@"):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
        async with held_by(client, second):
            assert second.fill(), "a tenth of everything is certainly free"
        async with held_by(client, third):
            assert third.fill() == [], "the second one was recovering when it ended"

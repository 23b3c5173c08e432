"""What binders of other access sites say, over real HTTP."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from tests.extender.streams.builders import Binder
from tiphys_extender.serve.refused import Refused
from tiphys_extender.streams.others import LOADS, OtherBinders
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.certificates import TrustedAuthority

TOKEN = "the-token-of-the-status-pages"


class Other:
    """A binder of another access site; what it says is set by the test."""

    def __init__(self) -> None:
        self.answer: Any = {"accessSite": "remote", "active": True, "recovering": False, "loads": {"edge/tiny": 80.0}}
        self.tokens: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        return web.json_response(self.answer)


@contextlib.asynccontextmanager
async def asking(binder: Binder, other: Other, directory: Path, *more: Other) -> AsyncGenerator[tuple[OtherBinders, aiohttp.ClientSession]]:
    (directory / "token").write_text(TOKEN)
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for one in (other, *more):
            app = web.Application()
            app.router.add_get(LOADS, one.handle)
            runner = web.AppRunner(app)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield OtherBinders(binder.streams, urls, BearerTokens("", directory / "token"), TrustedAuthority(None)), session


def site_of_next(binder: Binder) -> str:
    return str(binder.bind(rateQps=15, maxDelayMs=200, minAccuracy=20)["site"])


async def test_what_others_have_bound_counts_and_what_they_have_released_does_not(tmp_path: Path) -> None:
    binder, other = Binder(policy="closest"), Other()
    other.answer["loads"]["edge/yolo"] = 50.0
    async with asking(binder, other, tmp_path) as (others, session):
        assert site_of_next(binder) == "edge"
        await others.round(session)
        assert site_of_next(binder) == "remote"
        assert other.tokens == [f"Bearer {TOKEN}"]
        other.answer["loads"] = {}
        await others.round(session)
        assert site_of_next(binder) == "edge"


async def test_a_binder_that_falls_silent_counts_for_ten_rounds(tmp_path: Path) -> None:
    binder, other = Binder(policy="closest"), Other()
    other.answer["loads"] |= {"edge/tiny": 100.0, "edge/yolo": 50.0}
    async with asking(binder, other, tmp_path) as (others, session):
        await others.round(session)
        nonsense: list[Any] = [[], {}, {**other.answer, "loads": {"edge/tiny": "much"}}, *([None] * 6)]
        for said in nonsense:
            other.answer = said
            await others.round(session)
        assert site_of_next(binder) == "remote"
        await others.round(session)
        assert site_of_next(binder) == "edge"


async def test_a_binder_that_binds_no_more_counts_for_as_long_as_one_that_is_silent(tmp_path: Path) -> None:
    binder, other = Binder(policy="closest"), Other()
    other.answer["loads"] |= {"edge/tiny": 100.0, "edge/yolo": 50.0}
    async with asking(binder, other, tmp_path) as (others, session):
        await others.round(session)
        other.answer |= {"active": False, "loads": {}}
        for _ in range(9):
            await others.round(session)
        assert site_of_next(binder) == "remote"
        await others.round(session)
        assert site_of_next(binder) == "edge"


async def test_a_binder_that_is_followed_by_its_standby_does_not_take_the_standbys_word_with_it(tmp_path: Path) -> None:
    binder, first, second = Binder(policy="closest"), Other(), Other()
    first.answer["loads"] = second.answer["loads"] = {"edge/tiny": 100.0, "edge/yolo": 50.0}
    second.answer["active"] = False
    async with asking(binder, first, tmp_path, second) as (others, session):
        await others.round(session)
        first.answer, second.answer["active"] = None, True
        for _ in range(9):
            await others.round(session)
        second.answer = None  # its first silent round is the tenth of the first one
        await others.round(session)
        assert site_of_next(binder) == "remote"


async def test_a_standby_of_the_same_access_site_and_one_that_does_not_bind_are_no_load(tmp_path: Path) -> None:
    binder, other = Binder(policy="closest"), Other()
    full = {"edge/tiny": 100.0, "edge/yolo": 50.0}
    async with asking(binder, other, tmp_path) as (others, session):
        for said in ({"accessSite": "edge", "active": True}, {"accessSite": "remote", "active": False}):
            other.answer = {**said, "recovering": False, "loads": full}
            await others.round(session)
            assert site_of_next(binder) == "edge"


def refused_as_not_ready() -> Any:
    return pytest.raises(Refused, match="have not said yet", check=lambda error: (error.reason, error.retry_after_s) == ("not-ready", 1))


async def test_nothing_is_bound_before_all_others_were_heard_but_what_is_bound_is_renewed(tmp_path: Path) -> None:
    binder, first, second = Binder(), Other(), Other()
    bound = binder.bind()
    second.answer = None
    async with asking(binder, first, tmp_path, second) as (others, session):
        binder.streams.others_known = lambda: others.known
        for _ in range(2):
            with refused_as_not_ready():
                binder.bind()
            assert binder.renew(bound)["up"] is True
            await others.round(session)
        second.answer = {"accessSite": "far", "active": False, "recovering": False, "loads": {}}
        await others.round(session)
        assert binder.bind()
        second.answer = None
        await others.round(session)
        assert binder.bind(), "it was heard once: its silence is counted from here"


async def test_who_is_silent_from_the_beginning_is_waited_for_as_long_as_a_lease_lasts(tmp_path: Path) -> None:
    binder, silent = Binder(), Other()
    silent.answer = None
    async with asking(binder, silent, tmp_path) as (others, session):
        binder.streams.others_known = lambda: others.known
        for _ in range(10):
            with refused_as_not_ready():
                binder.bind()
            await others.round(session)
        assert binder.bind()


async def test_what_a_binder_that_recovers_has_not_yet_heard_of_still_counts(tmp_path: Path) -> None:
    binder, other = Binder(policy="closest"), Other()
    other.answer["loads"] = {"edge/tiny": 100.0, "edge/yolo": 50.0}
    async with asking(binder, other, tmp_path) as (others, session):
        await others.round(session)
        other.answer |= {"recovering": True, "loads": {"edge/tiny": 10.0}}
        await others.round(session)
        assert site_of_next(binder) == "remote", "its predecessor had more: these streams will be renewed"
        other.answer |= {"recovering": False}
        await others.round(session)
        assert site_of_next(binder) == "edge"


async def test_a_report_of_a_recovering_binder_counts_as_incomplete(tmp_path: Path) -> None:
    binder, other = Binder(), Other()
    async with asking(binder, other, tmp_path) as (others, session):
        known = []
        for recovering in (True, False):
            other.answer["recovering"] = recovering
            await others.round(session)
            known.append(others.known)
        assert known == [False, True]
    assert Binder(recover=True).streams.loads()["recovering"] is True


class Hostile(Other):
    """Answers with what the test says, byte by byte if it likes."""

    def __init__(self, respond: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        super().__init__()
        self._respond = respond

    async def handle(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        return await self._respond(request)  # type: ignore[return-value]


async def test_an_answer_without_end_is_left_after_a_mebibyte(tmp_path: Path) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while sent < 64 * 2**20:
                await response.write(b" " * 65_536)
                sent += 65_536
        return response

    binder, other = Binder(), Hostile(endless)
    async with asking(binder, other, tmp_path) as (others, session):
        await others.round(session)
    assert sent < 16 * 2**20
    assert not others.known


async def test_the_token_follows_no_redirect(tmp_path: Path) -> None:
    elsewhere = Other()

    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"{stolen}{LOADS}")

    binder, other = Binder(), Hostile(redirect)
    async with asking(Binder(), elsewhere, tmp_path) as (thief, _), asking(binder, other, tmp_path) as (others, session):
        stolen = thief._urls[0]
        await others.round(session)
    assert other.tokens == [f"Bearer {TOKEN}"]
    assert elsewhere.tokens == []
    assert not others.known


@pytest.mark.parametrize("loads", [{"edge/tiny": -1.0}, {"edge/tiny": 1e300}, {f"edge/{i}": 1.0 for i in range(10_001)}])
async def test_loads_that_cannot_be_are_not_believed(tmp_path: Path, loads: dict[str, float]) -> None:
    binder, other = Binder(), Other()
    other.answer["loads"] = loads
    async with asking(binder, other, tmp_path) as (others, session):
        await others.round(session)
        assert not others.known


async def test_loads_come_over_tls_from_whoever_the_authority_has_signed(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    for signer, believed in ((authority, True), (stranger, False)):
        binder, other = Binder(), Other()
        (tmp_path / "token").write_text(TOKEN)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        signer.issue_cert("localhost").configure_cert(context)
        app = web.Application()
        app.router.add_get(LOADS, other.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        tokens, trusted = BearerTokens("", tmp_path / "token"), TrustedAuthority(tmp_path / "ca.crt")
        others = OtherBinders(binder.streams, [f"https://localhost:{runner.addresses[0][1]}"], tokens, trusted)
        async with aiohttp.ClientSession() as session:
            await others.round(session)
        await runner.cleanup()
        assert others.known is believed
        assert other.tokens == ([f"Bearer {TOKEN}"] if believed else [])

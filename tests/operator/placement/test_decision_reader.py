from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tiphys_models.base.clock import ManualClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.decision_reader import Cursor, DecisionReader, tally
from tiphys_operator.placement.observation import AnswerCounts

P = "default/p"
START_S = 1_700_000_000.0


def decision(seq: int, **changes: Any) -> dict[str, Any]:
    record = {
        "seq": seq,
        "at": START_S + seq,
        "policy": P,
        "mode": "Active",
        "outcome": "scored",
        "reason": "",
        "would": "n0",
        "chosen": None,
    }
    return record | changes


def page(*items: dict[str, Any]) -> dict[str, Any]:
    return {"first": 1, "last": max((i["seq"] for i in items), default=0), "lost": 0, "items": list(items)}


def test_outcomes_are_counted_by_policy() -> None:
    items = [
        decision(1),
        decision(2, outcome="fallback", reason="readings-missing"),
        decision(3, outcome="neutral", reason="canary"),
        decision(4, policy="other/q"),
        decision(5, policy=None, outcome="neutral", reason="no-policy"),
    ]
    read = tally(page(*items), Cursor(), START_S, 0)
    assert read.answers == {
        P: AnswerCounts(scored=1, fallback=1, neutral=1, fallback_reason="readings-missing"),
        "other/q": AnswerCounts(scored=1),
    }


def test_reading_the_same_page_twice_counts_nothing_twice() -> None:
    cursor = Cursor()
    tally(page(decision(1), decision(2)), cursor, START_S, 0)
    assert tally(page(decision(1), decision(2)), cursor, START_S, 0).answers == {}


def test_decisions_from_before_the_operator_started_are_history() -> None:
    cursor = Cursor()
    read = tally(page(decision(7, at=START_S - 1), decision(8)), cursor, START_S, 0)
    assert read.answers == {P: AnswerCounts(scored=1)}
    assert read.lost == 0


def test_a_gap_is_counted_as_lost() -> None:
    cursor = Cursor()
    tally(page(decision(1)), cursor, START_S, 0)
    assert tally(page(decision(5)), cursor, START_S, 0).lost == 3


def test_a_shadow_decision_is_compared_once_its_pod_is_bound() -> None:
    cursor = Cursor()
    shadow = {"mode": "Shadow", "outcome": "neutral", "reason": "shadow"}
    tally(page(decision(1, **shadow), decision(2, **shadow), decision(3)), cursor, START_S, 0)
    assert cursor.after == 0
    bound = [decision(1, **shadow, chosen="n0"), decision(2, **shadow, chosen="n1"), decision(3)]
    read = tally(page(*bound), cursor, START_S, 0)
    assert read.answers == {P: AnswerCounts(shadow_compared=2, shadow_agreed=1)}
    assert (cursor.after, cursor.open) == (3, {})
    assert tally(page(*bound), cursor, START_S, 0).answers == {}


def test_a_shadow_decision_that_is_bound_already_is_compared_at_once() -> None:
    read = tally(page(decision(1, mode="Shadow", outcome="neutral", chosen="n0")), Cursor(), START_S, 0)
    assert read.answers == {P: AnswerCounts(neutral=1, shadow_compared=1, shadow_agreed=1)}


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 30))
def test_however_the_log_is_cut_into_pulls_every_decision_counts_once(cuts: list[int], total: int) -> None:
    log = [decision(seq) for seq in range(1, total + 1)]
    cursor, scored, lost = Cursor(), 0, 0
    for upto in [*sorted(min(cut, total) for cut in cuts), total]:
        read = tally(page(*[d for d in log[:upto] if d["seq"] > cursor.after]) | {"last": upto}, cursor, START_S, 0)
        scored += sum(counts.scored for counts in read.answers.values())
        lost += read.lost
    assert (scored, lost) == (total, 0)


class FakeExtender:
    def __init__(self) -> None:
        self.log: list[dict[str, Any]] = []
        self.status = 200
        self.body: bytes | None = None
        self.tokens: list[str] = []
        self.url = ""
        self.policies: list[str] | None = None

    async def decisions(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.body is not None and request.path.endswith("decisions"):
            return web.Response(body=self.body)
        if self.status != 200:
            return web.Response(status=self.status)
        after, limit = int(request.query["after"]), int(request.query["limit"])
        items = [d for d in self.log if d["seq"] > after][:limit]
        last = self.log[-1]["seq"] if self.log else 0
        return web.json_response({"first": self.log[0]["seq"] if self.log else 0, "last": last, "lost": 0, "items": items})

    async def models(self, request: web.Request) -> web.Response:
        items = [
            {"name": "mine", "source": "LearnedModel", "policy": "faasrank", "sha256": "ab", "modes": ["Shadow", "Canary"]},
            {"name": "mine", "source": "shipped", "policy": "faasrank", "sha256": "cd", "modes": ["Active"]},
            {"name": "broken", "source": "LearnedModel", "policy": "", "sha256": "", "modes": []},
        ]
        return web.json_response({"items": items} | ({} if self.policies is None else {"policies": self.policies}))


@pytest.fixture
async def extender() -> AsyncIterator[FakeExtender]:
    fake = FakeExtender()
    app = web.Application()
    app.router.add_get("/v1/decisions", fake.decisions)
    app.router.add_get("/v1/models", fake.models)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://localhost:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


class Counted:
    def __init__(self) -> None:
        self.errors = self.lost = 0

    def error(self) -> None:
        self.errors += 1

    def lose(self, count: int) -> None:
        self.lost += count


@pytest.fixture
def counted() -> Counted:
    return Counted()


def reader(url: str, counted: Counted, token_file: Path | None = None) -> DecisionReader:
    return DecisionReader(url, token_file, ManualClock(START_S), on_error=counted.error, on_lost=counted.lose)


async def test_services_are_read_side_by_side_and_one_that_is_away_does_not_stop_the_others(
    extender: FakeExtender, counted: Counted
) -> None:
    extender.log = [decision(seq) for seq in range(1, 4)]
    other = extender.url.replace("localhost", "127.0.0.1")  # another service, with a cursor of its own
    async with reader(f"http://127.0.0.1:1,{extender.url},http://no-such-host.invalid:1,{other}", counted) as opened:
        await opened.pull()
        await opened.pull()
        assert opened.pending()[P].scored == 6
    assert (counted.errors, counted.lost) == (4, 0)


async def test_pages_are_followed_to_the_end(extender: FakeExtender, counted: Counted) -> None:
    extender.log = [decision(seq) for seq in range(1, 2501)]
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        assert opened.pending()[P].scored == 2500


async def test_placement_policies_are_those_that_every_extender_says_it_has(extender: FakeExtender, counted: Counted) -> None:
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        assert opened.policies is None, "an extender of an earlier release does not say"
        extender.policies = ["warm-first", "acme-roomiest"]
        await opened.pull()
        assert opened.policies == {"warm-first", "acme-roomiest"}


async def test_models_are_known_by_the_digest_that_serves_each_mode(extender: FakeExtender, counted: Counted) -> None:
    async with reader(extender.url, counted) as opened:
        assert opened.held is None
        await opened.pull()
        served = {"Shadow": "ab", "Canary": "ab", "Active": "cd"}
        assert opened.serving == {("mine", "faasrank", mode): digest for mode, digest in served.items()}
        assert opened.held == {"mine": {"ab"}, "broken": {""}}


async def test_counts_stay_pending_until_a_status_holds_them(extender: FakeExtender, counted: Counted) -> None:
    extender.log = [decision(1), decision(2)]
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        written = opened.pending()[P]
        extender.log.append(decision(3))
        await opened.pull()
        assert opened.pending()[P].scored == 3
        opened.settle(P, written)
        assert opened.pending()[P].scored == 1
        opened.settle(P, opened.pending()[P])
        assert opened.pending() == {}


async def test_a_new_leader_does_not_count_what_was_answered_before_it_led(extender: FakeExtender, counted: Counted) -> None:
    extender.log = [decision(1), decision(100), decision(200)]
    clock = ManualClock(START_S)
    async with DecisionReader(extender.url, None, clock, on_error=counted.error, on_lost=counted.lose) as opened:
        clock.advance(150)  # as a standby
        running = asyncio.create_task(opened.run(60))
        await opened.first_pull(2)
        assert opened.pending()[P].scored == 1
        running.cancel()


async def test_an_extender_that_hangs_delays_the_first_round_only_for_so_long(counted: Counted) -> None:
    async with DecisionReader("http://127.0.0.1:1", None, ManualClock(), on_error=counted.error, on_lost=counted.lose) as opened:
        await asyncio.wait_for(opened.first_pull(0.05), 1)


async def test_counts_of_deleted_policies_are_forgotten(extender: FakeExtender, counted: Counted) -> None:
    extender.log = [decision(1)]
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        opened.keep_only({"default/other"})
        assert opened.pending() == {}


async def test_an_extender_with_a_new_log_is_read_from_its_beginning(extender: FakeExtender, counted: Counted) -> None:
    extender.log = [decision(seq) for seq in range(1, 51)]
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        extender.log = [decision(1), decision(2)]
        await opened.pull()
        assert opened.pending()[P].scored == 52
        assert counted.lost == 0


async def test_the_token_is_read_for_every_request(extender: FakeExtender, counted: Counted, tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with reader(extender.url, counted, token) as opened:
        token.write_text("one\n")
        await opened.pull()
        token.write_text("two\n")
        await opened.pull()
    assert extender.tokens == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b'{"last": "x"}', b'{"last": 1, "items": [{}]}', b'{"last": 1, "items": [{"seq": "x"}]}']
)
async def test_an_unreadable_log_is_counted_and_harms_nothing(extender: FakeExtender, counted: Counted, body: bytes) -> None:
    extender.body = body
    async with reader(extender.url, counted) as opened:
        await opened.pull()
        assert counted.errors == 1
        extender.body, extender.log = None, [decision(1)]
        await opened.pull()
        assert opened.pending()[P].scored == 1


@pytest.mark.parametrize("code", [302, 401, 403, 500])
async def test_a_refusal_is_counted(extender: FakeExtender, counted: Counted, code: int) -> None:
    extender.status = code
    async with reader(extender.url, counted) as opened:
        await opened.pull()
    assert counted.errors == 1


async def test_an_absent_extender_is_counted_on_every_pull(counted: Counted) -> None:
    async with reader("http://127.0.0.1:1", counted) as opened:
        await opened.pull()
        await opened.pull()
    assert counted.errors == 2


async def test_a_name_that_does_not_resolve_is_counted(counted: Counted) -> None:
    async with reader("http://tiphys-extender-status.invalid:8080", counted) as opened:
        await opened.pull()
    assert counted.errors == 1


async def test_a_missing_token_file_is_counted(extender: FakeExtender, counted: Counted, tmp_path: Path) -> None:
    async with reader(extender.url, counted, tmp_path / "absent") as opened:
        await opened.pull()
    assert counted.errors == 1


async def test_what_nobody_foresaw_in_one_log_is_counted_and_the_loop_turns(
    extender: FakeExtender, counted: Counted, tmp_path: Path
) -> None:
    token, registry, beats = tmp_path / "token", CollectorRegistry(), Heartbeats(ManualClock())
    token.write_text("one")
    extender.status = 500

    def trip() -> None:
        raise ZeroDivisionError

    reading = DecisionReader(
        extender.url, token, ManualClock(), on_error=trip, on_lost=lambda _: None, guard=ObjectGuard(registry), beats=beats
    )
    async with reading as opened:
        running = asyncio.create_task(opened.run(0.02))
        async with asyncio.timeout(5):
            while (registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "DecisionLog"}) or 0) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            extender.status, extender.log = 200, [decision(1)]
            while not opened.pending():  # noqa: ASYNC110 - the loop under test has no event of ours
                await asyncio.sleep(0.01)
        assert not running.done()
        assert "decisions" in beats.ages_s()
        running.cancel()

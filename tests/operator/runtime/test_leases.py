from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.operator.api_server import FakeApiServer, status
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions


class SkewedClock(ManualClock):
    """Its wall clock is wrong by a constant; both share the instant that passes."""

    def __init__(self, shared: ManualClock, skew_s: float) -> None:
        super().__init__()
        self._shared, self._skew_s = shared, skew_s

    def now_s(self) -> float:
        return self._shared.now_s() + self._skew_s

    def monotonic_s(self) -> float:
        return self._shared.monotonic_s()


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as started:
        yield started


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[KubeClient]:
    async with server.client() as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lease(client: KubeClient, clock: ManualClock | SystemClock, identity: str = "a", pod_uid: str = "", **times: float) -> Lease:
    return Lease(client, LeaseOptions("tiphys-system", "tiphys-operator", identity, **times, pod_uid=pod_uid), clock)


async def test_the_first_candidate_leads_and_the_second_waits(client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()
    assert (a.held, b.held) == (True, False)


async def test_a_leader_that_renews_is_never_replaced(client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    for _ in range(60):
        assert await a.try_acquire_or_renew()
        assert not await b.try_acquire_or_renew()
        clock.advance(2)


@pytest.mark.parametrize("skew_s", [-600.0, 0.0, 600.0])
async def test_takeover_happens_15_s_after_the_last_change_was_seen_whatever_the_clocks_say(
    client: KubeClient, clock: ManualClock, skew_s: float
) -> None:
    a = lease(client, clock, "a")
    b = lease(client, SkewedClock(clock, skew_s), "b")
    assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()
    clock.advance(14.9)
    assert not await b.try_acquire_or_renew()
    assert not a.held  # it stopped at 10 s: nobody wrote in between
    clock.advance(0.2)
    assert await b.try_acquire_or_renew()
    assert b.transitions == a.transitions + 1


async def test_a_candidate_that_looks_often_takes_over_15_s_after_the_renewal_not_after_it_noticed(
    client: KubeClient, clock: ManualClock
) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    clock.advance(1)
    assert not await b.try_acquire_or_renew()
    assert await a.try_acquire_or_renew()
    clock.advance(0.5)
    assert not await b.try_acquire_or_renew()  # sees only now what happened half a second ago
    clock.advance(14.4)
    assert not await b.try_acquire_or_renew()
    clock.advance(0.2)
    assert await b.try_acquire_or_renew()


async def test_a_candidate_that_was_cut_off_grants_the_leader_all_but_one_second(client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()
    for _ in range(20):
        clock.advance(2)
        assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()  # back after 40 s: the last look must not count
    clock.advance(13.9)
    assert not await b.try_acquire_or_renew()
    assert not a.held
    clock.advance(0.2)
    assert await b.try_acquire_or_renew()


@pytest.mark.parametrize("skew_s", [-600.0, 600.0])
async def test_at_no_instant_do_two_skewed_candidates_both_hold_it(client: KubeClient, clock: ManualClock, skew_s: float) -> None:
    a = lease(client, clock, "a")
    b = lease(client, SkewedClock(clock, skew_s), "b")
    holders = set()
    for second in range(200):
        # each is cut off from the API server for 20 s at a time, in turns
        if second % 40 < 20:
            await a.try_acquire_or_renew()
        else:
            await b.try_acquire_or_renew()
        assert not (a.held and b.held)
        holders |= {name for name, one in (("a", a), ("b", b)) if one.held}
        clock.advance(1)
    assert holders == {"a", "b"}


async def test_a_wall_clock_that_jumps_changes_nothing(client: KubeClient, clock: ManualClock) -> None:
    jumping = SkewedClock(clock, 0.0)
    a, b = lease(client, clock, "a"), lease(client, jumping, "b")
    assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()
    for jump_s in (3600.0, -3600.0):
        jumping._skew_s = jump_s
        assert not await b.try_acquire_or_renew()


async def test_a_leader_stops_10_s_after_it_sent_its_last_renewal(client: KubeClient, clock: ManualClock) -> None:
    a = lease(client, clock)
    assert await a.try_acquire_or_renew()
    clock.advance(9.9)
    assert a.check() == pytest.approx(0.1)
    clock.advance(0.2)
    with pytest.raises(LeaseLost, match="nothing is written"):
        a.check()


async def test_the_time_of_a_slow_renewal_counts_from_before_it_was_sent(
    server: FakeApiServer, client: KubeClient, clock: ManualClock
) -> None:
    async def slow(request: web.Request) -> None:
        if request.method == "PUT":
            clock.advance(7)

    a = lease(client, clock)
    assert await a.try_acquire_or_renew()
    server.fault = slow
    assert await a.try_acquire_or_renew()
    assert a.remaining_s() == pytest.approx(3)


async def test_a_released_lease_is_taken_at_once(client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    await a.release()
    assert not a.held
    assert await b.try_acquire_or_renew()


async def test_a_renewal_that_was_written_unheard_does_not_keep_a_lease_from_being_released(
    server: FakeApiServer, client: KubeClient, clock: ManualClock
) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    before = a._version
    assert await a.try_acquire_or_renew()
    a._version = before  # as if the stop had come before the answer
    await a.release()
    assert await b.try_acquire_or_renew()


async def test_a_lease_that_another_one_has_taken_meanwhile_is_left_to_it(client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    assert not await b.try_acquire_or_renew()
    clock.advance(3600)
    assert await b.try_acquire_or_renew()
    a._valid_until_s = clock.monotonic_s() + 5  # it does not know yet
    await a.release()
    assert b.held
    assert await b.try_acquire_or_renew(), "it still holds it"


async def test_releasing_what_is_not_held_writes_nothing(server: FakeApiServer, client: KubeClient, clock: ManualClock) -> None:
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    assert await a.try_acquire_or_renew()
    before = list(server.writes)
    await b.release()
    assert server.writes == before


async def test_a_restarted_container_of_the_same_pod_is_another_candidate(client: KubeClient, clock: ManualClock) -> None:
    first, second = lease(client, clock, "pod-0"), lease(client, clock, "pod-0")
    assert await first.try_acquire_or_renew()
    assert not await second.try_acquire_or_renew()


async def test_a_restarted_container_that_knows_its_pod_does_not_wait_for_itself(client: KubeClient, clock: ManualClock) -> None:
    before, after, elsewhere = (lease(client, clock, "pod-0", pod_uid=uid) for uid in ("uid-1", "uid-1", "uid-2"))
    assert await before.try_acquire_or_renew()
    assert not await elsewhere.try_acquire_or_renew(), "a pod of the same name may be another one"
    assert await after.try_acquire_or_renew()
    assert after.transitions == 1, "a successor all the same"
    assert not await before.try_acquire_or_renew()


async def test_of_two_that_write_at_once_one_wins(server: FakeApiServer, client: KubeClient, clock: ManualClock) -> None:
    barrier = asyncio.Barrier(2)

    async def together(request: web.Request) -> None:
        if request.method == "POST":
            await barrier.wait()

    server.fault = together
    a, b = lease(client, clock, "a"), lease(client, clock, "b")
    won = await asyncio.gather(a.try_acquire_or_renew(), b.try_acquire_or_renew())
    assert sorted(won) == [False, True]


async def test_a_leader_that_sees_another_holder_has_lost_at_once(server: FakeApiServer, client: KubeClient, clock: ManualClock) -> None:
    a = lease(client, clock)
    assert await a.try_acquire_or_renew()
    stored = server.leases["tiphys-operator"]
    stored["spec"]["holderIdentity"] = "usurper"
    stored["metadata"]["resourceVersion"] = "99"
    assert not await a.try_acquire_or_renew()
    assert not a.held


async def test_a_lease_deleted_by_hand_is_made_again(server: FakeApiServer, client: KubeClient, clock: ManualClock) -> None:
    a = lease(client, clock)
    assert await a.try_acquire_or_renew()
    server.leases.clear()
    assert await a.try_acquire_or_renew()
    assert server.leases["tiphys-operator"]["spec"]["holderIdentity"] == a.identity


async def test_holding_ends_with_lease_lost_when_the_api_server_stays_silent(server: FakeApiServer, client: KubeClient) -> None:
    errors: list[Unavailable] = []
    a = Lease(client, LeaseOptions("n", "l", "a", duration_s=0.6, renew_s=0.4, retry_s=0.1), SystemClock(), errors.append)
    assert await a.try_acquire_or_renew()

    async def silent(_: web.Request) -> None:
        await asyncio.sleep(30)

    server.fault = silent
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(a.hold(), 2)
    assert errors


@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_a_refused_renewal_is_tried_again_until_the_deadline(server: FakeApiServer, client: KubeClient, code: int) -> None:
    a = Lease(client, LeaseOptions("n", "l", "a", duration_s=1.5, renew_s=1.0, retry_s=0.05), SystemClock())
    assert await a.try_acquire_or_renew()

    async def refuse(_: web.Request) -> web.Response:
        return status(code, "Refused")

    server.fault = refuse
    holding = asyncio.create_task(a.hold())
    await asyncio.sleep(0.3)
    server.fault = None
    await asyncio.sleep(1.0)
    assert a.held
    assert not holding.done()
    holding.cancel()


async def test_what_is_published_is_what_client_go_reads(server: FakeApiServer, client: KubeClient, clock: ManualClock) -> None:
    assert await lease(client, clock).try_acquire_or_renew()
    spec = server.leases["tiphys-operator"]["spec"]
    assert spec["leaseDurationSeconds"] == 15
    assert isinstance(spec["leaseDurationSeconds"], int)
    assert spec["renewTime"] == "2023-11-14T22:13:20.000000Z"
    assert spec["leaseTransitions"] == 0


async def test_a_lease_carries_a_note_to_the_next_holder_however_the_former_one_ends(client: KubeClient, clock: ManualClock) -> None:
    said = ["first word"]
    options = [LeaseOptions("n", "l", name) for name in "abc"]
    a, b, c = (Lease(client, option, clock, note=lambda: said[0]) for option in options)
    assert await a.try_acquire_or_renew()
    assert a.former.note == ""
    said[0] = "last word"
    assert await a.try_acquire_or_renew()
    assert a.former.note == "", "its own words are no predecessor's"
    said[0] = ""
    await a.release()
    assert await b.try_acquire_or_renew()
    assert (b.former.note, b.former.transitions) == ("last word", 0)
    assert not await c.try_acquire_or_renew()
    clock.advance(16)  # b dies, and had nothing to say
    assert await c.try_acquire_or_renew()
    assert c.former.note == ""

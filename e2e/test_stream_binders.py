"""Several binders on a real API server: one follows another that is killed, and those of two access sites give away the same offers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from e2e.stream_world import ACCESS, CAPACITY, CEILING, DEADLINE_S, TOKEN, Place, World, loads, page, stream_world, until_active
from e2e.streaming import Caller, Held, Stream, calling, insist
from tiphys_testbed.bench.service import Extender
from tiphys_testbed.cluster.local import LocalCluster

pytestmark = pytest.mark.needs_local

RATE_QPS = 2.0
PATIENT = Stream("patient", RATE_QPS, 2000.0, 20.0).body()
"""Any offer would do."""
CAMERAS, ROOM = 90, 63
"""There is not room for all: whoever has none asks again until it has."""
ROUNDS_S = 2.5
"""Others are asked every second, and may take one to answer."""


@pytest.fixture
def world(local: LocalCluster, namespace: str, tmp_path: Path) -> Iterator[World]:
    with stream_world(local, namespace, tmp_path) as made:
        yield made


async def watch(binders: tuple[Extender, ...], over: asyncio.Event) -> int:
    """At no moment is an offer given away beyond its capacity."""
    looks = 0
    while not over.is_set():
        found = await asyncio.to_thread(loads, *binders)
        assert all(load <= CAPACITY[offer] + 1e-6 for offer, load in found.items()), found
        looks += 1
        await asyncio.sleep(0.2)
    return looks


async def until_recovered(binder: Extender) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await asyncio.to_thread(page, binder, "summary")
            if found["active"] and not found["recovering"]:
                return
            await asyncio.sleep(0.2)


async def fill(caller: Caller, held: Held) -> int:
    """Bind until nothing is left; how many that were."""
    before = len(held.leases)
    while True:
        status, answer = await caller.ask("POST", "", PATIENT)
        if status == 201:
            held.leases[answer["id"]] = answer["lease"]
        elif status == 429:
            return len(held.leases) - before
        else:
            assert (status, answer["error"]) == (503, "not-ready"), answer
            await asyncio.sleep(0.1)


async def camera(callers: tuple[Caller, ...], number: int, bound: dict[int, str], over: asyncio.Event) -> str:
    """One client's life; the offer that it had, empty if it never got one."""
    await asyncio.sleep(0.1 * number)
    status, answer = await insist(callers, "POST", "", PATIENT | {"idempotencyKey": f"camera-{number}"}, over)
    if over.is_set() and status == 429:
        return ""
    assert status == 201, answer
    uid, offer, lease = answer["id"], f"{answer['site']}/{answer['variant']}", answer["lease"]
    bound[number] = uid
    while not over.is_set():
        await asyncio.sleep(1.0)
        status, answer = await insist(callers, "POST", f"/{uid}/renew", {"lease": lease})
        assert (status, f"{answer.get('site')}/{answer.get('variant')}") == (200, offer), answer
        lease = answer["lease"]
    return offer


def test_a_binder_killed_while_streams_are_bound_and_renewed_is_followed_without_booking_any_twice(world: World) -> None:
    world.build()
    world.policy(policy="relative-load")
    first = world.binder("binder-first")
    until_active(first, offers=3)
    second = world.binder("binder-second")
    bound: dict[int, str] = {}
    over = asyncio.Event()

    async def go() -> Counter[str]:
        async with calling(first.port, TOKEN) as before, calling(second.port, TOKEN) as after, asyncio.timeout(2 * DEADLINE_S):
            async with asyncio.TaskGroup() as group:
                cameras = [group.create_task(camera((before, after), number, bound, over)) for number in range(CAMERAS)]
                looking = group.create_task(watch((second,), over))
                async with asyncio.timeout(DEADLINE_S):
                    while len(bound) < ROOM - 10:  # noqa: ASYNC110 - clients of another process
                        await asyncio.sleep(0.05)
                first.process.kill()
                await until_recovered(second)
                await asyncio.sleep(2.0)  # everybody renews once more
                over.set()
            assert looking.result() > 0
            return Counter(task.result() for task in cameras if task.result())

    offers = asyncio.run(go())
    assert len(set(bound.values())) == len(bound) == offers.total() >= ROOM
    assert loads(second) == pytest.approx({offer: RATE_QPS * offers[offer] for offer in CAPACITY}), "every stream counts once, where it is"
    assert page(second, "summary")["streams"] == len(bound)
    metrics = second.metrics()
    new = metrics.total("tiphys_binder_streams_total", result="bound")
    assert metrics.total("tiphys_binder_streams_relearned_total") + new == len(bound)


async def both_bind(standby: Extender, ours: tuple[Caller, Held], theirs: tuple[Caller, Held]) -> None:
    """Whatever they can, until the standby has taken over and recovered."""
    recovered = asyncio.create_task(until_recovered(standby))
    while not recovered.done():
        assert await fill(*theirs) == 0, "the streams of the binder that was killed are still there"
        if (await asyncio.to_thread(page, standby, "loads"))["active"]:
            await fill(*ours)
        await asyncio.sleep(0.1)
    await recovered


def test_binders_of_two_access_sites_give_nothing_away_twice_whoever_starts_or_dies(world: World) -> None:
    world.build(access=(ACCESS, "dc"))
    world.policy(policy="relative-load")
    world.policy("dc", policy="relative-load")
    here, next_one, there = Place.of("binder-here"), Place.of("binder-next"), Place.of("binder-there", "dc")
    far = world.binder(place=there, others=(here, next_one))
    until_active(far, offers=3)
    over = asyncio.Event()

    async def go() -> None:
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(calling(place.ports[0], TOKEN)) for place in (here, next_one, there)]
            ours, theirs = Held(tuple(callers[:2])), Held((callers[2],))
            status, answer = await callers[2].ask("POST", "", PATIENT)
            assert (status, answer["error"]) == (503, "not-ready"), "nobody has said what the other access site has bound"
            renewing = [asyncio.create_task(held.renew_until(over)) for held in (ours, theirs)]
            stack.push_async_callback(asyncio.wait, renewing)
            stack.callback(over.set)

            assert await fill(callers[2], theirs) > 0
            near = await asyncio.to_thread(world.binder, place=here, others=(there, next_one))
            standby = await asyncio.to_thread(world.binder, place=next_one, others=(there, here))
            await asyncio.to_thread(until_active, near, offers=3)
            assert await fill(callers[0], ours) == 0, "what is there is given away, and a binder that starts knows it before it binds"

            for uid in list(theirs.leases)[::2]:
                await theirs.release(uid)
            await asyncio.sleep(ROUNDS_S)
            assert await fill(callers[0], ours) > 0
            found = await asyncio.to_thread(loads, near, far)  # neither has bound anything in the same second as the other
            assert all(load <= CEILING * CAPACITY[offer] + 1e-6 for offer, load in found.items()), found

            await asyncio.sleep(ROUNDS_S)
            near.process.kill()
            looking = asyncio.create_task(watch((standby, far), over))
            await both_bind(standby, (callers[1], ours), (callers[2], theirs))
            await asyncio.sleep(ROUNDS_S)
            over.set()
            assert await looking > 0
            await asyncio.gather(*renewing)
            counted = await asyncio.to_thread(loads, standby, far)
            assert sum(counted.values()) == pytest.approx(RATE_QPS * (len(ours.leases) + len(theirs.leases))), "every stream counts once"

    asyncio.run(go())

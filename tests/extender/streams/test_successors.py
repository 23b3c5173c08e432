"""What becomes of streams when the process that bound them does not live on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.extender.streams.builders import CAPACITY, Binder, catalogue, refused
from tests.streams.small import NAMES, OFFERS
from tiphys_extender.serve.refused import Refused


def test_a_successor_books_from_tokens_each_stream_once_and_no_offer_gets_more_than_its_capacity() -> None:
    first = Binder()
    bound = first.fill(rateQps=7)
    before = first.loads
    second = Binder(first.clock, recover=True)
    assert second.streams.summary().recovering
    new = second.fill(rateQps=7)  # before a single renewal: it cannot know what is bound
    assert new, "what lies above the ceiling is certainly free"
    for answer in bound:
        for _ in range(2):
            assert second.renew(answer)["id"] == answer["id"]
    assert second.counted("streams_relearned_total") == len(bound)
    assert len(second.streams.ledger.open) == len(bound) + len(new)
    assert {name: second.loads[name] >= before[name] for name in before} == dict.fromkeys(before, True)
    assert all(load <= CAPACITY[name] for name, load in second.loads.items())
    second.clock.advance(9)
    for answer in [*bound, *new]:
        second.renew(answer)
    second.clock.advance(2)
    assert not second.streams.summary().recovering
    with refused("no-capacity"):
        second.bind()


@pytest.mark.parametrize("lived_s", [1, 30])
def test_three_processes_in_a_row_give_away_no_more_than_there_is(lived_s: int) -> None:
    first = Binder()
    streams = first.fill(rateQps=7)
    assert first.streams.promise() == 0.9
    second = Binder(first.clock, recover=True, promised=first.streams.promise())
    streams += second.fill(rateQps=7)
    for _ in range(lived_s):
        streams = [second.renew(answer) for answer in streams]
        second.clock.advance(1)
    assert second.streams.promise() is None, "the streams of both together are more than the ceiling"
    third = Binder(first.clock, recover=True, promised=second.streams.promise())
    assert third.fill(rateQps=7) == []
    for answer in streams:
        third.renew(answer)
    assert all(load <= CAPACITY[name] for name, load in third.loads.items())
    third.clock.advance(5)
    for answer in streams[::2]:
        third.release(answer)
    for answer in streams[1::2]:
        third.renew(answer)
    assert third.streams.promise() is None, "it recovers itself"
    third.clock.advance(6)
    assert third.streams.promise() == 0.9


def test_a_ceiling_that_was_raised_after_the_former_process_left_word_counts() -> None:
    first = Binder(ceiling=0.7)
    left = first.streams.promise()
    second = Binder(first.clock, recover=True, promised=left, ceiling=1.0)
    assert second.fill() == [], "it may have obeyed before it could say so"


def test_what_is_bound_to_an_offer_that_is_gone_is_promised_nothing_about() -> None:
    binder = Binder(policy="closest")
    binder.bind()
    full = catalogue()
    remote = [place for place, name in enumerate(NAMES) if name.startswith("remote")]
    gone = type(OFFERS)(o for o in OFFERS.all if o.site.name == "remote")
    binder.streams.publish(type(full)(gone, full.network_ms[remote], full.up[remote], {}))
    assert binder.streams.promise() is None
    binder.streams.publish(full)
    assert binder.streams.promise() == 0.9


def test_a_binder_recovers_for_as_long_as_a_lease_can_last_whatever_its_policy_says_now() -> None:
    first = Binder(leaseSeconds=10)
    bound = first.fill()
    second = Binder(first.clock, recover=True, leaseSeconds=8)
    second.clock.advance(9)
    assert second.streams.summary().recovering
    new = second.fill()
    for answer in bound:
        second.renew(answer)
    assert len(second.streams.ledger.open) == len(bound) + len(new)
    assert all(load <= CAPACITY[name] for name, load in second.loads.items())
    second.clock.advance(1)
    assert not second.streams.summary().recovering


def test_a_binder_without_a_predecessor_gives_away_more_at_first_than_one_that_recovers() -> None:
    careful, free = Binder(recover=True), Binder(recover=False)
    assert len(careful.fill()) < len(free.fill())


def test_while_recovering_a_key_of_a_renewed_stream_is_not_bound_again() -> None:
    first = Binder()
    bound = first.bind(idempotencyKey="a")
    second = Binder(first.clock, recover=True)
    second.renew(bound)
    again = second.bind(idempotencyKey="a")
    assert (again["id"], again["site"], again["variant"]) == (bound["id"], bound["site"], bound["variant"])
    assert sum(second.loads.values()) == 10


def test_after_a_restart_only_what_came_since_is_counted() -> None:
    first = Binder(policy="closest")
    bound = first.bind()
    first.clock.advance(8)
    bound = first.renew(bound, served=100)
    second = Binder(first.clock, recover=True)
    second.renew(bound, served=130)
    assert second.counted("stream_queries_total", outcome="served", policy="closest") == 30


def test_standing_by_says_so_and_forgets() -> None:
    binder = Binder()
    bound = binder.bind()
    binder.streams.stand_by()
    asks: list[Callable[[], dict[str, Any]]] = [binder.bind, lambda: binder.renew(bound), lambda: binder.release(bound)]
    for ask in asks:
        with pytest.raises(Refused) as raised:
            ask()
        assert (raised.value.reason, raised.value.status, raised.value.retry_after_s) == ("standby", 503, 1)
    binder.streams.activate(lambda: True, recover=True)
    assert binder.loads == {}
    binder.renew(bound)
    assert sum(binder.loads.values()) == 10


def test_a_lease_that_was_lost_a_moment_ago_is_noticed_before_anything_is_bound() -> None:
    binder, held = Binder(), [True]
    binder.streams.activate(lambda: held[0], recover=False)
    binder.bind()
    held[0] = False
    with refused("standby"):
        binder.bind()

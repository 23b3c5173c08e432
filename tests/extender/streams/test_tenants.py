"""Tenants at one access site: what they say of themselves is believed as far as it can be true, and none has it all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.extender.streams.builders import CAPACITY, OTHER, PLATFORM, Binder, refused
from tests.streams.small import OFFERS
from tiphys_extender.serve.caps import Caps
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.ledger import BATCH, CREDIT_S, SLACK
from tiphys_extender.streams.tokens import Counts
from tiphys_extender.streams.window import Shares, Tally, Windows, counted, shares

HALF = Caps(share=0.5)
A, B = (replace(tenant, caps=HALF) for tenant in (PLATFORM, OTHER))
SITE_QPS = {site: sum(o.capacity_qps for o in OFFERS.all if o.site.name == site) for site in ("edge", "remote")}


# ---- counts ------------------------------------------------------------------------------------------------------


def test_counts_are_believed_within_what_the_declared_rate_allows() -> None:
    binder = Binder(policy="closest")
    bound = binder.bind(rateQps=10)
    binder.clock.advance(3)
    bound = binder.renew(bound, served=2**53)
    most = SLACK * 10 * 3 + BATCH
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == most
    assert binder.streams.summary().minute.success == most
    again = binder.renew(bound, served=2**53)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == most, "no time has passed"
    binder.clock.advance(1)
    binder.release(again, served=2**53)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == most + SLACK * 10


def test_what_is_cut_keeps_its_proportions() -> None:
    assert Counts(600, 300, 100).at_most(10) == (6, 3, 1)
    assert Counts(6, 3, 1).at_most(10) == (6, 3, 1)
    binder = Binder(policy="closest")
    binder.release(binder.bind(), served=0, late=2**52, refused=2**52)
    found = {o: binder.counted("stream_queries_total", outcome=o, policy="closest") for o in ("served", "late", "refused")}
    assert found == {"served": 0, "late": BATCH / 2, "refused": BATCH / 2}


def test_an_honest_client_that_was_silent_for_a_while_is_believed() -> None:
    binder = Binder(policy="closest")
    bound = binder.bind(rateQps=10)
    for _ in range(3):
        binder.clock.advance(8)
        bound = binder.renew(bound)
    bound = binder.renew(bound, served=240)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == 240
    for _ in range(20):
        binder.clock.advance(8)
        bound = binder.renew(bound)
    binder.renew(bound, served=2**53)
    most = SLACK * 10 * CREDIT_S + BATCH
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == 240 + most, "one word is worth a minute at most"


def test_what_was_too_early_to_believe_counts_when_it_can_be_true() -> None:
    binder = Binder(policy="closest")
    bound = binder.renew(binder.bind(rateQps=10), served=40)
    binder.clock.advance(5)
    binder.renew(bound, served=40)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == 40


def test_counts_that_go_back_begin_anew_from_there() -> None:
    binder = Binder(policy="closest")
    bound = binder.renew(binder.bind(), served=20)
    binder.clock.advance(2)
    bound = binder.renew(bound, served=5)
    binder.renew(bound, served=15)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == 30


def test_binding_and_releasing_in_turn_makes_few_queries_out_of_nothing() -> None:
    binder = Binder(policy="closest")
    for _ in range(10):
        binder.release(binder.bind(), served=2**53)
    assert binder.counted("stream_queries_total", outcome="served", policy="closest") == 10 * BATCH


# ---- shares of capacity ------------------------------------------------------------------------------------------


def test_a_tenant_gets_no_more_than_its_share_of_any_site_and_others_find_room() -> None:
    binder = Binder(ceiling=1.0)
    first = Counter(bound["site"] for bound in binder.fill(A, "too-much-load"))
    assert {site: first[site] * 10 <= SITE_QPS[site] / 2 for site in SITE_QPS} == {"edge": True, "remote": True}
    assert {binder.bind(B, maxDelayMs=30)["site"] for _ in range(5)} == {"edge"}, "those who need what is near get it"
    assert binder.counted("streams_total", result="no-capacity", policy="relative-load") == 1


def test_a_refusal_for_the_tenants_share_says_so_and_can_be_explained() -> None:
    binder = Binder(ceiling=1.0)
    bound = binder.fill(A, "too-much-load")
    with pytest.raises(Refused, match="its share of every site") as told:
        binder.bind(A)
    assert (told.value.status, told.value.retry_after_s) == (429, 5)
    explained = binder.streams.explain(A, told.value.about)
    assert {tuple(offer["refusedBy"]) for offer in explained["decision"]["offers"] if "task" not in offer["refusedBy"]} == {("full",)}
    binder.release(bound[0], A)
    assert binder.bind(A)["site"] == bound[0]["site"]


def test_streams_taken_over_from_a_former_process_count_for_their_tenants_share() -> None:
    first = Binder(ceiling=1.0)
    streams = first.fill(A, "too-much-load")
    second = Binder(first.clock, ceiling=1.0)
    for bound in streams:
        second.renew(bound, A)
    with refused("too-much-load"):
        second.bind(A)


def test_who_is_alone_may_have_all_there_is() -> None:
    binder = Binder(ceiling=1.0)
    bound = binder.fill()
    useful = sum(qps for name, qps in CAPACITY.items() if not name.endswith("face"))
    assert len(bound) * 10 > 0.9 * useful


def test_what_a_tenant_holds_at_a_site_ends_with_its_streams() -> None:
    binder = Binder()
    bound = [binder.bind(A) for _ in range(4)]
    ledger = binder.streams.ledger
    assert sum(ledger.load_at(A.name, site) for site in SITE_QPS) == 40
    binder.release(bound[0], A)
    binder.clock.advance(20)
    binder.streams.tick()
    assert ledger._site_qps == {}


def test_a_tenant_has_a_thousand_streams_at_most_unless_the_file_says_otherwise() -> None:
    plain = Tenant("plain", (), frozenset({"default"}))
    binder = Binder()
    for _ in range(1_000):
        binder.bind(plain, rateQps=0.01)
    with refused("too-many-streams"):
        binder.bind(plain, rateQps=0.01)


def test_what_one_tenant_has_released_is_not_forgotten_because_another_releases_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_extender.streams.ledger._MAX_RELEASED", 10)
    binder = Binder()
    bound = binder.bind()
    binder.release(bound)
    for index in range(100):
        binder.streams.ledger.release("other", f"stream-{index:032x}")
    with refused("released"):
        binder.renew(bound)


# ---- what agents see ---------------------------------------------------------------------------------------------


def window(**tenants: Tally) -> Windows:
    windows = Windows(0.0)
    for name, tally in tenants.items():
        windows.of(name)
        windows._now[name] = tally
    return windows


def test_no_tenant_counts_for_more_than_all_others_in_what_an_agent_looks_at() -> None:
    quiet = Tally(0.0, asked_qps=100.0, counts=Counts(90, 10, 0))
    loud = Tally(0.0, asked_qps=1e6, rejected_qps=1e6, counts=Counts(0, 2**40, 0))
    found = shares([window(quiet=quiet, loud=loud).turn(5.0)])
    assert found.reject == pytest.approx(0.5)
    assert found.failure == pytest.approx(0.5 * (10 + 100) / 200)
    both = shares([window(quiet=quiet, other=replace(quiet, rejected_qps=50.0)).turn(5.0)])
    assert (both.success, both.reject, both.failure) == pytest.approx((0.75 * 0.9, 0.25, 0.75 * 0.1))
    assert shares([window(loud=loud).turn(5.0)]).reject == 1.0, "who is alone is all there is"


def test_where_there_are_several_tenants_none_has_asked_for_more_than_there_is() -> None:
    incoming = np.zeros(16)
    incoming[3] = 1e6
    loud = Tally(0.0, incoming, 1e6, 5e5)
    ended = window(quiet=Tally(0.0, asked_qps=10.0), loud=loud).turn(5.0, 1_000.0)
    assert (ended.asked_qps, ended.rejected_qps, ended.incoming[3]) == pytest.approx((1_010, 500, 1_000))
    assert window(loud=loud).turn(5.0, 1_000.0).asked_qps == 1e6


def test_the_minute_adds_up_tenants_and_windows() -> None:
    windows = window(a=Tally(0.0, asked_qps=10.0, counts=Counts(8, 1, 1)), b=Tally(0.0, asked_qps=5.0, counts=Counts(4, 0, 0)))
    ended = windows.turn(5.0)
    assert (ended.counts, counted([ended])) == (Counts(12, 1, 1), windows.minute())
    windows.of("a").report(Counts(1, 0, 0))
    windows.of("b").unknown += 2
    assert (windows.minute().success, windows.minute().unknown) == (13, 2)
    assert all(not past.parts for past in windows._past), "tenants are told apart for one window"


def test_one_tenant_does_not_decide_what_the_agent_of_a_site_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    binder = Binder(policy="closest")
    told: list[Shares] = []
    monkeypatch.setattr(binder.streams.chooser, "turn", lambda offers, load, active, ended, now_s: told.append(shares([ended])))
    for _ in range(5):
        binder.bind(A)
    for _ in range(50):
        with refused("infeasible"):
            binder.bind(B, rateQps=1e6)
    binder.streams.turn()
    assert told[0].reject == pytest.approx(0.5)


def test_metrics_are_as_many_whatever_tenants_and_streams_are_called() -> None:
    binder = Binder()

    def series() -> int:
        return sum(len(metric.samples) for metric in binder.registry.collect())

    binder.release(binder.bind(rateQps=0.1))
    at_first = series()
    for index in range(50):
        tenant = Tenant(f"tenant-{index}", (), frozenset({"default"}))
        binder.release(binder.bind(tenant, rateQps=0.1, idempotencyKey=f"k{index}", application=f"app-{index}"), tenant)
    assert series() <= at_first + 2, "a site has its series once somebody is bound there"

"""What is bound, renewed, released and refused, and who may ask for it."""

from __future__ import annotations

import pytest

from tests.extender.streams.builders import CAPACITY, KEYS, OTHER, PLATFORM, STRANGER, Binder, catalogue, refused
from tests.streams.small import NAMES, OFFERS
from tiphys_extender.serve.caps import Caps
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.tokens import Keys
from tiphys_models.seats.record import RecordLog


def test_a_stream_gets_an_offer_an_endpoint_and_a_lease_that_counts() -> None:
    binder = Binder()
    bound = binder.bind(maxDelayMs=30)
    assert (bound["site"], bound["variant"]) == ("edge", "tiny")
    assert bound["expectedLatencyMs"] == pytest.approx(2 * 1 + 3.2 + 2 * 1.5 + 8)
    assert bound["expiresAt"] == binder.clock.now_s() + 10
    assert KEYS.read(bound["lease"]).offer == "edge/tiny"
    assert binder.loads == {"edge/tiny": 10.0}
    assert binder.release(bound) == {"id": bound["id"], "released": True}
    assert binder.release(bound)["released"] is False
    assert binder.loads == {}


def test_the_same_key_gets_the_same_offer_and_counts_once() -> None:
    binder = Binder()
    first = binder.bind(idempotencyKey="a")
    binder.bind()
    assert binder.bind(idempotencyKey="a") == first
    assert sum(binder.loads.values()) == 20
    with refused("key-reused"):
        binder.bind(idempotencyKey="a", rateQps=11)
    assert binder.bind(OTHER, idempotencyKey="a")["id"] != first["id"], "keys of two tenants have nothing to do with each other"
    binder.release(first)
    with refused("released"):
        binder.bind(idempotencyKey="a")


def test_a_stream_that_is_not_renewed_counts_no_longer() -> None:
    binder = Binder()
    silent, renewed = binder.bind(), binder.bind()
    binder.clock.advance(6)
    assert binder.renew(renewed)["expiresAt"] == binder.clock.now_s() + 10
    binder.clock.advance(6)
    binder.streams.tick()
    assert sum(binder.loads.values()) == 10
    assert binder.counted("streams_ended_total", how="expired") == 1
    assert binder.counted("stream_queries_unknown_total") == 10 * 10, "ten seconds at ten queries a second of which nobody said a word"
    with refused("lease-expired"):
        binder.renew(silent)


def test_counts_are_totals_so_that_a_renewal_that_is_sent_twice_counts_once() -> None:
    binder = Binder(policy="closest")
    bound = binder.bind()
    binder.clock.advance(5)
    again = binder.renew(bound, served=40, late=3)
    binder.renew(bound, served=40, late=3)
    binder.renew(again, served=80, late=3, refused=2)
    found = {
        outcome: binder.counted("stream_queries_total", outcome=outcome, policy="closest") for outcome in ("served", "late", "refused")
    }
    assert found == {"served": 80, "late": 3, "refused": 2}
    assert binder.counted("site_queries_total", outcome="served", site="edge") == 80
    minute = binder.streams.summary().minute
    assert (minute.success, minute.failure, minute.unknown) == (80, 5, 0)
    binder.clock.advance(3)
    binder.release(again)
    assert binder.streams.summary().minute.unknown == 30, "three seconds of which the release said nothing"


def test_nothing_is_bound_to_a_site_from_the_moment_it_is_down_and_its_streams_are_told() -> None:
    binder = Binder(policy="closest")
    bound = binder.bind()
    assert bound["site"] == "edge"
    binder.streams.publish(catalogue("edge/tiny", "edge/yolo"))
    assert binder.bind()["site"] == "remote"
    assert binder.renew(bound)["up"] is False
    binder.streams.publish(catalogue())
    assert binder.renew(bound)["up"] is True


def test_the_use_of_a_site_is_that_of_its_offers_that_are_up() -> None:
    binder = Binder(policy="closest")
    for _ in range(5):
        binder.bind(minAccuracy=20)
    binder.bind(minAccuracy=40)
    binder.streams.publish(catalogue("edge/yolo"))
    binder.streams.tick()
    assert binder.counted("site_use_ratio", site="edge") == pytest.approx(50 / CAPACITY["edge/tiny"])
    assert {use.site: (use.streams, use.use_percent) for use in binder.streams.summary().sites}["edge"] == (6, 50.0)
    binder.streams.publish(catalogue("edge/yolo", "edge/tiny"))
    binder.streams.tick()
    assert binder.counted("site_use_ratio", site="edge") == 0
    assert binder.counted("site_use_ratio", site="remote") == 0


def test_infeasible_and_full_are_told_apart_and_can_be_explained() -> None:
    binder = Binder()
    with pytest.raises(Refused, match="all are too slow") as infeasible:
        binder.bind(maxDelayMs=5)
    assert (infeasible.value.reason, infeasible.value.status) == ("infeasible", 422)
    bound = binder.fill()
    assert set(binder.loads) == {"edge/tiny", "edge/yolo", "remote/tiny", "remote/yolo"}
    assert all(0.9 * CAPACITY[name] - 10 < load <= 0.9 * CAPACITY[name] for name, load in binder.loads.items())
    with pytest.raises(Refused, match="all are full") as full:
        binder.bind(idempotencyKey="late")
    assert full.value.status == 429
    assert full.value.retry_after_s is not None
    told = binder.streams.explain(PLATFORM, full.value.about)["decision"]
    assert told["outcome"] == "NoCapacity"
    assert {offer["offer"]: offer["refusedBy"] for offer in told["offers"]}["edge/tiny"] == ["full"]
    chosen = binder.streams.explain(PLATFORM, bound[0]["id"])
    assert chosen["offer"] == chosen["decision"]["chosen"] == chosen["decision"]["offers"][0]["offer"], "feasible ones first, best first"
    with refused("unknown-binding"):
        binder.streams.explain(OTHER, bound[0]["id"])
    binder.release(bound[0])
    assert binder.bind(idempotencyKey="late"), "a refusal is no answer to keep: there is room now"


def test_a_stream_that_is_too_large_for_every_offer_is_not_told_to_come_again() -> None:
    for binder in (Binder(), Binder(recover=True, promised=None)):
        with pytest.raises(Refused, match="all are too small for it, however empty") as error:
            binder.bind(rateQps=390)
        assert (error.value.reason, error.value.status, error.value.retry_after_s) == ("infeasible", 422, None)
        assert binder.counted("streams_total", result="infeasible", policy="relative-load") == 1
    with refused("no-capacity"):
        binder.bind(rateQps=350)  # nothing is free yet, but that passes


def test_where_all_that_would_do_is_down_a_client_is_told_to_come_again() -> None:
    binder = Binder()
    binder.streams.publish(catalogue(*NAMES))
    with pytest.raises(Refused, match="is down") as error:
        binder.bind()
    assert (error.value.reason, error.value.status, error.value.retry_after_s) == ("offers-down", 503, 5)
    assert binder.counted("streams_total", result="offers-down", policy="relative-load") == 1
    with refused("infeasible"):
        binder.bind(maxDelayMs=5)
    binder.streams.publish(catalogue())
    assert binder.bind()


def test_decisions_are_a_bounded_log_that_says_where_it_begins() -> None:
    binder = Binder(policy="closest")
    binder.streams.seat.records = RecordLog(3)
    bound = binder.bind(idempotencyKey="a", application="cars")
    with refused("infeasible"):
        binder.bind(maxDelayMs=5)
    page = binder.streams.seat.records.after(0, 9)
    assert [(item["seq"], item["outcome"], item["offer"]) for item in page["items"]] == [(1, "Bound", "edge/tiny"), (2, "Infeasible", None)]
    assert (page["items"][0]["id"], page["items"][0]["application"], page["items"][0]["policy"]) == (bound["id"], "cars", "closest")
    for _ in range(3):
        binder.bind()
    page = binder.streams.seat.records.after(1, 9)
    assert (page["first"], page["last"], page["lost"], [item["seq"] for item in page["items"]]) == (3, 5, 1, [3, 4, 5])
    assert binder.streams.seat.records.after(5, 9)["items"] == []


def test_tokens_that_are_not_for_this_binder_this_stream_or_this_tenant_are_refused() -> None:
    binder = Binder()
    bound, more = binder.bind(), binder.bind()
    with refused("other-access-site"):
        Binder(binder.clock, site="remote").renew(bound)
    with refused("lease-invalid"):
        Binder(binder.clock, keys=Keys.of([("k2", "t" * 40)])).renew(bound)
    with refused("lease-invalid"):
        binder.renew(bound | {"id": more["id"]})
    with refused("lease-invalid"):
        binder.renew(bound, OTHER)
    late = Binder(binder.clock)
    binder.clock.advance(11)
    with refused("lease-expired"):
        late.renew(bound)
    assert late.loads == {}


def test_released_streams_do_not_come_back_by_a_late_renewal() -> None:
    binder = Binder()
    bound = binder.bind()
    binder.release(bound)
    with refused("released"):
        binder.renew(bound)
    successor = Binder(binder.clock, recover=True)
    successor.release(bound)
    with refused("released"):
        successor.renew(bound)


def test_ids_that_no_stream_can_have_are_not_remembered_as_released() -> None:
    binder = Binder()
    made_up = "x" * 60_000
    assert binder.release({"id": made_up})["released"] is False
    assert not binder.streams.ledger.was_released("platform", made_up)


def test_load_that_other_binders_report_counts_until_they_are_forgotten() -> None:
    binder = Binder()
    binder.streams.hear("remote", {"edge/tiny": 89.0, "edge/yolo": 45.0, "gone/x": 1.0})
    assert binder.bind(maxDelayMs=200, rateQps=10)["site"] == "remote"
    with refused("no-capacity"):
        binder.bind(maxDelayMs=30)
    assert binder.loads == {"remote/tiny": 10.0}, "it is not ours to report"
    binder.streams.forget("remote")
    assert binder.bind(maxDelayMs=30)["site"] == "edge"


def test_leases_survive_other_offers_and_count_again_when_theirs_comes_back() -> None:
    binder = Binder(policy="closest")
    bound = binder.bind()
    full = catalogue()
    gone = type(OFFERS)(o for o in OFFERS.all if o.site.name == "remote")
    remote = [place for place, name in enumerate(NAMES) if name.startswith("remote")]
    binder.streams.publish(type(full)(gone, full.network_ms[remote], full.up[remote], {}))
    assert binder.loads == {}
    assert binder.renew(bound)["up"] is False
    assert binder.registry.get_sample_value("tiphys_binder_site_streams_total", {"site": "edge"}) is None, "series of sites end with them"
    binder.streams.publish(full)
    assert binder.loads == {"edge/tiny": 10.0}


def test_delays_that_move_leave_no_further_copy_of_the_offers_with_decisions() -> None:
    binder = Binder()
    before = binder.streams.system.catalogue
    again = catalogue()
    binder.streams.publish(type(again)(type(OFFERS)(OFFERS.all), again.network_ms + 1.0, again.up, {}))
    after = binder.streams.system.catalogue
    assert after.offers is before.offers
    assert (after.network_ms > before.network_ms).all()


def test_tenants_are_kept_to_their_namespaces_and_numbers() -> None:
    binder = Binder()
    with refused("namespace-forbidden"):
        binder.bind(STRANGER)
    small = Tenant("small", (), frozenset({"default"}), Caps(max_streams=2))
    bound = [binder.bind(small), binder.bind(small)]
    with refused("too-many-streams"):
        binder.bind(small)
    binder.bind(PLATFORM)
    binder.release(bound[0], small)
    binder.bind(small)


def test_who_knows_the_id_of_anothers_stream_can_neither_end_nor_keep_it() -> None:
    binder = Binder()
    bound = binder.bind(idempotencyKey="camera-7")
    assert binder.release(bound, OTHER) == {"id": bound["id"], "released": False}
    assert sum(binder.loads.values()) == 10
    assert binder.renew(bound)["up"] is True
    assert binder.counted("streams_relearned_total") == 0
    assert binder.release(bound)["released"] is True


def test_mode_off_the_kill_switch_and_a_missing_policy_bind_nothing_but_renew() -> None:
    binder = Binder()
    bound = binder.bind()
    binder.obey(mode="Off")
    with refused("switched-off"):
        binder.bind()
    assert not binder.streams.summary().active
    binder.obey()
    binder.streams.enabled = lambda: False  # the kill switch
    with refused("switched-off"):
        binder.bind()
    assert binder.renew(bound)["up"] is True
    binder.streams.obey(None)
    with refused("not-ready"):
        binder.bind()
    assert binder.renew(bound)["up"] is True


def test_a_wall_clock_that_jumps_ends_no_lease() -> None:
    class Jumping:
        ahead_s = 0.0

        def now_s(self) -> float:
            return 1e9 + self.ahead_s

        def monotonic_s(self) -> float:
            return 5.0

    clock = Jumping()
    binder = Binder(clock)  # type: ignore[arg-type]
    bound = binder.bind()
    clock.ahead_s = 3600.0
    assert binder.renew(bound)["expiresAt"] == 1e9 + 10


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
def test_a_wall_clock_that_is_set_by_two_hours_ends_no_lease_and_keeps_none(step_s: float) -> None:
    binder = Binder()
    bound = binder.bind()
    binder.clock.set_forward(step_s)
    binder.clock.advance(9)
    bound = binder.renew(bound)
    binder.clock.advance(9)
    binder.streams.tick()
    assert len(binder.streams.ledger.open) == 1
    binder.clock.advance(2)
    binder.streams.tick()
    assert len(binder.streams.ledger.open) == 0


def test_after_a_restart_with_a_clock_set_back_a_lease_of_before_ends_when_it_was_meant_to() -> None:
    first = Binder()
    bound = first.bind()
    first.clock.advance(11)
    told_s = first.streams.now_s()
    first.clock.set_forward(-7200.0)
    second = Binder(first.clock, recover=True)
    second.streams.keep_time(told_s, None)  # nobody watched: it is as late as was told, or later
    with refused("lease-expired"):
        second.renew(bound)

"""Tenants of one binder: none can steer, starve or slow down another."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import policy_object
from tests.extender.binder_harness import (
    ACTIVE,
    OTHER_TOKEN,
    PLATFORM,
    TOKEN,
    Binder,
    Caller,
    call,
    calling,
    node_object,
    refused,
    tenants_file,
)
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.binder_settings import BinderSettings
from tiphys_extender.calls.placer import new_uid
from tiphys_extender.serve.caps import CapDefaults, Caps
from tiphys_extender.serve.refused import STATUS, TENANT_CAPS, Refused
from tiphys_extender.serve.tenants import Tenant, Tenants
from tiphys_extender.serve.throttle import Throttle
from tiphys_models.base.clock import ManualClock

THEIRS = policy_object("theirs", "elsewhere", mode="Active", policy="least-connections")
ABSURD = {"namespace": "elsewhere", "function": "f", "cpu": "1000", "memory": "1Pi"}


def tenant(**caps: Any) -> Tenant:
    return Tenant("other", (), frozenset({"*"}), Caps(**caps))


# ---- bookings ----------------------------------------------------------------------------------------------------


async def test_bookings_larger_than_nodes_do_not_steer_the_calls_of_others(tmp_path: Path) -> None:
    binder = Binder(nodes=4)
    async with calling(binder, tmp_path) as caller:
        stranger = Caller(caller.connection, OTHER_TOKEN)
        answers = [await stranger.post(f"/{new_uid()}/started", json.dumps(ABSURD | {"node": f"n{n}"}).encode()) for n in range(3)]
        nodes = Counter([(await caller.post("", call()))[1]["node"] for _ in range(8)])
    assert nodes == dict.fromkeys(["n0", "n1", "n2", "n3"], 2)
    assert [(status, body["error"]) for status, body in answers] == [(422, "larger-than-node")] * 3
    assert binder.counted("bad_requests_total", reason="larger-than-node") == 3


def test_a_call_that_no_candidate_could_hold_is_refused_and_reserves_nothing() -> None:
    binder = Binder(nodes=2)
    for field, size in (("cpu", "9"), ("memory", "17Gi")):
        with refused("larger-than-node"):
            binder.place(PLATFORM, **{field: size})
    assert (binder.inflight(), len(binder.leases)) == ({}, 0)
    assert binder.place(cpu="8", memory="16Gi")["reserved"] is True


def test_nodes_that_could_never_hold_the_call_are_no_candidates() -> None:
    binder = Binder(nodes=2)
    binder.nodes.put(node_object("large", cpu="64"))
    assert [entry["node"] for entry in binder.place(cpu="9")["nodes"]] == ["large"]
    assert [entry["node"] for entry in binder.place(cpu="9", selector=None, candidates=["n0", "large"])["nodes"]] == ["large"]


def test_a_call_moves_to_no_node_that_could_not_hold_it() -> None:
    binder = Binder(nodes=1)
    binder.nodes.put(node_object("large", cpu="64"))
    uid = binder.place(cpu="9")["id"]
    with refused("larger-than-node"):
        binder.report(uid, node="n0")
    assert binder.inflight() == {"large": 1}


def test_a_node_that_nobody_has_shown_counts_as_large_as_the_largest() -> None:
    binder = Binder(nodes=1)
    known = {"namespace": "default", "function": "f", "node": "new"}
    with refused("larger-than-node"):
        binder.report(new_uid(), PLATFORM, **known, cpu="9")
    assert binder.report(new_uid(), PLATFORM, **known, cpu="8")["relearnt"] is True


def test_what_was_learnt_before_any_node_was_known_is_cut_to_its_node() -> None:
    binder = Binder(nodes=0)
    uid = new_uid()
    binder.report(uid, namespace="default", function="f", node="n0", cpu="1000", memory="1Pi")
    binder.nodes.put(node_object("n0"))
    binder.placer.tick()
    nodes = binder.state.nodes
    assert (nodes.cpu_requested_milli.sum(), nodes.memory_requested.sum()) == (8_000, 16 * 2**30)
    assert binder.leases.held_by("platform").cpu_milli == 8_000
    binder.placer.finished(PLATFORM, uid)
    assert (nodes.cpu_requested_milli.sum(), nodes.memory_requested.sum()) == (0, 0)


# ---- shares ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "reason"), [({"cpu": "4"}, "too-many-cores"), ({"memory": "8Gi"}, "too-much-memory")])
def test_a_tenant_gets_no_more_than_its_share_of_the_pool(size: dict[str, str], reason: str) -> None:
    binder = Binder(nodes=4, policies=[ACTIVE, THEIRS])
    greedy, wanted = tenant(share=0.5), {"namespace": "elsewhere", **size}
    uids = [binder.place(greedy, **wanted)["id"] for _ in range(4)]
    with refused(reason):
        binder.place(greedy, **wanted)
    with refused(reason):
        binder.report(new_uid(), greedy, function="f", node="n0", **wanted)
    assert [binder.place(PLATFORM, **size)["reserved"] for _ in range(4)] == [True] * 4, "the other half is there for others"
    binder.placer.finished(greedy, uids[0])
    assert binder.place(greedy, **wanted)["reserved"] is True


def test_shares_are_of_the_pool_as_it_is_now() -> None:
    binder = Binder(nodes=4)
    sizes = binder.pool.sizes
    assert (sizes.cpu_milli, sizes.memory_bytes) == (32_000, 64 * 2**30)
    binder.nodes.put(node_object("n0", cpu="4"))
    binder.nodes.put(node_object("n1", {}))  # left the pool
    binder.nodes.drop(node_object("n2"))
    assert (sizes.cpu_milli, sizes.of("n0"), sizes.of("n1")) == (12_000, (4_000, 16 * 2**30), None)
    binder.nodes.listed({"uid-n3"})
    assert (sizes.cpu_milli, sizes.memory_bytes) == (8_000, 16 * 2**30)


def test_who_has_nobody_beside_them_has_the_whole_pool_and_two_have_half_each(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps({"tenants": [{"name": "one", "token": TOKEN, "namespaces": ["*"]}]}))
    tenants = Tenants(path, BinderMetrics())
    assert _caps(tenants, TOKEN) == Caps(share=None)
    tenants_file(tmp_path, sharePercent=80)
    assert tenants.reload_if_changed()
    assert (_caps(tenants, TOKEN).share, _caps(tenants, OTHER_TOKEN)) == (0.8, Caps(share=0.5))


def test_every_cap_can_be_set_for_one_tenant_and_for_all(tmp_path: Path) -> None:
    own = {"maxOpen": 1, "maxStreams": 2, "sharePercent": 3, "requestsPerSecond": 4, "burst": 5, "maxRepliesMib": 6, "maxFunctions": 7}
    settings = BinderSettings(
        tenant_max_open=11, tenant_max_streams=12, tenant_share_percent=13, tenant_requests_per_second=14, tenant_burst=15,
        tenant_max_replies_mib=16, tenant_max_functions=17,
    )  # fmt: skip
    tenants = Tenants(tenants_file(tmp_path, **own), BinderMetrics(), settings.cap_defaults)
    assert _caps(tenants, TOKEN) == Caps(1, 2, 0.03, 4, 5, 6 * 2**20, 7)
    assert _caps(tenants, OTHER_TOKEN) == Caps(11, 12, 0.13, 14, 15, 16 * 2**20, 17)
    assert BinderSettings().cap_defaults == CapDefaults(Caps(1_000, 1_000, None, 200, 400, 8 * 2**20, 500), 0.5)


def _caps(tenants: Tenants, token: str) -> Caps:
    found = tenants.of(f"Bearer {token}")
    assert found is not None
    return found.caps


async def test_the_thousand_and_first_open_call_of_a_tenant_is_refused(tmp_path: Path) -> None:
    binder = Binder(nodes=1, max_open=5_000)
    tenants = Tenants(tenants_file(tmp_path), binder.metrics)
    found = tenants.of(f"Bearer {TOKEN}")
    assert found is not None
    for _ in range(1_000):
        binder.place(found, cpu="0", memory="0")
    with refused("too-many-open"):
        binder.place(found, cpu="0", memory="0")


# ---- requests ----------------------------------------------------------------------------------------------------


async def test_a_flood_of_one_tenant_is_refused_before_it_is_read_and_others_do_not_notice(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        stranger = Caller(caller.connection, OTHER_TOKEN)
        codes = Counter([(await stranger.post("", b"no JSON"))[0] for _ in range(410)])
        assert codes == {400: 400, 429: 10}
        status, headers, body = await stranger.send("POST", "", b"no JSON")
        assert (status, headers["retry-after"], body["error"]) == (429, "1", "too-many-requests")
        assert (await caller.post("", call()))[0] == 200
        binder.clock.advance(0.0625)
        codes = Counter([(await stranger.post("", b"no JSON"))[0] for _ in range(14)])
        assert codes == {400: 12, 429: 2}, "two hundred a second"
    assert binder.counted("bad_requests_total", reason="too-many-requests") == 13


async def test_who_reached_a_limit_stands_in_the_log_once_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    binder = Binder()

    def said() -> list[Any]:
        return [record.__dict__["fields"] for record in caplog.records if record.message == "a tenant has reached a limit"]

    async with calling(binder, tmp_path, requestsPerSecond=1, burst=1) as caller:
        for _ in range(4):
            await caller.post("", call())
        assert said() == [{"tenant": "platform", "reason": "too-many-requests", "refused": 1}]
        binder.clock.advance(60)
        await caller.post("", b"no JSON is no limit")
        await caller.post("", call())
    assert said()[1:] == [{"tenant": "platform", "reason": "too-many-requests", "refused": 3}]


async def test_who_has_no_token_uses_up_nobodys_requests(tmp_path: Path) -> None:
    async with calling(Binder(), tmp_path, requestsPerSecond=1, burst=1) as caller:
        stranger = Caller(caller.connection, "no token at all")
        assert {(await stranger.post("", call()))[0] for _ in range(5)} == {401}
        assert [(await caller.post("", call()))[0] for _ in range(2)] == [200, 429]


def test_renewals_of_what_a_tenant_has_bound_come_on_top_of_what_it_may_ask() -> None:
    clock, streams = ManualClock(), {"other": 0}
    throttle = Throttle(clock, lambda name: streams[name])

    def admitted() -> int:
        for count in range(1_000):
            try:
                throttle.admit(tenant(requests_per_s=10, burst=100))
            except Refused:
                return count
        return 1_000

    assert admitted() == 100
    clock.advance(1)
    assert admitted() == 10
    streams["other"] = 60
    clock.advance(1)
    assert admitted() == 10 + 20


async def test_a_large_body_costs_as_much_as_many_requests(tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path, max_body_bytes=2_000_000, requestsPerSecond=10, burst=20) as caller:
        assert (await caller.post("", b" " * 1_000_000))[0] == 400
        assert (await caller.post("", call()))[0] == 429
        binder.clock.advance(1)
        status, headers, _ = await caller.send("POST", "", call())
        assert (status, headers["retry-after"]) == (429, "1")
        binder.clock.advance(0.3)
        assert (await caller.post("", call()))[0] == 200


def test_a_clock_that_stands_still_or_a_long_silence_give_no_more_than_the_burst() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    slow = tenant(requests_per_s=0.1, burst=1)
    throttle.admit(slow)
    with pytest.raises(Refused) as told:
        throttle.admit(slow)
    assert (told.value.status, told.value.retry_after_s) == (429, 10)
    clock.advance(10_000)
    throttle.admit(slow)
    with refused("too-many-requests"):
        throttle.admit(slow)


def test_every_limit_of_a_tenant_is_a_429() -> None:
    assert {STATUS[reason] for reason in TENANT_CAPS} == {429}


def test_every_word_of_a_refusal_is_explained() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    text = (docs / "placing-calls.md").read_text() + (docs / "streams.md").read_text()
    assert [reason for reason in STATUS if f"`{reason}`" not in text] == []


def test_whatever_two_tenants_do_neither_leaves_its_share_and_the_books_hold_exactly_what_is_open() -> None:
    random = np.random.default_rng(11)
    binder = Binder(nodes=4, policies=[ACTIVE, THEIRS], lease_s=10, max_open=50)
    both = [Tenant(name, (), frozenset({"default", "elsewhere"}), Caps(max_open=20, share=0.5, max_functions=4)) for name in ("a", "b")]
    known = [new_uid()]
    reasons: Counter[str] = Counter()
    for _ in range(1_500):
        who, uid = both[random.integers(2)], known[random.integers(len(known))]
        size = {"cpu": f"{random.choice([0, 500, 3_000, 9_000])}m", "memory": f"{random.choice([0, 1, 6, 20])}Gi"}
        where = {"namespace": "elsewhere", "function": f"f{random.integers(6)}", **size}
        try:
            match random.integers(5):
                case 0 | 1:
                    known.append(binder.place(who, **where)["id"])
                case 2:
                    known.append(new_uid())
                    binder.report(known[-1], who, node=f"n{random.integers(5)}", **where)
                case 3:
                    binder.placer.finished(who, uid)
                case _:
                    binder.clock.advance(float(random.integers(3)))
                    binder.placer.tick()
        except Refused as refusal:
            reasons[refusal.reason] += 1
        leases = [lease for lease in map(binder.leases.get, binder.leases.uids) if lease is not None]
        for tenant_ in both:
            own, held = [lease for lease in leases if lease.tenant == tenant_.name], binder.leases.held_by(tenant_.name)
            assert (held.placements, held.cpu_milli, held.memory_bytes) == (
                len(own),
                sum(lease.cpu_milli for lease in own),
                sum(lease.memory_bytes for lease in own),
            )
            assert held.cpu_milli <= 16_000
            assert held.memory_bytes <= 32 * 2**30
        assert max((lease.cpu_milli for lease in leases), default=0) <= 8_000
        on_nodes = sum(lease.cpu_milli for lease in leases if lease.node != "n4")  # nobody has shown that one
        assert binder.state.nodes.cpu_requested_milli.sum() == on_nodes
    assert set(reasons) >= {"larger-than-node", "too-many-cores", "too-much-memory", "too-many-functions"}, reasons

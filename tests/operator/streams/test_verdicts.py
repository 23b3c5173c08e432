from __future__ import annotations

from typing import Any

import pytest

from tests.operator.streams.small import NOW, NOW_S, SERVICE, condition, made, policy, site, variant
from tiphys_models.api.stream_reasons import ProbeRefusal, SiteReason, StreamReason, VariantReason
from tiphys_models.api.stream_summary import StreamSummary
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube.kinds import INFERENCE_SITES, MODEL_VARIANTS, STREAM_POLICIES
from tiphys_operator.streams.cluster import BindingCluster
from tiphys_operator.streams.rounds import Rounds
from tiphys_operator.streams.seen import PolicyObject, SiteObject
from tiphys_operator.streams.verdicts import MOVED_S, REFRESH_S, policy_status, site_status, variant_status

PROBE = {"url": "http://127.0.0.2:1"}
SUMMARY: dict[str, Any] = {
    "namespace": "n",
    "policy": "streams",
    "accessSite": "a1",
    "active": True,
    "activePolicy": "relative-load",
    "lastDecision": {"at": NOW, "policy": "relative-load", "reason": "named by the StreamPolicy"},
    "offers": 1,
    "streams": 3,
    "minute": {"success": 90, "reject": 6, "failure": 4, "unknown": 50},
}


def of_site(**status: Any) -> SiteObject:
    return INFERENCE_SITES.read(site(probe=PROBE) | {"status": status})


def probed(*trips_ms: float, missed: int = 0) -> Rounds:
    rounds = Rounds()
    for trip_ms in trips_ms:
        rounds.answered(trip_ms, NOW_S)
    for _ in range(missed):
        rounds.missed("no answer in time")
    return rounds


def refused(rule: ProbeRefusal) -> Rounds:
    rounds = Rounds()
    rounds.refuse(rule)
    return rounds


@pytest.mark.parametrize(
    ("rounds", "status", "reason"),
    [
        (None, "Unknown", SiteReason.NOT_PROBED),
        (probed(), "Unknown", SiteReason.NOT_PROBED),
        (probed(2.0), "True", SiteReason.PROBED),
        (probed(2.0, missed=1), "True", SiteReason.PROBED),
        (probed(2.0, missed=2), "False", SiteReason.PROBES_MISSED),
        (refused(ProbeRefusal.LOOPBACK), "False", SiteReason.PROBE_REFUSED),
        (refused(ProbeRefusal.TOO_MANY_SITES), "Unknown", SiteReason.PROBE_REFUSED),
    ],
)
def test_a_site_is_what_its_probes_say(rounds: Rounds | None, status: str, reason: SiteReason) -> None:
    (found,) = site_status(of_site(), rounds, "a1", NOW_S).conditions
    assert (found.status, found.reason) == (status, reason)


def test_a_new_leader_leaves_a_verdict_standing_until_it_has_its_own() -> None:
    down = of_site(conditions=[condition("Reachable", "False", "ProbesMissed")])
    assert site_status(down, Rounds(), "a1", NOW_S).conditions[0].status == "False"
    assert site_status(down, probed(1.0), "a1", NOW_S).conditions[0].status == "True"


def test_a_spec_that_cannot_be_read_is_told() -> None:
    broken = INFERENCE_SITES.read(made("InferenceSite", "a1", {"layer": "edge"}))
    (found,) = site_status(broken, None, "a1", NOW_S).conditions
    assert (found.reason, "spec.layer" in found.message) == (SiteReason.INVALID_SPEC, True)


def measured(mean_ms: float, age_s: float, origin: str = "a1") -> dict[str, Any]:
    return {"from": origin, "meanMs": mean_ms, "sigmaMs": 0.0, "samples": 30, "measuredAt": rfc3339(NOW_S - age_s)}


@pytest.mark.parametrize(
    ("mean_ms", "age_s", "written"),
    [
        (5.0, REFRESH_S - 1, False),
        (5.0, REFRESH_S, True),
        (9.0, MOVED_S - 1, False),
        (9.0, MOVED_S, True),
    ],
)
def test_a_delay_is_written_when_it_moved_or_grew_old_and_not_with_every_probe(mean_ms: float, age_s: float, written: bool) -> None:
    status = site_status(of_site(delays=[measured(mean_ms, age_s)]), probed(*[10.0] * 5), "a1", NOW_S)
    assert (status.delays[0].measured_at == rfc3339(NOW_S)) is written


def test_delays_measured_elsewhere_are_left_to_who_measures_them() -> None:
    status = site_status(of_site(delays=[measured(7.0, 0, "elsewhere")]), probed(*[10.0] * 5), "a1", NOW_S)
    assert [d.origin for d in status.delays] == ["a1"], "server-side apply keeps the others"


def test_an_operator_that_stands_nowhere_measures_no_delay() -> None:
    assert site_status(of_site(), probed(*[10.0] * 5), "", NOW_S).delays == []


def test_a_service_is_as_ready_as_its_endpoints() -> None:
    seen, where = MODEL_VARIANTS.read(variant(endpoint=SERVICE)), INFERENCE_SITES.read(site())
    status = variant_status(seen, where, ["10.0.0.1:8000", "10.0.0.2:8000"], NOW_S)
    assert (status.replicas, status.endpoints, status.conditions[0].reason) == (
        2,
        ["10.0.0.1:8000", "10.0.0.2:8000"],
        VariantReason.ENDPOINTS_READY,
    )
    status = variant_status(seen, where, [], NOW_S)
    assert (status.replicas, status.conditions[0].status, status.conditions[0].reason) == (0, "False", VariantReason.NO_READY_ENDPOINT)


def test_endpoints_that_are_not_known_yet_stay_as_they_were() -> None:
    seen = MODEL_VARIANTS.read(variant(endpoint=SERVICE) | {"status": {"replicas": 4}})
    assert variant_status(seen, INFERENCE_SITES.read(site()), None, NOW_S).replicas == 4


def test_an_address_outside_is_one_replica_unless_its_site_is_down() -> None:
    seen = MODEL_VARIANTS.read(variant())
    status = variant_status(seen, INFERENCE_SITES.read(site()), None, NOW_S)
    assert (status.replicas, status.conditions[0].reason) == (1, VariantReason.ADDRESS_GIVEN)
    down = of_site(conditions=[condition("Reachable", "False", "ProbesMissed")])
    assert variant_status(seen, down, None, NOW_S).conditions[0].reason == VariantReason.SITE_UNREACHABLE
    assert variant_status(seen, None, None, NOW_S).conditions[0].reason == VariantReason.SITE_NOT_FOUND


def judged(spec: PolicyObject, where: SiteObject | None, *, governing: PolicyObject | None = None, **summary: Any) -> Any:
    heard = None if summary.get("silent") else StreamSummary.model_validate(SUMMARY | summary)
    return policy_status(spec, where, governing or spec, heard, NOW_S)


ACCESS = INFERENCE_SITES.read(site(access=True))
OTHER = STREAM_POLICIES.read(policy("older"))


@pytest.mark.parametrize(
    ("spec", "where", "options", "status", "reason"),
    [
        ({}, ACCESS, {}, "True", StreamReason.BINDING),
        ({"mode": "Off"}, ACCESS, {}, "False", StreamReason.DISABLED),
        ({"mode": "Shadow", "policy": "aset"}, ACCESS, {}, "True", StreamReason.SHADOWING),
        ({"mode": "Canary", "policy": "aset", "canary": {"percent": 5}}, ACCESS, {}, "True", StreamReason.CANARY),
        ({"mode": "Shadow", "policy": "aset"}, ACCESS, {"modelProblem": "weights-missing"}, "False", StreamReason.DEGRADED_TO_FALLBACK),
        ({}, None, {}, "False", StreamReason.ACCESS_SITE_NOT_FOUND),
        ({}, INFERENCE_SITES.read(site()), {}, "False", StreamReason.NOT_AN_ACCESS_SITE),
        ({}, ACCESS, {"governing": OTHER}, "False", StreamReason.CONFLICT),
        ({}, ACCESS, {"silent": True}, "Unknown", StreamReason.BINDER_UNREACHABLE),
        ({}, ACCESS, {"offers": 0}, "False", StreamReason.NO_OFFERS),
        ({"policy": "aset"}, ACCESS, {"modelProblem": "weights-missing"}, "False", StreamReason.DEGRADED_TO_FALLBACK),
        ({"policy": "acme"}, ACCESS, {"modelProblem": "policy-unknown"}, "False", StreamReason.UNKNOWN_POLICY),
        ({}, ACCESS, {"recovering": True}, "True", StreamReason.RECOVERING),
        ({"ceiling": 2}, ACCESS, {}, "False", StreamReason.INVALID_SPEC),
    ],
)
def test_a_policy_says_whether_it_binds_and_if_not_why(
    spec: dict[str, Any], where: SiteObject | None, options: dict[str, Any], status: str, reason: StreamReason
) -> None:
    (found,) = judged(STREAM_POLICIES.read(policy(**spec)), where, **options).conditions
    assert (found.status, found.reason) == (status, reason)


def test_a_policy_shows_what_its_binder_reports() -> None:
    status = judged(STREAM_POLICIES.read(policy()), ACCESS)
    assert (status.active_policy, status.streams) == ("relative-load", 3)
    assert status.shares.queries == 100, "what nobody spoke of is not counted"
    assert (status.shares.success_percent, status.shares.reject_percent, status.shares.failure_percent) == (90.0, 6.0, 4.0)
    assert (status.last_decision.policy, status.last_decision.at) == ("relative-load", NOW)


def test_a_policy_shows_how_its_groups_compare() -> None:
    said = {
        "since": NOW,
        "measure": "share in time",
        "agreementPercent": 80.0,
        "compared": 10,
        "treated": {"answers": 10, "ended": 8, "mean": 0.9},
    }
    status = judged(STREAM_POLICIES.read(policy(mode="Canary", policy="aset", canary={"percent": 5})), ACCESS, comparison=said)
    assert status.comparison.model_dump(by_alias=True, exclude_unset=True) == said


def test_a_policy_in_shadow_says_who_binds_and_who_is_asked() -> None:
    (found,) = judged(STREAM_POLICIES.read(policy(mode="Shadow", policy="aset", fallback="closest")), ACCESS).conditions
    assert found.message == "closest binds streams that enter at a1, aset is asked and not obeyed"


def test_a_silent_binders_last_word_on_streams_is_not_repeated() -> None:
    before = policy("streams") | {"status": {"streams": 3, "activePolicy": "closest"}}
    status = judged(STREAM_POLICIES.read(before), ACCESS, silent=True)
    assert (status.streams, status.active_policy, status.shares) == (0, "", None)


def test_before_any_query_there_are_no_shares() -> None:
    assert judged(STREAM_POLICIES.read(policy()), ACCESS, minute={}).shares is None


def test_of_two_policies_for_one_access_site_the_older_counts() -> None:
    cluster = BindingCluster(lambda: None)
    older, newer = policy("b"), policy("a")
    older["metadata"]["creationTimestamp"] = "2021-01-01T00:00:00Z"
    for obj in (newer, older, policy("elsewhere", accessSite="a2")):
        cluster.policy_store.put(obj)
    governing = cluster.governing("n", "a1")
    assert governing is not None
    assert governing.name == "b"

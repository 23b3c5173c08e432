"""StreamPolicies in Shadow, Canary and Active: who binds, and what is kept of what the other would have done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.extender.streams.builders import PLATFORM, Binder, catalogue, refused, spec
from tests.extender.streams.test_chooser import ASET, Fixed, agent
from tiphys_extender.streams.chooser import Chooser
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.streams.agent import ACTIONS, Agent
from tiphys_models.streams.protocol import BindingPolicy

CANARY: dict[str, Any] = {"mode": "Canary", "policy": "closest", "fallback": "farthest", "canary": {"percent": 50}}


class Odd:
    """A learned score that does as the test says."""

    name = "score"

    def __init__(self, value: float | Exception) -> None:
        self.value = value

    def score(self, stream: Any, candidates: Any) -> np.ndarray:
        if isinstance(self.value, Exception):
            raise self.value
        return np.full(len(candidates.latency_ms), self.value)


def with_score(policy: BindingPolicy, **wanted: Any) -> Binder:
    binder = Binder()
    binder.streams.chooser._load = lambda name, model, mode: policy
    binder.obey(policy="score", fallback="closest", **wanted)
    return binder


def items(binder: Binder) -> list[dict[str, Any]]:
    return binder.streams.seat.records.after(0, 1_000)["items"]  # type: ignore[no-any-return]


def answers(binder: Binder, outcome: str, group: str = "", reason: str = "") -> float:
    labels = {"outcome": outcome, "group": group, "reason": reason}
    return binder.registry.get_sample_value("tiphys_binder_streams_answers_total", labels) or 0.0


def test_in_shadow_the_fallback_binds_and_what_the_policy_would_have_taken_is_kept() -> None:
    binder = Binder(mode="Shadow", policy="closest", fallback="farthest")
    bound = binder.bind()
    assert (bound["site"], bound["policy"]) == ("remote", "farthest")
    (item,) = items(binder)
    assert (item["seat"], item["reason"], item["by"], item["mode"]) == ("rule", "shadow", "farthest", "Shadow")
    assert item["answer"].startswith("remote/")
    assert item["would"].startswith("edge/")
    assert answers(binder, "rule", reason="shadow") == 1
    assert binder.streams.summary().active_policy == "farthest"


def test_a_canary_binds_its_share_of_streams_and_a_repeated_question_stays_in_its_group() -> None:
    binder = Binder(**CANARY)
    for i in range(40):
        first = binder.bind(idempotencyKey=f"camera-{i}", rateQps=0.1)
        assert binder.bind(idempotencyKey=f"camera-{i}", rateQps=0.1)["site"] == first["site"]
    groups = {group: [item for item in items(binder) if item["group"] == group] for group in ("treated", "control")}
    assert 10 < len(groups["treated"]) < 30
    assert len(groups["treated"]) + len(groups["control"]) == 40
    assert {(item["by"], item["answer"].partition("/")[0]) for item in groups["treated"]} == {("closest", "edge")}
    assert {(item["by"], item["answer"].partition("/")[0]) for item in groups["control"]} == {("farthest", "remote")}
    assert answers(binder, "learned", "treated") == len(groups["treated"])


def test_groups_are_compared_by_what_clients_say_of_their_queries() -> None:
    binder = Binder(**CANARY)
    bound = [binder.bind(idempotencyKey=f"camera-{i}", rateQps=0.1) for i in range(20)]
    for stream in bound:
        binder.release(stream, served=9 if stream["site"] == "edge" else 6, late=1)
    comparison = binder.streams.summary().comparison
    assert comparison is not None
    assert comparison.treated is not None
    assert comparison.control is not None
    assert comparison.treated.mean == 0.9
    assert comparison.control.mean == pytest.approx(6 / 7, abs=1e-5)
    assert comparison.treated.ended + comparison.control.ended == 20
    assert (comparison.agreement_percent, comparison.compared) == (0.0, 20)


def test_a_stream_without_capacity_counts_as_served_not_at_all() -> None:
    binder = Binder(mode="Shadow", policy="closest", fallback="farthest")
    binder.fill(rateQps=200)
    comparison = binder.streams.summary().comparison
    assert comparison is not None
    assert comparison.all is not None
    assert (comparison.all.ended, comparison.all.mean) == (1, 0.0)


def test_streams_bound_under_a_former_spec_say_nothing_of_the_present_one() -> None:
    binder = Binder(**CANARY)
    bound = binder.bind()
    binder.clock.advance(1.0)
    binder.obey(**CANARY | {"canary": {"percent": 90}})
    binder.release(bound, served=10)
    comparison = binder.streams.summary().comparison
    assert comparison is not None
    assert (comparison.treated, comparison.control) == (None, None)


def test_streams_bound_with_former_weights_say_nothing_of_the_present_ones() -> None:
    binder = with_score(Odd(1.0), mode="Canary", canary={"percent": 100})
    bound = binder.bind()
    binder.clock.advance(1.0)
    binder.streams.chooser._stamp = lambda *_: ("other weights",)
    binder.streams.tick()
    binder.release(bound, served=10)
    comparison = binder.streams.summary().comparison
    assert comparison is not None
    assert (comparison.treated, comparison.control) == (None, None)


def test_an_active_learned_policy_binds_and_its_fallback_is_asked_beside_it() -> None:
    binder = with_score(Odd(1.0), mode="Active")
    assert binder.bind()["policy"] == "score"
    (item,) = items(binder)
    assert (item["seat"], item["by"]) == ("learned", "score")
    assert item["would"].startswith("edge/")


@pytest.mark.parametrize(("policy", "reason"), [(Odd(float("nan")), "scores-not-finite"), (Odd(ZeroDivisionError()), "policy-error")])
def test_a_learned_policy_that_fails_on_a_stream_leaves_it_to_the_fallback_with_a_reason(policy: Odd, reason: str) -> None:
    binder = with_score(policy, mode="Active")
    assert binder.bind()["policy"] == "closest"
    (item,) = items(binder)
    assert (item["seat"], item["reason"], item["by"]) == ("fallback", reason, "closest")
    assert answers(binder, "fallback", reason=reason) == 1


def test_a_canary_of_the_fallback_itself_binds_every_stream() -> None:
    binder = Binder(**CANARY | {"policy": "farthest"})
    for i in range(20):
        assert binder.bind(idempotencyKey=f"camera-{i}", rateQps=0.1)["site"] == "remote"
    assert {item["group"] for item in items(binder)} == {"treated", "control"}
    assert answers(binder, "rule", "treated") + answers(binder, "rule", "control") == 20


def test_weights_that_are_missing_are_a_fallback_in_a_canary_and_no_change_in_shadow() -> None:
    def load(policy: str, model: str, mode: str) -> Agent:
        raise ArtifactRefused("Missing", "no")

    binder = Binder()
    binder.streams.chooser._load = load
    binder.obey(policy="aset", fallback="closest", mode="Canary", canary={"percent": 100})
    binder.bind()
    binder.obey(policy="aset", fallback="closest", mode="Shadow")
    binder.bind()
    canary, shadow = items(binder)
    assert (canary["seat"], canary["reason"], canary["group"]) == ("fallback", "weights-missing", "treated")
    assert (shadow["seat"], shadow["reason"], shadow["would"]) == ("rule", "shadow", "")
    assert binder.streams.summary().model_problem == "weights-missing"


def test_a_policy_that_is_named_alone_is_compared_with_nothing() -> None:
    binder = Binder(policy="closest", fallback="closest")
    binder.bind()
    assert items(binder)[0]["would"] == ""
    assert binder.streams.summary().comparison is None
    assert answers(binder, "rule") == 1


def test_an_agent_in_shadow_goes_on_choosing_while_the_fallback_binds() -> None:
    network = Fixed(ACTIONS.index("farthest"))
    binder = Binder()
    binder.streams.chooser._load = lambda policy, model, mode: agent(network)
    binder.obey(mode="Shadow", policy="aset", fallback="closest")
    binder.clock.advance(5.0)
    binder.streams.turn()
    assert binder.bind()["policy"] == "closest"
    assert items(binder)[0]["would"].startswith("remote/")
    last = binder.streams.summary().last_decision
    assert last is not None
    assert (last.policy, last.reason) == ("closest", "mode Shadow: the fallback binds")


def test_records_have_the_fields_of_every_record_beside_those_they_always_had() -> None:
    binder = Binder(mode="Shadow", policy="closest", fallback="farthest")
    bound = binder.bind(application="cars")
    (item,) = items(binder)
    assert {
        "seq", "at", "system", "kind", "namespace", "name", "subject", "mode", "group", "reason", "by", "digest", "answer", "would", "ended",
        "id", "policy", "outcome", "offer", "expectedLatencyMs", "task", "application", "maxDelayMs", "minAccuracy", "rateQps", "seat",
    } == set(item)  # fmt: skip
    assert (item["system"], item["kind"], item["namespace"], item["name"], item["subject"]) == (
        "streams", "StreamPolicy", "default", "p", bound["id"],
    )  # fmt: skip


def test_an_explanation_tells_what_offers_cost_and_what_they_run_on() -> None:
    binder = Binder()
    priced = catalogue()
    offers = [replace(o, variant=replace(o.variant, hardware="gpu", cost_per_hour=0.5)) for o in priced.offers.all]
    binder.streams.publish(type(priced)(type(priced.offers)(offers), priced.network_ms, priced.up, {}))
    bound = binder.bind()
    best = binder.streams.explain(PLATFORM, bound["id"])["decision"]["offers"][0]
    assert (best["hardware"], best["costPerReplicaHour"]) == ("gpu", 0.5)
    assert best["streamCostPerHour"] == pytest.approx(
        best["addedQps"] / next(o for o in offers if o.name == best["offer"]).variant.capacity_qps * 0.5
    )


@pytest.mark.parametrize(("mode", "served"), [("Shadow", "Shadow"), ("Canary", "Canary"), ("Active", "Active"), ("Off", "Active")])
def test_weights_are_asked_for_that_may_serve_the_mode(mode: str, served: str) -> None:
    asked: list[str] = []

    def load(policy: str, model: str, mode: str) -> Agent:
        asked.append(mode)
        return ASET

    chooser = Chooser(load)
    chooser.obey(spec(policy="aset", mode=mode, **({"canary": {"percent": 5}} if mode == "Canary" else {})), 0.0)
    assert asked == [served]


def test_nothing_is_bound_while_the_mode_is_off() -> None:
    with refused("switched-off"):
        Binder(mode="Off").bind()


@pytest.mark.parametrize("wrong", [{"mode": "Canary"}, {"mode": "Active", "canary": {"percent": 5}}])
def test_a_share_and_the_mode_canary_go_together(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"canary\.percent belongs to mode Canary"):
        spec(**wrong)


def test_the_rule_of_a_chooser_that_obeys_nobody_yet_is_the_default_policy() -> None:
    chooser = Chooser(lambda policy, model, mode: ASET)
    assert (chooser.policy.name, chooser.compares) == ("relative-load", False)

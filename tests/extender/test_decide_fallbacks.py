"""Who answers where a policy cannot, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import node, pod, policy_object
from tests.extender.harness import Extender, is_neutral, untrained
from tiphys_models.api.reasons import FallbackReason, NeutralReason
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.clock import ManualClock
from tiphys_models.placement.candidates import CandidateView, PlacementMemory

FAASRANK = policy_object("learned", mode="Active", policy="faasrank", model="m", fallback="least-connections")


def test_a_learned_policy_scores_with_its_model(tmp_path: Path) -> None:
    digest = untrained(tmp_path)
    extender = Extender(nodes=6, policies=[FAASRANK], models=tmp_path)
    extender.read(cpu_load_avg={f"n{i}": float(i) for i in range(6)})
    extender.ask()
    record = extender.last
    assert (record["outcome"], record["policyName"], record["modelDigest"]) == ("scored", "faasrank", digest)
    assert len({top["raw"] for top in record["top"]}) == 3


def test_a_missing_model_leaves_the_answer_to_the_fallback() -> None:
    extender = Extender(nodes=3, policies=[FAASRANK])
    extender.read()
    extender.state.bound(pod("busy", node="n1"), extender.clock.now_s())
    answer = extender.ask()
    assert answer["n1"] == min(answer.values())
    record = extender.last
    assert (record["outcome"], record["reason"], record["policyName"]) == ("fallback", "model-missing", "least-connections")
    assert extender.counted("fallback_answers_total", reason="model-missing") == 1
    assert extender.state.reservations == 1


def test_more_than_half_without_fresh_readings_is_too_little(tmp_path: Path) -> None:
    untrained(tmp_path)
    extender = Extender(nodes=0, policies=[FAASRANK], models=tmp_path)
    for index in range(4):
        extender.state.put_node(node(f"n{index}"))
    extender.read(cpu_load_avg={"n0": 3.0, "n2": 8.0})
    for index in range(4, 8):
        extender.state.put_node(node(f"n{index}"))
    extender.ask("half")
    assert extender.last["outcome"] == "scored"
    extender.state.put_node(node("n8"))
    extender.ask("less")
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", "readings-missing")


@pytest.mark.parametrize("policy", ["faasrank", "static-rank"])
def test_readings_older_than_the_policy_allows_count_as_missing(tmp_path: Path, policy: str) -> None:
    untrained(tmp_path, policy)
    clock = ManualClock()
    policies = [policy_object(mode="Active", policy=policy, guardrails={"maxReadingAgeSeconds": 20})]
    extender = Extender(nodes=3, policies=policies, models=tmp_path, clock=clock)
    extender.read(cpu_load_avg={"n1": 4.0})
    clock.advance(19)
    extender.ask("young")
    assert extender.last["outcome"] == "scored"
    clock.advance(2)
    extender.ask("old")
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", "readings-missing")


def test_a_node_with_stale_readings_ranks_in_the_middle(tmp_path: Path) -> None:
    untrained(tmp_path, "faasrank")
    clock = ManualClock()
    extender = Extender(nodes=5, policies=[policy_object(mode="Active", policy="faasrank")], models=tmp_path, clock=clock)
    extender.read(cpu_load_avg={f"n{i}": 0.7 * i for i in range(5)})
    extender.state.nodes.read_at_s[extender.state.nodes.row_of["n0"]] -= 120
    answer = extender.ask()
    assert extender.last["outcome"] == "scored"
    assert sorted(answer.values(), reverse=True).index(answer["n0"]) in (1, 2, 3)


def test_an_unknown_node_ranks_in_the_middle_and_is_counted(tmp_path: Path) -> None:
    extender = Extender(nodes=4)
    for index in range(3):
        for uid in range(index):
            extender.state.bound(pod(f"p{index}-{uid}", node=f"n{index}"), extender.clock.now_s())
    answer = extender.ask(names=["n0", "n1", "n2", "new"])
    assert answer["n0"] > answer["new"] > answer["n2"]
    assert extender.counted("unknown_nodes_total") == 1


@dataclass(frozen=True, slots=True)
class Broken:
    """A policy with weights that went wrong."""

    scores: Any
    name: str = "faasrank"
    epsilon: float = 1e-3
    row_wise: bool = False
    digest: str = "0" * 64

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        if isinstance(self.scores, Exception):
            raise self.scores
        return np.array([self.scores[i % len(self.scores)] for i in range(len(view.rows))], np.float64)


@dataclass(frozen=True, slots=True)
class OneModel:
    model: Broken

    def policy(self, name: str, model: str, mode: str) -> Broken:
        return self.model


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([np.nan, 1.0], FallbackReason.SCORES_NOT_FINITE),
        ([np.inf, 1.0], FallbackReason.SCORES_NOT_FINITE),
        ([-np.inf, np.inf], FallbackReason.SCORES_NOT_FINITE),
        ([0.7], FallbackReason.SCORES_CONSTANT),
        (ZeroDivisionError("hunter2-in-env"), FallbackReason.POLICY_ERROR),
    ],
    ids=str,
)
def test_weights_that_went_wrong_never_reach_the_scheduler(scores: Any, reason: FallbackReason, caplog: pytest.LogCaptureFixture) -> None:
    extender = Extender(nodes=4, policies=[FAASRANK])
    extender.read(cpu_load_avg={"n0": 5.0})
    extender.world.models = OneModel(Broken(scores))
    answer = extender.ask()
    assert max(answer.values()) == 10
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", reason)
    assert "hunter2" not in caplog.text


def test_constant_scores_of_alike_nodes_are_no_fault() -> None:
    extender = Extender(nodes=4, policies=[FAASRANK])
    extender.read()
    extender.world.models = OneModel(Broken([0.7]))
    extender.ask()
    assert extender.last["outcome"] == "scored"


def test_when_rule_and_policy_both_fail_the_answer_is_neutral() -> None:
    extender = Extender(nodes=3, policies=[FAASRANK])
    extender.world.rules = dict.fromkeys(extender.world.rules, Broken([np.nan], name="least-connections"))
    assert is_neutral(extender.ask())
    assert extender.last["reason"] == NeutralReason.BAD_SCORES
    extender.world.rules = dict.fromkeys(extender.world.rules, Broken(RuntimeError("x"), name="least-connections"))
    assert is_neutral(extender.ask("again"))
    assert extender.last["reason"] == NeutralReason.INTERNAL_ERROR


def test_any_exception_is_a_neutral_answer_and_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    extender = Extender(nodes=3)
    extender.world.router = None  # type: ignore[assignment]
    assert is_neutral(extender.ask())
    assert extender.counted("neutral_answers_total", reason="internal-error") == 1
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert fields == [{"pod": "default/pod-u0", "error": "AttributeError", "where": fields[0]["where"]}]
    assert "hunter2" not in caplog.text + str(fields)

"""What rule and learned decider show side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from tiphys_models.api.comparison import comparison_status
from tiphys_models.seats.comparison import Comparison
from tiphys_models.seats.metrics import SeatMetrics, metric_names
from tiphys_models.seats.modes import Mode
from tiphys_models.seats.record import SYSTEMS
from tiphys_models.seats.seat import Answered, Said, Seat


def answered(mode: Mode, learned: int | None = 1, *, obeys: bool = True) -> Answered[int]:
    return Seat[None, int](lambda _: Said(1, "rule"), lambda _: Said(learned, "agent", reason="stale"), mode).answer(None, obeys=obeys)


def test_answers_agree_or_differ_and_those_without_another_answer_are_neither() -> None:
    comparison = Comparison(0.0)
    for other in (1, 1, 2, None):
        comparison.answered(answered("Shadow", other))
    assert (comparison.same, comparison.other, comparison.agreement) == (2, 1, 2 / 3)
    assert comparison.groups[""].answers == 4


def test_nothing_compared_is_no_agreement_rather_than_none() -> None:
    assert Comparison(0.0).agreement is None


def test_groups_are_averaged_apart_and_a_value_that_is_no_number_says_nothing() -> None:
    comparison = Comparison(0.0)
    values = {"treated": [0.5, 1.0, 0.75], "control": [0.25]}
    for value in values["treated"]:
        comparison.ended("treated", value)
    comparison.ended("treated", float("nan"))
    comparison.ended("control", 0.25)
    treated, control = comparison.groups["treated"], comparison.groups["control"]
    assert (treated.ended, treated.mean) == (3, 0.75)
    assert treated.standard_error == pytest.approx(statistics.stdev(values["treated"]) / 3**0.5)
    assert (control.mean, control.standard_error) == (0.25, None)


def test_a_status_tells_groups_means_and_agreement() -> None:
    comparison = Comparison(0.0)
    comparison.answered(answered("Canary", None, obeys=True))
    comparison.answered(answered("Canary", 2, obeys=False))
    comparison.ended("control", 0.9)
    told = comparison_status(comparison, "share of queries in time (more is better)").model_dump(by_alias=True, exclude_none=True)
    assert told == {
        "since": "1970-01-01T00:00:00Z",
        "measure": "share of queries in time (more is better)",
        "agreementPercent": 0.0,
        "compared": 1,
        "treated": {"answers": 1, "fallbacks": 1, "ended": 0},
        "control": {"answers": 1, "fallbacks": 0, "ended": 1, "mean": 0.9},
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_counts_its_answers_by_the_same_metrics(system: str) -> None:
    registry = CollectorRegistry()
    metrics = SeatMetrics("operator", system, ("stale",), "seconds late", registry)  # type: ignore[arg-type]
    metrics.answered("fallback", "treated", "stale", same=None)
    metrics.answered("fallback", "", "a reason of somebody else's policy", same=None)
    metrics.answered("rule", "control", "control", same=True)
    metrics.ended("control", 2.5)
    names = metric_names("operator", system)  # type: ignore[arg-type]
    value = registry.get_sample_value
    assert value(names["answers"], {"outcome": "fallback", "group": "treated", "reason": "stale"}) == 1
    assert value(names["answers"], {"outcome": "fallback", "group": "", "reason": "other"}) == 1
    assert value(names["answers"], {"outcome": "learned", "group": "", "reason": ""}) == 0
    assert value(names["compared"], {"would": "same"}) == 1
    assert (value(names["ended"], {"group": "control"}), value(names["ended_value"], {"group": "control"})) == (1, 2.5)


def test_weights_have_an_age_from_their_first_decision_until_they_have_not_decided_for_an_hour() -> None:
    registry = CollectorRegistry()
    metrics = SeatMetrics("binder", "streams", (), "", registry)
    name = metric_names("binder", "streams")["model"]

    def since(model: str) -> float | None:
        return registry.get_sample_value(name, {"model": model})

    metrics.weights("score", "sha-1", 100.0)
    metrics.weights("score", "sha-1", 200.0)
    assert since("score") == 100.0
    metrics.weights("score", "sha-2", 300.0)
    assert since("score") == 300.0
    metrics.weights("rule", "", 400.0)
    assert since("rule") is None
    metrics.weights("aset", "sha-3", 300.0 + 3_601.0)
    assert (since("score"), since("aset")) == (None, 3_901.0)


def test_however_many_models_there_are_labels_stay_few() -> None:
    registry = CollectorRegistry()
    metrics = SeatMetrics("binder", "streams", (), "", registry)
    for index in range(200):
        metrics.weights(f"model-{index}", "sha", 1.0)
    samples = [sample for family in registry.collect() for sample in family.samples if "model" in sample.labels]
    assert len(samples) == 50


def test_what_nobody_can_tell_is_no_metric() -> None:
    registry = CollectorRegistry()
    SeatMetrics("extender", "placement", (), "", registry)
    assert metric_names("extender", "placement")["ended"] not in {sample.name for family in registry.collect() for sample in family.samples}


def seat_metrics() -> tuple[SeatMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return SeatMetrics("binder", "streams", ("weights-missing",), "shares", registry), registry


@pytest.mark.parametrize("mode", ["Off", "Shadow", "Canary", "Active"])
@pytest.mark.parametrize("learned", [None, lambda _: Said(None, "agent"), lambda _: Said(1, "agent")])
@pytest.mark.parametrize("obeys", [True, False])
def test_whatever_a_seat_answers_can_be_counted(mode: Mode, learned: Callable[[None], Said[int]] | None, *, obeys: bool) -> None:
    metrics, registry = seat_metrics()
    answered = Seat[None, int](lambda _: Said(1, "rule"), learned, mode).answer(None, obeys=obeys)
    metrics.answered(answered.outcome, answered.group, answered.reason, same=None)
    labels = {"outcome": answered.outcome, "group": answered.group, "reason": answered.reason}
    assert registry.get_sample_value("tiphys_binder_streams_answers_total", labels) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_end_that_is_no_number_leaves_the_sum_one(value: float) -> None:
    metrics, registry = seat_metrics()
    metrics.ended("treated", 0.5)
    metrics.ended("treated", value)
    assert registry.get_sample_value("tiphys_binder_streams_group_value_total", {"group": "treated"}) == 0.5
    assert registry.get_sample_value("tiphys_binder_streams_group_ended_total", {"group": "treated"}) == 1

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.streams.small import NAMES, OFFERS, stream, view
from tiphys_models.streams.diagnosis import KEPT, diagnose, why_none
from tiphys_models.streams.learned import TERMS, ScorePolicy
from tiphys_models.streams.protocol import BindReason, View, bind
from tiphys_models.streams.rules import STATIC, StaticPolicy

CLOSEST = StaticPolicy("closest")


@pytest.mark.parametrize("name", STATIC)
def test_the_best_feasible_offer_of_a_diagnosis_is_the_one_that_is_bound(name: str) -> None:
    policy, rng = StaticPolicy(name), np.random.default_rng(3)
    for _ in range(50):
        wanted = stream(max_delay_ms=float(rng.uniform(15, 120)), min_accuracy=float(rng.uniform(0, 50)), draw=int(rng.integers(2**60)))
        seen = view({n: float(rng.uniform(0, 100)) for n in NAMES}, ceiling=0.9)
        found, bound = diagnose(policy, OFFERS, wanted, seen), bind(policy, OFFERS, wanted, seen)
        assert found.feasible.any() == (bound.reason is BindReason.BOUND)
        if bound.reason is BindReason.BOUND:
            assert found.feasible[bound.offer]
            assert found.scores[bound.offer] == found.scores[found.feasible].max()


@pytest.mark.parametrize(
    ("changed", "seen", "reason"),
    [
        ({"rate_qps": 1000.0}, view(), BindReason.INFEASIBLE),
        ({"rate_qps": 400.0}, view(), BindReason.BOUND),
        ({"rate_qps": 400.0}, view(ceiling=0.9), BindReason.INFEASIBLE),
        ({"rate_qps": 350.0}, view({"remote/tiny": 100.0, "remote/yolo": 200.0}), BindReason.NO_CAPACITY),
        ({"max_delay_ms": 30.0}, view(down=("edge/tiny",)), BindReason.DOWN),
        ({"max_delay_ms": 12.0}, view(down=tuple(NAMES)), BindReason.INFEASIBLE),
        ({}, view(down=tuple(NAMES)), BindReason.DOWN),
        ({}, view({n: 200.0 for n in NAMES if n != "remote/tiny"}, down=("remote/tiny",)), BindReason.NO_CAPACITY),
    ],
)
def test_each_unmet_constraint_gives_its_own_reason(changed: dict[str, float], seen: View, reason: BindReason) -> None:
    wanted = stream(**changed)
    assert bind(CLOSEST, OFFERS, wanted, seen).reason is reason


def test_unmeasured_network_delays_are_reported_in_words_and_not_as_infinity() -> None:
    unknown = replace(view(), network_ms=np.full(len(NAMES), np.inf))
    found = why_none(diagnose(CLOSEST, OFFERS, stream(), unknown), stream())
    assert found.endswith("all are too slow (no way to them has been measured or declared)")


def test_a_ceiling_that_is_lowered_for_a_while_makes_no_stream_too_large() -> None:
    lowered = replace(view(ceiling=0.5), policy_ceiling=0.9)
    wanted = stream(rate_qps=300.0)
    assert bind(CLOSEST, OFFERS, wanted, lowered).reason is BindReason.NO_CAPACITY
    found = diagnose(CLOSEST, OFFERS, wanted, lowered)
    assert {name: found.of(place) for place, name in enumerate(NAMES) if name != "remote/face"} == {
        "edge/tiny": ["too-large"],
        "edge/yolo": ["too-large"],
        "remote/tiny": ["full"],
        "remote/yolo": ["too-large"],
    }


def test_every_refused_offer_names_each_constraint_that_it_breaks() -> None:
    found = diagnose(CLOSEST, OFFERS, stream(max_delay_ms=30.0, min_accuracy=30.0), view({"edge/yolo": 45.0}, down=("edge/tiny",)))
    assert {name: found.of(place) for place, name in enumerate(NAMES)} == {
        "edge/tiny": ["down", "not-accurate"],
        "edge/yolo": ["too-slow", "full"],
        "remote/face": ["task", "too-slow"],
        "remote/tiny": ["too-slow", "not-accurate"],
        "remote/yolo": ["too-slow"],
    }


@pytest.mark.parametrize(
    ("changed", "seen", "words"),
    [
        ({"task": "sing"}, view(), "no offer does the task 'sing'"),
        ({"task": "recognise"}, view(down=("remote/face",)), "every offer that does this task is down"),
        (
            {"max_delay_ms": 12.0},
            view(),
            "of 4 offers that do this task and are up, all are too slow (the fastest takes 16.2 ms, 12 are allowed)",
        ),
        ({"min_accuracy": 60.0}, view(), "all are not accurate (the best has 47.1, 60 is wanted)"),
        (
            {"rate_qps": 1000.0},
            view(),
            "of 4 offers that do this task and are up, all are too small for it, however empty (the largest has 400 queries a second, a share "
            "of it is kept free, 1000 are needed)",
        ),
        (
            {"rate_qps": 350.0, "max_delay_ms": 60.0},
            view({"remote/tiny": 100.0}),
            "of 4 offers that do this task and are up, 1 are too slow, 3 are too small for it, however empty, 1 are full",
        ),
        ({"max_delay_ms": 12.0}, view(down=tuple(NAMES)), "of 4 offers that do this task, all are too slow (the fastest takes 16.2 ms"),
        (
            {"max_delay_ms": 30.0},
            view(down=("edge/tiny",)),
            "of 3 offers that do this task and are up, all are too slow (the fastest takes 38.2 ms, 30 are allowed), 1 that would do is down",
        ),
        ({"min_accuracy": 30.0, "max_delay_ms": 30.0}, view(), "3 are too slow, 2 are not accurate"),
    ],
)
def test_a_stream_that_is_not_bound_is_told_what_is_in_the_way(changed: dict[str, float], seen: object, words: str) -> None:
    wanted = stream(**changed)
    assert words in why_none(diagnose(CLOSEST, OFFERS, wanted, seen), wanted)  # type: ignore[arg-type]


def test_what_a_policy_keeps_for_others_is_told_from_what_is_full() -> None:
    keeping = ScorePolicy(np.array([{"price": 1.5, "decline": 2.0}.get(term, 0.0) for term in TERMS]))
    seen = view({o.name: 0.85 * o.capacity_qps for o in OFFERS.all})
    found = diagnose(keeping, OFFERS, stream(rate_qps=1.0), seen)
    able = OFFERS.serves("detect")
    assert found.refused[KEPT][able].all()
    assert not found.refused[KEPT][~able].any()
    assert not found.feasible.any()
    assert "all are kept for others (85 % of their capacity is in use" in why_none(found, stream(rate_qps=1.0))

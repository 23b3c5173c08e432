from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.small import CLOUD, DELAYS, EDGE, NAMES, OFFERS, TINY, stream, view
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.hashing import stable_hash
from tiphys_models.streams import kernels
from tiphys_models.streams.learned import TERMS, ScorePolicy
from tiphys_models.streams.offers import Delay, Offer, Offers
from tiphys_models.streams.protocol import BindReason, View, bind, candidates_of
from tiphys_models.streams.registry import adopted, make_policy
from tiphys_models.streams.rules import STATIC


def bound(policy: str, seen: View | None = None, **changed: Any) -> str:
    found = bind(make_policy(policy), OFFERS, stream(**changed), seen or view())
    return NAMES[found.offer] if found.reason is BindReason.BOUND else str(found.reason)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("closest", "edge/tiny"),  # more to spare than yolo at the same site
        ("farthest", "remote/tiny"),
        ("cheaper", "remote/yolo"),
        ("least-impedance", "edge/tiny"),
        ("load-balancing", "remote/yolo"),
        ("relative-load", "edge/yolo"),
    ],
)
def test_every_static_policy_takes_what_its_definition_says(policy: str, expected: str) -> None:
    # load share: edge/tiny 30 %, edge/yolo 20 %, remote/tiny 25 %, remote/yolo 4.5 %
    loads = {"edge/tiny": 30.0, "edge/yolo": 10.0, "remote/tiny": 100.0, "remote/yolo": 9.0}
    if policy == "relative-load":
        loads = {"edge/tiny": 45.0, "edge/yolo": 10.0, "remote/tiny": 200.0, "remote/yolo": 100.0}
    assert bound(policy, view(loads)) == expected


def test_transmission_is_size_over_bit_rate_and_counts_with_access_there_and_back() -> None:
    assert stream(size_kb=50.0, bit_rate_mbps=20.0).transmission_ms == pytest.approx(20.0)
    exact = 2 * 1.0 + 3.2 + 2 * 1.5 + 8.0
    assert bound("farthest", max_delay_ms=exact) == "edge/tiny"
    assert bound("farthest", max_delay_ms=exact - 0.01) == "Infeasible"
    found = bind(make_policy("closest"), OFFERS, stream(max_delay_ms=exact), view())
    assert found.expected_latency_ms == pytest.approx(exact)


def test_an_unmeasured_site_leaves_the_score_s_arithmetic_in_order() -> None:
    unmeasured = replace(view(), network_ms=OFFERS.network_ms({"edge": DELAYS["edge"]}))
    weights = np.where(np.arange(kernels.WEIGHTS) % 2, 0.1, -0.1)  # with opposite signs infinities would meet
    found = bind(ScorePolicy(weights), OFFERS, stream(), unmeasured)
    assert NAMES[found.offer].startswith("edge/")


def test_what_others_may_bring_in_the_meantime_makes_a_small_offer_riskier_than_a_large_one() -> None:
    offers = Offers([Offer(TINY, EDGE), Offer(TINY, CLOUD, 10)])
    seen = View(offers.network_ms({"edge": Delay(1.0, 0.0), "remote": Delay(1.0, 0.0)}), np.array([70.0, 700.0]), np.ones(2, np.bool_))
    hasty = candidates_of(offers, stream(max_delay_ms=18.0, rate_qps=1.0), seen)

    def worths(crowd: float) -> np.ndarray:
        weights = np.zeros(kernels.WEIGHTS)
        weights[[TERMS.index("late"), TERMS.index("crowd")]] = 1.0, crowd
        return np.asarray(ScorePolicy(weights).score(stream(), hasty))

    lost = worths(0.0) - worths(1.0)
    assert lost[0] > 3 * lost[1] > 0


def test_a_query_of_twice_the_size_takes_twice_the_delay_and_load() -> None:
    found = bind(make_policy("closest"), OFFERS, stream(size_kb=80.0, bit_rate_mbps=1e9), view())
    assert found.expected_latency_ms == pytest.approx(2 + 3 + 16, abs=1e-4)
    assert found.added_qps == pytest.approx(20.0)


def test_full_is_told_from_infeasible_and_the_ceiling_counts() -> None:
    full = dict.fromkeys(NAMES, 1000.0)
    assert bound("closest", view(full)) == "NoCapacity"
    assert bound("closest", view(full), min_accuracy=50.0) == "Infeasible"
    assert bound("closest", view({"edge/tiny": 85.0}, ceiling=0.9), max_delay_ms=30.0) == "NoCapacity"
    assert bound("closest", view({"edge/tiny": 85.0}), max_delay_ms=30.0) == "edge/tiny"


def test_other_tasks_sites_that_are_down_and_unmeasured_ones_are_no_candidates() -> None:
    assert bound("least-impedance", task="recognise") == "remote/face"
    assert bound("closest", task="sing") == "Infeasible"
    assert bound("closest", view(down=("edge/tiny", "edge/yolo"))) == "remote/tiny"
    unmeasured = replace(view(), network_ms=OFFERS.network_ms({"edge": DELAYS["edge"]}))
    for policy in STATIC:
        assert bound(policy, unmeasured).startswith("edge/")


def test_chance_falls_in_proportion_and_the_same_stream_gets_the_same() -> None:
    loads = {"edge/tiny": 50.0, "edge/yolo": 25.0, "remote/tiny": 100.0}  # C over L: 2, 2, 4; remote/yolo is too slow
    drawn = [bound("random-load", view(loads), max_delay_ms=65.0, draw=stable_hash(str(i))) for i in range(4000)]
    shares = Counter(drawn)
    assert shares["remote/tiny"] / 4000 == pytest.approx(4 / 8, abs=0.03)
    assert shares["edge/yolo"] / 4000 == pytest.approx(2 / 8, abs=0.03)
    assert drawn[:5] == [bound("random-load", view(loads), max_delay_ms=65.0, draw=stable_hash(str(i))) for i in range(5)]
    fast = Counter(bound("random-latency", max_delay_ms=45.0, draw=stable_hash(str(i))) for i in range(4000))
    lat = {"edge/tiny": 11.0, "edge/yolo": 33.0}
    assert fast["edge/tiny"] / 4000 == pytest.approx(lat["edge/yolo"] / sum(lat.values()), abs=0.03)


def test_equals_are_decided_by_spare_capacity_then_by_name() -> None:
    offers = Offers([Offer(replace(TINY, name=n), CLOUD, r) for n, r in (("b", 2), ("c", 2), ("a", 1))])
    seen = View(offers.network_ms({"remote": Delay(1.0, 0.0)}), np.zeros(3), np.ones(3, np.bool_))
    found = bind(make_policy("closest"), offers, stream(), seen)
    assert offers.all[found.offer].name == "remote/b"


@given(
    policy=st.sampled_from(tuple(STATIC)),
    load=st.lists(st.floats(0, 500), min_size=5, max_size=5),
    delay=st.floats(5, 700),
    rate=st.floats(0.1, 60),
    accuracy=st.floats(0, 60),
    draw=st.integers(0, 2**64 - 1),
)
def test_whatever_is_bound_keeps_every_constraint(
    policy: str, load: list[float], delay: float, rate: float, accuracy: float, draw: int
) -> None:
    wanted = stream(max_delay_ms=delay, rate_qps=rate, min_accuracy=accuracy, draw=draw)
    found = bind(make_policy(policy), OFFERS, wanted, view(dict(zip(NAMES, load, strict=True)), ceiling=0.9))
    if found.reason is BindReason.BOUND:
        offer = OFFERS.all[found.offer]
        assert offer.variant.task == "detect"
        assert load[found.offer] + found.added_qps <= 0.9 * offer.capacity_qps + 1e-9
        assert found.expected_latency_ms <= delay + 1e-9
        assert offer.variant.accuracy >= accuracy
    else:
        assert (found.offer, found.added_qps) == (-1, 0.0)


def test_names_are_checked() -> None:
    with pytest.raises(InvalidInput, match="no stream policy is called 'magic'"):
        make_policy("magic")
    with pytest.raises(InvalidInput, match="two offers have one name: remote/tiny"):
        Offers([Offer(TINY, CLOUD), Offer(TINY, CLOUD)])


class Scribbler:
    """Computes its scores in place."""

    def score(self, stream: Any, candidates: Any) -> Any:
        for column in (candidates.capacity_qps, candidates.load_qps, candidates.accuracy, candidates.added_qps):
            np.multiply(column, -1.0, out=column)
        return candidates.accuracy


def test_a_policy_of_another_package_cannot_write_into_what_everybody_reads() -> None:
    seen = view({"edge/tiny": 30.0})
    before = bound("relative-load", seen)
    capacity, load = OFFERS.columns.capacity_qps.copy(), seen.load_qps.copy()
    with pytest.raises(ValueError, match="read-only"):
        bind(adopted(Scribbler(), "acme"), OFFERS, stream(), seen)
    assert (OFFERS.columns.capacity_qps == capacity).all()
    assert (seen.load_qps == load).all()
    assert bound("relative-load", seen) == before

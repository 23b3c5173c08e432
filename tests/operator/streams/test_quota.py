"""How many sites of one namespace are probed, and how often."""

from __future__ import annotations

import pytest

from tiphys_models.api.inference_site import Probe
from tiphys_models.api.stream_reasons import ProbeRefusal
from tiphys_models.base.clock import ManualClock
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.streams.metrics import BindingMetrics
from tiphys_operator.streams.prober import Prober
from tiphys_operator.streams.probes import Probes
from tiphys_operator.streams.quota import ProbeQuota, ProbeWish, grant


def wish(number: int, namespace: str = "n", interval_s: int = 2, created: str = "2026-01-01T00:00:00Z") -> ProbeWish:
    probe = Probe(host="10.0.0.1", port=1, interval_seconds=interval_s)
    return ProbeWish(f"{namespace}-{number}", namespace, (created, f"site-{number:03}"), probe)


def test_a_hundred_sites_at_the_default_interval_are_probed_as_they_ask() -> None:
    granted = grant([wish(number) for number in range(100)], ProbeQuota())
    assert (len(granted.probes), set(granted.interval_s.values()), granted.too_many) == (100, {2.0}, frozenset())


def test_above_the_limit_of_sites_the_oldest_stay_and_other_namespaces_do_not_notice() -> None:
    late = wish(0, created="2026-02-01T00:00:00Z")
    granted = grant([late, *(wish(number) for number in range(1, 4)), wish(0, "other")], ProbeQuota(sites=3))
    assert granted.too_many == {"n-0"}
    assert set(granted.probes) == {"n-1", "n-2", "n-3", "other-0"}


def test_above_the_rate_all_sites_of_a_namespace_are_probed_more_seldom() -> None:
    many = [wish(number, interval_s=1) for number in range(100)]
    granted = grant([*many, wish(0, "other", interval_s=1)], ProbeQuota())
    assert granted.interval_s["n-0"] == pytest.approx(2.0)
    assert granted.interval_s["other-0"] == 1.0
    assert sum(1 / granted.interval_s[w.uid] for w in many) == pytest.approx(50)


def test_no_site_is_probed_more_often_than_the_operator_is_set_to() -> None:
    assert grant([wish(0, interval_s=1)], ProbeQuota(least_interval_s=5)).interval_s == {"n-0": 5.0}


async def test_a_site_beyond_the_limit_is_not_probed_and_says_so() -> None:
    metrics = OperatorMetrics()
    prober = Prober(Probes(), metrics.part(BindingMetrics), ManualClock(), lambda: None, metrics.objects)
    prober.follow(grant([wish(0), wish(1)], ProbeQuota(sites=1)))
    beyond, within = prober.rounds("n-1"), prober.rounds("n-0")
    assert beyond is not None
    assert within is not None
    assert (beyond.refused, within.refused) == (ProbeRefusal.TOO_MANY_SITES, None)
    prober.follow(grant([wish(1)], ProbeQuota(sites=1)))
    again = prober.rounds("n-1")
    assert again is not None
    assert (again.refused, prober.rounds("n-0")) == (None, None)
    await prober.close()

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.binding_corpus import SITE, VARIANT
from tiphys_models.api.catalogue import MEASURED_FOR_S, MOST_REPLICAS, Catalogue, compile_catalogue, site_seen, variant_seen
from tiphys_models.api.stream_reasons import VariantReason
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.streams.protocol import BindReason, View, bind
from tiphys_models.streams.rules import StaticPolicy
from tiphys_models.streams.stream import Stream

MEASURED_AT = "2026-01-02T03:04:05Z"
NOW_S = float(timestamp_s(MEASURED_AT) or 0) + 1
DECLARED = [{"from": "a1", "meanMs": 4, "sigmaMs": 0.5}]
MEASURED = [{"from": "a1", "meanMs": 2.0, "sigmaMs": 0.25, "samples": 30, "measuredAt": MEASURED_AT}]


def site(name: str = "a1", *, reachable: str | None = None, measured: bool = False, **spec: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"delays": MEASURED} if measured else {}
    if reachable is not None:
        condition = {"type": "Reachable", "status": reachable, "reason": "Probed", "message": "", "lastTransitionTime": MEASURED_AT}
        status["conditions"] = [condition]
    return {"metadata": {"name": name, "namespace": "n"}, "spec": SITE | {"delays": DECLARED} | spec, "status": status}


def variant(name: str = "yolo", *, replicas: int | None = None, **spec: Any) -> dict[str, Any]:
    status = {} if replicas is None else {"replicas": replicas}
    return {"metadata": {"name": name, "namespace": "n"}, "spec": VARIANT | spec, "status": status}


def catalogue(*objects: dict[str, Any], now_s: float = NOW_S) -> Catalogue:
    sites = [site_seen(o) for o in objects if "layer" in o["spec"]]
    return compile_catalogue("a1", sites, [variant_seen(o) for o in objects if "task" in o["spec"]], now_s)


SERVICE = {"service": {"name": "yolo", "port": 8000}}
PROBED = {"url": "http://127.0.0.1:1"}


def test_offers_are_in_the_order_of_their_names_and_carry_what_was_declared() -> None:
    found = catalogue(site("b", layer="cloud"), site("a1"), variant("z", site="b"), variant("y"), variant("x"))
    assert [o.name for o in found.offers.all] == ["a1/x", "a1/y", "b/z"]
    assert [o.site.layer for o in found.offers.all] == ["antenna", "antenna", "cloud"]
    assert found.offers.columns.capacity_qps.tolist() == [33, 33, 33]
    assert found.network_ms.tolist() == [5, 5, 5], "mean and two deviations"
    assert found.up.all()
    assert found.why_not == {}


def test_a_service_gives_as_many_replicas_as_are_ready() -> None:
    found = catalogue(site(), variant(endpoint=SERVICE, replicas=3))
    assert found.offers.columns.capacity_qps.tolist() == [99]
    assert found.offers.all[0].endpoint == "http://yolo.n.svc:8000"


@pytest.mark.parametrize("replicas", [0, None])
def test_without_a_ready_endpoint_an_offer_is_down_but_countable(replicas: int | None) -> None:
    found = catalogue(site(), variant(endpoint=SERVICE, replicas=replicas))
    assert found.up.tolist() == [False]
    assert found.offers.columns.capacity_qps.tolist() == [33]
    assert found.why_not == {"yolo": VariantReason.NO_READY_ENDPOINT}


@pytest.mark.parametrize(("reachable", "up"), [("True", True), ("Unknown", True), (None, True), ("False", False)])
def test_only_a_site_that_misses_its_probes_is_down(reachable: str | None, up: bool) -> None:
    found = catalogue(site(probe=PROBED, reachable=reachable), variant())
    assert found.up.tolist() == [up]
    assert found.why_not == ({} if up else {"yolo": VariantReason.SITE_UNREACHABLE})


def test_a_site_that_is_not_probed_any_more_is_up_whatever_its_status_says() -> None:
    assert catalogue(site(reachable="False"), variant()).up.tolist() == [True]


def test_what_was_measured_counts_until_it_is_old() -> None:
    assert catalogue(site(measured=True), variant()).network_ms.tolist() == [2.5]
    assert catalogue(site(measured=True), variant(), now_s=NOW_S + MEASURED_FOR_S).network_ms.tolist() == [5]


def test_an_unknown_delay_is_no_short_one() -> None:
    found = catalogue(site(delays=[{"from": "elsewhere", "meanMs": 0}]), variant())
    assert np.isinf(found.network_ms).tolist() == [True]
    assert found.why_not == {"yolo": VariantReason.DELAY_UNKNOWN}


def test_a_variant_without_its_site_is_left_out() -> None:
    found = catalogue(site(), variant(), variant("lost", site="gone"))
    assert [o.name for o in found.offers.all] == ["a1/yolo"]
    assert found.why_not == {"lost": VariantReason.SITE_NOT_FOUND}


def test_nothing_at_all_compiles_too() -> None:
    found = catalogue()
    assert (len(found.offers), len(found.up), len(found.network_ms)) == (0, 0, 0)


def test_streams_leave_a_site_that_went_down() -> None:
    stream = Stream("detect", max_delay_ms=200, min_accuracy=40, rate_qps=5, size_kb=40, bit_rate_mbps=100, access_delay_ms=1)
    far = site("far", layer="cloud", delays=[{"from": "a1", "meanMs": 20}])
    for reachable, expected in (("True", "a1/yolo"), ("False", "far/other")):
        found = catalogue(site(probe=PROBED, reachable=reachable), far, variant(), variant("other", site="far"))
        view = View(found.network_ms, np.zeros(len(found.offers)), found.up)
        bound = bind(StaticPolicy("closest"), found.offers, stream, view)
        assert (bound.reason, found.offers.all[bound.offer].name) == (BindReason.BOUND, expected)


def test_an_object_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidInput, match="status"):
        site_seen(site() | {"status": {"delays": "none"}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"measuredAt": "9999-12-31T23:59:59Z"}, {"measuredAt": "yesterday"}, {"meanMs": 1e300}, {"sigmaMs": 60_001.0},
        {"meanMs": float("inf")},
    ],
    ids=str,
)  # fmt: skip
def test_a_measurement_that_cannot_be_gives_way_to_what_was_declared(wrong: dict[str, Any]) -> None:
    told = site() | {"status": {"delays": [MEASURED[0] | wrong]}}
    assert catalogue(told, variant()).network_ms.tolist() == [5]


def test_a_status_cannot_make_a_variant_larger_than_anybody_runs_one() -> None:
    found = catalogue(site(), variant(endpoint=SERVICE, replicas=2**62))
    assert found.offers.columns.capacity_qps.tolist() == [33 * MOST_REPLICAS]

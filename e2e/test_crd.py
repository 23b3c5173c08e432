"""The CRD on the real API server: it takes what the model takes and refuses what it refuses, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests import binding_corpus, scaling_corpus
from tests.policy_corpus import BAD_SPECS, GOOD_SPECS, SPECS

from e2e.policies import CRD_FILE, install_crd, policies_path, policy
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.api.inference_site import parse_site
from tiphys_models.api.model_variant import parse_variant
from tiphys_models.api.resources import RESOURCES
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.api.stream_policy import parse_stream_policy
from tiphys_models.base.errors import InvalidInput
from tiphys_testbed.cluster.base import Cluster


@pytest.fixture(scope="module", autouse=True)
def crd(cluster: Cluster) -> None:
    install_crd(cluster)


def try_to_create(api: ApiClient, spec: Any) -> dict[str, Any]:
    """Validated, defaulted and pruned, but not stored."""
    obj = policy("p", "default")
    obj["spec"] = spec
    if spec is None:
        del obj["spec"]
    return api.request("POST", policies_path("default"), obj, query={"dryRun": "All"})


def taken_by_the_model(spec: Any) -> bool:
    try:
        parse_spec({"spec": spec})
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize("name", BAD_SPECS)
def test_a_bad_spec_is_refused_with_a_message_that_names_the_field(api: ApiClient, name: str) -> None:
    spec, expected = BAD_SPECS[name]
    with pytest.raises(RequestRefused) as refused:
        try_to_create(api, spec)
    assert refused.value.status == 422
    assert expected in str(refused.value)


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_a_good_spec_is_taken_and_read_alike_before_and_after_defaulting(api: ApiClient, name: str) -> None:
    stored = try_to_create(api, GOOD_SPECS[name])
    assert parse_spec(stored) == parse_spec({"spec": GOOD_SPECS[name]})


def test_the_server_fills_in_the_defaults(api: ApiClient) -> None:
    assert try_to_create(api, {})["spec"] == {
        "selector": {},
        "mode": "Shadow",
        "fallback": "warm-first",
        "objective": "completion",
        "nodeSecondWorthMilliseconds": 100,
        "guardrails": {"maxReadingAgeSeconds": 60, "maxNodeSharePercent": 100},
        "hints": {"doNotDisrupt": False, "deletionCost": False},
    }, "and no policy: it would stand beside every select"
    assert try_to_create(api, {"select": {"by": "preview", "weights": {"cost": 3}}})["spec"]["select"] == {
        "by": "preview",
        "among": ["cost-lean", "energy-lean", "one-per-host"],
        "mode": "Active",
        "intervalSeconds": 10,
        "marginPercent": 5,
        "maxSwitchesPerHour": 12,
        "slaFactor": 3,
        "freeze": False,
        "weights": {"cost": 3, "energy": 1, "response": 1, "sla": 1},
    }


@given(spec=SPECS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_server_and_model_agree_about_any_spec(api: ApiClient, spec: dict[str, Any]) -> None:
    if taken_by_the_model(spec):
        stored = try_to_create(api, spec)
        assert parse_spec(stored) == parse_spec({"spec": spec})
    else:
        with pytest.raises(RequestRefused) as refused:
            try_to_create(api, spec)
        assert refused.value.status == 422


def try_to_scale(api: ApiClient, spec: Any) -> dict[str, Any]:
    obj = {"apiVersion": "tiphys.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": "p"}} | (
        {} if spec is None else {"spec": spec}
    )
    return api.request("POST", "/apis/tiphys.io/v1alpha1/namespaces/default/scalingpolicies", obj, query={"dryRun": "All"})


@pytest.mark.parametrize("name", scaling_corpus.BAD)
def test_a_bad_scaling_policy_is_refused_with_a_message_that_names_the_field(api: ApiClient, name: str) -> None:
    spec, expected = scaling_corpus.BAD[name]
    with pytest.raises(RequestRefused) as refused:
        try_to_scale(api, spec)
    assert refused.value.status == 422
    assert expected in str(refused.value)


@pytest.mark.parametrize("name", scaling_corpus.GOOD)
def test_a_good_scaling_policy_is_taken_and_read_alike_before_and_after_defaulting(api: ApiClient, name: str) -> None:
    stored = try_to_scale(api, scaling_corpus.GOOD[name])
    assert parse_scaling(stored) == parse_scaling({"spec": scaling_corpus.GOOD[name]})


def try_to_bind(api: ApiClient, kind: str, spec: Any) -> dict[str, Any]:
    obj = {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": {"name": "p"}} | ({} if spec is None else {"spec": spec})
    plural = {resource.kind: resource.plural for resource in RESOURCES}[kind]
    return api.request("POST", f"/apis/tiphys.io/v1alpha1/namespaces/default/{plural}", obj, query={"dryRun": "All"})


@pytest.mark.parametrize(("kind", "name"), binding_corpus.CASES)
def test_a_bad_resource_of_binding_is_refused_with_a_message_that_names_the_field(api: ApiClient, kind: str, name: str) -> None:
    spec, expected = binding_corpus.BAD[kind][name]
    with pytest.raises(RequestRefused) as refused:
        try_to_bind(api, kind, spec)
    assert refused.value.status == 422
    assert expected in str(refused.value)


@pytest.mark.parametrize(("kind", "name"), binding_corpus.GOOD_CASES)
def test_a_good_resource_of_binding_is_taken_and_read_alike_before_and_after_defaulting(api: ApiClient, kind: str, name: str) -> None:
    spec = binding_corpus.GOOD[kind][name]
    parse: Callable[[dict[str, Any]], Any] = {"InferenceSite": parse_site, "ModelVariant": parse_variant}.get(kind, parse_stream_policy)
    assert parse(try_to_bind(api, kind, spec)) == parse({"spec": spec})


def test_the_crd_is_established_with_short_name_category_and_status(cluster: Cluster, api: ApiClient) -> None:
    found = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedulingpolicies.tiphys.io")
    conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert "TYPE" not in cluster.kubectl("get", "sp", "--all-namespaces")
    assert "schedulingpolicies" in cluster.kubectl("api-resources", "--categories=tiphys", "--output=name")
    assert "quotes" in cluster.kubectl("explain", "sp.spec.mode")


def test_applying_the_crd_again_changes_nothing(cluster: Cluster, api: ApiClient) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedulingpolicies.tiphys.io"
    before = api.get(path)["metadata"]["generation"]
    cluster.apply(CRD_FILE.read_text())
    assert api.get(path)["metadata"]["generation"] == before

"""The binder in the chart: one pod behind a Service, its tenants, its certificates and who may reach it."""

import json

import pytest

from tests.chart.rendering import HelmRefusedError, Manifest, render, render_mode, values_of, with_value
from tests.chart.test_pods import containers, environment, process_of
from tiphys_extender.binder_settings import BinderSettings
from tiphys_extender.serve.tenants import _File
from tiphys_extender.settings import Settings as ExtenderSettings
from tiphys_extender.streams.tokens import _File as _Keys

BINDERS = ("binder", "binder-insecure")


def test_there_is_no_binder_by_default() -> None:
    assert [item["metadata"]["name"] for item in render().objects if "binder" in item["metadata"]["name"]] == []


@pytest.mark.parametrize("mode", BINDERS)
def test_the_process_understands_every_setting(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = environment(process_of(render_mode(mode), "binder"))
    known = {f"TIPHYS_EXTENDER_{name.upper()}" for name in ExtenderSettings.model_fields}
    known |= {f"TIPHYS_BINDER_{name.upper()}" for name in BinderSettings.model_fields}
    assert set(values) <= known
    for key, value in values.items():
        monkeypatch.setenv(key, value)
    assert ExtenderSettings().port == 8443
    assert (BinderSettings().lease_s, BinderSettings().max_open) == (60, 10_000)


def test_it_decides_under_the_limits_and_with_the_models_of_the_extender() -> None:
    rendered = render_mode("binder")
    beside, binder = (environment(process_of(rendered, name)) for name in ("extender", "binder"))
    own = {"TIPHYS_EXTENDER_HOST", "TIPHYS_EXTENDER_PORT", "TIPHYS_EXTENDER_ACCOUNT_DIR"}
    shared = {key: value for key, value in beside.items() if key not in own}
    assert shared.items() <= binder.items()
    mounts = {mount["mountPath"] for mount in process_of(rendered, "binder")["volumeMounts"]}
    assert "/models" in mounts


def test_there_is_never_a_second_binder_that_reserves_capacity() -> None:
    spec = render_mode("binder").one("Deployment", "tiphys-binder")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert [
        item["metadata"]["name"] for item in render_mode("binder").of("PodDisruptionBudget") if "binder" in item["metadata"]["name"]
    ] == []


def test_the_image_is_started_as_a_binder() -> None:
    for mode in BINDERS:
        (container,) = containers(render_mode(mode).pod_specs()["tiphys-binder"]).values()
        assert container["args"] == ["python", "-m", "tiphys_extender", "binder"]
        assert "command" not in container


def test_a_token_is_made_for_the_namespaces_named() -> None:
    made = [render(values_of("binder")).one("Secret", "tiphys-tenants")["stringData"] for _ in range(2)]
    (tenant,) = _File.model_validate(json.loads(made[0]["tenants.json"])).tenants
    assert (tenant.name, tenant.token, tenant.namespaces) == ("default", made[0]["token"], ["functions", "more-functions"])
    assert len(tenant.token or "") == 48
    assert made[0]["token"] != made[1]["token"]
    taken = render_mode("binder-insecure")
    assert {item["metadata"]["name"] for item in taken.of("Secret")} == {"tiphys-intent-keys", "tiphys-token", "tiphys-extender-account-1"}
    (volume,) = [v for v in taken.pod_specs()["tiphys-binder"]["volumes"] if v["name"] == "tenants"]
    assert volume["secret"]["secretName"] == "my-tenants"


def test_streams_are_bound_for_the_access_site_that_is_named_with_keys_that_are_made_once() -> None:
    rendered = render_mode("binder")
    values = environment(process_of(rendered, "binder"))
    assert values["TIPHYS_BINDER_ACCESS_SITE"] == "antenna-1"
    assert values["TIPHYS_BINDER_POD_UID"] == "from-the-pod", "a restarted container waits for nobody"
    assert values["TIPHYS_BINDER_OTHER_BINDERS"] == "http://binder.antenna-2.example:8080,http://binder.antenna-3.example:8080"
    (key,) = _Keys.model_validate(json.loads(rendered.one("Secret", "tiphys-lease-keys")["stringData"]["keys.json"])).keys
    assert len(key.secret) == 48
    own = with_value(values_of("binder"), ("binder", "streams", "leaseKeys", "existingSecret"), "my-keys")
    assert {item["metadata"]["name"] for item in render(own).of("Secret")} == {
        "tiphys-extender-account-1",
        "tiphys-intent-keys",
        "tiphys-tenants",
        "tiphys-token",
    }
    calls_only = render_mode("binder-insecure")
    assert [key for key in environment(process_of(calls_only, "binder")) if "LEASE_KEYS" in key or "ACCESS" in key] == []
    assert [role["metadata"]["name"] for role in calls_only.of("Role") if "streams" in role["metadata"]["name"]] == []


def test_what_a_tenant_may_have_is_told_to_the_binder() -> None:
    values = environment(process_of(render_mode("binder"), "binder"))
    defaults = {name.removeprefix("TIPHYS_BINDER_TENANT_").lower(): value for name, value in values.items() if "_TENANT_" in name}
    settings = BinderSettings()
    assert {name: str(getattr(settings, f"tenant_{name}")) for name in defaults} == defaults
    assert len(defaults) == 7
    changed = with_value(values_of("binder"), ("binder", "tenants", "limits", "requestsPerSecond"), 5)
    assert environment(process_of(render(changed), "binder"))["TIPHYS_BINDER_TENANT_REQUESTS_PER_SECOND"] == "5"


def test_the_callers_token_is_not_mounted_where_only_the_file_is_needed() -> None:
    (volume,) = [v for v in render_mode("binder").pod_specs()["tiphys-binder"]["volumes"] if v["name"] == "tenants"]
    assert volume["secret"]["items"] == [{"key": "tenants.json", "path": "tenants.json"}]


def test_tls_is_the_default_and_a_client_certificate_can_be_demanded() -> None:
    mutual = environment(process_of(render_mode("binder"), "binder"))
    assert {f"TIPHYS_EXTENDER_TLS_{name}_FILE" for name in ("CERT", "KEY", "CLIENT_CA")} <= mutual.keys()
    server = environment(process_of(render(with_value(values_of("binder"), ("binder", "tls", "clientCASecretName"), "")), "binder"))
    assert {key for key in server if "TLS" in key} == {"TIPHYS_EXTENDER_TLS_CERT_FILE", "TIPHYS_EXTENDER_TLS_KEY_FILE"}
    assert [key for key in environment(process_of(render_mode("binder-insecure"), "binder")) if "TLS" in key] == []


@pytest.mark.parametrize(
    ("path", "message"),
    [(("binder", "tenants"), "needs binder.tenants.namespaces"), (("binder", "tls"), "needs binder.tls.serverSecretName")],
)
def test_nobody_to_call_or_tokens_in_the_clear_are_refused(path: tuple[str, ...], message: str) -> None:
    with pytest.raises(HelmRefusedError, match=message):
        render(with_value(values_of("binder"), path, {}))


def rules(policy: Manifest, port: int) -> list[Manifest]:
    return [rule for rule in policy["spec"]["ingress"] if {"port": port, "protocol": "TCP"} in rule["ports"]]


def test_callers_reach_the_calls_and_prometheus_the_metrics() -> None:
    rendered = render_mode("binder")
    policy = rendered.one("NetworkPolicy", "tiphys-binder")
    (calls,) = rules(policy, 8443)
    assert calls["from"] == values_of("binder")["networkPolicy"]["callersFrom"]
    assert len(rules(policy, 8080)) == 2  # who reads metrics, and the operator
    assert {"port": 9090, "protocol": "TCP"} in [port for rule in policy["spec"]["egress"] for port in rule["ports"]]
    nobody = render(with_value(values_of("binder"), ("networkPolicy", "callersFrom"), []))
    assert rules(nobody.one("NetworkPolicy", "tiphys-binder"), 8443) == []
    monitor = rendered.one("ServiceMonitor", "tiphys-binder")
    status = rendered.one("Service", "tiphys-binder-status")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= status["metadata"]["labels"].items()
    assert status["spec"]["ports"][0]["name"] == monitor["spec"]["endpoints"][0]["port"]
    assert rendered.one("Service", "tiphys-binder")["spec"]["ports"] == [{"name": "calls", "port": 443, "targetPort": "calls"}]


def test_the_operator_reads_what_was_decided_about_calls_too() -> None:
    url = environment(process_of(render_mode("binder"), "operator"))["TIPHYS_OPERATOR_EXTENDER_URL"]
    assert url == "http://tiphys-extender-status.tiphys-system.svc:8080,http://tiphys-binder-status.tiphys-system.svc:8080"
    policy = render_mode("binder").one("NetworkPolicy", "tiphys-operator")
    (to,) = [rule["to"] for rule in policy["spec"]["egress"] if "to" in rule]
    assert [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in to] == ["scheduler", "binder"]

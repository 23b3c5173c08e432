from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tiphys_models.base.errors import InvalidInput
from tiphys_operator.scaling.reach import reach_of
from tiphys_operator.settings import read_settings


def test_defaults_are_those_of_client_go() -> None:
    settings = read_settings()
    assert (settings.lease_duration_s, settings.renew_s, settings.retry_s) == (15, 10, 2)
    assert settings.models_dir is None


def test_empty_paths_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPHYS_OPERATOR_MODELS_DIR", "")
    monkeypatch.setenv("TIPHYS_OPERATOR_TOKEN_FILE", "")
    assert read_settings().models_dir is None


def test_labels_headers_and_tenants_of_prometheus_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPHYS_OPERATOR_PROMETHEUS_NODE_MATCHERS", '{"job": "node-exporter"}')
    monkeypatch.setenv("TIPHYS_OPERATOR_PROMETHEUS_HEADERS", "")
    monkeypatch.setenv("TIPHYS_OPERATOR_PROMETHEUS_TENANT", "{namespace}|platform")
    settings = read_settings()
    assert settings.prometheus_node_matchers == {"job": "node-exporter"}
    assert settings.prometheus_headers == {}
    assert settings.prometheus_tenant == "{namespace}|platform"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RESYNC_S", "0", "TIPHYS_OPERATOR_RESYNC_S"),
        ("RESYNC_S", "soon", "TIPHYS_OPERATOR_RESYNC_S"),
        ("STATUS_PORT", "70000", "TIPHYS_OPERATOR_STATUS_PORT"),
        ("EXTENDER_URL", "tiphys:8080", "TIPHYS_OPERATOR_EXTENDER_URL"),
        ("EXTENDER_URL", "file:///etc/passwd", "TIPHYS_OPERATOR_EXTENDER_URL"),
        ("EXTENDER_URL", "http://a:1,b:1", "TIPHYS_OPERATOR_EXTENDER_URL"),
        ("LOG_LEVEL", "loud", "TIPHYS_OPERATOR_LOG_LEVEL"),
        ("PROBE_ALLOW", "10.0.0.0/8,everything", "TIPHYS_OPERATOR_PROBE_ALLOW"),
        ("PROBE_CIDRS", "10.0.0.1/8", "TIPHYS_OPERATOR_PROBE_CIDRS"),
        ("PROMETHEUS_HEADERS", "X-Scope: a", "TIPHYS_OPERATOR_PROMETHEUS_HEADERS.*no JSON"),
        ("PROMETHEUS_HEADERS", '{"X-Scope": "a\\r\\nHost: b"}', "TIPHYS_OPERATOR_PROMETHEUS_HEADERS.*no header"),
        ("PROMETHEUS_NODE_MATCHERS", '{"job=\\"x\\"": "a"}', "TIPHYS_OPERATOR_PROMETHEUS_NODE_MATCHERS.*no name of a label"),
        ("PROMETHEUS_TENANT", "{namespace.__class__}", "TIPHYS_OPERATOR_PROMETHEUS_TENANT.*only {namespace}"),
        ("PROMETHEUS_TENANT_HEADER", "X Scope", "TIPHYS_OPERATOR_PROMETHEUS_TENANT_HEADER"),
        ("ANSWER_MAX_BYTES", "0", "TIPHYS_OPERATOR_ANSWER_MAX_BYTES"),
        ("NAMESPACE", "", "TIPHYS_OPERATOR_NAMESPACE"),
        ("LEASE_DURATION_S", "10", "LEASE_DURATION_S > RENEW_S"),
        ("RETRY_S", "9", "RENEW_S > 1.2"),
    ],
)
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    monkeypatch.setenv(f"TIPHYS_OPERATOR_{name}", value)
    with pytest.raises(InvalidInput, match=message):
        read_settings()


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "message"), [({"KUBECONFIG": "/nonexistent"}, "/nonexistent"), ({}, "no cluster: set KUBECONFIG")])
def test_a_process_that_cannot_start_says_why_in_one_line_and_exits_with_64(
    environment: dict[str, str], message: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tiphys_operator"]
    done = subprocess.run(command, env=environment | {"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=20)
    assert done.returncode == 64
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_price_table_that_cannot_be_read_is_named_before_anything_is_tried(tmp_path: Path) -> None:
    access, prices = tmp_path / "kubeconfig", tmp_path / "prices.yaml"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"current-context": "x", "clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {"token": "t"}}]}
    access.write_text(yaml.safe_dump(config))
    prices.write_text("m7: {usdPerHour: cheap}")
    environment = {"KUBECONFIG": str(access), "TIPHYS_OPERATOR_PRICES_FILE": str(prices), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tiphys_operator"], env=environment, capture_output=True, text=True, timeout=20)
    assert done.returncode == 64
    assert "prices.yaml cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_namespaces_of_scaling_come_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPHYS_OPERATOR_SCALING_NAMESPACES", "shop, bank,")
    monkeypatch.setenv("TIPHYS_OPERATOR_SCALING_EXCLUDED_NAMESPACES", "")
    reach = reach_of(read_settings())
    assert reach.allowed == {"shop", "bank"}
    assert not reach.excluded
    monkeypatch.setenv("TIPHYS_OPERATOR_SCALING_EXCLUDED_NAMESPACES", "Shop")
    with pytest.raises(InvalidInput, match="SCALING_EXCLUDED_NAMESPACES"):
        read_settings()

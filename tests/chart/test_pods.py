"""Pods: the restricted profile, probes, shutdown, images, and settings their processes understand."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from tests.chart.rendering import MODES, Manifest, Render, render, render_mode, values_of
from tiphys_extender.settings import Settings as ExtenderSettings
from tiphys_models.placement.pod_cpu import POD_CPU_SERIES
from tiphys_operator.settings import Settings as OperatorSettings

ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SERVICE = {"serverSecretName": "server", "clientSecretName": "client", "ca": {"secretName": "ca"}}


def containers(spec: Manifest) -> dict[str, Manifest]:
    return {container["name"]: container for container in [*spec["containers"], *spec.get("initContainers", [])]}


def violations(spec: Manifest) -> list[str]:
    """What of the restricted Pod Security Standard, and of our own rules beyond it, a pod breaks."""
    found = [flag for flag in ("hostNetwork", "hostPID", "hostIPC") if spec.get(flag)]
    pod = spec.get("securityContext", {})
    if pod.get("runAsNonRoot") is not True or pod.get("runAsUser") == 0:
        found.append("may run as root")
    if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        found.append("no seccomp profile")
    for volume in spec.get("volumes", []):
        found += [f"volume {volume['name']} is a {kind}" for kind in volume.keys() - {"name"} - ALLOWED_VOLUMES]
    for name, container in containers(spec).items():
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            found.append(f"{name} may gain privileges")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{name} keeps capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{name} writes to its root file system")
        if any(port.get("hostPort") for port in container.get("ports", [])):
            found.append(f"{name} takes a port of the host")
        resources = container.get("resources", {})
        if not (resources.get("requests", {}).get("cpu") and resources.get("limits", {}).get("memory")):
            found.append(f"{name} has no requests or no memory limit")
    return found


@pytest.mark.parametrize("mode", MODES)
def test_pods_pass_the_restricted_profile(mode: str) -> None:
    for name, spec in render_mode(mode).pod_specs().items():
        assert violations(spec) == [], name


def test_the_check_of_the_profile_finds_what_it_should() -> None:
    spec = {
        "hostNetwork": True,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        "containers": [{"name": "main", "securityContext": {"privileged": True}, "ports": [{"hostPort": 80}]}],
    }
    assert len(violations(spec)) == 9


@pytest.mark.parametrize("mode", MODES)
def test_our_own_pods_do_not_need_us(mode: str) -> None:
    assert {spec["schedulerName"] for spec in render_mode(mode).pod_specs().values()} == {"default-scheduler"}


@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_mounted_by_pods_that_ask_for_them_only(mode: str) -> None:
    rendered = render_mode(mode)
    assert all(item["automountServiceAccountToken"] is False for item in rendered.of("ServiceAccount"))
    accounts = {item["metadata"]["name"] for item in rendered.of("ServiceAccount")}
    specs = rendered.pod_specs()
    # The extender's account is that of a token Secret while the extender is a container of the scheduler's pod.
    assert {spec["serviceAccountName"] for spec in specs.values()} == accounts - ({"tiphys-extender"} - specs.keys())
    # A pod of several containers hands out credentials one by one.
    assert all(spec["automountServiceAccountToken"] is (name != "tiphys-scheduler") for name, spec in specs.items())
    assert all(len(spec["containers"]) == 1 for spec in specs.values() if spec["automountServiceAccountToken"])


@pytest.mark.parametrize("mode", MODES)
def test_servers_are_probed_and_stop_in_time(mode: str) -> None:
    for item in render_mode(mode).of("Deployment"):
        spec = item["spec"]["template"]["spec"]
        for name, container in containers(spec).items():
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"]["port"] in ports, name
            sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            # 5 s to drain after the sleep, and some to spare.
            assert sleep + 5 < spec["terminationGracePeriodSeconds"], name


@pytest.mark.parametrize("mode", MODES)
def test_every_mount_has_its_volume_and_every_volume_a_mount(mode: str) -> None:
    for name, spec in render_mode(mode).pod_specs().items():
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        mounts = {mount["name"] for container in containers(spec).values() for mount in container.get("volumeMounts", [])}
        assert volumes == mounts, name
        writable = {m["name"] for c in containers(spec).values() for m in c.get("volumeMounts", []) if not m.get("readOnly")}
        assert writable <= {"decisions", "work"}, name


def environment(container: Manifest) -> dict[str, str]:
    return {entry["name"]: str(entry.get("value", "from-the-pod")) for entry in container.get("env", [])}


def process_of(rendered: Render, name: str) -> Manifest:
    found = [c for spec in rendered.pod_specs().values() for c in spec["containers"] if c["name"] == name]
    (only,) = found
    process: Manifest = only
    return process


def test_who_is_asked_and_believed_about_metrics_reaches_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "url": "http://prometheus:9090",
        "headers": {"X-Team": 'it\'s "us"'},
        "nodeMatchers": {"job": "node-exporter"},
        "runtimeMatchers": {"namespace": "faas"},
        "podCpuSeries": 'own:cpu{job="kubelet",container!=""}',
        "tenant": {"header": "X-Scope-OrgID", "value": "{namespace}|platform", "url": "http://proxy:8080/{namespace}"},
    }
    rendered = render(
        {"extender": {"prometheus": told}, "operator": {"scaling": {"answers": {"maxBytes": 2_000_000, "maxSeries": 1_000_000}}}}
    )
    for name in ("operator", "extender"):
        for key, value in environment(process_of(rendered, name)).items():
            monkeypatch.setenv(key, value)
    operator, extender = OperatorSettings(), ExtenderSettings()
    assert operator.prometheus_headers == extender.prometheus_headers == told["headers"]
    assert operator.prometheus_node_matchers == extender.prometheus_node_matchers == told["nodeMatchers"]
    assert extender.prometheus_runtime_matchers == told["runtimeMatchers"]
    assert extender.prometheus_pod_cpu_series == told["podCpuSeries"]
    assert (operator.prometheus_tenant_header, operator.prometheus_tenant) == ("X-Scope-OrgID", "{namespace}|platform")
    assert operator.prometheus_tenant_url == "http://proxy:8080/{namespace}"
    assert (operator.answer_max_bytes, operator.answer_max_series) == (2_000_000, 1_000_000)


def test_processor_time_of_pods_is_cadvisors_where_nobody_says_otherwise_and_no_expression_passes_for_a_series() -> None:
    assert environment(process_of(render(), "extender"))["TIPHYS_EXTENDER_PROMETHEUS_POD_CPU_SERIES"] == POD_CPU_SERIES
    off = render({"extender": {"prometheus": {"podCpuSeries": ""}}})
    assert environment(process_of(off, "extender"))["TIPHYS_EXTENDER_PROMETHEUS_POD_CPU_SERIES"] == ""
    for wrong in ("sum(x)", "a{b} or c", "a}{"):
        with pytest.raises(ValidationError, match="prometheus_pod_cpu_series"):
            ExtenderSettings(prometheus_pod_cpu_series=wrong)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "settings", "prefix"), [("operator", OperatorSettings, "TIPHYS_OPERATOR_"), ("extender", ExtenderSettings, "TIPHYS_EXTENDER_")]
)
def test_processes_understand_every_setting(
    mode: str, name: str, settings: type[Any], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {key: value for key, value in environment(process_of(render_mode(mode), name)).items() if key.startswith(prefix)}
    assert {key.removeprefix(prefix).lower() for key in values} <= set(settings.model_fields)
    for key, value in values.items():
        monkeypatch.setenv(key, value)
    settings()  # parses, within its limits


def test_loopback_by_default_and_mutual_tls_as_a_service() -> None:
    beside = environment(process_of(render(), "extender"))
    assert (beside["TIPHYS_EXTENDER_HOST"], beside["TIPHYS_EXTENDER_PORT"]) == ("127.0.0.1", "8888")
    assert "TIPHYS_EXTENDER_TLS_CERT_FILE" not in beside

    rendered = render({"extender": {"service": {"enabled": True, "tls": SERVICE}}})
    assert [c["name"] for c in rendered.pod_specs()["tiphys-scheduler"]["containers"]] == ["kube-scheduler"]
    alone = environment(process_of(rendered, "extender"))
    assert alone["TIPHYS_EXTENDER_HOST"] == "0.0.0.0"  # noqa: S104
    assert {"TIPHYS_EXTENDER_TLS_CERT_FILE", "TIPHYS_EXTENDER_TLS_KEY_FILE", "TIPHYS_EXTENDER_TLS_CLIENT_CA_FILE"} <= alone.keys()


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("1.36.3", "v1.36.3"),
        ("v1.36.3-gke.1500000", "v1.36.3"),
        ("v1.35.8+k3s1", "v1.35.8"),
        ("v1.34.2-eks-abcdef0", "v1.34.2"),
        ("v1.33.0-rc.1", "v1.33.0"),
    ],
)
def test_the_scheduler_is_of_the_clusters_version(version: str, tag: str) -> None:
    assert process_of(render(kube_version=version), "kube-scheduler")["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_tags_can_be_set_and_digests_win() -> None:
    digest = "sha256:" + "a" * 64
    image = {"repository": "registry.example.com/a", "tag": "v1"}
    for name in ("operator", "scheduler", "extender"):
        container = "kube-scheduler" if name == "scheduler" else name
        assert process_of(render({name: {"image": image}}), container)["image"] == "registry.example.com/a:v1"
        assert process_of(render({name: {"image": {**image, "digest": digest}}}), container)["image"] == f"registry.example.com/a@{digest}"


def test_secrets_for_pulling_reach_every_pod() -> None:
    for spec in render(values_of("digests")).pod_specs().values():
        assert spec["imagePullSecrets"] == [{"name": "registry"}]


def annotations(rendered: Render) -> Manifest:
    found: Manifest = rendered.one("Deployment", "tiphys-scheduler")["spec"]["template"]["metadata"]["annotations"]
    return found


def test_the_scheduler_restarts_when_its_configuration_changes_and_not_otherwise() -> None:
    first = annotations(render())["checksum/config"]
    assert annotations(render({"scheduler": {"httpTimeout": "300ms"}}))["checksum/config"] != first
    assert annotations(render({"scheduler": {"weight": "advisory"}}))["checksum/config"] != first
    assert annotations(render({"extender": {"logLevel": "debug"}}))["checksum/config"] == first


def test_the_scheduler_restarts_when_the_ca_changes() -> None:
    def checksum(bundle: str) -> str:
        tls = {**SERVICE, "ca": {"bundle": f"-----BEGIN CERTIFICATE-----\n{bundle}\n-----END CERTIFICATE-----"}}
        return str(annotations(render({"extender": {"service": {"enabled": True, "tls": tls}}}))["checksum/ca"])

    assert re.fullmatch("[0-9a-f]{64}", checksum("one"))
    assert checksum("one") != checksum("two")


def test_two_replicas_are_spread_unless_told_otherwise() -> None:
    spread = render({"operator": {"replicas": 2}}).pod_specs()["tiphys-operator"]["topologySpreadConstraints"]
    assert spread[0]["topologyKey"] == "kubernetes.io/hostname"
    assert spread[0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert "topologySpreadConstraints" not in render().pod_specs()["tiphys-operator"]
    own = render_mode("ha").pod_specs()["tiphys-scheduler"]["topologySpreadConstraints"]
    assert [constraint["topologyKey"] for constraint in own] == ["topology.kubernetes.io/zone"]

"""What the objects say: scheduler configuration, switch, token, routing, network, hook, CRDs, monitoring, refusals."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import MODES, NAMESPACE, ROOT, HelmRefusedError, Manifest, Render, render, render_mode, values_of

TLS = {"serverSecretName": "server", "clientSecretName": "client", "ca": {"secretName": "ca"}}
SERVICE: Manifest = {"extender": {"service": {"enabled": True, "tls": TLS}}}
HOOK = "helm.sh/hook"


def config_of(rendered: Render) -> Manifest:
    text = rendered.one("ConfigMap", "tiphys-scheduler-config")["data"]["scheduler-config.yaml"]
    parsed: Manifest = yaml.safe_load(text)
    return parsed


def test_the_scheduler_asks_us_to_prioritize_and_nothing_else() -> None:
    config = config_of(render())
    (extender,) = config["extenders"]
    assert extender == {
        "urlPrefix": "http://127.0.0.1:8888",
        "prioritizeVerb": "prioritize",
        "weight": 121,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "200ms",
    }
    assert config["profiles"] == [{"schedulerName": "tiphys"}]  # every default plugin stays on
    assert config["clientConnection"] == {"qps": 1000, "burst": 2000}
    assert config["leaderElection"]["resourceName"] == "tiphys-scheduler"
    assert config["leaderElection"]["resourceNamespace"] == NAMESPACE
    assert "percentageOfNodesToScore" not in config


def test_the_scheduler_configuration_in_manifests_is_the_charts() -> None:
    shown = yaml.safe_load((ROOT / "manifests" / "scheduler-config.yaml").read_text(encoding="utf-8"))
    assert shown == config_of(render())


def test_weight_sampling_and_name_are_values() -> None:
    config = config_of(render({"schedulerName": "learned", "scheduler": {"weight": "advisory", "percentageOfNodesToScore": 50}}))
    assert config["extenders"][0]["weight"] == 10
    assert config["percentageOfNodesToScore"] == 50
    assert config["profiles"] == [{"schedulerName": "learned"}]


def test_as_a_service_the_scheduler_checks_the_name_and_shows_its_certificate() -> None:
    rendered = render(SERVICE)
    (extender,) = config_of(rendered)["extenders"]
    host = "tiphys-extender.tiphys-system.svc"
    assert extender["urlPrefix"] == f"https://{host}:8443"
    assert extender["enableHTTPS"] is True
    tls = extender["tlsConfig"]
    assert tls["serverName"] == host
    assert "insecure" not in tls
    mounts = {m["mountPath"] for m in rendered.pod_specs()["tiphys-scheduler"]["containers"][0]["volumeMounts"]}
    assert all(str(Path(tls[key]).parent) in mounts for key in ("caFile", "certFile", "keyFile"))

    fixed = render({"extender": {"service": {"enabled": True, "clusterIP": "10.96.0.9", "tls": TLS}}})
    assert config_of(fixed)["extenders"][0]["urlPrefix"] == "https://10.96.0.9:8443"
    assert config_of(fixed)["extenders"][0]["tlsConfig"]["serverName"] == host


def _service(**tls: Any) -> Manifest:
    return {"extender": {"service": {"enabled": True, "tls": tls}}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (_service(serverSecretName="s", clientSecretName="c"), "without a CA kube-scheduler silently accepts any certificate"),
        (_service(clientSecretName="c", ca={"secretName": "ca"}), "serverSecretName, a kubernetes.io/tls Secret"),
        (_service(serverSecretName="s", ca={"secretName": "ca"}), "clientSecretName, a kubernetes.io/tls Secret"),
        ({"scheduler": {"enabled": False}}, "leaves the extender without a scheduler"),
        ({"operator": {"lease": {"durationSeconds": 10, "renewSeconds": 10}}}, "durationSeconds > renewSeconds > 1.2 x retrySeconds"),
        ({"operator": {"lease": {"renewSeconds": 2, "retrySeconds": 2}}}, "durationSeconds > renewSeconds > 1.2 x retrySeconds"),
        ({"scheduler": {"httpTimeout": "20ms"}}, "extender.deadlineMilliseconds must be less than scheduler.httpTimeout"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(values: Manifest, message: str) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render(values)
    assert message in str(refused.value)


def test_the_kill_switch_is_a_configmap_that_only_says_off() -> None:
    # A field that Helm never wrote is one that no upgrade or rollback resets, or conflicts with.
    assert "enabled" not in render().one("ConfigMap", "tiphys-switch")["data"]
    assert render({"enabled": False}).one("ConfigMap", "tiphys-switch")["data"]["enabled"] == "false"


def test_a_token_is_made_or_taken() -> None:
    made = [base64.b64decode(render().one("Secret", "tiphys-token")["data"]["token"]) for _ in range(2)]
    assert all(len(token) == 48 for token in made)
    assert made[0] != made[1]  # outside a cluster nothing can be looked up: hence existingSecret for GitOps
    rendered = render(values_of("existing-secrets"))
    assert rendered.of("Secret") == []
    for spec in (rendered.pod_specs()[name] for name in ("tiphys-operator", "tiphys-extender")):
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "token"]
        assert volume["secret"] == {"secretName": "tiphys-decisions", "items": [{"key": "bearer", "path": "token"}]}


def test_weights_come_from_a_configmap_that_may_be_made_later_or_from_a_claim() -> None:
    def source(values: Manifest) -> Manifest:
        (volume,) = [volume for volume in render(values).pod_specs()["tiphys-operator"]["volumes"] if volume["name"] == "models"]
        return {key: value for key, value in volume.items() if key != "name"}

    assert source({}) == {"configMap": {"name": "tiphys-models", "optional": True}}
    assert source({"models": {"configMap": "mine"}}) == {"configMap": {"name": "mine", "optional": True}}
    assert source({"models": {"persistentVolumeClaim": "mine"}}) == {"persistentVolumeClaim": {"claimName": "mine", "readOnly": True}}


@pytest.mark.parametrize(("version", "expected"), [("1.36.3", "v1"), ("1.37.0", "v1")])
def test_routing_uses_the_version_the_cluster_serves(version: str, expected: str) -> None:
    rendered = render(values_of("routing"), kube_version=version)
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"):
        assert rendered.one(kind, "tiphys-routing")["apiVersion"] == f"admissionregistration.k8s.io/{expected}"


def test_routing_uses_the_beta_where_it_is_served_and_refuses_where_nothing_is() -> None:
    api = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
    rendered = render(values_of("routing"), "--api-versions", api, kube_version="1.35.8")
    assert rendered.of("MutatingAdmissionPolicy")[0]["apiVersion"] == "admissionregistration.k8s.io/v1beta1"
    with pytest.raises(HelmRefusedError, match=r"write spec\.schedulerName: tiphys into your workloads"):
        render(values_of("routing"), kube_version="1.35.8")
    forced = render({"routing": {"enabled": True, "apiVersion": "v1beta1"}}, kube_version="1.35.8")
    assert forced.of("MutatingAdmissionPolicy")[0]["apiVersion"] == "admissionregistration.k8s.io/v1beta1"


def test_routing_is_off_by_default_and_never_takes_system_or_own_pods() -> None:
    assert render().of("MutatingAdmissionPolicy") == []
    policy = render(values_of("routing")).one("MutatingAdmissionPolicy", "tiphys-routing")["spec"]
    selector = policy["matchConstraints"]["namespaceSelector"]
    assert selector["matchLabels"] == {"tiphys.io/route": "enabled"}
    (never,) = selector["matchExpressions"]
    assert never["operator"] == "NotIn"
    assert {"kube-system", NAMESPACE} <= set(never["values"])
    assert policy["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "minimal"])
def test_every_pod_has_a_network_policy_that_denies_by_default(mode: str) -> None:
    rendered = render_mode(mode)
    policies = {item["metadata"]["name"]: item["spec"] for item in rendered.of("NetworkPolicy")}
    pods = {re.sub(r"(?<=trainer)-[0-9a-f]{8}$", "", name) for name in rendered.pod_specs()}  # a Job's name holds its pod's digest
    assert policies.keys() == pods
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule.get("ports") for rule in spec["ingress"])
        # probes go to any port, but only of networks that somebody has named
        assert all(rule.get("ports") or all("ipBlock" in to for to in rule["to"]) for rule in spec["egress"])


def test_network_policies_open_what_is_needed() -> None:
    def open_ports(spec: Manifest, direction: str) -> set[int]:
        return {port["port"] for rule in spec[direction] for port in rule["ports"]}

    policies = {item["metadata"]["name"]: item["spec"] for item in render_mode("monitoring").of("NetworkPolicy")}
    assert open_ports(policies["tiphys-scheduler"], "ingress") == {8080, 10259}  # the hot path is loopback
    assert open_ports(policies["tiphys-scheduler"], "egress") == {53, 443, 6443, 8443, 9090}
    assert open_ports(policies["tiphys-operator"], "egress") == {53, 443, 6443, 8443, 8080, 9090}
    assert policies["tiphys-unroute"]["ingress"] == policies["tiphys-weights-check"]["ingress"] == []
    alone = {item["metadata"]["name"]: item["spec"] for item in render_mode("mtls-service").of("NetworkPolicy")}
    (hot_path,) = [rule for rule in alone["tiphys-extender"]["ingress"] if {"port": 8443, "protocol": "TCP"} in rule["ports"]]
    assert hot_path["from"] == [{"ipBlock": {"cidr": "192.168.0.0/24"}}]


def hooks_of(moment: str, values: Manifest | None = None) -> list[Manifest]:
    return [item for item in render(values).objects if item["metadata"].get("annotations", {}).get(HOOK) == moment]


def test_hooks_run_before_an_upgrade_and_before_an_uninstall_only() -> None:
    moments = {item["metadata"].get("annotations", {}).get(HOOK) for item in render().objects}
    assert moments == {None, "pre-delete", "pre-upgrade"}


def test_the_hook_before_an_upgrade_reads_and_can_be_left_out() -> None:
    hooks = {item["kind"]: item for item in hooks_of("pre-upgrade")}
    assert set(hooks) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert {verb for rule in hooks["ClusterRole"]["rules"] for verb in rule["verbs"]} == {"list"}
    weights = {kind: int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) for kind, item in hooks.items()}
    assert weights["ServiceAccount"] <= weights["ClusterRole"] < weights["ClusterRoleBinding"] < weights["Job"]
    (container,) = hooks["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "tiphys_operator.needed", "--namespace=tiphys-system"]
    assert hooks["Job"]["spec"]["activeDeadlineSeconds"] == 120
    assert "hook-succeeded" not in hooks["Job"]["metadata"]["annotations"]["helm.sh/hook-delete-policy"], "its log is read afterwards"
    assert hooks_of("pre-upgrade", {"weightsCheck": {"enabled": False}}) == []


def test_the_hook_before_uninstall_cleans_up() -> None:
    hooks = hooks_of("pre-delete")
    assert {item["kind"] for item in hooks} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    weights = {item["kind"]: int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) for item in hooks}
    assert weights["ServiceAccount"] <= weights["ClusterRole"] < weights["ClusterRoleBinding"] < weights["Job"]
    (job,) = [item for item in hooks if item["kind"] == "Job"]
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == [
        *("python", "-m", "tiphys_operator.unroute"),
        *("--routing-name=tiphys-routing", "--waiting-name=tiphys-waiting", "--scheduler-name=tiphys"),
    ]
    assert job["spec"]["activeDeadlineSeconds"] == 120


def test_crds_are_the_generated_ones_and_kept() -> None:
    sources = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "manifests" / "crds").glob("*.yaml")}
    expected = {source["metadata"]["name"]: source["spec"] for source in sources.values()}
    rendered = render().of("CustomResourceDefinition")
    assert {crd["metadata"]["name"]: crd["spec"] for crd in rendered} == expected
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in rendered)
    loose = render({"crds": {"keep": False}}).of("CustomResourceDefinition")
    assert len(loose) == len(expected)
    assert not any("helm.sh/resource-policy" in crd["metadata"].get("annotations", {}) for crd in loose)
    assert render({"crds": {"enabled": False}}).of("CustomResourceDefinition") == []


def test_disruption_budgets_never_block_a_drain() -> None:
    budgets = render_mode("default").of("PodDisruptionBudget")
    assert {budget["metadata"]["name"] for budget in budgets} == {"tiphys-operator", "tiphys-scheduler"}
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in budgets)


def test_monitors_find_services_and_rules_speak_of_the_right_scheduler() -> None:
    rendered = render({**values_of("monitoring"), "schedulerName": "learned"})
    services = rendered.of("Service")
    for monitor in rendered.of("ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        (endpoint,) = monitor["spec"]["endpoints"]
        ports = {
            p["name"] for service in services if labels.items() <= service["metadata"]["labels"].items() for p in service["spec"]["ports"]
        }
        assert endpoint["port"] in ports, monitor["metadata"]["name"]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
    rules = yaml.safe_dump(rendered.one("PrometheusRule", "tiphys"))
    dashboard = rendered.one("ConfigMap", "tiphys-dashboard")["data"]["tiphys-placement.json"]
    for text in (rules, dashboard.replace("\\", "")):
        assert 'profile="learned"' in text
        assert 'profile="tiphys"' not in text


def flow_accounts(rendered: Render, name: str) -> set[str]:
    (rule,) = rendered.one("FlowSchema", name)["spec"]["rules"]
    assert {subject["serviceAccount"]["namespace"] for subject in rule["subjects"]} == {NAMESPACE}
    return {subject["serviceAccount"]["name"] for subject in rule["subjects"]}


@pytest.mark.parametrize("mode", MODES)
def test_every_account_that_works_all_day_has_its_place_in_our_queues(mode: str) -> None:
    rendered = render_mode(mode)
    if mode == "minimal":
        assert not rendered.of("FlowSchema")
        return
    lasting = [item for item in rendered.of("ServiceAccount") if HOOK not in item["metadata"].get("annotations", {})]
    accounts = {item["metadata"]["name"] for item in lasting}
    assert flow_accounts(rendered, "tiphys") == flow_accounts(rendered, "tiphys-leases") == accounts


def test_our_requests_have_a_small_level_of_their_own_and_leases_the_clusters() -> None:
    rendered = render()
    level = rendered.one("PriorityLevelConfiguration", "tiphys")["spec"]["limited"]
    assert level["nominalConcurrencyShares"] == 10
    assert level["limitResponse"]["type"] == "Queue"
    ours, leases = (rendered.one("FlowSchema", name)["spec"] for name in ("tiphys", "tiphys-leases"))
    assert (ours["priorityLevelConfiguration"], leases["priorityLevelConfiguration"]) == ({"name": "tiphys"}, {"name": "leader-election"})
    assert leases["matchingPrecedence"] < ours["matchingPrecedence"] < 9000  # the cluster's own schema of all service accounts
    assert render({"flowControl": {"enabled": False}}).of("FlowSchema") == []
    assert render({"flowControl": {"enabled": False}}).of("PriorityLevelConfiguration") == []
    shares = render({"flowControl": {"shares": 30}}).one("PriorityLevelConfiguration", "tiphys")["spec"]["limited"]
    assert shares["nominalConcurrencyShares"] == 30

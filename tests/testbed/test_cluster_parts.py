"""The pure parts of the local cluster: certificates, command lines, configurations, kubeconfigs."""

import json
import ssl
import stat
import threading
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.kube.kubeconfig import Credentials, read_kubeconfig, write_kubeconfig
from tiphys_testbed.cluster import flags
from tiphys_testbed.cluster.existing import ExistingCluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import LocalOptions, PrometheusOptions, SchedulerOptions, ScrapeJob
from tiphys_testbed.cluster.pki import Pair, make_authority, make_service_account_key
from tiphys_testbed.cluster.ports import HIGH, LOW, free_ports
from tiphys_testbed.cluster.prometheus import prometheus_config


def certificates() -> flags.Certificates:
    pair = Pair(Path("/pki/x.crt"), Path("/pki/x.key"))
    return flags.Certificates(pair, pair, pair, pair, pair, pair, pair, pair)


PORTS = flags.Ports(1, 2, 3, 4, 5, 6)


def test_keys_are_private_and_certificates_chain_to_the_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "pki", "ca", "test")
    pair = authority.issue("admin", "tiphys:admin", ("system:masters",))
    certificate = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    certificate.verify_directly_issued_by(authority.certificate)
    subject = {a.rfc4514_attribute_name: a.value for a in certificate.subject}
    assert subject == {"CN": "tiphys:admin", "O": "system:masters"}
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    for key in (pair.key, authority.pair.key, make_service_account_key(tmp_path / "pki").key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_strict_client_accepts_the_server_certificate(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca", "test")
    pair = authority.issue("apiserver", "kube-apiserver", server=True)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.cert, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.cert))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # what newer Pythons do by default
    to_client, to_server = (ssl.MemoryBIO(), ssl.MemoryBIO())
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()


def test_the_api_server_authorises_by_rbac_and_keeps_profiling_off() -> None:
    command = flags.apiserver(LocalOptions(apiserver_flags=("--v=3",)), PORTS, certificates())
    assert "--authorization-mode=Node,RBAC" in command
    assert "--bind-address=127.0.0.1" in command
    assert "--profiling=false" in command
    assert "--max-requests-inflight=2000" in command
    assert command[-1] == "--v=3"


def test_etcd_lets_nobody_in_without_a_certificate() -> None:
    command = flags.etcd(PORTS, certificates(), Path("/data"))
    assert "--client-cert-auth" in command
    assert "--peer-client-cert-auth" in command
    assert not [flag for flag in command if "http://" in flag]


def test_the_controller_manager_may_talk_fast() -> None:
    options = LocalOptions(client_qps=77, client_burst=88, node_monitor_grace_s=99)
    command = flags.controller_manager(options, PORTS, certificates(), Path("/k"))
    assert {"--kube-api-qps=77", "--kube-api-burst=88", "--node-monitor-grace-period=99s"} <= set(command)


def test_a_schedulers_extender_is_prioritize_only_and_ignorable() -> None:
    options = SchedulerOptions(extender_url="http://127.0.0.1:1", weight=10, http_timeout_s=0.3, percentage_of_nodes_to_score=20, qps=5)
    config = yaml.safe_load(options.render(Path("/kubeconfig")))
    assert config["extenders"] == [
        {
            "urlPrefix": "http://127.0.0.1:1",
            "prioritizeVerb": "prioritize",
            "weight": 10,
            "nodeCacheCapable": True,
            "httpTimeout": "300ms",
            "ignorable": True,
        }
    ]
    assert config["percentageOfNodesToScore"] == 20
    assert config["clientConnection"] == {"kubeconfig": "/kubeconfig", "qps": 5, "burst": 1000}
    assert config["profiles"] == [{"schedulerName": "tiphys"}]


def test_a_plain_scheduler_has_no_extender_and_samples_as_kubernetes_does() -> None:
    config = yaml.safe_load(SchedulerOptions().render(Path("/kubeconfig")))
    assert "extenders" not in config
    assert "percentageOfNodesToScore" not in config
    assert config["leaderElection"] == {"leaderElect": False}


def test_a_lease_turns_leader_election_on() -> None:
    config = yaml.safe_load(SchedulerOptions(lease="mine", lease_namespace="tiphys").render(Path("/k")))
    assert config["leaderElection"]["leaderElect"] is True
    assert config["leaderElection"]["resourceName"] == "mine"
    assert config["leaderElection"]["resourceNamespace"] == "tiphys"


CHART_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceName: tiphys-scheduler}
profiles: [{schedulerName: from-the-chart}]
extenders: [{urlPrefix: "http://127.0.0.1:8888", prioritizeVerb: prioritize, weight: 7, httpTimeout: 150ms}]
"""


def test_a_ready_configuration_keeps_all_but_kubeconfig_and_address() -> None:
    options = SchedulerOptions(config_text=CHART_CONFIG, extender_url="http://127.0.0.1:9999", weight=1)
    config = yaml.safe_load(options.render(Path("/kubeconfig")))
    assert config["clientConnection"] == {"kubeconfig": "/kubeconfig"}
    assert config["extenders"] == [
        {"urlPrefix": "http://127.0.0.1:9999", "prioritizeVerb": "prioritize", "weight": 7, "httpTimeout": "150ms"}
    ]
    assert config["leaderElection"]["resourceName"] == "tiphys-scheduler"
    assert config["profiles"] == [{"schedulerName": "from-the-chart"}]


def test_a_wrong_ready_configuration_is_refused() -> None:
    with pytest.raises(ClusterError, match="not a KubeSchedulerConfiguration"):
        SchedulerOptions(config_text="kind: ConfigMap").render(Path("/k"))
    with pytest.raises(ClusterError, match="no extender to point there"):
        SchedulerOptions(config_text="kind: KubeSchedulerConfiguration", extender_url="http://x").render(Path("/k"))


def test_kubeconfigs_are_private_and_read_back_as_written(tmp_path: Path) -> None:
    wanted = Credentials("https://127.0.0.1:1", b"ca", b"cert", b"key")
    path = write_kubeconfig(tmp_path / "config", wanted, "me")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_kubeconfig(path) == wanted
    token = Credentials("https://127.0.0.1:1", b"ca", token="secret")
    assert read_kubeconfig(write_kubeconfig(tmp_path / "config", token, "me")) == token


def test_a_kubeconfig_may_name_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"ca")
    (tmp_path / "token").write_text("secret\n")
    document = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://x", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert read_kubeconfig(tmp_path / "config") == Credentials("https://x", b"ca", token="secret")


def test_a_kubeconfig_may_run_a_program_for_its_token(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-a-program"},
    }
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    program.chmod(0o755)
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    document = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://cloud.example"}}],
        "users": [{"name": "u", "user": {"exec": login}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert read_kubeconfig(tmp_path / "config") == Credentials("https://cloud.example", None, token="from-a-program")


def test_a_context_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("current-context: nowhere\n")
    with pytest.raises(ClusterError, match="kubectl config use-context"):
        read_kubeconfig(tmp_path / "config")


def test_prometheus_gets_one_target_a_node_and_the_further_jobs() -> None:
    options = PrometheusOptions(
        {"node-1": "http://127.0.0.1:9/nodes/node-1/metrics"},
        (ScrapeJob("extender", "https://127.0.0.1:8/metrics", {"role": "x"}, Path("/ca"), token_file=Path("/t")),),
        scrape_interval_s=0.5,
    )
    config = yaml.safe_load(prometheus_config(options))
    assert config["global"] == {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
    node, job = config["scrape_configs"]
    assert node["static_configs"] == [
        {
            "targets": ["127.0.0.1:9"],
            "labels": {
                "__metrics_path__": "/nodes/node-1/metrics",
                "__scheme__": "http",
                "node": "node-1",
                "instance": "node-1",
            },
        }
    ]
    assert job["tls_config"] == {"ca_file": "/ca"}
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/t"}


def test_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(LOW <= port < HIGH for port in ports)


def test_a_cluster_that_is_not_started_says_so(tmp_path: Path) -> None:
    threads = threading.active_count()
    cluster = LocalCluster(LocalOptions(root=tmp_path))
    for ask in (
        lambda: cluster.server,
        lambda: cluster.start_scheduler(SchedulerOptions()),
        lambda: cluster.start_prometheus(PrometheusOptions()),
    ):
        with pytest.raises(ClusterError, match="not started"):
            ask()
    cluster.stop()
    assert threading.active_count() == threads


def test_an_existing_cluster_needs_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="set KUBECONFIG"):
        ExistingCluster().start()

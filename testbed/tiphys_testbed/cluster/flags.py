"""The command lines of the control plane: pure functions of options, files and ports."""

from dataclasses import dataclass
from pathlib import Path

from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.pki import Pair

SERVICE_CIDR = "10.96.0.0/16"
POD_CIDR = "10.244.0.0/16"
NODE_LEASE_S = 40


@dataclass(frozen=True, slots=True)
class Ports:
    """One loopback port a server."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int


@dataclass(frozen=True, slots=True)
class Certificates:
    """Everything the control plane's programs read; paths."""

    ca: Pair
    etcd: Pair
    apiserver: Pair
    apiserver_etcd_client: Pair
    component: Pair
    """Serving certificate of controller-manager, schedulers and kwok."""
    front_proxy_ca: Pair
    front_proxy_client: Pair
    service_account: Pair


def etcd(ports: Ports, certificates: Certificates, data_dir: Path) -> list[str]:
    """A single member on loopback that lets nobody in without a certificate of our authority."""
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.etcd_peer}"
    pair, ca = certificates.etcd, certificates.ca.cert
    return [
        f"--data-dir={data_dir}",
        "--name=default",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={pair.cert}",
        f"--key-file={pair.key}",
        f"--trusted-ca-file={ca}",
        "--client-cert-auth",
        f"--peer-cert-file={pair.cert}",
        f"--peer-key-file={pair.key}",
        f"--peer-trusted-ca-file={ca}",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",  # the data live as long as the cluster
        "--log-level=warn",
    ]


def apiserver(options: LocalOptions, ports: Ports, certificates: Certificates) -> list[str]:
    """RBAC on, no anonymous rights beyond health and version, no profiling."""
    sa = certificates.service_account
    return [
        f"--etcd-servers=https://127.0.0.1:{ports.etcd}",
        f"--etcd-cafile={certificates.ca.cert}",
        f"--etcd-certfile={certificates.apiserver_etcd_client.cert}",
        f"--etcd-keyfile={certificates.apiserver_etcd_client.key}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",  # a loopback address cannot be an endpoint
        f"--tls-cert-file={certificates.apiserver.cert}",
        f"--tls-private-key-file={certificates.apiserver.key}",
        f"--client-ca-file={certificates.ca.cert}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={sa.cert}",
        f"--service-account-signing-key-file={sa.key}",
        f"--requestheader-client-ca-file={certificates.front_proxy_ca.cert}",
        f"--proxy-client-cert-file={certificates.front_proxy_client.cert}",
        f"--proxy-client-key-file={certificates.front_proxy_client.key}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--allow-privileged=true",
        "--profiling=false",
        f"--event-ttl={options.event_ttl_s}s",
        f"--max-requests-inflight={options.max_requests_inflight}",
        f"--max-mutating-requests-inflight={options.max_mutating_requests_inflight}",
        *options.apiserver_flags,
    ]


def controller_manager(options: LocalOptions, ports: Ports, certificates: Certificates, kubeconfig: Path) -> list[str]:
    """All controllers: garbage collection, service accounts, Jobs, node life cycle."""
    return [
        *_component(kubeconfig, ports.controller_manager, certificates.component),
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={certificates.ca.cert}",
        f"--service-account-private-key-file={certificates.service_account.key}",
        f"--cluster-signing-cert-file={certificates.ca.cert}",
        f"--cluster-signing-key-file={certificates.ca.key}",
        # One /24 a node of a /16 would end at 256 nodes; kwok takes pod addresses from its own range.
        "--allocate-node-cidrs=false",
        f"--node-monitor-grace-period={options.node_monitor_grace_s}s",
        f"--kube-api-qps={options.client_qps}",
        f"--kube-api-burst={options.client_burst}",
        "--profiling=false",
    ]


def scheduler(config: Path, kubeconfig: Path, port: int, component: Pair, verbosity: int) -> list[str]:
    """A kube-scheduler with a configuration file."""
    return [
        f"--config={config}",
        *_component(kubeconfig, port, component)[1:],  # the configuration names the kubeconfig
        f"--v={verbosity}",
    ]


def kwok(ports: Ports, certificates: Certificates, kubeconfig: Path, stages: list[Path]) -> list[str]:
    """Plays the kubelet for nodes with the label `type=kwok`."""
    return [
        f"--kubeconfig={kubeconfig}",
        *(f"--config={stage}" for stage in stages),
        "--manage-nodes-with-label-selector=type=kwok",
        f"--node-lease-duration-seconds={NODE_LEASE_S}",
        f"--cidr={POD_CIDR}",
        "--node-ip=127.0.0.1",
        f"--node-port={ports.kwok}",
        f"--server-address=127.0.0.1:{ports.kwok}",
        f"--tls-cert-file={certificates.component.cert}",
        f"--tls-private-key-file={certificates.component.key}",
    ]


def _component(kubeconfig: Path, port: int, pair: Pair) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pair.cert}",
        f"--tls-private-key-file={pair.key}",
    ]

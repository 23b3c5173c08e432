"""Real metrics in a kind cluster: node exporter, kubelets, kube-state-metrics and a Prometheus that reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tiphys_testbed.kind.archives import Layer, write_image
from tiphys_testbed.tools.toolbox import Toolbox

NAMESPACE = "monitoring"
URL = f"http://prometheus.{NAMESPACE}.svc:9090"
PROXY = f"/api/v1/namespaces/{NAMESPACE}/services/prometheus:9090/proxy"
"""Prometheus through the API server."""
SCRAPE_S = 3
WINDOW_S = 15
"""The window of rates; it holds at least four scrapes."""
PODS_SCRAPE_S = 1
SCRAPE_PORT = "prometheus.io/port"
"""Annotation of pods that are scraped."""
_PROGRAMS = ("node_exporter", "kube-state-metrics", "prometheus@kubernetes")
_USER = 65532
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
_KUBE_STATE = (("", ("nodes", "pods")), ("apps", ("deployments", "replicasets", "daemonsets")))


def write_images(toolbox: Toolbox, directory: Path) -> list[Path]:
    """One archive a program."""
    archives = []
    for name, program in toolbox.ensure(_PROGRAMS).items():
        archives.append(directory / f"{program.name}.tar")
        write_image(archives[-1], [_image(name)], Layer({f"/{program.name}": program}, (f"/{program.name}",)))
    return archives


def manifests(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Everything as YAML. Nodes stay, so they are written into Prometheus' configuration; pods come and go, so it looks for them."""
    return yaml.safe_dump_all([*_access(), *_exporter(), *_state(), *_prometheus(scrape_config(nodes))], sort_keys=False)


def scrape_config(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every series of a node carries its name in the label `node`."""
    addresses = {
        node["metadata"]["name"]: next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP") for node in nodes
    }

    def targets(port: int) -> list[dict[str, Any]]:
        return [
            {"targets": [f"{address}:{port}"], "labels": {"node": name, "instance": name}} for name, address in sorted(addresses.items())
        ]

    # A kubelet of kind signs its serving certificate itself.
    kubelet = {
        "scheme": "https",
        "authorization": {"credentials_file": _TOKEN},
        "tls_config": {"insecure_skip_verify": True},
        "static_configs": targets(10250),
    }
    return {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
        "scrape_configs": [
            {"job_name": "node", "static_configs": targets(9100)},
            {"job_name": "cadvisor", "metrics_path": "/metrics/cadvisor", **kubelet},
            {"job_name": "kubelet", "metrics_path": "/metrics/resource", **kubelet},
            {"job_name": "kube-state-metrics", "static_configs": [{"targets": [f"kube-state-metrics.{NAMESPACE}.svc:8080"]}]},
            _pods(),
        ],
    }


def _pods() -> dict[str, Any]:
    """Every running pod that names a port: what it serves, with its namespace and name."""
    meta = "__meta_kubernetes"
    annotation = f"{meta}_pod_annotation_{SCRAPE_PORT.replace('.', '_').replace('/', '_')}"
    return {
        "job_name": "pods",
        "scrape_interval": f"{PODS_SCRAPE_S}s",
        "scrape_timeout": f"{PODS_SCRAPE_S}s",
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [
            {"source_labels": [annotation], "regex": ".+", "action": "keep"},
            {"source_labels": [f"{meta}_pod_phase"], "regex": "Running", "action": "keep"},
            {"source_labels": [f"{meta}_pod_ip", annotation], "separator": ":", "target_label": "__address__"},
            *(
                {"source_labels": [f"{meta}_{name}"], "target_label": label}
                for name, label in (("namespace", "namespace"), ("pod_name", "pod"))
            ),
        ],
    }


def _image(program: str) -> str:
    return f"localhost/tiphys/{program.partition('@')[0].replace('_', '-')}:kind"


def _access() -> list[dict[str, Any]]:
    rules = {
        "prometheus": [
            {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        ],
        "kube-state-metrics": [{"apiGroups": [g], "resources": list(r), "verbs": ["list", "watch"]} for g, r in _KUBE_STATE],
    }
    made: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for name, granted in rules.items():
        role, rbac = f"tiphys-kind-{name}", "rbac.authorization.k8s.io"
        made += [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": granted},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            },
        ]
    return made


def _exporter() -> list[dict[str, Any]]:
    arguments = ["--path.procfs=/host/proc", "--path.sysfs=/host/sys", "--collector.disable-defaults"]
    arguments += [f"--collector.{name}" for name in ("cpu", "stat", "loadavg", "meminfo", "diskstats", "netdev")]
    spec = {
        "hostNetwork": True,  # else it would count the bytes of its own pod
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "exporter",
                "image": _image("node_exporter"),
                "args": arguments,
                "ports": [{"containerPort": 9100}],
                "volumeMounts": [{"name": name, "mountPath": f"/host/{name}", "readOnly": True} for name in ("proc", "sys")],
                "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": _USER, "allowPrivilegeEscalation": False},
            }
        ],
        "volumes": [{"name": name, "hostPath": {"path": f"/{name}"}} for name in ("proc", "sys")],
    }
    return [_workload("DaemonSet", "node-exporter", spec)]


def _state() -> list[dict[str, Any]]:
    resources = ",".join(name for _, names in _KUBE_STATE for name in names)
    container = {
        "name": "state",
        "image": _image("kube-state-metrics"),
        "args": ["--port=8080", "--telemetry-port=8081", f"--resources={resources}"],
        "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": _USER, "allowPrivilegeEscalation": False},
    }
    spec = {"serviceAccountName": "kube-state-metrics", "containers": [container]}
    return [_workload("Deployment", "kube-state-metrics", spec), _service("kube-state-metrics", 8080)]


def _prometheus(config: dict[str, Any]) -> list[dict[str, Any]]:
    container = {
        "name": "prometheus",
        "image": _image("prometheus"),
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data", "--storage.tsdb.retention.time=2h"],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": 9090}, "periodSeconds": 2},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/prometheus"}, {"name": "data", "mountPath": "/data"}],
        "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": _USER, "allowPrivilegeEscalation": False},
    }
    volumes = [{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}]
    spec = {"serviceAccountName": "prometheus", "securityContext": {"fsGroup": _USER}, "containers": [container], "volumes": volumes}
    written = {"prometheus.yml": yaml.safe_dump(config, sort_keys=False)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prometheus", "namespace": NAMESPACE}, "data": written},
        _workload("Deployment", "prometheus", spec),
        _service("prometheus", 9090),
    ]


def _workload(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _service(name: str, port: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"app": name}, "ports": [{"port": port}]}}

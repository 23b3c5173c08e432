"""The peers of scaling in a kind cluster: metrics-server, which HPA reads, and the vertical pod autoscaler.

Programs and manifests are those of their own Go modules; only images and the flags below are ours.
"""

import base64
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.cluster.pki import make_authority
from tiphys_testbed.kind.archives import Layer, write_image
from tiphys_testbed.kind.autoscalers import VPA_PATH, recommended_cpu
from tiphys_testbed.kind.cluster import KindCluster
from tiphys_testbed.tools.programs import VPA_PARTS
from tiphys_testbed.tools.sources import module_source

NAMESPACE = "kube-system"
ROLLOUT_DEADLINE_S = 110
ANSWER_DEADLINE_S = 120.0
Documents = Sequence[Mapping[str, Any]]

# Runs last minutes, so both peers get the shortest intervals they take, and VPA a memory of minutes instead of days.
METRICS_SERVER_FLAGS: Mapping[str, str] = {
    "metric-resolution": "10s",  # the least it takes; 15 s in upstream's manifest
    "kubelet-request-timeout": "5s",  # must be shorter than the resolution
    "kubelet-insecure-tls": "true",  # a kubelet of kind signs its serving certificate itself
}
VPA_FLAGS: Mapping[str, Mapping[str, str]] = {
    "recommender": {
        "recommender-interval": "10s",  # 1 min by default; metrics-server has nothing newer
        "cpu-histogram-decay-half-life": "1m",  # 24 h by default: the target would not fall again within a run
        "pod-recommendation-min-cpu-millicores": "10",  # 25 by default
    },
    "updater": {
        "updater-interval": "10s",  # 1 min by default
        "min-replicas": "1",  # 2 by default: a single pod would be left alone
        "in-place-skip-disruption-budget": "true",  # every pod at once, as resizes restart nothing
        # 12 h by default, in which a pod is left alone while its request lies between the bounds of the recommendation.
        "in-recommendation-bounds-eviction-lifetime-threshold": "0s",
        "feature-gates": "InPlace=true",
    },
    "admission-controller": {"feature-gates": "InPlace=true"},
}
_WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vpa-webhook-config"
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vpa-admission-controller"
_NODES = "/api/v1/nodes"
_USAGE = "/apis/metrics.k8s.io/v1beta1/nodes"


def install_metrics_server(cluster: KindCluster) -> None:
    """Build and load metrics-server, apply its manifests; returns when `kubectl top nodes` answers for every node."""
    _load(cluster, {"metrics-server": "metrics-server"})
    _roll_out(cluster, _metrics_server(cluster))
    _until(lambda: _measured(cluster.api), ANSWER_DEADLINE_S, "metrics-server has measured every node")


def install_vpa(cluster: KindCluster) -> None:
    """Build and load VPA's three parts, apply their manifests; returns when its webhook is registered. Needs metrics-server."""
    _load(cluster, {f"vpa-{part}": part for part in VPA_PARTS})
    certificates = webhook_certificates()
    _roll_out(cluster, [*_vpa(cluster), certificates])
    authority = base64.b64encode(certificates["stringData"]["caCert.pem"].encode()).decode()
    _until(lambda: _registered(cluster.api, authority), ANSWER_DEADLINE_S, "VPA has registered its webhook")


def remove_metrics_server(cluster: KindCluster) -> None:
    """Take away what `install_metrics_server` applied."""
    _delete(cluster, _metrics_server(cluster))


def remove_vpa(cluster: KindCluster) -> None:
    """Take away what `install_vpa` applied, with every VerticalPodAutoscaler, and what VPA itself wrote."""
    _delete(cluster, _vpa(cluster))
    for path in (f"/api/v1/namespaces/{NAMESPACE}/secrets/vpa-tls-certs", _WEBHOOK, _LEASE):
        try:
            cluster.api.delete(path)
        except RequestRefused as error:
            if error.status != 404:
                raise


def wait_for_recommendation(api: ApiClient, namespace: str, name: str, deadline_s: float = ANSWER_DEADLINE_S) -> dict[str, str]:
    """Wait until the recommender has something to say of a VerticalPodAutoscaler; container → CPU."""
    path = f"{VPA_PATH.format(namespace)}/{name}"
    _until(lambda: recommended_cpu(api.get(path)), deadline_s, f"VPA recommends for {namespace}/{name}")
    return recommended_cpu(api.get(path))


def adapted(documents: Documents, flags: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Upstream's manifests with our images and flags in the containers that `flags` names."""
    made: list[dict[str, Any]] = []
    for document in documents:
        if document["kind"] != "Deployment":
            made.append(dict(document))
            continue
        pod = document["spec"]["template"]["spec"]
        containers = [
            container
            if (name := container["name"]) not in flags
            else {**container, "image": image(name), "args": with_flags(container.get("args", ()), flags[name])}
            for container in pod["containers"]
        ]
        template = {**document["spec"]["template"], "spec": {**pod, "containers": containers}}
        made.append({**document, "spec": {**document["spec"], "template": template}})
    return made


def with_flags(arguments: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The arguments, where these flags replace those of the same name."""
    kept = [each for each in arguments if each.removeprefix("--").partition("=")[0] not in flags]
    return kept + [f"--{name}={value}" for name, value in flags.items()]


def image(container: str) -> str:
    """The name of the image we make for a peer's container."""
    return f"localhost/tiphys/peer-{container}:kind"


def webhook_certificates() -> dict[str, Any]:
    """The Secret that VPA's admission controller serves with: an authority made for it, and a certificate of its Service."""
    with tempfile.TemporaryDirectory(prefix="tiphys-") as scratch:
        authority = make_authority(Path(scratch), "ca", "tiphys-kind-vpa")
        service = f"vpa-webhook.{NAMESPACE}.svc"
        pair = authority.issue("server", service, server=True, names=(service,))
        files = {"caCert.pem": authority.cert, "serverCert.pem": pair.cert, "serverKey.pem": pair.key}
        content = {name: path.read_text(encoding="ascii") for name, path in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vpa-tls-certs", "namespace": NAMESPACE}, "stringData": content}


def _metrics_server(cluster: KindCluster) -> list[dict[str, Any]]:
    found = _upstream(cluster, "metrics-server", Path("manifests/base"))
    return adapted(found, {"metrics-server": METRICS_SERVER_FLAGS})


def _vpa(cluster: KindCluster) -> list[dict[str, Any]]:
    return adapted(_upstream(cluster, f"vpa-{VPA_PARTS[0]}", Path("deploy")), VPA_FLAGS)


def _upstream(cluster: KindCluster, program: str, directory: Path) -> list[dict[str, Any]]:
    """The manifests that lie beside the program's source."""
    source = module_source(cluster.toolbox, program) / directory
    documents = yaml.safe_load_all(cluster.kubectl("kustomize", str(source)))
    return [document for document in documents if document]


def _load(cluster: KindCluster, containers: Mapping[str, str]) -> None:
    programs = cluster.toolbox.ensure(containers)
    with tempfile.TemporaryDirectory(prefix="tiphys-kind-") as scratch:
        for name, container in containers.items():
            archive = Path(scratch) / f"{name}.tar"
            write_image(archive, [image(container)], Layer({f"/{container}": programs[name]}, (f"/{container}",)))
            cluster.load_image(archive)


def _roll_out(cluster: KindCluster, documents: Documents) -> None:
    cluster.apply(yaml.safe_dump_all(documents, sort_keys=False))
    for document in documents:
        if document["kind"] == "Deployment":
            name = f"deployment/{document['metadata']['name']}"
            cluster.kubectl("rollout", "status", "--namespace", NAMESPACE, name, f"--timeout={ROLLOUT_DEADLINE_S}s")


def _delete(cluster: KindCluster, documents: Documents) -> None:
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=yaml.safe_dump_all(documents, sort_keys=False))


def _measured(api: ApiClient) -> bool:
    names = {node["metadata"]["name"] for node in api.items(_NODES)}
    return names == {usage["metadata"]["name"] for usage in api.items(_USAGE)}


def _registered(api: ApiClient, authority: str) -> bool:
    return all(hook["clientConfig"].get("caBundle") == authority for hook in api.get(_WEBHOOK)["webhooks"])


def _until(condition: Callable[[], object], deadline_s: float, what: str) -> None:
    end = time.monotonic() + deadline_s
    while True:
        seen = ""
        try:
            if condition():
                return
        except RequestRefused as error:  # not served yet
            seen = f": {error}"
        if time.monotonic() > end:
            raise ClusterError(f"not within {deadline_s:.0f} s: {what}{seen}")
        time.sleep(0.5)

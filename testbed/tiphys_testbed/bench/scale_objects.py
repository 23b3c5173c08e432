"""Nodes, pods and workloads of a large made-up cluster, as an API server keeps them: the same number gives the same object to the byte.

A pod has what admission and a kubelet add (managed fields, token volume, conditions, container statuses): 3.5 kB and more. A node names
the 50 images that a kubelet reports, each by digest and tag: 15 kB and more.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

NAMESPACES = 50
NODE_IMAGES = 50
"""Images in a node's status; a kubelet reports that many by default."""
SCHEDULER = "tiphys"
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
_CREATED, _SCHEDULED, _READY = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z"
_KNUTH = 2_654_435_761


class Made(NamedTuple):
    """An object as it is stored."""

    namespace: str
    name: str
    body: bytes
    fields: Mapping[str, str]
    """What field selectors may ask for."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many of everything."""

    nodes: int
    workloads: int
    pods: int
    jobs: int
    """Finished ones, each with the pod that it ran."""

    def node(self, index: int) -> Made:
        """The node with this index."""
        name = f"node-{index:05d}"
        return Made("", name, orjson.dumps(_node(index, name)), {"metadata.name": name})

    def pod(self, index: int, phase: Phase = "Running") -> Made:
        """One pod of a Deployment; the workloads take turns."""
        workload = index % max(self.workloads, 1)
        name = f"workload-{workload:05d}-7d9c5b6f4d-{index:06d}"
        owner = ("ReplicaSet", f"workload-{workload:05d}-7d9c5b6f4d", f"workload-{workload:05d}")
        return self._pod(index, name, workload, owner, phase)

    def job_pod(self, index: int, phase: Phase = "Succeeded") -> Made:
        """The pod of one Job."""
        return self._pod(10**9 + index, f"job-{index:06d}-x7k2p", index, ("Job", f"job-{index:06d}", f"image-{index % 200:03d}"), phase)

    def _pod(self, number: int, name: str, workload: int, owner: tuple[str, str, str], phase: Phase) -> Made:
        namespace = f"team-{workload % NAMESPACES:02d}"
        node = "" if phase == "Pending" or not self.nodes else f"node-{number * _KNUTH % 2**32 % self.nodes:05d}"
        body = orjson.dumps(_pod(number, name, namespace, node, owner, phase))
        fields = {"metadata.name": name, "metadata.namespace": namespace, "spec.nodeName": node, "status.phase": phase}
        return Made(namespace, name, body, fields)


def uid_of(*parts: object) -> str:
    """The uid of what these parts name."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(map(str, parts))))


def _node(index: int, name: str) -> dict[str, Any]:
    cores = (4, 8, 16, 32)[index % 4]
    images = [_node_image(index, number) for number in range(NODE_IMAGES)]
    amounts = {
        "cpu": f"{cores * 1000 - 80}m",
        "memory": f"{cores * 4 * 2**20 - 700_000}Ki",
        "ephemeral-storage": "95551679124",
        "pods": "110",
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": _READY,
            "lastTransitionTime": _SCHEDULED,
            "reason": f"Kubelet{kind}",
            "message": "ok",
        }
        for kind, status in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True"))
    ]
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": f"standard-{cores}", "topology.kubernetes.io/zone": f"zone-{index % 3}",
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": uid_of("node", index),
            "creationTimestamp": _CREATED,
            "labels": labels,
            "managedFields": _managed(6),
        },
        "spec": {"podCIDR": f"10.{index // 256 % 256}.{index % 256}.0/24", "providerID": f"made://zone-{index % 3}/{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images, "nodeInfo": _NODE_INFO},
    }


def _node_image(index: int, number: int) -> dict[str, Any]:
    """Images of a system that every node runs, and of the workloads that happened to land here."""
    what = number if number < 15 else (index * 37 + number * 101) % 2000 + 15
    digest = f"{what * _KNUTH % 2**64:016x}" * 4
    repository = f"registry.example.com/platform/service-{what:04d}"
    return {"names": [f"{repository}@sha256:{digest}", f"{repository}:v1.{what % 40}.0"], "sizeBytes": 40_000_000 + what * 10_000}


def _pod(number: int, name: str, namespace: str, node: str, owner: tuple[str, str, str], phase: Phase) -> dict[str, Any]:
    kind, owned_by, app = owner
    image = f"registry.example.com/platform/{app}:v1.0.0"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": name[:-6],
            "namespace": namespace,
            "uid": uid_of("pod", number),
            "creationTimestamp": _CREATED,
            "labels": {"app": app, "pod-template-hash": "7d9c5b6f4d", "team": namespace},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": owned_by, "uid": uid_of(kind, namespace, owned_by), "controller": True}
            ],
            "managedFields": _managed(3),
        },
        "spec": _pod_spec(node, kind, app, image),
        "status": _pod_status(number, phase, image),
    }


def _pod_spec(node: str, kind: str, app: str, image: str) -> dict[str, Any]:
    environment = [{"name": f"SETTING_{i:02d}", "value": f"value-of-setting-{i:02d}-of-{app}"} for i in range(12)]
    return {
        "nodeName": node,
        "schedulerName": SCHEDULER,
        "serviceAccountName": "default",
        "restartPolicy": "Never" if kind == "Job" else "Always",
        "dnsPolicy": "ClusterFirst",
        "priority": 0,
        "enableServiceLinks": True,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for what in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": _TOKEN_SOURCES}}],
        "containers": [
            {
                "name": "main",
                "image": image,
                "env": environment,
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
                "volumeMounts": [
                    {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
                ],
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
    }


def _pod_status(number: int, phase: Phase, image: str) -> dict[str, Any]:
    if phase == "Pending":
        return {"phase": phase, "qosClass": "Burstable"}
    ready = "True" if phase == "Running" else "False"
    kinds = (
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("PodScheduled", "True"),
        ("ContainersReady", ready),
        ("Ready", ready),
    )
    state = {"running": {"startedAt": _READY}}
    if phase != "Running":
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _READY, "finishedAt": "2026-01-01T00:01:00Z"}}  # type: ignore[dict-item]
    return {
        "phase": phase,
        "qosClass": "Burstable",
        "hostIP": f"192.168.{number % 250}.{number % 249}",
        "podIP": f"10.{number % 251}.{number % 241}.{number % 239}",
        "startTime": _SCHEDULED,
        "conditions": [
            {"type": kind, "status": status, "lastTransitionTime": _SCHEDULED if kind == "PodScheduled" else _READY}
            for kind, status in kinds
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": image,
                "imageID": f"{image.partition(':')[0]}@sha256:{'ab12' * 16}",
                "containerID": f"containerd://{number:064x}",
                "ready": phase == "Running",
                "restartCount": 0,
                "started": phase == "Running",
                "state": state,
            }
        ],
    }


def _managed(entries: int) -> list[dict[str, Any]]:
    names = ("f:metadata", "f:spec", "f:status", "f:conditions", "f:containers", "f:resources")
    fields: dict[str, Any] = {
        name: {f'k:{{"type":"{part}"}}': {".": {}, "f:lastProbeTime": {}, "f:type": {}} for part in ("Ready", "Initialized")}
        for name in names[:2]
    }
    return [
        {"manager": f"manager-{i}", "operation": "Update", "apiVersion": "v1", "time": _CREATED, "fieldsV1": fields} for i in range(entries)
    ]


_TOKEN_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
]
_NODE_INFO = {
    "kernelVersion": "6.8.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.34.0",
    "operatingSystem": "linux", "architecture": "amd64", "machineID": "m", "systemUUID": "s", "bootID": "b", "kubeProxyVersion": "v1.34.0",
}  # fmt: skip

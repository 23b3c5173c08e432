"""Nobody is stranded: what `unroute` removes, and whom it names."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tiphys_testbed.cluster.base import Cluster


def pod(name: str, scheduler: str, **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"schedulerName": scheduler, "containers": [container]}}


def test_unroute_removes_the_routing_policy_and_names_who_would_be_stranded(cluster: Cluster, namespace: str) -> None:
    name = f"routing-{namespace}"
    cluster.apply(ROUTING.replace("NAME", name))
    deployment = {
        "metadata": {"name": "still-ours"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod("x", "tiphys")["spec"]},
        },
    }
    cron = {
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"spec": {"template": {"spec": pod("x", "tiphys")["spec"] | {"restartPolicy": "Never"}}}},
        },
    }
    cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    cluster.api.create(f"/apis/batch/v1/namespaces/{namespace}/cronjobs", cron)
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("stranded", "tiphys"))
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("elsewhere", "nobody"))

    def run() -> str:
        command = [sys.executable, "-m", "tiphys_operator.unroute", "--routing-name", name]
        environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stderr

    told = run()
    assert f"removed MutatingAdmissionPolicyBinding {name}" in told
    assert f"removed MutatingAdmissionPolicy {name}" in told
    assert f"Deployment {namespace}/still-ours" in told
    assert f"CronJob {namespace}/nightly" in told
    assert f"Pod {namespace}/stranded" in told
    assert "elsewhere" not in told
    assert "ReplicaSet" not in told
    again = run()
    assert "removed" not in again
    assert name not in cluster.kubectl("get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--output=name")


ROUTING = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {tiphys.io/route: never-in-this-test}}
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{spec: Object.spec{schedulerName: "tiphys"}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
"""

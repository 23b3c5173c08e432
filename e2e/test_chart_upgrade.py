"""An upgrade from the chart of an earlier commit to this one and a rollback, with every kind in use: nothing written is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.rendering import CHART, helm

from e2e.conftest import exists, ready_nodes, wait_until
from e2e.test_chart_release import HELM_DEADLINE_S, process, run_helm, run_hook
from tiphys_cli.kube.api import ApiClient
from tiphys_models.api.resources import RESOURCES
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.pods import complete_pod

BEFORE = "bced70f8a4374f9f3277346d79bae6542aceb295"
"""The last commit of the chart without one store, one frame and a test bed of its own."""
ROOT = Path(__file__).parents[1]
GROUP = "/apis/tiphys.io/v1alpha1"

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok]


@pytest.fixture
def chart_before(tmp_path: Path) -> Path:
    """The old chart, as the repository had it."""
    packed = subprocess.run(["git", "archive", BEFORE, "helm/tiphys"], cwd=ROOT, capture_output=True, timeout=60, check=False)
    if packed.returncode:
        pytest.skip(f"this clone does not reach back to {BEFORE}: fetch its history")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=packed.stdout, timeout=60, check=True)
    return tmp_path / "helm" / "tiphys"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster of its own: CRDs of an older release must not meet tests of this one, nor the other way round."""
    with LocalCluster(LocalOptions(name=f"e2e-upgrade-{os.getpid()}", kubernetes=request.config.getoption("--kubernetes"))) as made:
        nodes = fleet(4)
        create_nodes(made.api, nodes)
        wait_until(lambda: {node.name for node in nodes} <= ready_nodes(made.api), 60, "simulated nodes Ready")
        yield made


@pytest.fixture(scope="module")
def api(cluster: LocalCluster) -> ApiClient:
    """Requests as the administrator."""
    return cluster.api


def in_use(home: str, shop: str) -> list[dict[str, Any]]:
    """Objects of every kind, as somebody with the old release would have them, in every mode that it had."""

    def own(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, "labels": {"team": "shop"}, "annotations": {"example.com/note": "keep me"}}
        return {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}

    select = {"by": "ucb", "among": ["cost-lean", "gobi", "least-connections"], "intervalSeconds": 10, "weights": {"cost": 2}}
    objective = {"latencyMilliseconds": 100, "percentile": 95, "attainmentPercent": 99}
    scaling = {
        "targetRef": {"kind": "Deployment", "name": "web"},
        "objective": objective,
        "horizontal": {"minReplicas": 1, "maxReplicas": 8},
    }
    variant = {"task": "detect", "model": "yolo", "site": "near", "accuracy": 40, "delayMs": 20, "profiledKb": 40, "capacityQps": 50}
    model = {"policy": "faasrank", "stage": "candidate", "weights": {"configMap": {"name": "mine-1"}}, "sha256": "0" * 64}
    slots = [{"function": f"{shop}/resize", "nodes": [{"node": "node-1", "slots": 2}]}]
    until = {"validUntil": "2030-01-01T00:00:00Z", "functions": slots}
    return [
        own("LearnedModel", "mine", home, {**model, "featureSchema": "faasrank-26/1"}),
        own("PlacementPlan", "choosing", shop, {"policyUid": "u", "policyGeneration": 1, "planner": "gobi", "interval": 7, **until}),
        own("SchedulingPolicy", "watching", shop, {"mode": "Shadow", "policy": "faasrank", "selector": {"matchLabels": {"tier": "a"}}}),
        own("SchedulingPolicy", "tenth", shop, {"mode": "Canary", "policy": "warm-first", "canary": {"percent": 10}}),
        own("SchedulingPolicy", "paper", shop, {"mode": "Active", "policy": "faasrank", "model": "faasrank-paper"}),
        own("SchedulingPolicy", "choosing", shop, {"mode": "Active", "select": select, "fallback": "greedy"}),
        own("ScalingPolicy", "web", shop, {**scaling, "mode": "Recommend", "agent": {"kind": "combined"}}),
        own("InferenceSite", "near", home, {"layer": "antenna", "access": True, "delays": [{"from": "near", "meanMs": 2, "sigmaMs": 0.5}]}),
        own("ModelVariant", "small", home, {**variant, "endpoint": {"url": "http://127.0.0.1:9"}, "cost": 0.2, "hardware": "cpu"}),
        own("StreamPolicy", "streams", home, {"accessSite": "near", "mode": "Active", "policy": "aset", "leaseSeconds": 10}),
    ]


STATUS = {
    "learnedmodels": {"observedGeneration": 1},
    "schedulingpolicies": {"observedGeneration": 1, "activePolicy": "gobi"},
    "scalingpolicies": {"observedGeneration": 1},
    "inferencesites": {"observedGeneration": 1},
    "modelvariants": {"observedGeneration": 1},
    "streampolicies": {"observedGeneration": 1},
}


def plural_of(kind: str) -> str:
    return next(resource.plural for resource in RESOURCES if resource.kind == kind)


def everything(api: ApiClient, home: str, shop: str) -> dict[str, Any]:
    """What people and the operator have written: objects by kind and name, and what the release keeps between versions."""
    found: dict[str, Any] = {}
    for resource in RESOURCES:
        for namespace in (home, shop):
            for item in api.items(f"{GROUP}/namespaces/{namespace}/{resource.plural}"):
                meta = item["metadata"]
                kept = {key: meta.get(key) for key in ("uid", "labels", "annotations")}
                found[f"{resource.kind}/{meta['name']}"] = {"metadata": kept, "spec": item["spec"], "status": item.get("status")}
    for name in ("tiphys-token", "tiphys-extender-account-1"):
        if exists(api, path := f"/api/v1/namespaces/{home}/secrets/{name}"):
            found[f"Secret/{name}"] = api.get(path)["data"]
    for name in ("tiphys-switch", "tiphys-models", "tiphys-selection"):
        if exists(api, path := f"/api/v1/namespaces/{home}/configmaps/{name}"):
            item = api.get(path)
            found[f"ConfigMap/{name}"] = {"data": item.get("data"), "binaryData": item.get("binaryData")}
    return found


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Where something that was there is gone or different; what has been added is no loss."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [line for key, value in before.items() for line in lost(value, after.get(key), f"{path}.{key}")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


def test_an_upgrade_from_the_chart_before_and_a_rollback_lose_nothing_of_any_kind(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    api: ApiClient,
    home: str,
    namespace: str,
    chart_before: Path,
    tmp_path: Path,
) -> None:
    request.addfinalizer(lambda: run_helm(cluster, "uninstall", "tiphys", "--namespace", home, "--ignore-not-found", "--no-hooks"))
    options = ("--namespace", home, "--wait", "--timeout", "60s")
    run_helm(cluster, "install", "tiphys", str(chart_before), *options, "--take-ownership")
    for item in in_use(home, namespace):
        collection = f"{GROUP}/namespaces/{item['metadata']['namespace']}/{plural_of(item['kind'])}"
        api.create(collection, item)
        if (status := STATUS.get(plural_of(item["kind"]))) is not None:
            api.patch(f"{collection}/{item['metadata']['name']}/status", {"status": status})
    cluster.kubectl("--namespace", home, "patch", "configmap", "tiphys-switch", "--type=merge", '--patch={"data":{"enabled":"false"}}')
    wait_until(lambda: "Secret/tiphys-token" in everything(api, home, namespace), 30, "the release has its token")
    before = everything(api, home, namespace)
    assert len([name for name in before if "/" in name and not name.startswith(("Secret", "ConfigMap"))]) == len(in_use(home, namespace))

    command = [str(helm()), "upgrade", "tiphys", str(CHART), *options, "--reset-then-reuse-values", "--take-ownership"]
    with process([*command, "--kubeconfig", str(cluster.kubeconfig)], {}, tmp_path / "upgrade.log") as upgrade:
        pod, said = run_hook(cluster, api, home, "weights-check")
        assert f"SchedulingPolicy {namespace}/paper needs faasrank-paper: `tiphys model ship faasrank-paper`" in said
        complete_pod(api, pod)
        assert upgrade.wait(HELM_DEADLINE_S) == 0, (tmp_path / "upgrade.log").read_text(encoding="utf-8")
    after = everything(api, home, namespace)
    assert lost(before, after) == []
    # What was valid stays valid: every object can be written again as it stands.
    for item in in_use(home, namespace):
        cluster.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump(item))

    run_helm(cluster, "rollback", "tiphys", "1", *options)
    back = everything(api, home, namespace)
    assert lost(before, back) == []
    assert exists(api, f"/apis/apps/v1/namespaces/{home}/deployments/tiphys-operator")

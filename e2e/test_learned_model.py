"""LearnedModels on the real API server: extender and operator under the chart's rights, answers by digest, nothing restarted."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import yaml
from tests.chart.rendering import render
from tests.models.test_learned_model import BAD_SPECS, GOOD
from typer.testing import CliRunner

from e2e.conftest import wait_until
from e2e.live import Inputs, make_inputs
from e2e.operators import OperatorProcess, grant
from e2e.policies import GROUP_PATH, condition, create_policy, install_crd, policies_path
from tiphys_cli.app import app
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.support.extenders import DirectDoor
from tiphys_models.artifacts.files import card_of
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.snapshot import read_snapshot, write_snapshot
from tiphys_testbed.bench.service import Extender, ExtenderOptions, fetch
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import delete_nodes

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

REACTION_S = 30.0
PROFILED = "f"
"""The function that runtimes report: the shipped model judges no other."""
FAASRANK, PAPER = (load_network(card_of(name)).card.sha256 for name in ("faasrank", "faasrank-paper"))


def models_path(namespace: str, name: str = "") -> str:
    return f"{GROUP_PATH}/namespaces/{namespace}/learnedmodels" + (f"/{name}" if name else "")


@pytest.fixture(scope="module", autouse=True)
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    install_crd(local)
    made = make_inputs(local, 6, "models")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


@dataclass
class Release:
    """Operator and extender of a namespace of their own, with exactly the rights that the chart renders."""

    cluster: LocalCluster
    namespace: str
    tenant: str
    inputs: Inputs
    extender: Extender
    asked: int = 0

    @property
    def api(self) -> ApiClient:
        return self.cluster.api

    def ask(self, function: str = PROFILED) -> dict[str, Any]:
        """The record of one more decision."""
        self.asked += 1
        uid = f"{self.tenant}-{self.asked}"
        metadata = {"name": uid, "namespace": self.tenant, "uid": uid, "labels": {FUNCTION_LABEL: function}}
        pod = {"metadata": metadata, "spec": {"schedulerName": "tiphys", "containers": []}}
        body = {"Pod": pod, "Nodes": None, "NodeNames": [node.name for node in self.inputs.nodes]}
        post(f"{self.extender.url}/prioritize", orjson.dumps(body))
        status, answer = DirectDoor(self.extender.explain_url).ask("/v1/explain", uid=uid)
        assert status == 200, answer
        return dict(answer)

    def answers_by(self, digest: str) -> bool:
        record = self.ask()
        return (record["outcome"], record.get("modelDigest")) == ("scored", digest)

    def falls_back(self) -> bool:
        record = self.ask()
        return (record["outcome"], record["reason"]) == ("fallback", "model-missing")

    def publish(self, card: str, *options: str, kubeconfig: Path | None = None) -> None:
        access = str(kubeconfig or self.cluster.kubeconfig)
        arguments = ["model", "publish", str(card_of(card.removesuffix(".json"))), "--namespace", self.namespace, "--kubeconfig", access]
        result = CliRunner().invoke(app, [*arguments, *options])
        assert result.exit_code == 0, result.stderr

    def patch(self, name: str, spec: dict[str, Any]) -> None:
        self.api.request("PATCH", models_path(self.namespace, name), {"spec": spec}, content_type="application/merge-patch+json")

    def model(self, name: str = "mine") -> dict[str, Any]:
        return self.api.get(models_path(self.namespace, name))

    def policy(self) -> dict[str, Any]:
        return self.api.get(policies_path(self.tenant, "p"))

    def until(self, kind: str, reason: str, of: str = "model", name: str = "mine") -> None:
        def found() -> dict[str, Any]:
            return self.model(name) if of == "model" else self.policy()

        try:
            wait_until(lambda: condition(found(), kind).get("reason") == reason, REACTION_S, f"{of}: {kind} {reason}")
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure}; it is {found().get('status')}; the extender: {self.extender.process.log_tail()}")

    def events(self) -> set[str]:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/events", fieldSelector="involvedObject.kind=LearnedModel")
        return {event["reason"] for event in found}


def post(url: str, body: bytes) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    try:
        connection.request("POST", parts.path, body, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
    finally:
        connection.close()


def with_profile(readings: Path, function: str, directory: Path) -> Path:
    """The same readings, in which one more function has a profile."""
    snapshot = read_snapshot(readings)
    written = directory / "readings.json"
    write_snapshot(replace(snapshot, profiles={**snapshot.profiles, function: next(iter(snapshot.profiles.values()))}), written)
    return written


@pytest.fixture
def release(local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path) -> Iterator[Release]:
    own, rendered = f"{namespace}-sys", render()
    local.api.create("/api/v1/namespaces", {"metadata": {"name": own}})

    def rules(kind: str, part: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = rendered.one(kind, f"tiphys-{part}")["rules"]
        return found

    operator_access = grant(local, own, rules("ClusterRole", "operator"))
    extender_access = grant_chart(local, own, "tiphys-extender", rules("Role", "extender"), rules("ClusterRole", "extender"))
    # the marked deadline is for a busy machine: what is asked here is who answers, not how fast
    settings = {"TOKEN_FILE": str(inputs.token_file), "READINGS_INTERVAL_S": "1", "DEADLINE_MS": "2000"}
    readings = with_profile(inputs.readings, f"{namespace}/{PROFILED}", tmp_path)
    options = ExtenderOptions(
        name=f"extender-{namespace}", kubeconfig=extender_access, readings_file=readings, own_namespace=own, settings=settings
    )
    extender = Extender.start(local.processes, options)
    watched = {"EXTENDER_URL": extender.status_url, "TOKEN_FILE": str(inputs.token_file), "RESYNC_S": "1"}
    try:
        extender.wait_ready()
        known = len(local.api.items("/api/v1/nodes"))  # nodes of tests before this one have no readings
        extender.wait_covered(0.9 * len(inputs.nodes) / known)
        with OperatorProcess(operator_access, own, tmp_path / "operator.log", settings=watched) as operator:
            yield Release(local, own, namespace, inputs, extender)
            assert operator.metric('tiphys_operator_reconciles_total{result="error"}') <= 1
            assert extender.process.alive()
    finally:
        extender.stop()
        for part in ("operator", "extender"):
            for kind in ("clusterrole", "clusterrolebinding"):
                local.kubectl("delete", kind, f"tiphys-{part}-{own}", "--ignore-not-found")
        local.api.delete(f"/api/v1/namespaces/{own}")


def grant_chart(
    cluster: LocalCluster, namespace: str, account: str, rules: list[dict[str, Any]], cluster_rules: list[dict[str, Any]] | None = None
) -> Path:
    """A ServiceAccount with these rules of the chart; its kubeconfig."""
    kind = "rbac.authorization.k8s.io/v1"
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}]
    for scope, metadata, granted in (
        ("ClusterRole", {"name": f"{account}-{namespace}"}, cluster_rules or []),
        ("Role", {"name": account, "namespace": namespace}, rules),
    ):
        if not granted:
            continue
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": scope, "name": metadata["name"]}
        objects.append({"apiVersion": kind, "kind": scope, "metadata": metadata, "rules": granted})
        objects.append({"apiVersion": kind, "kind": f"{scope}Binding", "metadata": metadata, "subjects": subjects, "roleRef": reference})
    cluster.apply(yaml.safe_dump_all(objects))
    return cluster.kubeconfig_for(account, namespace)


def test_a_model_is_published_broken_and_deleted_and_every_answer_says_by_whom(release: Release) -> None:
    create_policy(release.api, "p", release.tenant, mode="Active", policy="faasrank", model="mine", fallback="greedy")
    wait_until(release.falls_back, REACTION_S, "the fallback answers while there is no model")
    release.until("ModelLoaded", "ModelMissing", of="policy")

    release.publish("faasrank.json", "--name", "mine", "--stage", "active")
    wait_until(lambda: release.answers_by(FAASRANK), REACTION_S, "answers by the published digest")
    release.until("Loaded", "Loaded")
    release.until("ModelLoaded", "ModelLoaded", of="policy")
    assert condition(release.model(), "Accepted")["status"] == "True"
    assert release.model()["status"]["servedDigest"] == FAASRANK
    assert (release.policy()["status"]["activePolicy"], release.policy()["status"]["modelDigest"]) == ("faasrank", FAASRANK)

    release.patch("mine", {"sha256": "0" * 64})
    release.until("Accepted", "DigestMismatch")
    release.until("Loaded", "LastGood")
    release.until("ModelLoaded", "ModelRefused", of="policy")
    assert release.answers_by(FAASRANK)
    assert condition(release.policy(), "Ready")["status"] == "True", "the last good one decides"
    assert release.policy()["status"]["modelDigest"] == FAASRANK
    assert release.extender.metrics().total("tiphys_extender_model_load_failures_total", reason="DigestMismatch") == 1

    release.publish("faasrank-paper.json", "--name", "mine", "--stage", "active")
    wait_until(lambda: release.answers_by(PAPER), REACTION_S, "answers by the next version")
    release.until("Accepted", "Accepted")
    wait_until(lambda: {"Accepted", "Loaded", "DigestMismatch"} <= release.events(), 5, "Events of the model")

    release.api.delete(models_path(release.namespace, "mine"))
    wait_until(release.falls_back, REACTION_S, "the fallback answers after the model was deleted")
    release.until("ModelLoaded", "ModelMissing", of="policy")
    release.until("Ready", "DegradedToFallback", of="policy")
    assert release.policy()["status"]["activePolicy"] == "greedy"


def test_a_stage_decides_whom_a_new_version_serves_under_the_name_of_the_shipped_one(release: Release) -> None:
    create_policy(release.api, "p", release.tenant, mode="Active", policy="faasrank")
    wait_until(lambda: release.answers_by(FAASRANK), REACTION_S, "the shipped model answers without any file")
    unknown = release.ask("reported-by-nobody")
    assert (unknown["outcome"], unknown["reason"]) == ("fallback", "function-without-profile")
    release.publish("faasrank-paper.json", "--name", "faasrank")
    release.until("Loaded", "Candidate", name="faasrank")
    assert release.answers_by(FAASRANK)
    release.patch("faasrank", {"stage": "active"})
    wait_until(lambda: release.answers_by(PAPER), REACTION_S, "the new version answers at stage active")
    release.until("Loaded", "Loaded", name="faasrank")
    release.patch("faasrank", {"stage": "retired"})
    wait_until(lambda: release.answers_by(FAASRANK), REACTION_S, "the shipped model answers again")
    release.until("Loaded", "Retired", name="faasrank")
    wait_until(lambda: "StageChanged" in release.events(), 5, "Event of the stage")
    arguments = ["model", "list", "--json", "--namespace", release.namespace, "--kubeconfig", str(release.cluster.kubeconfig)]
    (row,) = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert (row["name"], row["stage"], row["accepted"], row["reason"], row["sha256"]) == ("faasrank", "retired", "True", "Retired", PAPER)


def test_a_model_in_a_tenants_namespace_serves_nobody_and_says_so(release: Release) -> None:
    body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "LearnedModel", "metadata": {"name": "mine"}, "spec": GOOD | {"stage": "active"}}
    release.api.create(models_path(release.tenant), body)

    def reason() -> str:
        return str(condition(release.api.get(models_path(release.tenant, "mine")), "Accepted").get("reason"))

    wait_until(lambda: reason() == "WrongNamespace", REACTION_S, "WrongNamespace")
    status, described = fetch(
        f"{release.extender.status_url}/v1/models", 5.0, {"Authorization": f"Bearer {release.inputs.token_file.read_text()}"}
    )
    assert status == 200
    assert {item["source"] for item in orjson.loads(described)["items"]} == {"shipped"}


def test_the_trainers_rights_are_enough_to_publish_its_model_and_for_nothing_else(release: Release) -> None:
    rules = render({"trainer": {"enabled": True, "modelName": "mine"}}).one("Role", "tiphys-trainer")["rules"]
    kubeconfig = grant_chart(release.cluster, release.namespace, "tiphys-trainer", rules)
    for card in ("faasrank-paper.json", "faasrank.json", "faasrank.json"):
        release.publish(card, "--name", "mine", kubeconfig=kubeconfig)
    release.until("Loaded", "Candidate")
    assert release.model()["spec"]["sha256"] == FAASRANK
    config_maps = f"/api/v1/namespaces/{release.namespace}/configmaps"
    published = f"{config_maps}/{release.model()['spec']['weights']['configMap']['name']}"
    forbidden = [
        ("GET", published),
        ("PATCH", published),
        ("DELETE", published),
        ("PATCH", models_path(release.namespace, "other")),
        ("DELETE", models_path(release.namespace, "mine")),
        ("GET", f"/api/v1/namespaces/{release.namespace}/secrets"),
    ]
    with ApiClient.from_kubeconfig(kubeconfig) as trainer:
        for method, path in forbidden:
            with pytest.raises(RequestRefused) as refused:
                trainer.request(method, path, {} if method == "PATCH" else None, content_type="application/merge-patch+json")
            assert refused.value.status == 403, f"{method} {path}"


@pytest.mark.parametrize("name", BAD_SPECS)
def test_the_server_refuses_what_the_model_refuses(local: LocalCluster, name: str) -> None:
    body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "LearnedModel", "metadata": {"name": "bad"}, "spec": BAD_SPECS[name][0]}
    with pytest.raises(RequestRefused) as refused:
        local.api.request("POST", models_path("default"), body, query={"dryRun": "All"})
    assert refused.value.status == 422


def test_the_server_fills_in_defaults_and_refuses_a_name_that_no_policy_could_give(local: LocalCluster) -> None:
    body: dict[str, Any] = {"apiVersion": "tiphys.io/v1alpha1", "kind": "LearnedModel", "metadata": {"name": "good"}, "spec": GOOD}
    stored = local.api.request("POST", models_path("default"), body, query={"dryRun": "All"})
    source = {"name": "m-1", "key": "weights.safetensors", "cardKey": "card.json"}
    assert stored["spec"] == GOOD | {"stage": "candidate", "weights": {"configMap": source}}
    body["metadata"]["name"] = "x" * 64
    with pytest.raises(RequestRefused, match="at most 63"):
        local.api.request("POST", models_path("default"), body, query={"dryRun": "All"})
    assert "learnedmodels" in local.kubectl("api-resources", "--categories=tiphys", "--output=name")
    assert "candidate" in local.kubectl("explain", "lm.spec.stage")

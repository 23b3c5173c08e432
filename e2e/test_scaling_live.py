"""ScalingPolicies on the real API server with the chart's rights: recommend, act, hold, yield, and survive every death in between."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chart.rendering import render
from tests.publications import write_agent
from typer.testing import CliRunner

from e2e.conftest import ready_nodes, wait_until
from e2e.operators import OperatorProcess, grant
from e2e.policies import install_crd
from e2e.scaled import GROUP, CountedService, Proxy, Workload
from e2e.scaling_scene import REACTION_S, Scene
from tiphys_cli.app import app
from tiphys_cli.train.transitions import pull
from tiphys_models.scaling.learned import moves_of
from tiphys_models.seats.shares import block_of
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import B8MS, create_nodes, delete_nodes, fleet
from tiphys_testbed.cluster.options import PrometheusOptions, ScrapeJob

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(240)]

POOL = "scaling"
BLIND = {"requestCpuMicroseconds": 2000}
AT_ONCE = {"scaleUp": {"tolerancePercent": 0}, "scaleDown": {"stabilizationWindowSeconds": 0, "tolerancePercent": 0}}


@pytest.fixture(scope="module", autouse=True)
def nodes(local: LocalCluster) -> Iterator[None]:
    install_crd(local)
    made = fleet(2, pool=POOL, machines=(B8MS,))
    create_nodes(local.api, made)
    names = {node.name for node in made}
    wait_until(lambda: names <= ready_nodes(local.api), 90, "simulated nodes Ready", poll_s=1.0)
    yield
    delete_nodes(local.api, list(names))


@pytest.fixture
def scene(local: LocalCluster, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    own, rendered = f"{namespace}-sys", render()
    local.api.create("/api/v1/namespaces", {"metadata": {"name": own}})
    rules = [rendered.one(kind, "tiphys-operator")["rules"] for kind in ("ClusterRole", "Role")]
    access = grant(local, own, rules[0], rules[1])
    web = Workload(local.api, namespace)
    with CountedService(local.api, namespace, web.name) as service:
        name = f"prometheus-{namespace}"
        url = local.start_prometheus(PrometheusOptions(jobs=(ScrapeJob("web", service.url),), scrape_interval_s=1.0, name=name))
        try:
            token = tmp_path / "token"
            token.write_text("secret")
            yield Scene(web, service, own, access, url, tmp_path, local.kubeconfig, token)
        finally:
            local.stop_process(name)
            local.api.delete(f"/api/v1/namespaces/{own}")


def test_recommend_changes_nothing_active_acts_in_place_and_without_metrics_it_holds(scene: Scene) -> None:
    web, service = scene.web, scene.service
    web.create(1, POOL)
    service.rate = 20.0
    with scene.operator() as operator:
        web.create_policy("Recommend")
        scene.until(lambda: web.status().get("memory", {}).get("requestCpuMicroseconds"), "what CPU a request takes is measured")
        assert 1500 < web.status()["memory"]["requestCpuMicroseconds"] < 2500
        service.rate = 300.0  # takes 600m; there are 100m
        enough = lambda: (size := web.decision().get("applied")) and size["replicas"] * size["cpuMilli"] >= 600  # noqa: E731 - named for the wait
        scene.until(enough, "a recommendation of enough CPU for the load")
        decision = web.decision()
        assert (decision["phase"], decision["from"]) == ("Recommended", {"replicas": 1, "cpuMilli": 100})
        assert decision["window"]["good"] < decision["window"]["requests"]
        assert {"wanted", "clamped", "stateDigest", "message"} <= decision.keys()
        assert web.condition("Ready") == ("True", "Recommending")
        assert (web.replicas(), web.limits()) == (1, [100])

        (before,) = web.pods().values()
        web.change_policy(mode="Active")
        scene.until(lambda: sum(web.limits()) >= 600 and web.decision()["phase"] == "Done", "enough CPU for the load")
        after = web.pods()[before["metadata"]["uid"]]
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0
        assert after["spec"]["containers"][0]["resources"]["limits"]["cpu"] != "100m"
        scene.until(
            lambda: len(set(web.limits())) == 1 and len(web.limits()) == web.replicas(), "pods that start later are brought to size"
        )
        requests = [p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in web.pods().values()]
        assert set(requests) == {f"{web.limits()[0] // 2}m"}
        scene.until(lambda: web.decision()["window"]["good"] == web.decision()["window"]["requests"], "the objective is kept")
        assert web.condition("Ready") == ("True", "Active")

        service.silent = True
        service.rate = 1.0
        scene.until(lambda: web.condition("MetricsAvailable")[0] == "False", "missing samples are noticed")
        assert web.decision()["phase"] == "Held"
        held = (web.replicas(), web.limits())
        time.sleep(6)
        assert (web.replicas(), web.limits()) == held
        assert operator.metric('tiphys_operator_scaling_holds_total{reason="SamplesStale"}') >= 1
        assert operator.metric('tiphys_operator_scaling_steps_total{dimension="cpu",direction="up"}') >= 1
        events = web.api.items(f"/api/v1/namespaces/{web.namespace}/events", fieldSelector="involvedObject.kind=ScalingPolicy")
        assert {"Recommending", "Active", "Scaled"} <= {event["reason"] for event in events}


def test_a_canary_gives_agent_and_rule_turns_by_blocks_and_both_are_recorded(scene: Scene) -> None:
    web, service = scene.web, scene.service
    web.create(1, POOL)
    service.rate = 60.0
    blocks = {"percent": 50, "blockWindows": 2, "washOutWindows": 0}
    with scene.operator() as operator:
        web.create_policy("Canary", canary=blocks, agent={"kind": "combined", **BLIND})
        told: dict[str, str] = {}

        def both() -> bool:
            decision = web.decision()
            if decision.get("outcome"):
                told[decision["group"]] = decision["agent"]
            return set(told) == {"treated", "control"}

        scene.until(both, "both groups have decided", 150.0)
        assert told == {"treated": "combined", "control": "rule"}
        assert web.condition("Ready") == ("True", "Canary")
        assert web.decision()["phase"] in ("Done", "Intended")

        def counted() -> dict[str, Any]:
            return dict(web.status().get("comparison") or {})

        scene.until(lambda: all(counted().get(g, {}).get("ended", 0) >= 1 for g in told), "windows of both groups are compared", 90.0)
        assert counted()["result"] in ("TooEarly", "NoDifferenceFound", "Better", "Worse")

        uid = web.api.get(web.policy_path)["metadata"]["uid"]
        page = _decisions(operator, "/decisions?after=0&limit=1000")
        assert operator.get("/decisions")[0] == 401
        mine = [item for item in page["items"] if (item["kind"], item["namespace"]) == ("ScalingPolicy", web.namespace)]
        for item in mine:
            block = block_of(uid, item["detail"]["block"] * 10.0, 10.0, 0.0, 50)
            assert (item["group"], item["by"]) == (("treated", "combined") if block.obeys else ("control", "rule"))
            assert item["would"]
        assert {item["group"] for item in mine} == {"treated", "control"}
        assert any(item["ended"].startswith("objective") for item in mine)
        explained = _decisions(operator, f"/explain/ScalingPolicy/{web.namespace}/{web.name}")["items"]
        assert {item["seq"] for item in mine} <= {item["seq"] for item in explained}

        web.change_policy(mode="Shadow", canary=None)
        scene.until(lambda: web.condition("Ready") == ("True", "Recommending"), "Shadow changes nothing")
        held = (web.replicas(), web.limits())
        service.rate = 300.0

        def grown() -> bool:
            size = web.decision().get("applied") or {}
            return bool(size) and size["replicas"] * size["cpuMilli"] >= 600

        scene.until(grown, "the agent would grow")
        assert (web.replicas(), web.limits()) == held
        assert web.decision()["would"]["cpuMilli"] > 0


def _decisions(operator: OperatorProcess, path: str) -> dict[str, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{operator.port}{path}", headers={"Authorization": "Bearer secret"})
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
        return dict(json.loads(answer.read()))


def test_a_jump_is_met_in_place_between_two_windows(scene: Scene) -> None:
    web = scene.web
    web.create(1, POOL)
    scene.service.rate = 20.0
    with scene.operator() as operator:
        web.create_policy("Recommend", agent=BLIND)
        scene.until(lambda: web.decision().get("phase") == "Recommended", "there are samples")
        web.change_policy(mode="Active", intervalSeconds=120)
        scene.until(lambda: web.decision().get("phase") == "Done", "a window has passed, the next one ends in two minutes")
        number = web.decision()["number"]
        (before,) = web.pods()
        scene.service.rate = 150.0  # takes 300m
        scene.until(lambda: sum(web.limits()) > 200, "much more CPU long before the window is over")
        scene.until(lambda: web.decision()["phase"] == "Done", "what was done is written down")
        decision = web.decision()
        assert (decision["number"], decision["agent"], decision["reasons"][0]) == (number + 1, "raise", "Backlog")
        assert (list(web.pods()), web.replicas()) == ([before], 1), "resized, not replaced"
        assert operator.metric('tiphys_operator_scaling_raises_total{result="done"}') == 1


def test_beside_an_hpa_it_only_recommends_and_says_so(scene: Scene) -> None:
    web = scene.web
    web.create(1, POOL)
    scene.service.rate = 300.0
    hpas = f"/apis/autoscaling/v2/namespaces/{web.namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": web.name}
    web.api.create(hpas, {"metadata": {"name": "theirs"}, "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}})
    with scene.operator() as operator:
        web.create_policy("Active", agent=BLIND)
        scene.until(lambda: web.condition("Conflict") == ("True", "OwnedByHorizontalPodAutoscaler"), "the conflict is seen")
        scene.until(lambda: web.decision().get("phase") == "Recommended", "it recommends")
        scene.windows_pass(operator)
        assert web.decision()["phase"] == "Recommended", "it goes on recommending"
        assert (web.replicas(), web.limits(), web.generation()) == (1, [100], 1)
        web.api.delete(f"{hpas}/theirs")
        scene.until(lambda: sum(web.limits()) >= 600, "it acts once the other is gone")
        assert web.condition("Conflict") == ("False", "NoConflict")


def test_a_used_up_quota_masks_growth_and_is_not_run_against_for_ever(scene: Scene) -> None:
    web = scene.web
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"limits.cpu": "150m"}}}
    web.api.create(f"/api/v1/namespaces/{web.namespace}/resourcequotas", quota)
    path = f"/api/v1/namespaces/{web.namespace}/resourcequotas/full"
    wait_until(lambda: web.api.get(path).get("status", {}).get("used") is not None, 30, "the quota is counted")
    web.create(1, POOL)
    wait_until(lambda: web.limits() == [100], 30, "the pod runs")
    scene.service.rate = 300.0
    with scene.operator() as operator:
        web.create_policy("Active", agent=BLIND)
        scene.until(lambda: any("Quota" in said for said in web.decision().get("masked", ())), "the quota is seen")
        scene.until(lambda: web.limits() == [150], "what the quota allows is used")
        scene.windows_pass(operator)
        assert web.condition("Limited") == ("True", "ByMask")
        # one scale-up that the quota would refuse would raise the generation and leave FailedCreate events
        assert (web.replicas(), web.generation(), web.limits()) == (1, 1, [150])
        failed = web.api.items(f"/api/v1/namespaces/{web.namespace}/events", fieldSelector="reason=FailedCreate")
        assert failed == []
        assert operator.metric('tiphys_operator_scaling_resizes_total{result="refused"}') == 0


def test_a_size_that_a_node_never_gives_is_taken_back_and_not_asked_for_again(scene: Scene) -> None:
    web = scene.web
    # its kubelet is played here
    web.create(1, POOL, annotations={"tiphys.io/simulated-resize": "by-the-test"})
    scene.service.rate = 20.0
    wait_until(lambda: web.limits() == [100], 30, "the pod runs")

    def asked() -> str:
        (pod,) = web.pods().values()
        return str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])

    with scene.operator() as operator:
        web.create_policy("Active", agent=BLIND, **_exactly(1, 200))
        scene.until(lambda: asked() == "200m", "the resize is asked for")
        (pod,) = web.pods().values()
        web.set_pod_condition(pod, "PodResizePending", "True", "Infeasible")
        scene.until(lambda: asked() == "100m", "it is taken back")
        web.set_pod_condition(pod, "PodResizePending", "False", "")
        scene.until(lambda: web.status()["memory"]["blocked"], "it is masked")
        scene.windows_pass(operator)
        assert asked() == "100m"
        assert "cpu-up: NodeCapacity" in web.decision()["masked"]
        assert web.condition("Limited") == ("True", "ByMask")


def _publish(scene: Scene, action: str, directory: Path) -> str:
    """A `combined` agent that finds one action best, as LearnedModel `mine`; its digest."""
    directory.mkdir()
    card = write_agent(directory, moves_of("combined").actions.index(action))
    arguments = ["model", "publish", str(card), "--name", "mine", "--stage", "active", "--namespace", scene.own]
    result = CliRunner().invoke(app, [*arguments, "--kubeconfig", str(scene.admin)])
    assert result.exit_code == 0, result.stderr
    return str(json.loads(card.read_text())["sha256"])


def _published(scene: Scene) -> list[dict[str, Any]]:
    """Conditions of the LearnedModel."""
    found = scene.web.api.get(f"{GROUP}/namespaces/{scene.own}/learnedmodels/mine")
    return list((found.get("status") or {}).get("conditions") or ())


def test_a_published_agent_decides_teaches_is_rolled_back_and_replaced_without_a_restart(scene: Scene, tmp_path: Path) -> None:
    web = scene.web
    web.create(1, POOL)
    scene.service.rate = 60.0  # takes 120m; three times what the rule buys is 400m
    wait_until(lambda: web.limits() == [100], 30, "the pod runs")
    wasteful = _publish(scene, "rule x 3", tmp_path / "wasteful")
    agent = BLIND | {"kind": "combined", "model": "mine", "learning": "Collect", "rollback": {"windows": 4, "marginPercent": 5}}
    with scene.operator() as operator:
        web.create_policy("Active", agent=agent)
        scene.until(lambda: web.condition("ModelLoaded") == ("True", "ModelLoaded"), "the model is taken")
        assert web.status()["agent"]["digest"] == wasteful
        sound = {("Accepted", "True"), ("Loaded", "True")}
        scene.until(lambda: {(c["type"], c["status"]) for c in _published(scene)} == sound, "it says so")
        scene.until(lambda: web.condition("RolledBack") == ("True", "WorseThanRule"), "the rule takes over from an agent that wastes")
        assert (web.decision()["agent"], web.decision().get("modelDigest", "")) == ("rule", "")
        scene.until(lambda: operator.metric("tiphys_operator_scaling_rolled_back") == 1, "it is counted")
        assert operator.metric("tiphys_operator_scaling_rollbacks_total") == 1

        assert operator.get("/v1/scaling/transitions")[0] == 401
        url = f"http://127.0.0.1:{operator.port}"
        key, replay = f"{web.namespace}/{web.name}", tmp_path / "replay"
        both = {wasteful, ""}
        scene.until(
            lambda: {t.digest for t in pull(url, scene.token, key, replay).transitions} == both, "agent's and rule's steps are served"
        )
        steps = pull(url, scene.token, key, replay).transitions
        first = next(t for t in steps if t.digest == wasteful)
        assert moves_of("combined").actions[first.wanted] == "rule x 3"
        assert sorted({t.number for t in steps}) == sorted(t.number for t in steps), "each once, however often it was read"

        level = _publish(scene, "rule x 1", tmp_path / "level")
        scene.until(
            lambda: web.condition("RolledBack")[0] == "False" and web.decision().get("modelDigest") == level, "other weights decide"
        )
        events = web.api.items(f"/api/v1/namespaces/{web.namespace}/events", fieldSelector="involvedObject.kind=ScalingPolicy")
        assert {"ModelLoaded", "WorseThanRule"} <= {event["reason"] for event in events}

        web.change_policy(agent={"learning": "Frozen"})
        scene.until(lambda: web.status()["observedGeneration"] == 2, "it is frozen")
        newer = _publish(scene, "rule x 1.06", tmp_path / "newer")
        operator.signal(signal.SIGKILL)
        operator.wait(REACTION_S)
    with scene.operator("operator-1") as successor:
        scene.windows_pass(successor)
        # a window may be held for want of samples: then nobody decided
        scene.until(lambda: web.decision().get("modelDigest"), "a successor decides")
        assert web.decision().get("modelDigest", level) == level
        web.change_policy(agent={"learning": "Collect"})
        scene.until(lambda: web.decision().get("modelDigest") == newer, "it takes the newer version once it may")


POINTS = [
    ("status", 1, "before"),
    ("status", 1, "after"),
    ("scale", 1, "after"),
    ("resize", 1, "after"),
    ("status", 2, "before"),
    ("status", 2, "after"),
]


def test_killed_at_every_step_of_an_action_no_step_is_made_twice(scene: Scene, tmp_path: Path) -> None:
    web = scene.web
    web.create(2, POOL)
    scene.service.rate = 20.0
    wait_until(lambda: web.limits() == [100, 100], 30, "the pods run")
    with Proxy(scene.access, tmp_path) as proxy:
        operator = scene.operator(kubeconfig=proxy.through).start()
        try:
            web.create_policy("Active", agent=BLIND, **_exactly(2, 100))
            scene.until(lambda: web.decision().get("phase") == "Done", "it is settled")
            for turn, point in enumerate(POINTS):
                replicas, cpu_m = (3, 200) if turn % 2 == 0 else (2, 100)
                before, generation = web.pods(), web.generation()
                # not in the middle of a window: what is counted must follow from the change of the spec
                proxy.writes.clear()
                proxy.kill, proxy.point = operator.signal, point
                web.change_policy(**_exactly(replicas, cpu_m))
                assert operator.wait(REACTION_S) == -9, point
                operator = scene.operator(f"operator-{turn + 1}", proxy.through).start()
                done = lambda r=replicas, c=cpu_m: web.replicas() == r and web.limits() == [c] * r  # noqa: E731
                scene.until(done, f"{point}: finished by the successor")
                scene.until(lambda: web.decision()["phase"] == "Done", f"{point}: and told")
                assert web.generation() == generation + 1, point
                for uid, pod in web.pods().items():
                    if uid in before:
                        assert pod["metadata"]["generation"] == before[uid]["metadata"]["generation"] + 1, point
                        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        finally:
            operator.stop()


def _exactly(replicas: int, cpu_m: int) -> dict[str, Any]:
    """Bounds that leave one size, so that the step to be made is known."""
    return {
        "horizontal": {"minReplicas": replicas, "maxReplicas": replicas, "behavior": AT_ONCE},
        "vertical": {"minCpuMilli": cpu_m, "maxCpuMilli": cpu_m, "behavior": AT_ONCE},
    }

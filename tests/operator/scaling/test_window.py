"""The hands of a window: what is written in which order, and what every death in between leaves to the successor."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, cast

import pytest

from tests.operator.scaling.small import NOW_S, deployment, pod_object, policy_object
from tiphys_models.api.reasons import DecisionPhase
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.clients.prometheus import PrometheusClient
from tiphys_models.domain.clock import ManualClock
from tiphys_models.domain.errors import Unavailable
from tiphys_operator.events import EventWrite
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.agents import AgentShelf
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.seen import scaling_seen
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.window import Running, WindowRunner
from tiphys_operator.scaling.workload import node_of, pod_of
from tiphys_operator.writer import Writer


class Killed(BaseException):
    """What SIGKILL is to a process."""


class Kube:
    """An API server with one Deployment, its pods and one ScalingPolicy; it can die at any request."""

    def __init__(self, replicas: int = 2, **spec: Any) -> None:
        self.deployment = deployment(replicas)
        self.pods = {f"web-{n}": pod_object(f"web-{n}") for n in range(replicas)}
        self.policy = policy_object(**spec)
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.writes: list[str] = []
        self.refuse: dict[str, ApiError] = {}
        """By kind of write; `preflight` for dry runs."""
        self.die_at: tuple[int, str] | None = None
        """Number of the write, and whether before or after it."""
        self.conflicts = 0
        """So many scales meet a workload that has just changed."""
        self.missing = False
        self.config_maps: dict[str, dict[str, Any]] = {}

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        if "/configmaps/" in path:
            return self.config_maps[path.rpartition("/")[2]]
        if self.missing:
            raise ApiError(404, "NotFound", path)
        return json.loads(json.dumps(self.deployment))

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        if path in self.refuse:
            raise self.refuse[path]
        yield {"items": self.lists.get(path.rpartition("/")[2], [])}

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        assert path.endswith("/scalingpolicies/web/status")
        if body["metadata"]["resourceVersion"] != self.policy["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        self._writing("status")
        self.policy = {**self.policy, "status": json.loads(json.dumps(body["status"]))}
        self._next(self.policy)
        self._written()
        return json.loads(json.dumps(self.policy))

    async def request(self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **rest: Any) -> Any:
        assert method == "PATCH"
        kind = path.rpartition("/")[2]
        dry = "dryRun" in (params or {})
        if error := self.refuse.get("preflight" if dry else kind):
            raise error
        if dry:
            return {}
        obj = self.deployment if kind == "scale" else self.pods[path.split("/")[-2]]
        if kind == "scale" and self.conflicts:
            self.conflicts -= 1
            self._next(obj)
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        self._writing(kind)
        if kind == "scale":
            obj["spec"]["replicas"] = body["spec"]["replicas"]
            obj["metadata"]["managedFields"] = [{"manager": (params or {})["fieldManager"], "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        else:
            wanted = body["spec"]["containers"][0]["resources"]
            obj["spec"]["containers"][0]["resources"] = wanted
            obj["status"]["containerStatuses"][0]["resources"] = wanted
        self._next(obj)
        self._written()
        return obj

    def _writing(self, kind: str) -> None:
        if self.die_at == (len(self.writes) + 1, "before"):
            raise Killed
        self.writes.append(kind)

    def _written(self) -> None:
        if self.die_at == (len(self.writes), "after"):
            raise Killed

    @staticmethod
    def _next(obj: dict[str, Any]) -> None:
        obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)


class Unfenced(Writer):
    """A writer whose Lease never ends."""

    def __init__(self, client: KubeClient, metrics: OperatorMetrics) -> None:
        self._client, self._metrics = client, metrics
        self.events: list[EventWrite] = []

    async def fenced(self, request: Awaitable[Any]) -> Any:
        return await request

    async def write_event(self, event: EventWrite) -> None:
        self.events.append(event)


class Prometheus:
    """Twenty requests a second, all good; or none of it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.down, self.frozen_s = clock, False, 0.0

    async def ranges(self, promql: str) -> Any:
        if self.down:
            raise Unavailable("refused")
        end = self.frozen_s or self.clock.now_s() - 2
        times = [end - 5 * back for back in range(80, -1, -1)]
        edges = ("0.4", "+Inf") if "bucket" in promql else ("",)
        rate = 10.0 if "bucket" in promql else 0.02
        result = [
            {"metric": {"pod": f"web-{n}", "le": edge}, "values": [[t, str(rate * (t - times[0]))] for t in times]}
            for n in range(4)
            for edge in edges
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


class Life:
    """One operator process: everything in it is lost when it ends."""

    def __init__(self, kube: Kube, clock: ManualClock, prometheus: Prometheus) -> None:
        client, self.metrics = cast("KubeClient", kube), OperatorMetrics()
        self.kube, self.cluster = kube, ScalingCluster()
        self.writer = Unfenced(client, self.metrics)
        hands = Hands(client, self.writer, self.metrics, clock)
        source = cast("PrometheusClient", prometheus)
        self.shelf, self.log = AgentShelf(client, "tiphys-system", None, clock), TransitionLog()
        self.runner = WindowRunner(
            hands, self.writer, self.cluster, source, self.metrics.scaling, clock, self.shelf, self.log, self.cluster.put_policy
        )
        self.running = Running()

    async def window(self) -> None:
        self.look()
        await self.runner.run(scaling_seen(self.kube.policy), self.running)

    async def align(self) -> None:
        self.look()
        await self.runner.align(scaling_seen(self.kube.policy), self.running)

    def look(self) -> None:
        for obj in self.kube.pods.values():
            self.cluster.put_pod(pod_of(obj), obj["metadata"]["uid"])
        node = node_of({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "64"}}})
        self.cluster.nodes[node.name] = node
        self.cluster.put_policy(self.kube.policy)


class World:
    def __init__(self, **spec: Any) -> None:
        self.clock = ManualClock(NOW_S)
        self.kube, self.prometheus = Kube(**spec), Prometheus(self.clock)

    def life(self) -> Life:
        return Life(self.kube, self.clock, self.prometheus)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.kube.policy["status"])

    @property
    def decision(self) -> dict[str, Any]:
        return dict(self.status["lastDecision"])

    def reason(self, kind: str) -> str:
        return next(str(c["reason"]) for c in self.status["conditions"] if c["type"] == kind)

    def sizes(self) -> list[str]:
        return [p["spec"]["containers"][0]["resources"]["limits"]["cpu"] for p in self.kube.pods.values()]


def exactly(replicas: int, cpu_m: int) -> dict[str, Any]:
    """Bounds that leave one size."""
    return {
        "horizontal": {"minReplicas": replicas, "maxReplicas": replicas},
        "vertical": {"minCpuMilli": cpu_m, "maxCpuMilli": cpu_m},
    }


async def test_the_intent_is_written_first_then_the_steps_then_what_was_done() -> None:
    world = World(**exactly(3, 200))
    await world.life().window()
    assert world.kube.writes == ["status", "scale", "resize", "resize", "status"]
    assert world.decision["phase"] == DecisionPhase.DONE
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.sizes() == ["200m", "200m"]
    assert world.status["desired"] == {"replicas": 3, "cpuMilli": 200}


STEPS = 5


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, STEPS + 1))
async def test_whoever_dies_at_any_write_leaves_a_successor_that_makes_no_step_twice(number: int, when: str) -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (number, when)
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.clock.advance(5)
    successor = world.life()
    await successor.window()
    await successor.align()
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.sizes() == ["200m", "200m"]
    assert world.kube.writes.count("scale") == 1
    assert world.kube.writes.count("resize") == 2
    assert world.decision["phase"] == DecisionPhase.DONE
    assert [mark["value"] for mark in world.status["memory"]["replicas"]["changes"]] == [1], "counted once, too"


async def test_an_old_intent_is_decided_anew() -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (1, "after")
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.kube.policy["spec"] |= {"mode": "Recommend"}
    world.clock.advance(300)
    await world.life().window()
    assert world.kube.writes == ["status", "status"]
    assert world.decision["phase"] == DecisionPhase.RECOMMENDED


async def test_an_intent_for_another_spec_is_not_carried_out() -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (1, "after")
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.kube.policy["spec"] |= exactly(2, 100)
    world.kube.policy["metadata"]["generation"] = 2
    await world.life().window()
    assert (world.kube.deployment["spec"]["replicas"], world.sizes()) == (2, ["100m", "100m"])


async def test_a_policy_that_changed_meanwhile_is_not_acted_on() -> None:
    world = World(**exactly(3, 200))
    life = world.life()
    life.look()
    seen = scaling_seen(world.kube.policy)
    world.kube.policy["metadata"]["resourceVersion"] = "99"
    await life.runner.run(seen, life.running)
    assert world.kube.writes == []


async def test_a_workload_that_only_changed_its_status_is_scaled_all_the_same() -> None:
    world = World(**exactly(3, 100))
    world.kube.conflicts = 2
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.decision["phase"] == DecisionPhase.DONE


async def test_prometheus_that_is_gone_holds_everything_and_says_why() -> None:
    world = World(**exactly(3, 200))
    world.prometheus.down = True
    life = world.life()
    await life.window()
    assert world.kube.writes == ["status"]
    assert (world.decision["phase"], world.reason("MetricsAvailable")) == (DecisionPhase.HELD, "PrometheusUnreachable")
    assert "PrometheusUnreachable" in {e.reason for e in life.writer.events}


async def test_samples_that_stand_still_hold_everything() -> None:
    world = World(**exactly(3, 200))
    world.prometheus.frozen_s = NOW_S - 60
    await world.life().window()
    assert (world.decision["phase"], world.reason("MetricsAvailable")) == (DecisionPhase.HELD, "SamplesStale")


async def test_what_admission_refuses_beforehand_is_never_tried_and_masked() -> None:
    world = World(**exactly(2, 200))
    world.kube.refuse["preflight"] = ApiError(403, "Forbidden", "exceeded quota: q, requested: limits.cpu=100m")
    life = world.life()
    await life.window()
    assert world.kube.writes == ["status"]
    assert world.decision["phase"] == DecisionPhase.REFUSED
    assert "cpu-up: Quota" in world.decision["masked"]
    world.clock.advance(15)
    await life.window()
    assert world.kube.writes == ["status", "status"], "masked: no further dry run, no step"
    assert world.status["memory"]["blocked"][0]["tries"] == 1


async def test_a_refused_scale_is_masked_and_not_tried_again() -> None:
    world = World(**exactly(3, 100))
    world.kube.refuse["scale"] = ApiError(403, "Forbidden", "denied by a policy")
    life = world.life()
    await life.window()
    assert world.decision["phase"] == DecisionPhase.REFUSED
    del world.kube.refuse["scale"]
    world.clock.advance(15)
    await life.window()
    assert "scale" not in world.kube.writes
    assert world.reason("Limited") == "ByMask"


async def test_a_refused_scale_down_masks_shrinking_and_not_growing() -> None:
    world = World(replicas=4, **exactly(2, 100))
    world.kube.refuse["scale"] = ApiError(403, "Forbidden", "denied by a policy")
    await world.life().window()
    (blocked,) = world.status["memory"]["blocked"]
    assert (blocked["move"], blocked["bound"], blocked["reason"]) == ("replicas-down", 4, "RefusedByServer")


async def test_a_pod_that_starts_later_is_brought_to_size_between_windows() -> None:
    world = World(**exactly(2, 200))
    life = world.life()
    await life.window()
    world.kube.pods["web-9"] = pod_object("web-9", actual=None)
    await life.align()
    assert world.sizes() == ["200m", "200m", "100m"]
    world.kube.pods["web-9"] = pod_object("web-9")
    await life.align()
    assert world.sizes() == ["200m", "200m", "200m"]


async def test_pods_are_left_alone_between_windows_unless_we_act() -> None:
    world = World(mode="Recommend", **exactly(2, 200))
    life = world.life()
    await life.window()
    await life.align()
    assert world.kube.writes == ["status"]


async def test_somebody_else_who_sets_replicas_again_and_again_is_yielded_to() -> None:
    world = World(**exactly(3, 100))
    life = world.life()
    for _ in range(3):
        await life.window()
        world.kube.deployment["spec"]["replicas"] = 2
        world.kube.deployment["metadata"]["managedFields"] = [{"manager": "argocd", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        world.clock.advance(15)
    await life.window()
    assert [e.message for e in life.writer.events if e.reason == "ReplicasOverridden"] == ["argocd set 2 pods, we had set 3"] * 3
    assert world.reason("Conflict") == "Overridden"
    assert world.kube.deployment["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: setattr(w.kube, "missing", True), "TargetNotFound"),
        (lambda w: w.kube.deployment["spec"].update(replicas=0), "Idle"),
        (lambda w: w.kube.deployment["spec"]["template"]["spec"]["containers"][0].update(resources={}), "TargetUnfit"),
        (lambda w: w.kube.policy["spec"].update(mode="Off"), "Disabled"),
        (lambda w: w.kube.policy["spec"].update(agent={"kind": "unheard-of"}), "AgentUnavailable"),
        (lambda w: w.kube.policy["spec"].update(horizontal={"minReplicas": 5, "maxReplicas": 1}), "InvalidSpec"),
        (lambda w: w.kube.policy["metadata"].update(annotations={"tiphys.io/paused": "true"}), "Paused"),
    ],
)
async def test_what_keeps_it_from_deciding_stands_in_ready(change: Any, reason: str) -> None:
    world = World(**exactly(3, 200))
    change(world)
    await world.life().window()
    assert world.reason("Ready") == reason
    assert {"scale", "resize"} & set(world.kube.writes) == set()


async def test_without_the_right_to_see_other_autoscalers_it_only_recommends() -> None:
    world = World(**exactly(3, 200))
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    world.kube.refuse[path] = ApiError(403, "Forbidden", "cannot list")
    await world.life().window()
    assert world.reason("Conflict") == "OthersUnknown"
    assert world.kube.writes == ["status"]


async def test_autoscalers_that_are_not_installed_are_none() -> None:
    world = World(**exactly(3, 200))
    world.kube.refuse["/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"] = ApiError(404, "NotFound", "no such API")
    await world.life().window()
    assert world.reason("Conflict") == "NoConflict"


async def test_metrics_count_what_was_decided_and_done() -> None:
    world = World(**exactly(3, 200))
    life = world.life()
    await life.window()
    shown = life.metrics.render().decode()
    for line in (
        'tiphys_operator_scaling_steps_total{dimension="replicas",direction="up"} 1.0',
        'tiphys_operator_scaling_steps_total{dimension="cpu",direction="up"} 1.0',
        'tiphys_operator_scaling_resizes_total{result="done"} 2.0',
        'tiphys_operator_scaling_windows_total{verdict="good"} 1.0',
        'tiphys_operator_scaling_decisions_total{phase="Intended"} 1.0',
    ):
        assert line in shown

"""Hints in the hands of the controller: which patches leave, how fast, and what becomes of those that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from tests.operator.api_server import FakeApiServer, status
from tests.operator.builders import seen
from tests.operator.hints.small import NOW_S, pod
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions
from tiphys_models.seats.shares import in_share
from tiphys_operator.all_metrics import all_metrics
from tiphys_operator.cluster.observed import ObservedCluster, PodSink
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.hints import controller as module
from tiphys_operator.hints.controller import LOOP, HintsController
from tiphys_operator.placement.observation import HintRights
from tiphys_operator.platforms.counting import Calls
from tiphys_operator.runtime.permissions import WRITE_HINTS, PermissionCheck
from tiphys_operator.runtime.writer import Writer

DND, COST, MARK = "karpenter.sh/do-not-disrupt", "controller.kubernetes.io/pod-deletion-cost", "tiphys.io/hints"
ASKS: dict[str, Any] = {"hints": {"doNotDisrupt": True, "deletionCost": True}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PACE_S", 0.0)


class Scene:
    """Pods in an API server that takes patches as a real one does, and shows what has become of them."""

    def __init__(self, api: FakeApiServer, client: KubeClient, clock: ManualClock, lease: Lease, namespaces: set[str]) -> None:
        self.clock, self.lease, self.metrics, self.api = clock, lease, all_metrics(), api
        self.cluster, self.beats = ObservedCluster(clock), Heartbeats(clock)
        self.sink = PodSink(self.cluster)
        self.stored: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[str, Any]] = []
        self.answers: dict[str, int] = {}
        """Status by pod that its patches are answered with."""
        self.calls = dict[str, Calls]()
        self.permissions = PermissionCheck(client, (WRITE_HINTS,), self.metrics)
        watch = SimpleNamespace(observed=self.cluster, ready=asyncio.Event().wait, is_complete=True)
        self.controller = HintsController(
            client, Writer(client, lease, self.metrics, clock), cast("ClusterWatch", watch), self.permissions, self.metrics, clock, self.beats,
            own_namespace="tiphys-system", scheduler_name="tiphys", namespaces=namespaces,
            calls_of=lambda uid, now_s: self.calls.get(uid, Calls.UNKNOWN),
        )  # fmt: skip
        api.fault = self._fault

    def show(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            self.stored[obj["metadata"]["name"]] = obj
            self.sink.put(obj)

    def ran(self, seconds: float, times: int = 3, app: str = "encode") -> None:
        """Pods of the application have run so long and ended."""
        for number in range(times):
            one = pod(f"former-{number}", age_s=seconds + NOW_S - self.clock.now_s(), app=app)
            self.sink.put(one)
            self.sink.drop(one)

    def policy(self, generation: int = 1, **spec: Any) -> None:
        self.controller.see([seen("p", "shop", generation=generation, **{"mode": "Active"} | spec)])

    async def round(self, after_s: float = 0.0) -> list[tuple[str, Any]]:
        """What a round writes."""
        self.clock.advance(after_s)
        await self.lease.try_acquire_or_renew()
        self.patches.clear()
        await self.controller.round()
        return list(self.patches)

    def value(self, name: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"tiphys_operator_{name}", labels)
        assert found is not None, name
        return found

    async def _fault(self, request: web.Request) -> web.StreamResponse | None:
        if request.method != "PATCH" or "/pods/" not in request.path:
            return None
        assert request.content_type == "application/merge-patch+json"
        name, body = request.path.rpartition("/")[2], await request.json()
        self.patches.append((name, body["metadata"]["annotations"]))
        if name in self.answers:
            return status(self.answers[name], "OnPurpose")
        stored = self.stored[name]["metadata"]
        assert set(body) == {"metadata"}
        assert body["metadata"].keys() == {"uid", "resourceVersion", "annotations"}
        if (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) != (stored["uid"], stored["resourceVersion"]):
            return status(409, "Conflict")
        for key, value in body["metadata"]["annotations"].items():
            stored["annotations"].pop(key, None)
            if value is not None:
                stored["annotations"][key] = value
        stored["resourceVersion"] = str(int(stored["resourceVersion"]) + 1)
        self.sink.put(self.stored[name])
        return web.json_response(self.stored[name])


async def made(namespaces: set[str]) -> AsyncIterator[Scene]:
    clock = ManualClock(NOW_S)
    async with FakeApiServer() as api, api.client() as client:
        lease = Lease(client, LeaseOptions("tiphys-system", "tiphys-operator", "a"), clock)
        await lease.try_acquire_or_renew()
        yield Scene(api, client, clock, lease, namespaces)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async for one in made(set()):
        yield one


@pytest.fixture
async def narrow() -> AsyncIterator[Scene]:
    """Hints may be written in two namespaces."""
    async for one in made({"shop", "bank"}):
        yield one


async def test_a_protection_is_written_once_as_soon_as_the_pod_is_seen_on_its_node(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.ran(94.0)
    scene.show(pod("a"))
    assert await scene.round() == [("a", {DND: "94s", MARK: "doNotDisrupt=94s"})]
    assert await scene.round() == []
    scene.ran(500.0, times=10)
    assert await scene.round(after_s=100.0) == [], "what is learned later changes no pod that has its hint"
    assert scene.value("hints_written_total", hint="doNotDisrupt") == 1
    assert scene.value("hinted_pods", hint="doNotDisrupt") == 1
    assert scene.value("writes_total", kind="hint") == 1


async def test_a_pod_that_ran_before_its_application_was_known_gets_its_hint_when_it_is(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.show(pod("a"))
    scene.ran(94.0, times=2)
    assert await scene.round() == []
    scene.ran(94.0, times=1)
    assert await scene.round(after_s=31.0) == [("a", {DND: "94s", MARK: "doNotDisrupt=94s"})]


@pytest.mark.parametrize(
    "case", ["shadow", "no hints", "other scheduler", "other labels", "other namespace", "users", "deleting", "unbound"]
)
async def test_who_is_not_asked_for_is_not_written_on(scene: Scene, case: str) -> None:
    scene.policy(
        mode="Shadow" if case == "shadow" else "Active",
        selector={"matchLabels": {"a": "b"}} if case == "other labels" else {},
        hints={} if case == "no hints" else ASKS["hints"],
    )
    scene.ran(94.0)
    there = pod(
        "a",
        node="" if case == "unbound" else "n0",
        annotations={DND: "true"} if case == "users" else {},
        spec={"schedulerName": "default-scheduler"} if case == "other scheduler" else {},
        metadata={"namespace": "bank"}
        if case == "other namespace"
        else {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        if case == "deleting"
        else {},
    )
    scene.show(there)
    assert await scene.round() == []


async def test_in_a_canary_the_share_that_obeys_is_written_on(scene: Scene) -> None:
    scene.policy(mode="Canary", canary={"percent": 50}, **ASKS)
    scene.ran(94.0)
    names = [f"p{number}" for number in range(16)]
    scene.show(*(pod(name) for name in names))
    obeying = [name for name in names if in_share(f"uid-{name}", 50)]
    assert 0 < len(obeying) < len(names)
    assert [name for name, _ in await scene.round()] == obeying


async def test_costs_follow_the_node_and_the_calls_and_are_rewritten_once_a_minute_at_the_most(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.show(pod("web", owner="ReplicaSet"))
    assert await scene.round() == [("web", {COST: "10", MARK: "deletionCost=10"})]
    scene.calls["uid-web"] = Calls.BUSY
    scene.show(pod("beside", owner="StatefulSet", annotations={DND: "true"}))
    assert await scene.round(after_s=31.0) == [], "not within a minute"
    assert await scene.round(after_s=31.0) == [("web", {COST: "23", MARK: "deletionCost=23"})]
    assert await scene.round(after_s=120.0) == [], "only when the level changes"


async def test_what_no_policy_wants_any_more_is_taken_off(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.ran(94.0)
    scene.show(pod("a"), pod("web", owner="ReplicaSet", node="n1"))
    assert len(await scene.round()) == 2
    scene.policy(generation=2, hints={})
    written = dict(await scene.round())
    assert written == {"a": {DND: None, MARK: None}, "web": {COST: None, MARK: None}}
    assert all(not one["metadata"]["annotations"] for one in scene.stored.values())
    assert scene.value("hints_removed_total", hint="deletionCost") == 1


async def test_a_pod_that_was_changed_meanwhile_is_written_on_as_it_is_then(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.ran(94.0)
    scene.show(pod("a"))
    users = pod("a", annotations={DND: "true"}, metadata={"resourceVersion": "8"})
    scene.stored["a"] = users  # the watch has not shown it yet
    assert len(await scene.round()) == 1
    assert users["metadata"]["annotations"] == {DND: "true"}
    assert scene.value("hints_refused_total", reason="changed") == 1
    scene.sink.put(users)
    assert await scene.round() == []


@pytest.mark.parametrize(("code", "reason"), [(403, "forbidden"), (422, "refused"), (404, "gone")])
async def test_a_pod_that_cannot_be_written_on_costs_the_others_nothing(scene: Scene, code: int, reason: str) -> None:
    scene.policy(**ASKS)
    scene.ran(94.0)
    scene.answers["bad"] = code
    scene.show(pod("bad"), pod("good"))
    assert [name for name, _ in await scene.round()] == ["bad", "good"]
    assert scene.value("hints_refused_total", reason=reason) == 1
    if code != 404:
        assert [name for name, _ in await scene.round(after_s=31.0)] == [], "it is tried again after ten minutes, not every time"


async def test_an_api_server_that_does_not_answer_is_left_alone_namespace_by_namespace(scene: Scene) -> None:
    bank = seen("p", "bank", mode="Active", **ASKS)
    scene.controller.see([seen("p", "shop", mode="Active", **ASKS), bank])
    for name in ("a", "b"):
        scene.answers[name] = 500
    at_bank = pod("c", owner="ReplicaSet", metadata={"namespace": "bank"})
    scene.show(pod("a", owner="ReplicaSet"), pod("b", owner="ReplicaSet"), at_bank)
    assert [name for name, _ in await scene.round()] == ["a", "c"]
    assert scene.value("hints_refused_total", reason="api") == 1
    scene.answers.clear()
    assert sorted(name for name, _ in await scene.round(after_s=31.0)) == ["a", "b"]


async def test_those_who_wait_are_bounded_and_found_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_DUE", 2)
    scene.policy(**ASKS)
    scene.show(*(pod(f"p{number}", owner="ReplicaSet") for number in range(5)))
    written = [name for name, _ in await scene.round()]
    assert (len(written), scene.value("hints_refused_total", reason="no-room")) == (2, 3)
    for _ in range(2):
        written += [name for name, _ in await scene.round(after_s=31.0)]
    assert sorted(written) == [f"p{number}" for number in range(5)]


async def test_nothing_is_written_without_the_lease(scene: Scene) -> None:
    scene.policy(**ASKS)
    scene.show(pod("web", owner="ReplicaSet"))
    scene.clock.advance(60.0)
    with pytest.raises(LeaseLost):
        await scene.controller.round()
    assert scene.patches == []


async def test_without_the_right_nothing_is_tried_and_the_policy_can_say_so(scene: Scene) -> None:
    scene.api.denied.add(("patch", "pods"))
    await scene.permissions.check()
    scene.policy(**ASKS)
    scene.show(pod("web", owner="ReplicaSet"))
    assert await scene.round() == []
    assert scene.controller.rights() == HintRights(denied=frozenset({""}))
    scene.api.denied.clear()
    await scene.permissions.check()
    assert len(await scene.round(after_s=31.0)) == 1


async def test_where_namespaces_are_named_others_are_left_alone(narrow: Scene) -> None:
    narrow.controller.see([seen("p", place, mode="Active", **ASKS) for place in ("shop", "vault")])
    inside, outside = pod("in", owner="ReplicaSet"), pod("out", owner="ReplicaSet", metadata={"namespace": "vault"})
    narrow.show(inside, outside)
    assert [name for name, _ in await narrow.round()] == ["in"]
    assert narrow.controller.rights() == HintRights(frozenset({"shop", "bank"}))


async def test_a_loop_that_no_policy_asks_is_expected_to_do_nothing(scene: Scene) -> None:
    task = asyncio.create_task(scene.controller.run())
    scene.policy()
    await asyncio.sleep(0.05)
    assert LOOP not in scene.beats.ages_s()
    scene.policy(generation=2, **ASKS)
    await asyncio.sleep(0.05)
    assert LOOP in scene.beats.ages_s()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert LOOP not in scene.beats.ages_s()

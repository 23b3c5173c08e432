"""What one object does to scaling: its own policy says so, every other one has its windows."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from tests.operator.scaling.harness import exactly
from tests.operator.scaling.small import deployment, pod_object
from tests.operator.scaling.test_controller import Running, Server, running
from tiphys_models.kube.client import ApiError
from tiphys_operator.runtime import watches
from tiphys_operator.scaling import controller as loop


class Shared(Server):
    """A cluster with a healthy policy `web` and a hostile one, `bad`, of another namespace."""

    def __init__(self) -> None:
        super().__init__(**exactly(2, 100), intervalSeconds=5)
        self.bad_policy = json.loads(json.dumps(self.policy))
        self.bad_policy["metadata"] |= {"name": "bad", "namespace": "tenant", "uid": "b"}
        self.bad_deployment: Any = deployment()
        self.bad_deployment["metadata"] |= {"namespace": "tenant"}
        self.refuse_status: ApiError | None = None
        self.broken_lists: dict[str, int] = {}
        """By plural, how many lists are no lists."""

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        return json.loads(json.dumps(self.bad_deployment)) if "/tenant/" in path else await super().get(path, params, accept=accept)

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        plural = path.rpartition("/")[2]
        if self.broken_lists.get(plural):
            self.broken_lists[plural] -= 1
            yield {"items": [{"metadata": None}]}
        async for page in super().pages(path, params, accept=accept):
            if plural == "scalingpolicies":
                page["items"].append(json.loads(json.dumps(self.bad_policy)))
            yield page

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        if "/tenant/" not in path:
            return await super().apply(path, body, field_manager, **rest)
        if self.refuse_status is not None and body["status"].get("lastDecision"):
            raise self.refuse_status
        self.bad_policy = {**self.bad_policy, "status": json.loads(json.dumps(body["status"]))}
        self._next(self.bad_policy)
        return json.loads(json.dumps(self.bad_policy))

    def ready(self, name: str = "web") -> dict[str, Any]:
        policy = self.policy if name == "web" else self.bad_policy
        conditions = (policy.get("status") or {}).get("conditions") or []
        return next((dict(c) for c in conditions if c["type"] == "Ready"), {})


def errors(made: Running, kind: str) -> float:
    return made.metrics.registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": kind}) or 0.0


NO_MANAGER = [{"fieldsV1": {"f:spec": {"f:replicas": {}}}, "time": "2026-01-01T00:00:00Z"}]
HARMLESS: dict[str, dict[str, Any]] = {
    "an entry of managed fields without a manager": {
        "metadata": deployment()["metadata"] | {"namespace": "tenant", "managedFields": NO_MANAGER}
    },
    "a CPU limit of 1e400": {"spec": deployment(cpu="1e400")["spec"]},
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_an_unusual_workload_has_windows_like_any_other(name: str) -> None:
    server = Shared()
    server.bad_deployment |= HARMLESS[name]
    async with running(server) as made:
        await made.until(lambda: server.ready("bad") and server.ready().get("reason") == "Active")
        assert server.ready("bad")["reason"] == "Active"
        assert not made.task.done()


async def test_a_workload_that_cannot_be_read_is_told_in_its_policys_status_and_in_no_others(caplog: pytest.LogCaptureFixture) -> None:
    server = Shared()
    server.bad_deployment = {"metadata": {"name": "web"}, "spec": None}
    with caplog.at_level(logging.WARNING):
        async with running(server) as made:
            await made.until(lambda: server.ready("bad") and server.ready().get("reason") == "Active")
            assert (server.ready("bad")["status"], server.ready("bad")["reason"]) == ("False", "InternalError")
            assert "TypeError" in server.ready("bad")["message"]
            assert errors(made, "ScalingPolicy") >= 1
            server.bad_deployment = deployment()
            server.bad_policy["metadata"]["generation"] = 2
            made.loop._cluster.store.put(server.bad_policy)
            made.loop._policy_changed("b")
            await made.until(lambda: server.ready("bad")["reason"] == "Active")
    assert sum(r.message == "object left out" for r in caplog.records) == 1


async def test_a_status_that_the_api_server_refuses_is_the_policys_own_fault() -> None:
    server = Shared()
    server.refuse_status = ApiError(422, "Invalid", "status.lastDecision.applied.cpuMilli: too large")
    async with running(server) as made:
        await made.until(lambda: server.ready("bad").get("reason") == "InternalError" and server.ready().get("reason") == "Active")
        assert "too large" in server.ready("bad")["message"]


@pytest.mark.parametrize("at", ["2026-11-19t10:00:00z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "yesterday", ""])
async def test_a_last_decision_at_any_time_is_no_obstacle_to_the_next(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_RHYTHM_S", 0.0)  # else it goes on in that rhythm, five seconds later at most
    server = Shared()
    decision = {"number": 4, "at": at, "phase": "Done", "from": {"replicas": 2}, "applied": {"replicas": 2}}
    server.bad_policy["status"] = {"observedGeneration": 1, "lastDecision": decision}
    async with running(server) as made:
        await made.until(lambda: server.ready("bad").get("reason") == "Active" and server.ready().get("reason") == "Active")


async def test_pods_and_nodes_that_cannot_be_read_are_left_out_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Shared()
    huge, odd = pod_object("huge", cpu="100m"), pod_object("odd")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1e400"
    odd["spec"]["containers"] = [None]
    server.pods |= {"huge": huge, "odd": odd}
    with caplog.at_level(logging.WARNING):
        async with running(server) as made:
            await made.until(lambda: server.ready().get("reason") == "Active")
            assert errors(made, "Pod") == 1
            for _ in range(2):
                await server.events.put({"type": "MODIFIED", "object": json.loads(json.dumps(odd))})
            await made.until(lambda: errors(made, "Pod") == 3)
            assert made.metrics.registry.get_sample_value("tiphys_operator_pods_kept", {"loop": "scaling"}) == 3
    (line,) = [r for r in caplog.records if r.message == "object left out"]
    assert line.fields["object"] == "default/odd"  # type: ignore[attr-defined]


@pytest.mark.parametrize("plural", ["pods", "nodes", "scalingpolicies"])
async def test_a_watch_that_dies_before_its_first_list_is_started_again(plural: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_BACKOFF_START_S", 0.01)
    server = Shared()
    server.broken_lists[plural] = 2
    async with running(server) as made:
        await made.until(lambda: server.ready().get("reason") == "Active")
        labels = {"watch": f"watch-{'scaling' if plural == 'scalingpolicies' else 'cluster'}-{plural}"}
        assert made.metrics.registry.get_sample_value("tiphys_operator_watch_restarts_total", labels) == 2


async def test_a_watch_that_dies_for_ever_ends_the_loop_instead_of_leaving_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_BACKOFF_START_S", 0.01)
    monkeypatch.setattr(watches, "_BACKOFF_MAX_S", 0.01)
    server = Shared()
    server.broken_lists["pods"] = 10**6
    async with running(server) as made:
        with pytest.raises(watches.WatchBroken, match="watch-cluster-pods"):
            await made.until(lambda: False)


async def test_pods_are_kept_whole_only_where_something_is_scaled_and_read_once_a_policy_comes() -> None:
    server = Shared()
    late, server.bad_policy = server.bad_policy, json.loads(json.dumps(server.policy))
    for n in range(3):
        server.pods[f"tenant-{n}"] = pod_object(f"tenant-{n}", metadata={"namespace": "tenant"})
    async with running(server) as made:
        await made.until(lambda: server.ready().get("reason") == "Active")
        cluster, policies = made.loop._cluster.observed, made.loop._cluster
        assert (cluster.pods_kept(), cluster.used_m) == (2, {"n1": 5 * 50})
        server.bad_policy = late
        server.broken_lists["pods"] = 0
        policies.store.put(late)
        assert cluster.unread() == {"tenant"}
        await made.until(lambda: server.ready("bad").get("reason") == "Active")
        assert (cluster.pods_kept(), cluster.used_m, cluster.unread()) == (5, {"n1": 5 * 50}, frozenset())
        policies.drop_policy("b")
        assert (cluster.pods_kept(), cluster.used_m) == (2, {"n1": 5 * 50})
        assert server.lists_asked.count("/api/v1/namespaces/tenant/pods") == 1


class Slow(Shared):
    """Somebody else's webhook takes its time for every scale and resize in the tenant's namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []
        self.bad_policy["spec"] |= exactly(4, 100)
        for n in range(2):
            self.pods[f"tenant-{n}"] = pod_object(f"web-{n}", metadata={"namespace": "tenant", "uid": f"tenant-{n}"})

    async def request(self, method: str, path: str, **rest: Any) -> Any:
        if "/tenant/" in path:
            self.waiting.append(path)
            await asyncio.sleep(60)
        return await super().request(method, path, **rest)


async def test_a_webhook_that_does_not_answer_for_one_workload_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LONGEST_S", 0.5)
    server = Slow()
    async with running(server) as made:
        await made.until(lambda: server.waiting and server.ready().get("reason") == "Active")
        assert server.waiting[0].endswith("/deployments/web/scale")
        failed = 'tiphys_operator_scaling_errors_total{reason="api-error"} 1.0'
        await made.until(lambda: failed in made.metrics.render().decode())
        assert server.bad_policy["status"]["lastDecision"]["phase"] == "Intended", "what came of it the next window sees"
        assert not made.task.done()

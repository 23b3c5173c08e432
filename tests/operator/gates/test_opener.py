from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.operator.api_server import FakeApiServer, status
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube import held_pods
from tiphys_models.placement.gate import GATE
from tiphys_operator.all_metrics import all_metrics
from tiphys_operator.gates import opener as openers
from tiphys_operator.gates.opener import LATE_S, LOOP, SecondOpener
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.permissions import OPEN_GATES, PermissionCheck

LONGEST_S = 10.0
DUE_S = 13.1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openers, "_ROUND_S", 0.02)


class Plane:
    """Pods behind gates, in an API server that takes patches."""

    def __init__(self, api: FakeApiServer, clock: ManualClock) -> None:
        self.api, self.clock = api, clock
        self.patches: list[tuple[str, Any]] = []
        self.answer: Callable[[str], web.Response | None] = lambda _: None
        api.fault = self._fault

    def add(self, name: str, *others: str, age_s: float = 0.0) -> dict[str, Any]:
        self.api.add_pod(name)
        pod = self.api.pods[-1]
        pod["metadata"]["creationTimestamp"] = rfc3339(self.clock.now_s() - age_s)
        pod["spec"]["schedulingGates"] = [{"name": gate} for gate in (*others, GATE)]
        return pod

    def gates(self, name: str) -> list[str]:
        (pod,) = [pod for pod in self.api.pods if pod["metadata"]["name"] == name]
        return [gate["name"] for gate in pod["spec"]["schedulingGates"]]

    async def _fault(self, request: web.Request) -> web.StreamResponse | None:
        name = request.path.rpartition("/")[2]
        if request.method == "GET" and request.path.startswith("/api/v1/namespaces/default/pods/"):
            one = next((pod for pod in self.api.pods if pod["metadata"]["name"] == name), None)
            return status(404, "NotFound") if one is None else web.json_response(one)
        if request.method != "PATCH":
            return None
        body = await request.json()
        self.patches.append((name, body))
        if (answer := self.answer(name)) is not None:
            return answer
        found = [pod for pod in self.api.pods if pod["metadata"]["name"] == name]
        if not found:
            return status(404, "NotFound")
        uid, gate, removal = body
        gates = found[0]["spec"]["schedulingGates"]
        place = int(removal["path"].rpartition("/")[2])
        if found[0]["metadata"]["uid"] != uid["value"] or place >= len(gates) or gates[place]["name"] != gate["value"]:
            return status(422, "Invalid", "the server rejected our request due to an error in our request")
        del gates[place]
        self.api.version += 1
        found[0]["metadata"]["resourceVersion"] = str(self.api.version)
        return web.json_response(found[0])


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    async with FakeApiServer() as api:
        yield Plane(api, ManualClock())


@contextlib.asynccontextmanager
async def opening(plane: Plane, metrics: OperatorMetrics | None = None, beats: Heartbeats | None = None) -> AsyncIterator[OperatorMetrics]:
    told = metrics or all_metrics()
    async with plane.api.client() as client:
        permissions = PermissionCheck(client, (OPEN_GATES,), told)
        await permissions.check()
        opener = SecondOpener(client, told, plane.clock, beats or Heartbeats(plane.clock), LONGEST_S, permissions)
        task = asyncio.create_task(opener.keep_running())
        try:
            yield told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], what: str) -> None:
    end_s = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < end_s, what
        await asyncio.sleep(0.01)


def value(metrics: OperatorMetrics, name: str) -> float:
    found = metrics.registry.get_sample_value(f"tiphys_operator_{name}")
    assert found is not None, name
    return found


async def test_a_held_pod_is_let_go_after_its_bound_and_the_grace_of_the_first_opener(plane: Plane) -> None:
    plane.add("p", "example.com/quota")
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gated_pods") == 1, "the pod is seen")
        plane.clock.advance(DUE_S - 0.5)
        await asyncio.sleep(0.1)
        assert plane.patches == []
        plane.clock.advance(0.5)
        await until(lambda: plane.gates("p") == ["example.com/quota"], "our gate is off, theirs stands")
        await until(lambda: value(metrics, "gated_pods") == 0, "nobody is held")
        await until(lambda: value(metrics, "gates_opened_total") == 1, "it is counted")
        assert len(plane.patches) == 1


async def test_pods_that_were_held_before_we_came_are_let_go_at_once(plane: Plane) -> None:
    for number in range(40):
        plane.add(f"p{number}", age_s=60)
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gates_opened_total") == 40, "all are let go")
        await until(lambda: value(metrics, "gated_pods") == 0, "nobody is held")


async def test_hundreds_who_are_due_together_need_not_wait_a_round_for_sixteen(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openers, "_ROUND_S", 3600.0)
    for number in range(200):
        plane.add(f"p{number}", age_s=60)
    async with plane.api.client() as client:
        opener = SecondOpener(
            client, all_metrics(), plane.clock, Heartbeats(plane.clock), LONGEST_S, PermissionCheck(client, (), all_metrics())
        )
        for pod in plane.api.pods:
            opener._held.put(pod)
        task = asyncio.create_task(opener.keep_running())
        await until(lambda: all(not pod["spec"]["schedulingGates"] for pod in plane.api.pods), "all are let go in one round")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_that_somebody_else_has_opened_is_no_failure(plane: Plane) -> None:
    pod = plane.add("p")
    plane.add("gone")
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gated_pods") == 2, "both are seen")
        pod["spec"]["schedulingGates"] = []  # the watch has not said so yet
        del plane.api.pods[1]
        plane.clock.advance(DUE_S)
        await until(lambda: value(metrics, "gated_pods") == 0, "nobody is held")
        assert (value(metrics, "gates_opened_total"), value(metrics, "gates_failed_total")) == (0, 0)


async def test_gates_that_changed_places_are_looked_up_anew(plane: Plane) -> None:
    pod = plane.add("p", "example.com/quota")
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gated_pods") == 1, "the pod is seen")
        pod["spec"]["schedulingGates"] = [{"name": GATE}]
        plane.clock.advance(DUE_S)
        await until(lambda: plane.gates("p") == [], "the gate is off")
        await until(lambda: value(metrics, "gates_opened_total") == 1, "it is counted")


async def test_another_pod_of_the_same_name_is_left_to_its_own_time(plane: Plane) -> None:
    pod = plane.add("p")
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gated_pods") == 1, "the pod is seen")
        pod["metadata"]["uid"] = "another"
        plane.clock.advance(DUE_S)
        await until(lambda: len(plane.patches) == 1, "it was tried")
        await asyncio.sleep(0.1)
        assert plane.gates("p") == [GATE]
        assert value(metrics, "gates_opened_total") == 0


@pytest.mark.parametrize("code", [403, 409, 429, 500, 503])
async def test_a_refused_patch_is_tried_again_more_and_more_seldom_and_others_are_not_kept_by_it(plane: Plane, code: int) -> None:
    plane.add("stuck", age_s=60)
    refusals = 3

    def answer(name: str) -> web.Response | None:
        nonlocal refusals
        if name != "stuck" or not refusals:
            return None
        refusals -= 1
        return status(code, "No")

    plane.answer = answer
    async with opening(plane) as metrics:
        plane.add("other", age_s=60)
        await until(lambda: plane.gates("other") == [], "the other is let go")

        def let_go_in_time() -> bool:
            plane.clock.advance(1.0)
            return plane.gates("stuck") == []

        await until(let_go_in_time, "it is let go in the end")
        await until(lambda: value(metrics, "gates_opened_total") == 2, "both are counted")
        assert value(metrics, "gates_failed_total") >= 1


async def test_a_patch_that_hangs_is_given_up_and_sent_again(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pods, "PATCH_S", 0.2)
    plane.add("p", age_s=60)
    hanging = plane.api.fault
    assert hanging is not None
    hung = 0

    async def hang(request: web.Request) -> web.StreamResponse | None:
        nonlocal hung
        if request.method == "PATCH" and not hung:
            hung += 1
            await asyncio.sleep(30)
        return await hanging(request)

    plane.api.fault = hang
    async with opening(plane) as metrics:
        await until(lambda: value(metrics, "gates_failed_total") == 1, "the first patch is given up")
        plane.clock.advance(1.0)
        await until(lambda: plane.gates("p") == [], "the second one is sent")


@pytest.fixture
def beats(plane: Plane) -> Heartbeats:
    return Heartbeats(plane.clock)


async def test_an_opener_that_sees_pods_and_may_open_them_beats(plane: Plane, beats: Heartbeats) -> None:
    async with opening(plane, beats=beats):
        await until(lambda: LOOP in beats.ages_s(), "the loop is expected")
        plane.clock.advance(LATE_S + 1)
        await until(lambda: beats.ages_s()[LOOP] < 1, "it beats")
        assert beats.late() == []


@pytest.mark.parametrize("what", ["no right to open", "no right to look"])
async def test_an_opener_that_could_open_nothing_is_late(plane: Plane, beats: Heartbeats, what: str) -> None:
    if what == "no right to open":
        plane.api.denied.add(("patch", "pods"))
    else:

        async def refuse(request: web.Request) -> web.StreamResponse | None:
            return status(403, "Forbidden") if request.path == "/api/v1/pods" else None

        plane.api.fault = refuse
    async with opening(plane, beats=beats) as metrics:
        await until(lambda: LOOP in beats.ages_s(), "the loop is expected")
        plane.clock.advance(LATE_S + 1)
        await asyncio.sleep(0.2)
        assert [text.split(" ")[0] for text in beats.late() if text.startswith(LOOP)] == [LOOP]
        missing = metrics.registry.get_sample_value("tiphys_operator_permission_missing", {"verb": "patch", "resource": "pods"})
        assert missing == (what == "no right to open")


async def test_an_opener_whose_patches_are_refused_is_late_until_one_goes_well(plane: Plane, beats: Heartbeats) -> None:
    """The right is there: what refuses is somebody's webhook, or the fence that sees what the webhook did."""
    plane.add("stuck", age_s=60)
    refusing = True
    plane.answer = lambda _: status(403, "Forbidden") if refusing else None
    async with opening(plane, beats=beats) as metrics:
        await until(lambda: value(metrics, "gates_failed_total") >= 1, "a patch is refused")
        for _ in range(3):
            plane.clock.advance(LATE_S + 1)
            await asyncio.sleep(0.05)
        assert [text.split(" ")[0] for text in beats.late()] == [LOOP]
        refusing = False
        plane.clock.advance(LATE_S + 1)
        await until(lambda: plane.gates("stuck") == [], "it is let go")
        await until(lambda: beats.late() == [], "it could open again")


async def test_an_opener_that_was_ended_by_a_mistake_begins_anew(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0
    whole = SecondOpener._round

    def broken(self: SecondOpener) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise ZeroDivisionError
        whole(self)

    monkeypatch.setattr(SecondOpener, "_round", broken)
    plane.add("p", age_s=60)
    async with opening(plane) as metrics:
        await until(lambda: plane.gates("p") == [], "the pod is let go")
        assert metrics.registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "Loop"}) == 1

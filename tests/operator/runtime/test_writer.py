from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web

from tests.operator.api_server import FakeApiServer, status
from tests.operator.builders import seen
from tiphys_models.api.scheduling_policy import SchedulingPolicyStatus
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement.observation import PolicySeen, policy_seen
from tiphys_operator.runtime.events import EventWrite
from tiphys_operator.runtime.writer import EventBook, Writer


@dataclass
class Desk:
    server: FakeApiServer
    clock: ManualClock
    lease: Lease
    metrics: OperatorMetrics
    writer: Writer

    def status(self, name: str = "p") -> tuple[PolicySeen, SchedulingPolicyStatus]:
        policy = policy_seen(self.server.policies["default", name])
        return policy, policy.status.model_copy(update={"active_policy": "greedy"})

    def event(self, message: str = "m", reason: str = "NotRouted") -> EventWrite:
        return EventWrite(policy_seen(self.server.policies["default", "p"]), warning=True, reason=reason, message=message)

    def errors(self, reason: str) -> float:
        return self.metrics.registry.get_sample_value("tiphys_operator_errors_total", {"reason": reason}) or 0.0


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    clock, metrics = ManualClock(), OperatorMetrics()
    async with FakeApiServer() as server, server.client() as client:
        lease = Lease(client, LeaseOptions("tiphys-system", "tiphys-operator", "a"), clock)
        await lease.try_acquire_or_renew()
        server.add_policy("p")
        server.writes.clear()
        yield Desk(server, clock, lease, metrics, Writer(client, lease, metrics, clock))


async def test_a_status_is_applied_to_the_status_alone(desk: Desk) -> None:
    assert await desk.writer.write_object(*desk.status())
    assert desk.server.policies["default", "p"]["status"]["activePolicy"] == "greedy"
    assert desk.server.writes == [("PATCH", "/apis/tiphys.io/v1alpha1/namespaces/default/schedulingpolicies/p/status")]
    assert any("fieldManager=tiphys-operator&force=true" in path for _, path in desk.server.requests)


async def test_without_the_lease_nothing_is_sent(desk: Desk) -> None:
    desk.clock.advance(11)
    before = len(desk.server.requests)
    with pytest.raises(LeaseLost):
        await desk.writer.write_object(*desk.status())
    with pytest.raises(LeaseLost):
        await desk.writer.write_event(desk.event())
    assert len(desk.server.requests) == before


async def test_a_write_that_outlasts_the_lease_is_given_up(desk: Desk) -> None:
    async def slow(request: web.Request) -> None:
        desk.clock.advance(1)
        await asyncio.sleep(5)

    desk.server.fault = slow
    desk.clock.advance(9.9)
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(desk.writer.write_object(*desk.status()), 2)
    assert not desk.server.wrote("status")


async def test_a_slow_webhook_of_somebody_else_costs_no_lease_that_is_renewed(desk: Desk) -> None:
    async def slow(request: web.Request) -> None:
        if request.path.endswith("/status"):
            assert await desk.lease.try_acquire_or_renew()
            await asyncio.sleep(0.5)

    desk.server.fault = slow
    desk.clock.advance(9.9)
    assert desk.lease.remaining_s() < 0.5, "less than the webhook takes"
    assert await asyncio.wait_for(desk.writer.write_object(*desk.status()), 5)


async def test_an_answer_that_never_comes_is_an_answer_that_failed_and_no_lost_lease(desk: Desk) -> None:
    async def never(request: web.Request) -> None:
        await asyncio.sleep(30)

    async with KubeClient(desk.server.access, request_timeout_s=0.3) as client:
        writer = Writer(client, desk.lease, desk.metrics, desk.clock)
        desk.clock.advance(9.9)
        desk.server.fault = never
        with pytest.raises(Unavailable):
            await asyncio.wait_for(writer.write_object(*desk.status()), 5)


async def test_a_late_write_of_a_former_leader_fails_instead_of_overwriting(desk: Desk) -> None:
    late = desk.status()
    assert await desk.writer.write_object(*desk.status())
    assert not await desk.writer.write_object(*late)
    assert desk.errors("conflict") == 1


async def test_a_policy_deleted_meanwhile_is_no_error(desk: Desk) -> None:
    write = desk.status()
    desk.server.policies.clear()
    assert not await desk.writer.write_object(*write)
    assert desk.errors("conflict") == 0


async def test_a_policy_of_the_same_name_made_anew_is_not_touched(desk: Desk) -> None:
    write = desk.status()
    desk.server.add_policy("p")
    assert not await desk.writer.write_object(*write)
    assert "status" not in desk.server.policies["default", "p"]


@pytest.mark.parametrize("code", [403, 429, 500])
async def test_a_refused_status_ends_the_round(desk: Desk, code: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return status(code, "Refused")

    desk.server.fault = refuse
    with pytest.raises(ApiError):
        await desk.writer.write_object(*desk.status())


async def test_an_event_says_what_it_is_about(desk: Desk) -> None:
    await desk.writer.write_event(desk.event())
    (event,) = desk.server.events
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Warning", "NotRouted", "m", 1)
    assert event["involvedObject"]["uid"] == desk.server.policies["default", "p"]["metadata"]["uid"]
    assert event["metadata"]["namespace"] == "default"


async def test_the_same_event_is_counted_up(desk: Desk) -> None:
    for _ in range(3):
        await desk.writer.write_event(desk.event())
    assert [event["count"] for event in desk.server.events] == [3]


async def test_the_same_event_after_a_while_is_a_new_one(desk: Desk) -> None:
    await desk.writer.write_event(desk.event())
    desk.clock.advance(700)
    await desk.lease.try_acquire_or_renew()
    await desk.writer.write_event(desk.event())
    assert [event["count"] for event in desk.server.events] == [1, 1]


async def test_a_storm_of_events_is_cut_off_and_counted(desk: Desk) -> None:
    for index in range(40):
        await desk.writer.write_event(desk.event(f"message {index}"))
    assert len(desk.server.events) == 25
    assert desk.errors("events-limited") == 15


@pytest.mark.parametrize(("code", "reason"), [(403, "forbidden"), (500, "api-error"), (404, "api-error")])
async def test_an_event_that_fails_is_counted_and_stops_nothing(desk: Desk, code: int, reason: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return status(code, "Refused")

    desk.server.fault = refuse
    await desk.writer.write_event(desk.event())
    assert desk.errors(reason) == 1
    desk.server.fault = None
    await desk.writer.write_event(desk.event())
    assert [event["count"] for event in desk.server.events] == [1]


def test_one_objects_storm_takes_nothing_from_another() -> None:
    book = EventBook(ManualClock())
    for index in range(40):
        book.enter(EventWrite(seen("loud"), warning=False, reason="r", message=str(index)))
    assert book.enter(EventWrite(seen("quiet"), warning=False, reason="r", message="m")) is not None


def test_a_name_of_the_greatest_length_still_makes_a_valid_event_name() -> None:
    entry = EventBook(ManualClock()).enter(EventWrite(seen("x" * 253), warning=False, reason="r", message="m"))
    assert entry is not None
    assert len(entry.name) <= 253


@pytest.mark.parametrize("renewed", [True, False])
async def test_a_write_that_takes_longer_than_the_lease_loses_it_only_if_nobody_renews(renewed: bool) -> None:
    clock, metrics = SystemClock(), OperatorMetrics()
    async with FakeApiServer() as server, server.client() as client:
        lease = Lease(client, LeaseOptions("tiphys-system", "tiphys-operator", "a", duration_s=1.0, renew_s=0.5, retry_s=0.1), clock)
        await lease.try_acquire_or_renew()
        server.add_policy("p")
        desk = Desk(server, ManualClock(), lease, metrics, Writer(client, lease, metrics, clock))

        async def slow(request: web.Request) -> None:
            if request.method == "PATCH" and "schedulingpolicies" in request.path:
                await asyncio.sleep(0.9)

        server.fault = slow
        holding = asyncio.create_task(lease.hold()) if renewed else None
        if renewed:
            assert await desk.writer.write_object(*desk.status())
        else:
            with pytest.raises(LeaseLost):
                await desk.writer.write_object(*desk.status())
        if holding is not None:
            holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await holding

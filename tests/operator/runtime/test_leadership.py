"""Two releases in one cluster: one acts, the other stands by, says whose the cluster is, and takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.operator.api_server import FakeApiServer
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.leadership import Leadership

TIMES = (0.6, 0.4, 0.05)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as started:
        yield started


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[KubeClient]:
    async with server.client() as opened:
        yield opened


class Release:
    """One operator of a release; replicas of one have the same name."""

    def __init__(self, client: KubeClient, name: str) -> None:
        def lease(namespace: str, lease_name: str, identity: str) -> Lease:
            return Lease(client, LeaseOptions(namespace, lease_name, identity, *TIMES), SystemClock())

        self.metrics = OperatorMetrics()
        own, self.claim = lease(name, f"{name}-operator", "pod"), lease("kube-system", "tiphys-operator", f"{name}/{name}-operator/pod")
        self.leadership = Leadership(own, self.claim, self.metrics)
        self.acquiring = asyncio.create_task(self.leadership.acquire())
        self.holding: asyncio.Task[None] | None = None

    async def leads(self) -> None:
        await asyncio.wait_for(self.acquiring, 5)
        self.holding = asyncio.create_task(self.leadership.hold())

    async def end(self, *, softly: bool = True) -> None:
        for task in filter(None, (self.acquiring, self.holding)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if softly:
            await self.leadership.release()

    @property
    def stands_by(self) -> float:
        return float(self.metrics.registry.get_sample_value("tiphys_operator_other_release_active") or 0)


async def told(release: Release) -> None:
    async with asyncio.timeout(5):
        while not release.leadership.other:  # noqa: ASYNC110 - what a user would see
            await asyncio.sleep(0.01)


async def test_the_second_release_does_nothing_and_says_whose_the_cluster_is(client: KubeClient) -> None:
    first = Release(client, "blue")
    await first.leads()
    second = Release(client, "green")
    await told(second)
    assert second.leadership.other.startswith("blue/blue-operator/pod")
    assert (first.stands_by, second.stands_by) == (0, 1)
    with pytest.raises(LeaseLost):
        second.leadership.check()
    assert first.leadership.check() > 0
    await first.end()
    await second.leads()
    assert second.leadership.check() > 0
    assert second.stands_by == 0
    await second.end()


async def test_a_release_that_is_gone_without_a_word_is_followed_within_its_lease(client: KubeClient) -> None:
    first = Release(client, "blue")
    await first.leads()
    second = Release(client, "green")
    await told(second)
    await first.end(softly=False)
    began = asyncio.get_running_loop().time()
    await second.leads()
    assert asyncio.get_running_loop().time() - began < 2 * TIMES[0]
    await second.end()


async def test_another_replica_of_the_same_release_waits_for_one_lease_not_two(client: KubeClient) -> None:
    first = Release(client, "blue")
    await first.leads()
    replica = Release(client, "blue")
    await asyncio.sleep(0.2)
    await first.end(softly=False)
    began = asyncio.get_running_loop().time()
    await replica.leads()
    # it has looked at the claim all the while: both end at the same time
    assert asyncio.get_running_loop().time() - began < 1.9 * TIMES[0]
    await replica.end()


async def test_whoever_loses_the_claim_may_not_write_although_the_own_lease_is_held(server: FakeApiServer, client: KubeClient) -> None:
    first = Release(client, "blue")
    await first.leads()
    lease = server.leases["tiphys-operator"]
    server.leases["tiphys-operator"] = {
        **lease,
        "metadata": {**lease["metadata"], "resourceVersion": "999"},
        "spec": {**lease["spec"], "holderIdentity": "green/green-operator/pod"},
    }
    assert first.holding is not None
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(first.holding, 5)
    with pytest.raises(LeaseLost):
        first.leadership.check()
    await first.end()


async def test_without_a_claim_the_own_lease_is_enough(client: KubeClient) -> None:
    own = Lease(client, LeaseOptions("blue", "blue-operator", "pod", *TIMES), SystemClock())
    alone = Leadership(own, None, OperatorMetrics())
    await asyncio.wait_for(alone.acquire(), 5)
    assert alone.check() > 0
    await alone.release()

"""The loop under test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.operator.api_server import FakeApiServer
from tests.operator.placement.harness import Loop
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement.controller import PlacementController
from tiphys_operator.placement.learned_check import LearnedCheck
from tiphys_operator.placement.models_found import ModelShelf
from tiphys_operator.placement.observer import Observer
from tiphys_operator.runtime.health import Health
from tiphys_operator.runtime.permissions import PermissionCheck, wanted
from tiphys_operator.runtime.writer import Writer


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    clock, metrics = SystemClock(), OperatorMetrics()
    async with FakeApiServer() as server, server.client() as client:
        lease = Lease(client, LeaseOptions("tiphys-system", "tiphys-operator", "a"), clock)
        await lease.try_acquire_or_renew()
        server.writes.clear()
        permissions = PermissionCheck(client, wanted("tiphys-system", "tiphys-operator", "tiphys-selection"), metrics)
        health = Health(clock, lease, 60.0)
        reconciler = PlacementController(
            Observer(
                client,
                ModelShelf(None),
                LearnedCheck(client, "tiphys-system", None, metrics.objects),
                None,
                "tiphys",
                clock,
                metrics.objects,
                watch := ClusterWatch(client, clock, metrics, health.loops),
            ),
            Writer(client, lease, metrics, clock),
            None,
            permissions,
            health,
            metrics,
            clock,
            own_namespace="tiphys-system",
            scheduler_name="tiphys",
            resync_s=0.3,
        )
        yield Loop(server, client, lease, metrics, permissions, health, reconciler)
        await reconciler._observer.close()
        await watch.close()

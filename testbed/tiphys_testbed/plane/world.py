"""What lies around Tiphys on the full plane, as one process: `python -m tiphys_testbed.plane.world SETTINGS.json`.

Nodes' counters, the scaled service's pods as their Prometheus sees them, a model server at each site, and the pulse,
which is read at `/pulse`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from aiohttp import web

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.quantity import cpu_milli, memory_bytes
from tiphys_testbed.cluster.counters import NodeCounters, NodeLoad
from tiphys_testbed.cluster.exporter import answer
from tiphys_testbed.plane.model_server import application
from tiphys_testbed.plane.objects import REPLICAS, SERVICE_MS, SHOP, SITE_ADDRESSES, WAYS_MS, WEB
from tiphys_testbed.plane.pulse import Pulse
from tiphys_testbed.plane.service import CountedService

_NODE_TICK_S = 1.0
_IDLE_CORES = 0.2
_RATES_PER_S = (20.0, 60.0)
"""The scaled service's load goes to and fro between these, so that its policy has something to do."""
_PHASE_S = 60.0


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """Where everything is; ports are chosen by whoever starts the process."""

    kubeconfig: str
    binder_url: str
    token: str
    service_port: int
    page_port: int
    site_ports: dict[str, int]

    def write(self, path: Path) -> None:
        """The settings are written to a file for the process to read, with mode 0600 because they hold a token."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Nodes:
    """Counters of all simulated nodes there are, made as nodes come."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.counters: dict[str, NodeCounters] = {}

    async def run(self) -> None:
        """Move along until cancelled."""
        while True:
            with contextlib.suppress(ClusterError):
                for node in await asyncio.to_thread(self._api.items, "/api/v1/nodes", labelSelector="type=kwok"):
                    name, allocatable = node["metadata"]["name"], node["status"].get("allocatable") or {}
                    if name not in self.counters:
                        cores = max(1, min(256, cpu_milli(allocatable.get("cpu", 1)) // 1000))
                        self.counters[name] = NodeCounters(cores, memory_bytes(allocatable.get("memory", 0)))
            for _ in range(10):
                await asyncio.sleep(_NODE_TICK_S)
                for counters in self.counters.values():
                    counters.advance(_NODE_TICK_S, NodeLoad(busy_cores=_IDLE_CORES))


async def serve(settings: WorldSettings) -> None:
    """The servers run until the process is killed."""
    with ApiClient.from_kubeconfig(Path(settings.kubeconfig)) as api, _service(api, settings) as service:
        pulse, nodes = Pulse(api, settings.binder_url, settings.token), Nodes(api)
        await _listen(_pages(pulse, nodes), "127.0.0.1", settings.page_port)
        for site, port in settings.site_ports.items():
            model = application(WAYS_MS[site] / 1000, SERVICE_MS[site] / 1000, REPLICAS[site])
            await _listen(model, SITE_ADDRESSES[site], port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pulse.run())
            group.create_task(nodes.run())
            group.create_task(_vary(service))


async def _vary(service: CountedService) -> None:
    while True:
        for rate in _RATES_PER_S:
            service.rate = rate
            await asyncio.sleep(_PHASE_S)


@contextlib.contextmanager
def _service(api: ApiClient, settings: WorldSettings) -> Iterator[CountedService]:
    with CountedService(api, SHOP, WEB, settings.service_port) as service:
        yield service


def _pages(pulse: Pulse, nodes: Nodes) -> web.Application:
    async def page(_request: web.Request) -> web.Response:
        return web.json_response(pulse.page())

    async def node(request: web.Request) -> web.Response:
        status, text = answer(request.path, nodes.counters)
        return web.Response(status=status, text=text)

    pages = web.Application()
    pages.router.add_get("/pulse", page)
    pages.router.add_get("/nodes/{name}/metrics", node)
    return pages


async def _listen(app: web.Application, address: str, port: int) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, port).start()


if __name__ == "__main__":
    asyncio.run(serve(WorldSettings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))

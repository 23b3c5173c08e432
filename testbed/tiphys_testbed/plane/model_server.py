"""A model at a site, as far as a client can tell: `python -m tiphys_testbed.plane.model_server ADDRESS ONE_WAY_MS SERVICE_MS REPLICAS`.

Every query is on its way for that long, waits in one queue for a replica, is served for that long, and is on its way back. One that
would wait half a second is refused. The port is the first line of the output.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from tiphys_cli.kube.errors import ClusterError

LONGEST_WAIT_S = 0.5


def application(one_way_s: float, service_s: float, replicas: int) -> web.Application:
    """Queries at `/`, probes at `/healthz`, which wait for no replica."""
    free = asyncio.Semaphore(replicas)

    async def query(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(one_way_s)
        status = 200
        try:
            await asyncio.wait_for(free.acquire(), LONGEST_WAIT_S)
        except TimeoutError:
            status = 503
        else:
            try:
                await asyncio.sleep(service_s)
            finally:
                free.release()
        await asyncio.sleep(one_way_s)
        return web.Response(status=status)

    async def healthz(request: web.Request) -> web.Response:
        await asyncio.sleep(2 * one_way_s)
        return web.Response()

    app = web.Application()
    app.router.add_post("/", query)
    app.router.add_get("/healthz", healthz)
    return app


async def serve(address: str, one_way_s: float, service_s: float, replicas: int) -> None:
    """The server runs until its process is killed."""
    runner = web.AppRunner(application(one_way_s, service_s, replicas), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, address, 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - whoever started it waits for this
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A running model server."""

    process: subprocess.Popen[bytes]
    url: str


@contextlib.contextmanager
def model_server(address: str, one_way_ms: float, service_ms: float, replicas: int = 1) -> Iterator[ModelServer]:
    """A process of its own; killed at the end."""
    arguments = [sys.executable, "-m", "tiphys_testbed.plane.model_server", address, str(one_way_ms), str(service_ms), str(replicas)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    try:
        if process.stdout is None:
            raise ClusterError("the model server has no output")
        yield ModelServer(process, f"http://{address}:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    where, way_ms, busy_ms, count = sys.argv[1:]
    asyncio.run(serve(where, float(way_ms) / 1000, float(busy_ms) / 1000, int(count)))

"""`/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from aiohttp import web

from tiphys_operator.health import Health
from tiphys_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)


class StatusServer:
    """One listener without any write or secret behind it."""

    def __init__(self, host: str, port: int, health: Health, metrics: OperatorMetrics) -> None:
        self.port = port
        self._host, self._health, self._metrics = host, health, metrics
        app = web.Application(client_max_size=1024)
        app.add_routes([web.get("/metrics", self._show_metrics), web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        log.info("status listener open", extra={"fields": {"host": self._host, "port": self.port}})
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._runner.cleanup()

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._health.dead())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._health.dead() + self._health.unready())


def _answer(problems: list[str]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

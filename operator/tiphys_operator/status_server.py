"""`/metrics`, `/healthz`, `/readyz`, and with the token `/v1/scaling/transitions`."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from tiphys_models.api.scaling_transition import PAGE_MAX, TRANSITIONS_PATH
from tiphys_operator.health import Health
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.transition_log import TransitionLog

log = logging.getLogger(__name__)


class StatusServer:
    """One listener without any write behind it."""

    def __init__(
        self, host: str, port: int, health: Health, metrics: OperatorMetrics, transitions: TransitionLog, token_file: Path | None
    ) -> None:
        self.port = port
        self._host, self._health, self._metrics = host, health, metrics
        self._transitions, self._token_file = transitions, token_file
        app = web.Application(client_max_size=1024)
        app.add_routes(
            [
                web.get("/metrics", self._show_metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get(TRANSITIONS_PATH, self._show_transitions),
            ]
        )
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

    async def _show_transitions(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request.headers.get("Authorization", "")):
            return refusal
        after, limit = (_number(request.query.get(name, default)) for name, default in (("after", "0"), ("limit", "1000")))
        if after is None or limit is None or not 1 <= limit <= PAGE_MAX:
            return web.Response(status=400, text=f"after is a whole number from 0 on, limit one from 1 to {PAGE_MAX}\n")
        page = self._transitions.page(after, limit, request.query.get("policy", ""))
        return web.Response(body=page, content_type="application/json")

    def _refusal(self, authorization: str) -> web.Response | None:
        if self._token_file is None:
            return web.Response(status=403, text="no token is configured: set TIPHYS_OPERATOR_TOKEN_FILE\n")
        try:
            token = self._token_file.read_text().strip()  # read again: secrets are rotated in place
        except OSError:
            return web.Response(status=403, text="the token file cannot be read\n")
        if not token or not hmac.compare_digest(authorization.encode("utf-8", "replace"), f"Bearer {token}".encode()):
            return web.Response(status=401, text="send the token as Authorization: Bearer\n")
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _answer(problems: list[str]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

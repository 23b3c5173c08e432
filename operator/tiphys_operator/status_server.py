"""`/metrics`, `/healthz`, `/readyz`, and with the token `/decisions`, `/explain/…` and `/v1/scaling/transitions`."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from tiphys_models.base.errors import InvalidInput
from tiphys_models.scaling.transition import PAGE_MAX, TRANSITIONS_PATH
from tiphys_models.seats.pages import page_of
from tiphys_models.serving.acceptor import Acceptor
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.bounds import HEAD_BYTES, REFUSALS, ListenerBounds, Peers
from tiphys_models.serving.certificates import HandshakeFailures, ServerCertificates
from tiphys_models.serving.exposition import Exposition
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.records import DECISIONS_PATH, EXPLAIN_PATH, Records, explained, make_records
from tiphys_operator.runtime.health import Health
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.status_connection import StatusConnection, bounded

log = logging.getLogger(__name__)
_RELOAD_S = 2.0


class StatusServer:
    """One listener without any write behind it."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        metrics: OperatorMetrics,
        transitions: TransitionLog,
        token_file: Path | None,
        *,
        transitions_token_file: Path | None = None,
        bounds: ListenerBounds = ListenerBounds(per_second=100.0),  # noqa: B008 - it is frozen
        certificates: ServerCertificates | None = None,
        records: Records | None = None,
    ) -> None:
        self._records = records if records is not None else make_records()
        self.port = port
        self._host, self._health, self._metrics, self._transitions = host, health, metrics, transitions
        self._tokens = BearerTokens(
            "TIPHYS_OPERATOR_TRANSITIONS_TOKEN_FILE or TIPHYS_OPERATOR_TOKEN_FILE", transitions_token_file, token_file
        )
        self._bounds, self._certificates = bounds, certificates
        self._acceptor: Acceptor | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._exposition = Exposition(metrics.render, metrics.last_scrape.set_to_current_time)
        app = web.Application(client_max_size=1024, middlewares=[bounded(metrics)])
        app.add_routes(
            [
                web.get("/metrics", self._show_metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get(TRANSITIONS_PATH, self._show_transitions),
                web.get(DECISIONS_PATH, self._show_decisions),
                web.get(EXPLAIN_PATH, self._explain),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        listener = socket.create_server((self._host, self.port), family=socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, HEAD_BYTES)
        self.port = listener.getsockname()[1]
        self._acceptor = Acceptor(
            listener,
            self._connection,
            Peers(self._bounds),
            tls=lambda: self._certificates.context if self._certificates is not None else None,
            on_refused=self._metrics.status_refused[REFUSALS[503]].inc,
            on_handshake_failed=HandshakeFailures(lambda reason: self._metrics.handshake_failures[reason].inc()).tell,
        )
        self._acceptor.start()
        if self._certificates is not None:
            self._reloading = asyncio.create_task(_reload(self._certificates))
        log.info("status listener open", extra={"fields": {"host": self._host, "port": self.port, "tls": self._certificates is not None}})
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._reloading is not None:
            self._reloading.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        await self._runner.cleanup()

    def _connection(self) -> StatusConnection:
        server = self._runner.server
        if server is None:
            raise RuntimeError("connections come while the listener is open")
        return StatusConnection(server, self._metrics)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._exposition.read(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

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

    async def _show_decisions(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request.headers.get("Authorization", "")):
            return refusal
        try:
            page = page_of(self._records, request.query.get("after", ""), request.query.get("limit", ""))
        except InvalidInput as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(body=page, content_type="application/json")

    async def _explain(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request.headers.get("Authorization", "")):
            return refusal
        asked = request.match_info
        found = explained(self._records, asked["kind"], asked["namespace"], asked["name"])
        return web.Response(body=found, content_type="application/json")

    def _refusal(self, authorization: str) -> web.Response | None:
        refused = self._tokens.refusal(authorization)
        return None if refused is None else web.Response(status=refused[0], text=refused[1] + "\n")


async def _reload(certificates: ServerCertificates) -> None:
    while True:
        await asyncio.sleep(_RELOAD_S)
        certificates.reload_if_changed()


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _answer(problems: list[str]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

"""aiohttp's protocol with our bounds: it limits bytes and headers by itself, but neither time nor connections."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from tiphys_models.serving.bounds import HEADERS, IDLE_LIMIT_S, RECEIPT_LIMIT_S, REFUSALS, Overdue, Patience, Slot, refusal
from tiphys_operator.metrics import OperatorMetrics


class StatusConnection(RequestHandler):
    """One peer of the status listener."""

    __slots__ = ("_metrics", "_own_loop", "_patience", "slot")

    def __init__(self, server: web.Server, metrics: OperatorMetrics) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp's own runner hands it on
            keepalive_timeout=IDLE_LIMIT_S,
            lingering_time=RECEIPT_LIMIT_S,
            max_headers=HEADERS,
        )
        self.slot: Slot | None = None
        self._metrics, self._own_loop = metrics, loop
        self._patience = Patience(loop.time())

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        if self.slot is not None:
            self.slot.leave()

    def data_received(self, data: bytes) -> None:
        """Bytes arrive; the time that the peer has for its whole request starts with the first ones."""
        self._patience.began(self._own_loop.time())
        super().data_received(data)

    def begun(self) -> bool:
        """The head of a request is whole. Whether the peer may ask now."""
        self._patience.complete(self._own_loop.time())
        return self.slot is None or self.slot.spend()

    def check(self, now_s: float) -> None:
        """Cut what takes too long."""
        transport = self.transport
        if transport is None:
            return
        match self._patience.overdue(now_s, unread=bool(transport.is_closing() or transport.get_write_buffer_size())):
            case Overdue.ANSWER_TAKEN:
                self.abort()
            case Overdue.REQUEST:
                self._metrics.status_refused[REFUSALS[408]].inc()
                transport.write(refusal(408))
                self.force_close()
            case Overdue.ANYTHING:
                self.force_close()

    def abort(self) -> None:
        """The connection is closed now, without sending what is left."""
        if self.transport is not None:
            self.transport.abort()


def bounded(metrics: OperatorMetrics) -> Middleware:
    """Tells a connection that its request has come, and the peer if it comes too fast."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if isinstance(request.protocol, StatusConnection) and not request.protocol.begun():
            metrics.status_refused[REFUSALS[429]].inc()
            answer = web.Response(status=429, text="too many requests\n", headers={"Retry-After": "1"})
            answer.force_close()
            return answer
        return await handler(request)

    return middleware

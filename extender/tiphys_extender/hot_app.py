"""The scheduler's listener: one route, answered inline on the event loop.

A plain ASGI endpoint inside FastAPI's router: its dependency machinery would cost more than the decision. No executor either: it adds
0.2 ms a call and doubles p99; the network itself takes 0.05 to 0.3 ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from tiphys_extender.answer import Answerer
from tiphys_extender.metrics import Metrics
from tiphys_extender.wire import BadRequest, encode_error

_log = logging.getLogger(__name__)

_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_SETTLE_AFTER_S = 0.001
"""By then the scheduler has read the answer; done at once, the book-keeping would fight with it for a core on a busy machine."""


class HotEndpoint:
    """POST only; reads at most `max_body_bytes`, answers with Content-Length, keeps the connection."""

    def __init__(
        self, answer: Callable[[bytes], bytes], metrics: Metrics, max_body_bytes: int, afterwards: Callable[[], None] | None = None
    ) -> None:
        self._answer = answer
        self._afterwards = afterwards
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        status, closing = 200, False
        try:
            if scope["method"] != "POST":
                raise BadRequest("method", 405)
            answer = self._answer(await read_body(scope, receive, self._max_body_bytes))
        except BadRequest as bad:
            self._metrics.bad_requests[bad.reason].inc()
            if bad.reason == "disconnected":
                return
            status, answer = bad.status, encode_error(bad.reason)
            closing = bad.reason in ("body-too-large", "content-encoding")  # the rest of the body is not read
        except Exception as error:  # noqa: BLE001 - the edge: a stack trace could quote the pod
            _log.error("request failed", extra={"fields": {"error": type(error).__name__}})
            self._metrics.bad_requests["internal-error"].inc()
            status, answer = 500, encode_error("internal-error")
        self._metrics.requests[str(status)].inc()
        headers = [_JSON, (b"content-length", str(len(answer)).encode())]
        if closing:
            headers.append(_CLOSE)
        if status == 405:
            headers.append((b"allow", b"POST"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        if self._afterwards is not None:
            asyncio.get_running_loop().call_later(_SETTLE_AFTER_S, self._afterwards)


async def read_body(scope: MutableMapping[str, Any], receive: Receive, max_bytes: int) -> bytes:
    """The whole body of a request; BadRequest if it is larger, encoded or never complete."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value) > max_bytes):
            raise BadRequest("body-too-large", 413)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise BadRequest("content-encoding")
    message: Message = await receive()
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise BadRequest("disconnected")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise BadRequest("body-too-large", 413)
        if not message.get("more_body"):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)
        message = await receive()


def make_hot_app(answerer: Answerer, metrics: Metrics, *, max_body_bytes: int, expose_floor: bool) -> FastAPI:
    """The application behind the scheduler's listener."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.routes.append(Route("/prioritize", HotEndpoint(answerer.prioritize, metrics, max_body_bytes, answerer.settle)))
    if expose_floor:
        app.router.routes.append(Route("/floor", HotEndpoint(answerer.floor, metrics, max_body_bytes)))
    return app

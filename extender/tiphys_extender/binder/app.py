"""The callers' listener: tokens, bodies and errors; what is asked is answered by the placer.

Plain ASGI endpoints, like the scheduler's: no validation machinery of FastAPI's, whose errors quote what was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tiphys_extender.binder.body import read_body
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.binder.placer import Placer
from tiphys_extender.binder.refused import Refused
from tiphys_extender.binder.replies import Replies
from tiphys_extender.binder.requests import PlaceCall, Report, parse
from tiphys_extender.binder.tenants import Tenant, Tenants
from tiphys_extender.wire import BadRequest

_log = logging.getLogger(__name__)
_RETRY_AFTER_S = "1"

Handler = Callable[[Tenant, str, bytes], bytes]
"""(who, id in the path, body) -> answer."""


class Endpoint:
    """One verb of one path."""

    def __init__(self, method: str, handle: Handler, tenants: Tenants, metrics: BinderMetrics, max_body_bytes: int) -> None:
        self._method, self._handle, self._tenants = method, handle, tenants
        self._metrics, self._max_body_bytes = metrics, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        headers: dict[str, str] = {}
        try:
            status, content = 200, await self._answer(scope, receive)
        except Refused as refused:
            self._metrics.bad_requests[refused.reason].inc()
            status, content = refused.status, _error(refused.reason, str(refused))
            headers = _headers(refused.reason, self._method)
        except BadRequest as bad:  # the caller went away
            self._metrics.bad_requests[bad.reason].inc()
            return
        except Exception as error:  # noqa: BLE001 - the edge: a stack trace could quote what was sent
            _log.error("request failed", extra={"fields": {"error": type(error).__name__}})
            self._metrics.bad_requests["internal-error"].inc()
            status, content = 500, _error("internal-error", "see the log of the binder")
        self._metrics.requests[str(status)].inc()
        await Response(content, status, headers, "application/json")(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != self._method:
            raise Refused("method", f"{self._method} only")
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        tenant = self._tenants.of(given.decode("latin-1"))
        if tenant is None:
            raise Refused("unauthorised", "send a token of the tenants file as Authorization: Bearer")
        try:
            body = await read_body(scope, receive, self._max_body_bytes)
        except BadRequest as bad:
            if bad.reason == "disconnected":
                raise
            raise Refused(bad.reason, _BODY[bad.reason].format(self._max_body_bytes)) from None
        return self._handle(tenant, scope["path_params"].get("id", ""), body)


_BODY = {"body-too-large": "the body has more than {} bytes", "content-encoding": "send the body without content-encoding"}


def _headers(reason: str, method: str) -> dict[str, str]:
    match reason:
        case "unauthorised":
            return {"www-authenticate": "Bearer"}
        case "too-many-open":
            return {"retry-after": _RETRY_AFTER_S}
        case "method":
            return {"allow": method}
        case "body-too-large" | "content-encoding":
            return {"connection": "close"}  # the rest of the body is not read
        case _:
            return {}


def _error(reason: str, message: str) -> bytes:
    return orjson.dumps({"error": reason, "message": message})


def make_binder_app(placer: Placer, replies: Replies, tenants: Tenants, metrics: BinderMetrics, *, max_body_bytes: int) -> FastAPI:
    """The application behind the callers' listener."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    def place(tenant: Tenant, _: str, body: bytes) -> bytes:
        call = parse(PlaceCall, body)
        if (kept := replies.find(tenant.name, call)) is not None:
            metrics.replayed.inc()
            return kept
        answer = orjson.dumps(placer.place(tenant, call))
        replies.keep(tenant.name, call, answer)
        return answer

    def started(tenant: Tenant, uid: str, body: bytes) -> bytes:
        report = parse(Report, body)
        if report.node is None:
            raise Refused("invalid", "node: say where the call runs")
        return orjson.dumps(placer.report(tenant, uid, report))

    def renew(tenant: Tenant, uid: str, body: bytes) -> bytes:
        return orjson.dumps(placer.report(tenant, uid, parse(Report, body)))

    def finished(tenant: Tenant, uid: str, _: bytes) -> bytes:
        return orjson.dumps(placer.finished(tenant, uid))

    def explain(tenant: Tenant, uid: str, _: bytes) -> bytes:
        return orjson.dumps(placer.explain(tenant, uid))

    routes: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/placements", place),
        ("GET", "/v1/placements/{id}", explain),
        ("POST", "/v1/placements/{id}/started", started),
        ("POST", "/v1/placements/{id}/renew", renew),
        ("POST", "/v1/placements/{id}/finished", finished),
    ]
    for method, path, handle in routes:
        app.router.routes.append(Route(path, Endpoint(method, handle, tenants, metrics, max_body_bytes)))

    async def unrouted(_: Request, error: Any) -> Response:
        metrics.bad_requests["not-found"].inc()
        metrics.requests["404"].inc()
        return Response(_error("not-found", "no such path"), error.status_code, media_type="application/json")

    app.add_exception_handler(HTTPException, unrouted)
    return app

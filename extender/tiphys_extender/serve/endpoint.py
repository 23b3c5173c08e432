"""One path of the callers' listener: tokens, bodies and errors; what is asked is answered by somebody else.

Plain ASGI, like the scheduler's listener: no validation machinery of FastAPI's, whose errors quote what was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tiphys_extender.serve.body import read_body
from tiphys_extender.serve.caller_metrics import CallerMetrics
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant, Tenants
from tiphys_extender.serve.throttle import Throttle
from tiphys_extender.serve.wire import BadRequest

_log = logging.getLogger(__name__)

_ID_PLACE = 3
"""Index of the id in /v1/KIND/ID/…, split at the slashes."""
Handler = Callable[[Tenant, str, bytes], bytes]
"""(who, id in the path, body) -> answer."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What one method of a path does."""

    handle: Handler
    status: int = 200
    """HTTP status of an answer that is no refusal."""


class Endpoint:
    """All verbs of one path."""

    def __init__(
        self, verbs: Mapping[str, Verb], tenants: Tenants, throttle: Throttle, metrics: CallerMetrics, max_body_bytes: int
    ) -> None:
        self._verbs, self._tenants, self._throttle = verbs, tenants, throttle
        self._metrics, self._max_body_bytes = metrics, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (the ASGI entry point)."""
        headers: dict[str, str] = {}
        try:
            status, content = await self._answer(scope, receive)
        except Refused as refused:
            self._metrics.bad_requests[refused.reason].inc()
            status, content = refused.status, error_body(refused.reason, str(refused), refused.about)
            headers = self._headers(refused)
        except BadRequest as bad:  # the caller went away
            self._metrics.bad_requests[bad.reason].inc()
            return
        except Exception as error:  # noqa: BLE001 - the edge: a stack trace could quote what was sent
            _log.error("request failed", extra={"fields": {"error": type(error).__name__}})
            self._metrics.bad_requests["internal-error"].inc()
            status, content = 500, error_body("internal-error", "see the log of the binder")
        self._metrics.requests[str(status)].inc()
        await Response(content, status, headers, "application/json")(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        verb = self._verbs.get(scope["method"])
        if verb is None:
            raise Refused("method", f"{' and '.join(self._verbs)} only")
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        tenant = self._tenants.of(given.decode("latin-1"))
        if tenant is None:
            raise Refused("unauthorised", "send a token of the tenants file as Authorization: Bearer")
        try:
            self._throttle.admit(tenant)  # before anything of it is read
            body = await self._body(scope, receive)
            self._throttle.charge(tenant, len(body))
            return verb.status, verb.handle(tenant, scope["path_params"].get("id", ""), body)
        except Refused as refused:
            self._throttle.refused(tenant, refused.reason)
            raise

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        try:
            return await read_body(scope, receive, self._max_body_bytes)
        except BadRequest as bad:
            if bad.reason == "disconnected":
                raise
            raise Refused(bad.reason, _BODY[bad.reason].format(self._max_body_bytes)) from None

    def _headers(self, refused: Refused) -> dict[str, str]:
        if refused.retry_after_s is not None:
            return {"retry-after": str(refused.retry_after_s)}
        match refused.reason:
            case "unauthorised":
                return {"www-authenticate": "Bearer"}
            case "method":
                return {"allow": ", ".join(self._verbs)}
            case "body-too-large" | "content-encoding":
                return {"connection": "close"}  # the rest of the body is not read
            case _:
                return {}


class Paths:
    """Endpoints by path, as an ASGI application. Where a path has `{id}`, one segment may stand.

    Without a framework's routes and middleware: those cost as much as binding a stream among 500 offers does.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], metrics: CallerMetrics) -> None:
        self._endpoints, self._metrics = endpoints, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI; only HTTP comes here."""
        endpoint, uid = self._find(scope["path"])
        if endpoint is None:
            self._metrics.bad_requests["not-found"].inc()
            self._metrics.requests["404"].inc()
            await Response(error_body("not-found", "no such path"), 404, media_type="application/json")(scope, receive, send)
            return
        scope["path_params"] = {"id": uid}
        await endpoint(scope, receive, send)

    def _find(self, path: str) -> tuple[Endpoint | None, str]:
        parts = path.split("/")
        if len(parts) <= _ID_PLACE:
            return self._endpoints.get(path), ""
        uid, parts[_ID_PLACE] = parts[_ID_PLACE], "{id}"
        return self._endpoints.get("/".join(parts)) if uid else None, uid


_BODY = {"body-too-large": "the body has more than {} bytes", "content-encoding": "send the body without content-encoding"}


def error_body(reason: str, message: str, about: str = "") -> bytes:
    """What a refusal looks like."""
    return orjson.dumps({"error": reason, "message": message} | ({"id": about} if about else {}))

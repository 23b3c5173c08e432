"""Streams at the callers' listener."""

from __future__ import annotations

import orjson

from tiphys_extender.serve.endpoint import Verb
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.requests import Renewal, ReportedQueries, Wanted


def stream_paths(streams: StreamBinder) -> dict[str, dict[str, Verb]]:
    """Verbs by path of the callers' listener."""

    def bind(tenant: Tenant, _: str, body: bytes) -> bytes:
        return orjson.dumps(streams.bind(tenant, parse(Wanted, body)))

    def renew(tenant: Tenant, uid: str, body: bytes) -> bytes:
        return orjson.dumps(streams.renew(tenant, uid, parse(Renewal, body)))

    def release(tenant: Tenant, uid: str, body: bytes) -> bytes:
        return orjson.dumps(streams.release(tenant, uid, parse(ReportedQueries, body)))

    def explain(tenant: Tenant, uid: str, _: bytes) -> bytes:
        return orjson.dumps(streams.explain(tenant, uid))

    return {
        "/v1/bindings": {"POST": Verb(bind, 201)},
        "/v1/bindings/{id}": {"GET": Verb(explain), "DELETE": Verb(release)},
        "/v1/bindings/{id}/renew": {"POST": Verb(renew)},
    }

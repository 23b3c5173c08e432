"""The callers' listener: what is asked at which path."""

from __future__ import annotations

from contextlib import suppress

import orjson

from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.calls.placer import NOT_YET, Placer
from tiphys_extender.calls.replies import Replies
from tiphys_extender.calls.requests import Ended, PlaceCall, Report
from tiphys_extender.serve.endpoint import Endpoint, Paths, Verb
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenant, Tenants
from tiphys_extender.serve.throttle import Throttle
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.paths import stream_paths


def make_binder_app(
    placer: Placer,
    replies: Replies,
    tenants: Tenants,
    metrics: BinderMetrics,
    *,
    throttle: Throttle,
    max_body_bytes: int,
    streams: StreamBinder | None = None,
) -> Paths:
    """The application behind the callers' listener."""

    def place(tenant: Tenant, _: str, body: bytes) -> bytes:
        placer.admit()
        call = parse(PlaceCall, body)
        if (kept := replies.find(tenant.name, call)) is not None:
            metrics.replayed.inc()
            return kept
        found = placer.place(tenant, call)
        answer = orjson.dumps(found)
        if found["outcome"] != NOT_YET:  # who waits asks the same again
            replies.keep(tenant.name, call, answer, tenant.caps.replies_bytes)
        return answer

    def started(tenant: Tenant, uid: str, body: bytes) -> bytes:
        placer.admit()
        report = parse(Report, body)
        if report.node is None:
            raise Refused("invalid", "node: say where the call runs")
        return orjson.dumps(placer.report(tenant, uid, report))

    def renew(tenant: Tenant, uid: str, body: bytes) -> bytes:
        placer.admit()
        return orjson.dumps(placer.report(tenant, uid, parse(Report, body)))

    def finished(tenant: Tenant, uid: str, body: bytes) -> bytes:
        placer.admit()
        ended: Ended | None = None
        with suppress(Refused):  # the call is over whatever else was said
            ended = parse(Ended, body)
        return orjson.dumps(placer.finished(tenant, uid, ended))

    def explain(tenant: Tenant, uid: str, _: bytes) -> bytes:
        placer.admit()
        return orjson.dumps(placer.explain(tenant, uid))

    paths: dict[str, dict[str, Verb]] = {
        "/v1/placements": {"POST": Verb(place)},
        "/v1/placements/{id}": {"GET": Verb(explain)},
        "/v1/placements/{id}/started": {"POST": Verb(started)},
        "/v1/placements/{id}/renew": {"POST": Verb(renew)},
        "/v1/placements/{id}/finished": {"POST": Verb(finished)},
        **(stream_paths(streams) if streams is not None else {}),
    }
    return Paths({path: Endpoint(verbs, tenants, throttle, metrics, max_body_bytes) for path, verbs in paths.items()}, metrics)

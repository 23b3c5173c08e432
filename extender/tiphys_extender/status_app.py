"""What people, probes, Prometheus and the operator read: never on the scheduler's listener."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Header, HTTPException, Query
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tiphys_extender.model_store import ModelStore
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.explain import explain
from tiphys_extender.placement.readings import coverage
from tiphys_extender.placement.waited import Gates
from tiphys_extender.serve.loops import Loops
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.placement.calls import PROFILE_QUANTITIES
from tiphys_models.placement.registry import usable_names
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.exposition import Exposition

_MAX_PAGE = 5_000
LOADS_PATH = "/v1/bindings/loads"


class Health:
    """Whether to be asked at all."""

    def __init__(self, missing: Callable[[], tuple[str, ...]], loops: Loops | None = None) -> None:
        self._missing, self._loops = missing, loops
        self.stopping = False
        self.scraped_s = 0.0
        """When /metrics was last read; 0: never."""

    def problem(self) -> str:
        """Why not; empty when ready."""
        if self.stopping:
            return "stopping"
        missing = self._missing()
        if missing:
            return f"waiting for the first list of {', '.join(missing)}"
        return "; ".join(self._loops.not_ready()) if self._loops is not None else ""

    def late(self) -> list[str]:
        """Loops that have not done their work, those included that are not waited for."""
        return self._loops.late() if self._loops is not None else []

    def dead(self) -> str:
        """Why only another process can help; empty while this one is alive."""
        return "; ".join(self._loops.dead()) if self._loops is not None else ""


@dataclass(frozen=True, slots=True)
class StatusTokens:
    """Bearer tokens for the pages that are not for everybody."""

    decisions: BearerTokens
    """Decisions, models and summaries: the operator's."""
    loads: BearerTokens
    """What is bound: that of binders at other access sites."""


class _Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


Settle = Callable[[], None]
"""Finishes the book-keeping of answers already sent, so that whoever reads about them sees them."""


def _nothing() -> None:
    """Does nothing: the default `settle` of an application that stands alone."""


def _app(settle: Settle) -> FastAPI:
    async def settled() -> None:
        settle()

    return FastAPI(openapi_url=None, docs_url=None, redoc_url=None, default_response_class=_Json, dependencies=[Depends(settled)])


Page = Callable[[int], Any]
"""What a path answers as JSON: (query `after`, which only logs look at) -> answer."""


def make_status_app(
    metrics: Metrics,
    health: Health,
    decisions: DecisionLog,
    models: ModelStore,
    tokens: StatusTokens,
    settle: Settle = _nothing,
    pages: Mapping[str, Page] | None = None,
    probes: Mapping[str, Callable[[], str]] | None = None,
) -> ASGIApp:
    """Metrics, probes and the decision log; and other pages for whoever has the token of their purpose.

    `probes` are further paths for everybody, each with what says why it is not ready; empty while it is.
    """
    app = _app(settle)

    def scraped() -> None:
        health.scraped_s = time.time()
        metrics.last_scrape.set(health.scraped_s)

    exposition = Exposition(lambda: generate_latest(metrics.registry), scraped)

    def holder_of(purpose: BearerTokens) -> Any:
        def authorised(authorization: Annotated[str, Header()] = "") -> None:
            if (refusal := purpose.refusal(authorization)) is not None:
                raise HTTPException(*refusal)

        return Depends(authorised)

    @app.get("/v1/decisions", dependencies=[holder_of(tokens.decisions)])
    async def read_decisions(after: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 1_000) -> Response:
        return _Json(decisions.after(after, limit))

    @app.get("/v1/models", dependencies=[holder_of(tokens.decisions)])
    async def read_models() -> Response:
        return _Json({"items": models.describe(), "policies": usable_names()})

    for path, page in (pages or {}).items():
        purpose = tokens.loads if path == LOADS_PATH else tokens.decisions
        app.add_api_route(path, _served(page), dependencies=[holder_of(purpose)])

    def read_metrics() -> Response:
        settle()
        return Response(exposition.read(), media_type=CONTENT_TYPE_LATEST)

    asked = {"/healthz": health.dead, "/readyz": health.problem, **(probes or {})}
    return _Open({"/metrics": read_metrics, **{path: _probed(problem) for path, problem in asked.items()}}, app)


def _probed(problem_of: Callable[[], str]) -> Callable[[], Response]:
    def probe() -> Response:
        problem = problem_of()
        return Response(problem or "ok", status_code=503 if problem else 200, media_type="text/plain")

    return probe


class _Open:
    """Pages for everybody, and for the others the application behind it.

    These are what a stranger may have made again and again while decisions wait: without a framework they cost a fifth.
    """

    def __init__(self, pages: Mapping[str, Callable[[], Response]], others: ASGIApp) -> None:
        self._pages, self._others = pages, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (the ASGI entry point)."""
        page = self._pages.get(scope["path"])
        if page is None:
            await self._others(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            await page()(scope, receive, send)
        else:
            await Response('{"detail":"Method Not Allowed"}', 405, {"allow": "GET"}, "application/json")(scope, receive, send)


def _served(page: Page) -> Callable[[int], Awaitable[Response]]:
    async def read_page(after: Annotated[int, Query(ge=0)] = 0) -> Response:
        return _Json(page(after))

    return read_page


ExplainStream = Callable[[str], dict[str, Any] | None]
"""Everything kept about a stream by its id; None: nothing is."""


def make_explain_app(
    world: World,
    decisions: DecisionLog,
    models: ModelStore,
    health: Health,
    started_s: float,
    settle: Settle = _nothing,
    explain_stream: ExplainStream | None = None,
    pages: Mapping[str, Page] | None = None,
    gates: Gates | None = None,
) -> FastAPI:
    """Explain and state, on loopback only: who may port-forward to the pod may read it."""
    app = _app(settle)
    for path, page in (pages or {}).items():
        app.add_api_route(path, _served(page))

    @app.get("/v1/explain")
    async def read_explain(namespace: str = "default", pod: str = "", uid: str = "", stream: str = "") -> Response:
        if stream:
            found = explain_stream(stream) if explain_stream is not None else None
            return _Json({"asked": found is not None, **(found or {})}, status_code=404 if found is None else 200)
        if not pod and not uid:
            raise HTTPException(400, "name the pod: ?namespace=NS&pod=NAME or ?uid=UID; or a stream: ?stream=ID")
        records = decisions.of_uid(uid) if uid else decisions.of_name(namespace, pod)
        answer = explain(decisions, records, started_s)
        held = gates.story(uid, namespace, pod) if gates is not None else None
        if held is not None:
            answer["held"] = held
        if records:
            profile = world.state.profile(records[-1].function)
            answer["callProfile"] = None if profile is None else dict(zip(PROFILE_QUANTITIES, profile.as_row(), strict=True))
        return _Json(answer, status_code=200 if records or held is not None else 404)

    @app.get("/v1/state")
    async def read_state() -> Response:
        problem = health.problem()
        return _Json(
            {
                "ready": not problem,
                "problem": problem,
                "lateLoops": health.late(),
                "enabled": world.enabled,
                "nodes": len(world.state.nodes),
                "pods": world.state.pods,
                "reservations": world.state.reservations,
                "coverage": coverage(world.state, time.time()),
                "routes": [
                    {"policy": route.key, "mode": route.spec.mode, "policyName": route.deciding, "model": route.spec.model_name}
                    for route in world.router
                ],
                "models": models.describe(),
                "decisions": {"first": decisions.first, "last": decisions.last, "kept": len(decisions)},
                "since": started_s,
                "now": time.time(),
                "lastScrape": health.scraped_s,
                "torchImported": "torch" in sys.modules,
                "peakMemoryBytes": _peak_memory_bytes(),
            }
        )

    return app


def _peak_memory_bytes() -> int:
    """The most memory this process ever held; 0 where the kernel does not say."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
    return 0

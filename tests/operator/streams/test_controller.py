"""The loop against real small HTTP servers and an API server of a few lines: what is written, when, and what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from tests.operator.scaling.harness import Unfenced
from tests.operator.streams.small import SERVICE, endpoint_slice, policy, site, variant
from tests.operator.streams.test_probes import Site, serving
from tests.operator.streams.test_verdicts import SUMMARY
from tiphys_models.api.inference_site import Probe
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import LeaseLost
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.networks import networks_of
from tiphys_operator.streams.controller import BindingOptions, StreamsController
from tiphys_operator.streams.metrics import BindingMetrics
from tiphys_operator.streams.prober import Prober
from tiphys_operator.streams.probes import Probes
from tiphys_operator.streams.quota import Granted, ProbeQuota
from tiphys_operator.streams.summaries import FRESH_S, SummaryReader

LOOPBACK = networks_of("127.0.0.0/8")
WITHIN_S = 20.0
"""For things that take milliseconds, on a machine that may be busy."""


class Kube:
    """Objects with statuses; a watch tells of every change."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = {(_plural(obj), obj["metadata"]["name"]): obj for obj in objects}
        self.watchers: list[tuple[str, asyncio.Queue[dict[str, Any]]]] = []
        self.writes: list[str] = []
        self.watched: list[str] = []
        self.refuse: ApiError | None = None
        self._version = 1

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        plural = path.rpartition("/")[2]
        self.watched.append(plural)
        yield {"metadata": {"resourceVersion": "1"}, "items": [_copy(obj) for (kind, _), obj in self.objects.items() if kind == plural]}

    async def watch(self, path: str, *args: Any, **limits: Any) -> AsyncGenerator[dict[str, Any], None]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.watchers.append((path.rpartition("/")[2], queue))
        while True:
            yield await queue.get()

    def put(self, obj: dict[str, Any]) -> Any:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[_plural(obj), obj["metadata"]["name"]] = obj
        for plural, queue in self.watchers:
            if plural == _plural(obj):
                queue.put_nowait({"type": "MODIFIED", "object": _copy(obj)})
        return _copy(obj)

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        plural, name, _ = path.rsplit("/", 2)
        obj = self.objects[plural.rpartition("/")[2], name]
        if self.refuse is not None:
            raise self.refuse
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        self.writes.append(name)
        return self.put({**obj, "metadata": dict(obj["metadata"]), "status": _copy(body["status"])})

    def reason(self, plural: str, name: str) -> str:
        conditions = self.objects[plural, name]["status"].get("conditions") or [{"reason": ""}]
        return str(conditions[0]["reason"])


def _plural(obj: dict[str, Any]) -> str:
    return (
        "endpointslices" if "addressType" in obj else obj["kind"].lower().removesuffix("y") + ("ies" if obj["kind"].endswith("y") else "s")
    )


def _copy(obj: Any) -> Any:
    return json.loads(json.dumps(obj))


class Running:
    def __init__(self, kube: Kube, **options: Any) -> None:
        client, self.metrics = cast("KubeClient", kube), OperatorMetrics()
        self.writer = Unfenced(client, self.metrics)
        self.loop = StreamsController(
            client, self.writer, self.metrics, SystemClock(), BindingOptions(**{"probe_allow": LOOPBACK, **options})
        )

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"tiphys_operator_binding_{name}", labels)


@asynccontextmanager
async def running(kube: Kube, **options: Any) -> AsyncIterator[Running]:
    made = Running(kube, **options)
    task = asyncio.create_task(made.loop.run())
    try:
        yield made
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError), results


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in another task's sockets
            await asyncio.sleep(0.01)


def probed(name: str, server: Site) -> dict[str, Any]:
    return site(name, access=True, probe={"url": server.url, "intervalSeconds": 1, "timeoutSeconds": 1})


@pytest.mark.slow  # a second between two probes is the least
async def test_a_site_that_misses_two_probes_is_down_and_so_are_its_variants() -> None:
    async with serving() as server:
        kube = Kube(probed("a1", server), variant())
        async with running(kube, access_site="a1") as made:
            await until(lambda: kube.reason("inferencesites", "a1") == "Probed")
            await until(lambda: kube.reason("modelvariants", "yolo") == "AddressGiven")
            server.status = 503
            await until(lambda: kube.reason("inferencesites", "a1") == "ProbesMissed")
            await until(lambda: kube.reason("modelvariants", "yolo") == "SiteUnreachable")
            assert (made.sample("probes_total", result="missed") or 0) >= 2
            await until(lambda: made.sample("site_up", site="n/a1") == 0)
            server.status = 200
            await until(lambda: kube.reason("inferencesites", "a1") == "Probed")
            assert [event.reason for event in made.writer.events if event.about.name == "a1"] == ["ProbesMissed", "Probed"]


async def test_a_site_at_a_refused_address_is_not_asked_and_its_status_names_the_rule() -> None:
    async with serving() as server:
        kube = Kube(probed("a1", server), variant())
        async with running(kube, probe_allow=()) as made:
            await until(lambda: kube.reason("inferencesites", "a1") == "ProbeRefused")
            (condition,) = kube.objects["inferencesites", "a1"]["status"]["conditions"]
            assert (condition["status"], condition["message"]) == (
                "False",
                "the operator does not probe this address (loopback); nothing is bound there",
            )
            await until(lambda: kube.reason("modelvariants", "yolo") == "SiteUnreachable")
            assert (made.sample("probes_refused_total", rule="loopback") or 0) >= 1
        assert not server.connections


async def test_sites_beyond_the_limit_of_their_namespace_say_so_and_are_bound_to() -> None:
    async with serving() as server:
        kube = Kube(probed("a1", server), probed("a2", server), variant())
        async with running(kube, probe_quota=ProbeQuota(sites=1)) as made:
            await until(lambda: kube.reason("inferencesites", "a2") == "ProbeRefused")
            await until(lambda: kube.reason("inferencesites", "a1") == "Probed")
            (condition,) = kube.objects["inferencesites", "a2"]["status"]["conditions"]
            assert (condition["status"], "(too-many-sites)" in condition["message"]) == ("Unknown", True)
            await until(lambda: made.sample("sites_beyond_quota") == 1)


@pytest.mark.slow  # a second between two probes is the least
async def test_a_status_tells_how_a_probe_was_missed_in_fixed_words_and_no_more() -> None:
    kube = Kube(site("a1", access=True, probe={"url": "http://127.0.0.2:1/private", "intervalSeconds": 1, "timeoutSeconds": 1}))
    async with running(kube):
        await until(lambda: kube.reason("inferencesites", "a1") == "ProbesMissed")
        (condition,) = kube.objects["inferencesites", "a1"]["status"]["conditions"]
        assert condition["message"] == (
            "2 probes in a row were missed, the last with: connection refused; nothing is bound there until one is answered"
        )


async def test_nothing_is_written_twice() -> None:
    kube = Kube(site(), variant(), policy(mode="Off"))
    async with running(kube) as made:
        await until(lambda: len(kube.writes) == 3)
        kube.put(kube.objects["inferencesites", "a1"])
        kube.put(site("a2"))
        await until(lambda: "a2" in kube.writes)
        assert sorted(kube.writes) == ["a1", "a2", "streams", "yolo"]
        assert made.sample("policies", mode="Off", ready="False") == 1


async def test_replicas_follow_the_endpoints_of_a_service() -> None:
    kube = Kube(site(), variant(endpoint=SERVICE), endpoint_slice("s", "yolo", "10.0.0.1", "10.0.0.2"))
    async with running(kube):
        await until(lambda: kube.objects["modelvariants", "yolo"]["status"].get("replicas") == 2)
        await until(lambda: any(plural == "endpointslices" for plural, _ in kube.watchers))
        kube.put(endpoint_slice("s", "yolo", "10.0.0.1", ready=False))
        await until(lambda: kube.reason("modelvariants", "yolo") == "NoReadyEndpoint")


async def test_endpoints_are_watched_only_if_a_variant_is_a_service() -> None:
    kube = Kube(site(), variant())
    async with running(kube):
        await until(lambda: kube.reason("modelvariants", "yolo") == "AddressGiven")
        assert "endpointslices" not in kube.watched


@asynccontextmanager
async def binders(answers: dict[str, Any]) -> AsyncIterator[tuple[str, ...]]:
    async def summary(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        return web.json_response(answers[request.url.host or ""])

    app = web.Application()
    app.router.add_get("/v1/bindings/summary", summary)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    for address in answers:
        await web.TCPSite(runner, address, 0).start()
    try:
        yield tuple(f"http://{host}:{port}" for host, port, *_ in runner.addresses)
    finally:
        await runner.cleanup()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


async def test_a_policy_hears_from_the_binder_that_is_active(token_file: Path) -> None:
    kube = Kube(site(access=True, delays=[{"from": "a1", "meanMs": 1}]), variant(), policy())
    async with (
        binders({"127.0.0.2": SUMMARY | {"active": False, "streams": 99}, "127.0.0.3": SUMMARY}) as urls,
        running(kube, binder_urls=urls, token_file=token_file),
    ):
        await until(lambda: kube.reason("streampolicies", "streams") == "Binding")
        assert kube.objects["streampolicies", "streams"]["status"]["streams"] == 3


async def test_a_binder_that_falls_silent_is_believed_for_a_while_only(token_file: Path) -> None:
    answers: dict[str, Any] = {"127.0.0.2": SUMMARY}
    metrics, clock = OperatorMetrics(), ManualClock()
    async with binders(answers) as urls, SummaryReader(urls, token_file, metrics.part(BindingMetrics), clock) as reader:
        await reader.pull()
        answers["127.0.0.2"] = {"not": "a summary"}
        clock.advance(FRESH_S)
        await reader.pull()
        heard = reader.of("n", "a1")
        assert heard is not None
        assert heard.streams == 3
        clock.advance(0.1)
        assert reader.of("n", "a1") is None
    assert metrics.registry.get_sample_value("tiphys_operator_binding_errors_total", {"reason": "summary-failed"}) == 1


async def test_a_policy_without_a_binder_says_so() -> None:
    kube = Kube(site(access=True), policy())
    async with running(kube):
        await until(lambda: kube.reason("streampolicies", "streams") == "BinderUnreachable")


async def test_a_probe_that_trips_over_its_site_counts_as_missed_and_goes_on() -> None:
    class Mistaken(Probes):
        async def round_trip_ms(self, probe: Probe, owner: str = "") -> float:
            if probe.port == 1:
                raise ZeroDivisionError
            return 3.0

    metrics = OperatorMetrics()
    prober = Prober(Mistaken(), metrics.part(BindingMetrics), SystemClock(), lambda: None, metrics.objects)
    prober.follow(Granted({name: Probe(host="127.0.0.2", port=port, interval_seconds=1) for name, port in (("bad", 1), ("good", 2))}))

    def told() -> bool:
        prober.check()
        bad, good = prober.rounds("bad"), prober.rounds("good")
        return bad is not None and bad.reachable is False and good is not None and good.reachable is True

    await until(told)
    assert getattr(prober.rounds("bad"), "why_missed", "") == "the probe itself failed", "fixed words: what was tripped over is for the log"
    assert (metrics.registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "InferenceSite"}) or 0) >= 2
    await prober.close()


async def test_a_write_that_fails_is_tried_again() -> None:
    kube = Kube(site())
    kube.refuse = ApiError(500, "InternalError", "on purpose")
    async with running(kube) as made:
        await until(lambda: (made.sample("errors_total", reason="api-error") or 0) > 0)
        kube.refuse = None
        await until(lambda: kube.reason("inferencesites", "a1") == "NotProbed")


async def test_an_operator_that_lost_its_lease_writes_nothing_more() -> None:
    kube = Kube(site())
    made = Running(kube)

    async def lost(request: Any) -> Any:
        request.close()
        raise LeaseLost("over")

    made.writer.fenced = lost  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(WITHIN_S):
            await made.loop.run()
    assert kube.writes == []

"""Who is told, before an upgrade or by the command, that weights must be shipped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unshipped import Need, needed, wanted

OBJECTIVE = {"latencyMilliseconds": 100, "percentile": 95, "attainmentPercent": 99}


def obj(name: str, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def placing(name: str = "p", **spec: Any) -> dict[str, Any]:
    return obj(name, **{"mode": "Active", "policy": "faasrank", "model": "faasrank-paper", **spec})


def scaling(name: str = "web", kind: str = "q-table", mode: str = "Recommend", **agent: Any) -> dict[str, Any]:
    bounds = {"minReplicas": 1, "maxReplicas": 8}
    target = {"kind": "Deployment", "name": name}
    return obj(name, mode=mode, targetRef=target, objective=OBJECTIVE, horizontal=bounds, agent={"kind": kind, **agent})


WANTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a policy of placement": ("SchedulingPolicy", placing(), "faasrank-paper"),
    "one that is Off": ("SchedulingPolicy", placing(mode="Off"), ""),
    "its default weights": ("SchedulingPolicy", placing(model="faasrank"), ""),
    "weights of somebody's own": ("SchedulingPolicy", placing(model="mine"), ""),
    "one that cannot be read": ("SchedulingPolicy", placing(mode="Sideways"), ""),
    "one that selects": ("SchedulingPolicy", obj("s", mode="Active", select={"by": "metanet", "among": ["cost-lean", "gobi"]}), ""),
    "an agent of scaling": ("ScalingPolicy", scaling(), "scaling-q-table"),
    "an agent with weights of one's own": ("ScalingPolicy", scaling(model="mine"), ""),
    "an agent that every image carries": ("ScalingPolicy", scaling(kind="combined"), ""),
    "a rule": ("ScalingPolicy", scaling(kind="rule"), ""),
    "streams": ("StreamPolicy", obj("s", accessSite="near", mode="Active", policy="aset"), ""),
}


@pytest.mark.parametrize("case", WANTED)
def test_only_weights_that_no_image_carries_are_wanted(case: str) -> None:
    kind, found, model = WANTED[case]
    assert wanted(kind, found) == model


@asynccontextmanager
async def cluster(status: dict[str, int] | None = None, **lists: list[dict[str, Any]]) -> AsyncIterator[KubeClient]:
    """An API server with these lists by plural."""

    async def answer(request: web.Request) -> web.Response:
        plural = request.path.rsplit("/", 1)[-1]
        assert request.method == "GET"
        if (code := (status or {}).get(plural, 200)) != 200:
            return web.json_response({"reason": "Refused", "message": "no"}, status=code)
        return web.json_response({"metadata": {}, "items": lists.get(plural, [])})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with KubeClient(ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)) as client:
        yield client
    await runner.cleanup()


async def test_objects_are_named_until_their_weights_are_published_in_the_namespace_of_the_release() -> None:
    published = [obj("faasrank-paper", "elsewhere"), obj("scaling-q-table", "tiphys-system")]
    async with cluster(schedulingpolicies=[placing()], scalingpolicies=[scaling()], learnedmodels=published) as client:
        found = await needed(client, "tiphys-system")
    assert (found.needs, found.problems) == ((Need("SchedulingPolicy shop/p", "faasrank-paper"),), ())
    assert str(found.needs[0]).startswith("SchedulingPolicy shop/p needs faasrank-paper: `tiphys model ship faasrank-paper`")


async def test_a_kind_that_is_not_installed_is_no_problem_and_one_that_may_not_be_listed_hides_no_other() -> None:
    async with cluster({"learnedmodels": 404, "streampolicies": 404, "schedulingpolicies": 403}, scalingpolicies=[scaling()]) as client:
        found = await needed(client, "tiphys-system")
    assert [need.who for need in found.needs] == ["ScalingPolicy shop/web"]
    assert [problem.split()[0] for problem in found.problems] == ["schedulingpolicies"]

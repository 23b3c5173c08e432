"""The made-up API server of `tiphys bench scale` counts as a real one does: the same story on both, 5,000 pods, the same numbers."""

import asyncio
from typing import Any

import pytest

from tiphys_models.kube.access import ApiAccess, kubeconfig_access
from tiphys_models.kube.client import KubeClient
from tiphys_testbed.bench.scale_api import Api
from tiphys_testbed.bench.scale_objects import Fleet
from tiphys_testbed.cluster.base import Cluster

PODS = 5_000
FINISHED, GONE = 400, 300
UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
AT_ONCE = 16


def pod(index: int) -> dict[str, Any]:
    """A pod that nobody schedules."""
    container = {"name": "main", "image": "registry.example.com/f:1", "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{index:05d}", "labels": {"turn": str(index % 7)}}, "spec": spec}


async def story(access: ApiAccess, namespace: str) -> dict[str, Any]:
    """What a client counts: lists in pages, by fields and labels, and the events of what happens after them."""
    path, turns = f"/api/v1/namespaces/{namespace}/pods", asyncio.Semaphore(AT_ONCE)
    counts: dict[str, Any] = {}
    async with KubeClient(access) as client:

        async def ask(method: str, name: str = "", **asked: Any) -> None:
            async with turns:
                await client.request(method, path + name, **asked)

        async def listed(params: dict[str, str]) -> tuple[list[int], str]:
            pages = [page async for page in client.pages(path, params)]
            return [len(page["items"]) for page in pages], pages[-1]["metadata"]["resourceVersion"]

        async def heard(version: str, params: dict[str, str], most: int) -> dict[str, int]:
            """Pods that were shown as finished, and as deleted; a real server may change a pod once more while it deletes it."""
            finished, deleted = set[str](), set[str]()
            async with asyncio.timeout(60):
                async for event in client.watch(path, version, server_timeout_s=60, stall_s=60, params=params):
                    name = event["object"]["metadata"].get("name", "")
                    if event["type"] == "DELETED":
                        deleted.add(name)
                    elif event["type"] == "MODIFIED" and event["object"]["status"]["phase"] == "Succeeded":
                        finished.add(name)
                    if len(finished) + len(deleted) == most:
                        break
            return {"finished": len(finished), "deleted": len(deleted)}

        await asyncio.gather(*(ask("POST", body=pod(index)) for index in range(PODS)))
        counts["pages"], version = await listed({"limit": "700"})
        counts["by label"], _ = await listed({"limit": "700", "labelSelector": "turn=3"})
        status = {"body": {"status": {"phase": "Succeeded"}}, "content_type": "application/merge-patch+json"}
        await asyncio.gather(*(ask("PATCH", f"/p-{index:05d}/status", **status) for index in range(FINISHED)))
        last = {"params": {"gracePeriodSeconds": "0"}}
        await asyncio.gather(*(ask("DELETE", f"/p-{index:05d}", **last) for index in range(FINISHED, FINISHED + GONE)))
        counts["unfinished"], _ = await listed({"limit": "700", **UNFINISHED})
        counts["events"] = await heard(version, {}, FINISHED + GONE)
        counts["events of the unfinished"] = await heard(version, UNFINISHED, FINISHED + GONE)
        left = [*range(FINISHED), *range(FINISHED + GONE, PODS)]
        await asyncio.gather(*(ask("DELETE", f"/p-{index:05d}", **last) for index in left))
        counts["at the end"], _ = await listed({"limit": "700"})
    return counts


@pytest.mark.needs_local
@pytest.mark.timeout(300)
async def test_the_made_up_api_server_counts_as_a_real_one(cluster: Cluster, namespace: str) -> None:
    real = await story(kubeconfig_access(cluster.kubeconfig), namespace)
    with Api.start(Fleet(0, 0, 0, 0)) as made_up:
        ours = await story(ApiAccess(made_up.url, None), namespace)
    assert ours == real
    assert (sum(ours["pages"]), sum(ours["unfinished"])) == (PODS, PODS - FINISHED - GONE)

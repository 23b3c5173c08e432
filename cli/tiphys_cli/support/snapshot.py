"""`tiphys snapshot`: a cluster in a file, cut down to what a decision reads; no environment, no secrets, no annotations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.snapshot import Snapshot, readings_of, slim_node, slim_pod, slim_policy, write_snapshot

_NOT_FOUND = 404
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


async def take(access: ApiAccess, file: Path, prometheus_url: str, window_s: int, node_label: str, tell: Callable[[str], None]) -> Snapshot:
    """Read everything page by page (each object is cut down before the next page is fetched) and write the file."""
    async with KubeClient(access, user_agent="tiphys-snapshot") as client:
        nodes = await _all(client, "/api/v1/nodes", slim_node)
        tell(f"{len(nodes):,} nodes")
        pods = await _all(client, "/api/v1/pods", slim_pod, {"fieldSelector": _UNFINISHED})
        tell(f"{len(pods):,} unfinished pods")
        try:
            policies = await _all(client, f"/apis/{GROUP}/{VERSION}/{PLURAL}", slim_policy)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            policies = []
            tell("this cluster has no SchedulingPolicy kind: the snapshot holds none")
    readings: dict[str, list[float | None]] = {}
    idle: dict[str, dict[str, float]] = {}
    profiles: dict[str, FunctionProfile] = {}
    if prometheus_url:
        readings, idle, profiles = await _measured(prometheus_url, window_s, node_label)
        tell(f"readings of {len(readings):,} nodes, idle instances of {len(idle):,} and call profiles of {len(profiles):,} functions")
    snapshot = Snapshot(time.time(), nodes, pods, policies, readings, idle, profiles)
    try:
        write_snapshot(snapshot, file)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}") from error
    return snapshot


async def _measured(
    url: str, window_s: int, node_label: str
) -> tuple[dict[str, list[float | None]], dict[str, dict[str, float]], dict[str, FunctionProfile]]:
    async with PrometheusClient(url, window_s=window_s, node_label=node_label, timeout_s=30.0) as prometheus:
        table = await prometheus.node_readings()
        idle, _ = await prometheus.idle_instances()
        profiles = await prometheus.call_profiles()
    return readings_of(table), idle, profiles


async def _all(
    client: KubeClient, path: str, slim: Callable[[Mapping[str, Any]], dict[str, Any]], params: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with contextlib.aclosing(client.pages(path, params)) as pages:
        async for page in pages:
            found.extend(slim(item) for item in page.get("items") or ())
    return found

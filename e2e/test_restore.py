"""A control plane whose etcd is restored from a copy: versions go backwards, and whoever watches knows again what is there."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.access import kubeconfig_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.objects import Objects, version_of
from tiphys_models.kube.reflector import Reflector, WatchLimits
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import LocalOptions

pytestmark = [pytest.mark.needs_local, pytest.mark.timeout(240)]

PATH = "/api/v1/namespaces/default/configmaps"
LATER_WRITES = 60


@pytest.fixture
def plane() -> Iterator[LocalCluster]:
    """A control plane of its own: no other test's objects may be restored to what they were."""
    with LocalCluster(LocalOptions(name="restore")) as cluster:
        yield cluster


def write(plane: LocalCluster, value: str, *, first: bool = False) -> None:
    obj = {"metadata": {"name": "watched"}, "data": {"value": value}}
    if first:
        plane.api.create(PATH, obj)
    else:
        plane.api.patch(f"{PATH}/watched", obj)


def copied(plane: LocalCluster, to: Path) -> None:
    """etcd's directory as it is between two moments in which it runs."""
    plane.pause("etcd")
    shutil.copytree(plane.options.run_dir / "etcd", to)
    plane.resume("etcd")


def restored(plane: LocalCluster, copy: Path) -> None:
    """etcd with the directory as it was; the API server begins anew, as the documentation of Kubernetes asks for."""
    former = plane.process("etcd")
    plane.stop_process("etcd")
    directory = plane.options.run_dir / "etcd"
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    plane.processes.start("etcd", former.argv, former.rank, former.url)
    plane.restart_apiserver()


async def test_after_a_restore_of_etcd_what_is_there_is_known_without_a_restart(plane: LocalCluster, tmp_path: Path) -> None:
    seen: Objects[tuple[str, int]] = Objects(value_and_version)
    limits = WatchLimits(stall_s=2.0, backoff_max_s=1.0)

    async def shown(value: str, within_s: float = 60.0) -> int:
        end_s = time.monotonic() + within_s
        while (now := seen.named("default", "watched")) is None or now[0] != value:
            assert time.monotonic() < end_s, f"{value} was not seen, but {now}"
            await asyncio.sleep(0.1)
        return now[1]

    write(plane, "kept", first=True)
    async with KubeClient(kubeconfig_access(plane.kubeconfig)) as client:
        watching = asyncio.create_task(Reflector(client, PATH, seen, SystemClock(), limits=limits).run())
        try:
            await shown("kept")
            await asyncio.to_thread(copied, plane, tmp_path / "copy")
            for number in range(LATER_WRITES):
                await asyncio.to_thread(write, plane, f"lost-{number}")
            lost = await shown(f"lost-{LATER_WRITES - 1}")
            await asyncio.to_thread(restored, plane, tmp_path / "copy")
            assert await shown("kept") < lost, "versions went backwards"
            await asyncio.to_thread(write, plane, "new")
            assert await shown("new") < lost, "and what is written since is seen"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def value_and_version(obj: dict[str, Any]) -> tuple[str, int]:
    return str((obj.get("data") or {}).get("value")), int(version_of(obj))

"""Pods that are held by our scheduling gate, found and let go: what both openers, the hook before an uninstall and the command do alike."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.backoff import patiently
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.placement.gate import MAY_WAIT, is_held, opening_patch

PODS = "/api/v1/pods"
MAY_WAIT_UNBOUND = {"labelSelector": f"{MAY_WAIT}=true", "fieldSelector": "spec.nodeName="}
"""Parameters of a list or watch of the pods that may be held: no selector knows of gates."""
PATCH_S = 3.0
"""How long one patch may take: one that hangs is given up and sent again."""
_NOT_FOUND = 404
_CHANGED = (409, 422)
"""The pod was changed meanwhile, or a `test` of the patch found something else."""
_AT_ONCE = 8
_LIST_S = 10.0


@dataclass(frozen=True, slots=True)
class Release:
    """What became of the pods that were held when somebody looked."""

    opened: tuple[str, ...]
    """Pods that were let go (with `dry_run`: that are held), as namespace/name."""
    problems: tuple[str, ...]
    """Pods that were not, or lists that failed, and why."""


def brief(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod that opening its gate needs; gates in their order, others' among them."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    named = {key: metadata[key] for key in ("namespace", "name", "uid", "deletionTimestamp") if key in metadata}
    return {"metadata": named, "spec": {"schedulingGates": [{"name": gate.get("name")} for gate in spec.get("schedulingGates") or ()]}}


def key_of(pod: Mapping[str, Any]) -> str:
    """The pod as namespace/name."""
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


async def open_gate(client: KubeClient, pod: Mapping[str, Any]) -> bool:
    """Whether our patch took the gate off; False where nobody needs it any more: opened by another, deleted, or another pod of that name.

    Unavailable where it stands on, or may.
    """
    try:
        await _patch(client, pod)
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return False
        if error.status not in _CHANGED:
            raise
        now = await _as_it_is(client, pod)
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"] or not is_held(now):
            return False
        await _patch(client, now)
    return True


async def open_all(client: KubeClient, namespace: str = "", *, dry_run: bool = False) -> Release:
    """Let go all pods that are held, of one namespace or of all; a pod that cannot be is named, and the others are let go."""
    opened: list[str] = []
    problems: list[str] = []
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Mapping[str, Any]) -> None:
        async with free:
            try:
                if dry_run or await patiently(partial(open_gate, client, pod), _LIST_S):
                    opened.append(key_of(pod))
            except Unavailable as error:
                problems.append(f"Pod {key_of(pod)} is still held: {error}")

    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else PODS
    token = ""
    while True:
        try:
            page = await patiently(partial(client.page, path, MAY_WAIT_UNBOUND, token), _LIST_S)
        except Unavailable as error:
            problems.append(f"held pods could not be listed: {error}")
            break
        await asyncio.gather(*(one(brief(pod)) for pod in page["items"] if is_held(pod)))
        if not (token := str(page["metadata"].get("continue") or "")):
            break
    return Release(tuple(sorted(opened)), tuple(sorted(problems)))


async def _patch(client: KubeClient, pod: Mapping[str, Any]) -> None:
    deadline = aiohttp.ClientTimeout(total=PATCH_S)
    await client.request("PATCH", _path_of(pod), body=opening_patch(pod), content_type="application/json-patch+json", deadline=deadline)


async def _as_it_is(client: KubeClient, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The pod of that name; None if there is none any more."""
    try:
        found: Mapping[str, Any] = await client.get(_path_of(pod))
    except ApiError as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    return found


def _path_of(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

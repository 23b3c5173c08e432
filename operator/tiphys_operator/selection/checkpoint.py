"""One named ConfigMap holds what selections must not forget: one key a policy, by its uid."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.selection.history import History
from tiphys_operator.selection.memory import Memory, load

MAX_BYTES = 900_000
"""The largest checkpoint of all policies together: a ConfigMap holds 1 MiB, names included."""
_NOT_FOUND, _CONFLICT = 404, 409
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PATCH = "application/merge-patch+json"
_TRIES = 4


def _size(text: str) -> int:
    return len(text.encode())


class Checkpoint:
    """Read once by a new leader, then only written, each time with the version that was written last."""

    def __init__(self, client: KubeClient, writer: Writer, namespace: str, name: str) -> None:
        self._client, self._writer = client, writer
        self._collection, self._name = f"/api/v1/namespaces/{namespace}/configmaps", name
        self._version = ""
        self._one_by_one = asyncio.Lock()
        """Policies save side by side: each would find what the other has written, and none get through."""
        self._data: dict[str, str] = {}
        self._unwritten: dict[str, str] = {}
        """What could not be written, by policy: it is still what the policy goes on from."""

    async def read(self) -> None:
        """ApiError 404 if it was never made."""
        obj = await self._client.get(f"{self._collection}/{self._name}")
        self._version = obj["metadata"]["resourceVersion"]
        self._data = dict(obj.get("data") or {})

    def memory(self, uid: str) -> Memory:
        """What a policy left; empty for a new one."""
        text = self._unwritten.get(uid, self._data.get(uid))
        return load(text) if text is not None else Memory()

    async def save(self, uid: str, memory: Memory, living: set[str]) -> None:
        """Unavailable if it could not be written. Keys of policies that are gone go too; what is no policy's is let alone."""
        async with self._one_by_one:
            await self._save(uid, memory, living)

    async def _save(self, uid: str, memory: Memory, living: set[str]) -> None:
        gone: dict[str, str | None] = {key: None for key in self._data if _UID.fullmatch(key) and key not in living}
        others = {key: _size(value) for key, value in self._data.items() if key not in gone and key != uid}
        room = MAX_BYTES - sum(others.values())
        text = memory.dump()
        if _size(text) > room:  # forecasters start anew after a restart: that is less than losing all of it
            text = memory.model_copy(update={"history": History()}).dump()
        self._unwritten = {key: value for key, value in self._unwritten.items() if key in living} | {uid: text}
        # what is large makes room for what is small: nobody keeps others from remembering
        while _size(text) > room and (largest := max((key for key in others if _UID.fullmatch(key)), key=others.__getitem__, default="")):
            if others[largest] <= _size(text):
                break
            self._unwritten.setdefault(largest, self._data[largest])
            gone[largest] = None
            room += others.pop(largest)
        if _size(text) > room:
            raise Unavailable(f"what {len(self._data)} policies have learned does not fit into one ConfigMap")
        obj = await self._write({**gone, uid: text})
        del self._unwritten[uid]
        self._version = obj["metadata"]["resourceVersion"]
        self._data = {key: value for key, value in self._data.items() if key not in gone} | {uid: text}

    async def _write(self, changes: Mapping[str, str | None]) -> Any:
        """Always with a precondition: what a former leader sends late finds another version and fails."""
        for _ in range(_TRIES):
            try:
                return await self._write_once(changes)
            except ApiError as error:
                if error.status not in (_CONFLICT, _NOT_FOUND):
                    raise
            # somebody else touched, made or deleted it (a chart's upgrade, a person): our keys are ours alone, the Lease sees to that
            await self._look_again()
        raise Unavailable(f"ConfigMap {self._name} changes faster than it can be written")

    async def _write_once(self, changes: Mapping[str, str | None]) -> Any:
        if self._version:
            body = {"metadata": {"resourceVersion": self._version}, "data": changes}
            request = self._client.request("PATCH", f"{self._collection}/{self._name}", body=body, content_type=_PATCH)
            return await self._writer.fenced(request)
        data = {key: value for key, value in changes.items() if value is not None}
        body = {"metadata": {"name": self._name}, "data": data}
        return await self._writer.fenced(self._client.request("POST", self._collection, body=body))

    async def _look_again(self) -> None:
        try:
            obj = await self._writer.fenced(self._client.get(f"{self._collection}/{self._name}"))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._version = ""
        else:
            self._version = obj["metadata"]["resourceVersion"]

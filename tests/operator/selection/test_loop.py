"""The loop's hands: what is written in which order, and what a failure or a death in between leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.builders import policy_object
from tests.operator.selection.test_cluster import NODE, pod
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.domain.clock import SystemClock
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.observation import PolicySeen, policy_seen
from tiphys_operator.selection import loop as loop_module
from tiphys_operator.selection.checkpoint import Checkpoint
from tiphys_operator.selection.loop import SelectionLoop
from tiphys_operator.selection.memory import load
from tiphys_operator.selection.prices import PriceTable
from tiphys_operator.writer import Writer

UID = "uid-p"


class Kube:
    """An API server of two lists, one ConfigMap and plans."""

    def __init__(self, *, empty: bool = False) -> None:
        self.writes: list[str] = []
        self.data: dict[str, Any] | None = None if empty else {}
        self.version = 1
        self.plan: dict[str, Any] | None = None
        self.fail = ""

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        if self.data is None:
            raise ApiError(404, "NotFound", path)
        return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data)}

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        waiting = pod("Pending")
        waiting["spec"] = {**waiting["spec"], "nodeName": "", "schedulerName": "tiphys"}
        yield {"metadata": {"resourceVersion": "1"}, "items": [NODE if path.endswith("nodes") else waiting]}

    async def watch(self, *args: Any, **limits: Any) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(60)
        yield {}

    async def request(self, method: str, path: str, *, body: Any = None, **rest: Any) -> Any:
        kind = "plan" if "placementplans" in path else "checkpoint"
        if self.fail == kind:
            raise ApiError(500, "InternalError", "on purpose")
        if method == "PATCH" and self.data is None:
            raise ApiError(404, "NotFound", path)
        wanted = body["metadata"].get("resourceVersion") if "metadata" in body else None
        if wanted not in (None, str(self.version)):
            raise ApiError(409, "Conflict", path)
        self.writes.append(kind)
        self.version += 1
        self.data = {**(self.data or {}), **body["data"]}
        return {"metadata": {"resourceVersion": str(self.version)}}

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        if self.fail == "plan":
            raise ApiError(500, "InternalError", "on purpose")
        self.writes.append("plan")
        self.plan = body
        return body


class Unfenced:
    """A writer whose Lease never ends."""

    async def fenced(self, request: Awaitable[Any]) -> Any:
        return await request


def selecting(generation: int = 1, **select: Any) -> PolicySeen:
    obj = policy_object("p", "a", mode="Active", select={"by": "preview", "intervalSeconds": 2, **select})
    obj["metadata"] |= {"generation": generation, "resourceVersion": "1"}
    return policy_seen(obj)


@asynccontextmanager
async def running(
    kube: Kube, policy: PolicySeen, news: Callable[[SelectionLoop], None] = lambda made: None
) -> AsyncGenerator[SelectionLoop, None]:
    client, writer, clock = cast("KubeClient", kube), cast("Writer", Unfenced()), SystemClock()
    checkpoint = Checkpoint(client, writer, "tiphys-system", "tiphys-selection")
    made = SelectionLoop(client, writer, checkpoint, PriceTable(), OperatorMetrics(), clock, scheduler_name="tiphys")
    made.on_news = lambda: news(made)
    made.see([policy])
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the loop under test has no event of ours
            await asyncio.sleep(0.01)


async def test_what_must_survive_is_written_before_what_others_obey_and_the_status_comes_last() -> None:
    kube, told = Kube(), []

    def news(made: SelectionLoop) -> None:
        told.append((tuple(kube.writes), made.found()["a/p"].active))

    async with running(kube, selecting(), news):
        await until(lambda: told)
    assert kube.plan is not None
    assert told[0] == (("checkpoint", "plan"), kube.plan["spec"]["planner"])
    assert kube.plan["metadata"]["ownerReferences"][0]["uid"] == UID
    assert kube.plan["spec"]["functions"][0]["function"] == "a/f"


async def test_death_between_checkpoint_and_plan_is_made_good_by_the_next_leader() -> None:
    kube = Kube()
    kube.fail = "plan"
    async with running(kube, selecting()) as made:
        await until(lambda: "checkpoint" in kube.writes and made.found()["a/p"].problem)
        assert made.found()["a/p"].status is None, "a choice whose plan is not out is no news"
    assert kube.data is not None
    left = load(kube.data[UID])
    kube.fail = ""
    async with running(kube, selecting()) as made:
        await until(lambda: made.found()["a/p"].status)
        status = made.found()["a/p"].status
    assert status is not None
    assert status.interval == left.interval + 1
    assert (status.last_switch, status.switches) == (left.status.last_switch, 0)
    after = load(kube.data[UID])
    assert after.tracked == left.tracked
    assert after.accounts.items() >= left.accounts.items()


async def test_a_checkpoint_that_cannot_be_written_stops_nothing() -> None:
    kube = Kube()
    kube.fail = "checkpoint"
    async with running(kube, selecting()) as made:
        await until(lambda: kube.plan is not None and made.found()["a/p"].status)


async def test_a_missing_checkpoint_is_made_and_anothers_write_is_no_obstacle() -> None:
    kube = Kube(empty=True)
    async with running(kube, selecting()) as made:
        await until(lambda: made.found()["a/p"].status)
        assert kube.data is not None
        kube.version += 5  # a chart's upgrade
        made.see([selecting(2)])
        await until(lambda: kube.writes.count("checkpoint") >= 2)


async def test_another_spec_is_chosen_for_at_once() -> None:
    kube = Kube()
    async with running(kube, selecting(intervalSeconds=600)) as made:
        await until(lambda: made.found()["a/p"].generation == 1)
        made.see([selecting(2, intervalSeconds=600, among=["greedy", "hashing"])])
        await until(lambda: made.found()["a/p"].generation == 2)
        assert made.found()["a/p"].active in ("greedy", "hashing")
        made.see([])
        assert made.found() == {}


async def test_missing_weights_are_told_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*parts: Any) -> Any:
        raise ArtifactRefused("Missing", "metanet.json: no such file")

    with monkeypatch.context() as patched:
        patched.setattr(loop_module, "Chooser", refuse)
        kube = Kube()
        async with running(kube, selecting()) as made:
            await until(lambda: "metanet.json" in made.found()["a/p"].problem)
            patched.undo()
            await until(lambda: made.found()["a/p"].status)
            assert made.found()["a/p"].problem == ""


def test_keys_of_policies_that_are_gone_leave_the_checkpoint() -> None:
    kube = Kube()
    kube.data = {"gone": "{}", UID: json.dumps({"interval": 4})}
    checkpoint = Checkpoint(cast("KubeClient", kube), cast("Writer", Unfenced()), "tiphys-system", "tiphys-selection")

    async def use() -> int:
        await checkpoint.read()
        memory = checkpoint.memory(UID)
        await checkpoint.save(UID, memory, {UID})
        return memory.interval

    assert asyncio.run(use()) == 4
    assert kube.data is not None
    assert kube.data["gone"] is None  # a merge patch takes a key away by null

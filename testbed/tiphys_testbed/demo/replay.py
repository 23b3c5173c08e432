"""A replay: the same calls, when they are due, as pods of every lane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tiphys_models.base.errors import Unavailable
from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.workloads import CallWorkload
from tiphys_testbed.demo.kubelets import Kubelets, persist
from tiphys_testbed.demo.lanes import Lane, pod_manifest
from tiphys_testbed.demo.records import CallRecord

_CREATIONS_AT_ONCE = 64


async def sleep_until(at_s: float, meanwhile: Callable[[], None], step_s: float = 0.25) -> None:
    """Sleep until a monotonic time, doing something now and then."""
    while (left_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(min(left_s, step_s))
        if left_s > step_s:
            meanwhile()
    meanwhile()


async def replay(
    kubelets: Kubelets,
    lanes: Sequence[Lane],
    workload: CallWorkload,
    *,
    run: str,
    drain_deadline_s: float,
    progress: Callable[[float], None],
    models: Sequence[FunctionModel] = FUNCTIONS,
) -> list[CallRecord]:
    """Send the same calls through all lanes at once and wait until all are done, or the deadline after the last one.

    `progress` is called a few times a second with the seconds since the start; the records show the rest.
    """
    functions = [models[index] for index in workload.function]
    names = [f"{run}-{function.name}-{number:04d}" for number, function in enumerate(functions)]
    records = _records(lanes, workload, functions, names)
    kubelets.records, kubelets.start_s = records, time.monotonic()
    slots = asyncio.Semaphore(_CREATIONS_AT_ONCE)

    async def create(lane: Lane, number: int) -> None:
        record = records[lane.namespace, names[number]]
        manifest = pod_manifest(lane, record.pod, functions[number], run)
        async with slots:
            try:
                await persist(lambda: kubelets.client.request("POST", f"/api/v1/namespaces/{lane.namespace}/pods", body=manifest))
            except Unavailable as error:
                record.problem = f"not created: {error}"
            else:
                record.created_s = time.monotonic() - kubelets.start_s

    async with asyncio.TaskGroup() as group:
        for number, due_s in enumerate(workload.arrival_s.tolist()):
            await sleep_until(kubelets.start_s + due_s, lambda: progress(time.monotonic() - kubelets.start_s))
            first = number % len(lanes)  # no lane is always the first to be served
            for lane in (*lanes[first:], *lanes[:first]):
                group.create_task(create(lane, number))
    await _drained(list(records.values()), drain_deadline_s, lambda: progress(time.monotonic() - kubelets.start_s))
    return list(records.values())


def _records(
    lanes: Sequence[Lane], workload: CallWorkload, functions: Sequence[FunctionModel], names: Sequence[str]
) -> dict[tuple[str, str], CallRecord]:
    """One a call and lane, by namespace and pod."""
    return {
        (lane.namespace, name): CallRecord(lane.name, name, function.name, float(due_s), float(noise))
        for lane in lanes
        for name, function, due_s, noise in zip(names, functions, workload.arrival_s, workload.noise, strict=True)
    }


async def _drained(records: Sequence[CallRecord], deadline_s: float, meanwhile: Callable[[], None]) -> None:
    """Wait until every call is done; those that are not at the deadline get a word on where they hang."""
    end_s = time.monotonic() + deadline_s
    while not all(record.settled for record in records):
        if time.monotonic() > end_s:
            for record in records:
                if not record.settled:
                    record.problem = _where_it_hangs(record, deadline_s)
            break
        await sleep_until(time.monotonic() + 0.2, meanwhile)
    meanwhile()


def _where_it_hangs(record: CallRecord, deadline_s: float) -> str:
    if record.created_s is None:
        return f"not created within {deadline_s:.0f} s of the last call"
    if not record.node:
        return f"not bound within {deadline_s:.0f} s of the last call; see `kubectl describe pod` and the scheduler's log"
    if record.ready_s is None:
        return f"bound to {record.node}, but not started within {deadline_s:.0f} s of the last call"
    return f"still running on {record.node} {deadline_s:.0f} s after the last call"

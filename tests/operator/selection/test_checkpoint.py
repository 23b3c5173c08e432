"""The ConfigMap that a new leader goes on from: what is kept, what is thrown away, what is let alone."""

from __future__ import annotations

import json
from typing import cast

import numpy as np
import pytest

from tests.operator.selection.harness import Kube, Unfenced
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import KubeClient
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.selection.checkpoint import MAX_BYTES, Checkpoint
from tiphys_operator.selection.history import History
from tiphys_operator.selection.memory import Memory, load

MINE, GONE = "11111111-2222-4333-8444-555555555555", "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
FLEET = tuple(f"aks-nodepool1-12345678-vmss{i:06d}" for i in range(100))


async def opened(kube: Kube) -> Checkpoint:
    made = Checkpoint(cast("KubeClient", kube), cast("Writer", Unfenced()), "tiphys-system", "tiphys-selection")
    await made.read()
    return made


def watched(intervals: int, hosts: int = 100) -> History:
    rng, history = np.random.default_rng(0), History()
    for _ in range(intervals):
        history = history.after(FLEET[:hosts], rng.random(hosts))
    return history


async def test_keys_of_policies_that_are_gone_leave_and_what_is_no_policys_stays() -> None:
    kube = Kube()
    kube.data = {GONE: "{}", "notes": "somebody's", MINE: json.dumps({"interval": 4})}
    checkpoint = await opened(kube)
    memory = checkpoint.memory(MINE)
    await checkpoint.save(MINE, memory, {MINE})
    assert memory.interval == 4
    assert kube.data[GONE] is None  # a merge patch takes a key away by null
    assert kube.data["notes"] == "somebody's"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"interval": "many"}',
        '{"at_s": NaN}',
        '{"accounts": {"x": {}}}',
        "\x00" * 50,
        '{"tracked": {"u": {"due_s": Infinity}}}',
    ],
)
async def test_what_nobody_can_read_is_a_beginning_from_scratch(text: str) -> None:
    kube = Kube()
    kube.data = {MINE: text}
    checkpoint = await opened(kube)
    assert checkpoint.memory(MINE) == Memory()
    await checkpoint.save(MINE, Memory(interval=1), {MINE})
    assert load(kube.data[MINE]).interval == 1


def test_a_hundred_nodes_for_a_hundred_intervals_come_back_and_fit() -> None:
    history = watched(120)
    memory = load(Memory(history=history).dump())
    assert memory.history.of(FLEET).tolist() == history.of(FLEET).tolist()
    assert history.of(FLEET).shape == (100, 100)
    assert len(Memory(history=history).dump()) < 16_000


async def test_history_is_what_goes_when_not_everything_fits() -> None:
    kube = Kube()
    kube.data = {"notes": "x" * (MAX_BYTES - 10_000)}
    checkpoint = await opened(kube)
    await checkpoint.save(MINE, Memory(interval=7, history=watched(100)), {MINE})
    left = load(kube.data[MINE])
    assert (left.interval, left.history) == (7, History())


async def test_one_policy_that_does_not_fit_keeps_no_other_from_being_saved_and_forgets_nothing_itself() -> None:
    kube = Kube()
    checkpoint = await opened(kube)
    large = Memory(interval=3, learned="x" * MAX_BYTES)
    with pytest.raises(Unavailable, match="does not fit"):
        await checkpoint.save(MINE, large, {MINE, GONE})
    await checkpoint.save(GONE, Memory(interval=1), {MINE, GONE})
    assert kube.data is not None
    assert set(kube.data) == {GONE}
    assert checkpoint.memory(MINE) == large


async def test_what_could_not_be_written_is_still_what_the_policy_goes_on_from() -> None:
    kube = Kube()
    checkpoint = await opened(kube)
    kube.fail = "checkpoint"
    with pytest.raises(Unavailable):
        await checkpoint.save(MINE, Memory(interval=3), {MINE})
    assert checkpoint.memory(MINE).interval == 3
    kube.fail = ""
    await checkpoint.save(MINE, Memory(interval=4), {MINE})
    assert kube.data is not None
    assert load(kube.data[MINE]).interval == 4


@pytest.mark.parametrize("nodes", ["", "!", "AAAA", "AAAAAAA="])
def test_a_history_that_nobody_can_read_is_none(nodes: str) -> None:
    assert History(nodes=nodes, shares="AAAA").of(FLEET[:3]).size == 0


def test_nodes_that_stay_keep_their_past_when_others_come_and_go() -> None:
    history = History().after(("a", "b"), np.array([0.25, 0.5])).after(("b", "c"), np.array([1.0, 0.75]))
    assert history.of(("c", "b", "a")).tolist() == [[0.0, 0.5, 0.0], [0.75, 1.0, 0.0]]


def test_the_larger_the_fleet_the_fewer_intervals_are_kept() -> None:
    names = [f"n{i}" for i in range(5000)]
    history = History()
    for _ in range(40):
        history = history.after(names, np.full(5000, 0.5))
    assert history.of(names).shape == (30, 5000)
    assert len(history.model_dump_json()) < 240_000


async def test_a_policy_that_remembers_much_keeps_no_other_from_remembering() -> None:
    kube = Kube()
    kube.data = {GONE: json.dumps({"interval": 4, "learned": "ä" * (MAX_BYTES // 2 - 50)}, ensure_ascii=False)}
    checkpoint = await opened(kube)
    await checkpoint.save(MINE, Memory(interval=1, learned="x" * 1000), {MINE, GONE})
    assert load(kube.data[MINE]).interval == 1
    assert kube.data[GONE] is None
    assert checkpoint.memory(GONE).interval == 4, "the process itself forgets nothing"
    with pytest.raises(Unavailable):
        await checkpoint.save(GONE, checkpoint.memory(GONE), {MINE, GONE})

"""The loop's hands: what is written in which order, and what a failure or a death in between leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.selection.harness import UID, Kube, running, selecting, until
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_operator.selection import loop as loop_module
from tiphys_operator.selection.loop import SelectionLoop
from tiphys_operator.selection.memory import load


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

"""The loop's hands: what is written in which order, and what a failure or a death in between leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.operator.selection.harness import UID, Kube, loop_on, running, selecting, until
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.kube.client import KubeClient
from tiphys_models.selection.selectors.look_ahead import LookAhead
from tiphys_models.selection.selectors.protocol import Choice
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime import watches
from tiphys_operator.runtime.watches import WatchBroken
from tiphys_operator.selection import controller as loop_module
from tiphys_operator.selection.controller import SelectionController
from tiphys_operator.selection.interval import run_interval
from tiphys_operator.selection.memory import Memory, load
from tiphys_operator.served_models import ServedModels


async def test_what_must_survive_is_written_before_what_others_obey_and_the_status_comes_last() -> None:
    kube, told = Kube(), []

    def news(made: SelectionController) -> None:
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


async def test_death_between_plan_and_status_leaves_the_plan_in_force_and_the_news_to_the_next_leader() -> None:
    kube = Kube()
    async with running(kube, selecting()):
        await until(lambda: kube.plan is not None)
        # dead before anybody asked what to write into the status
    assert kube.plan is not None
    assert kube.data is not None
    planner, left = kube.plan["spec"]["planner"], load(kube.data[UID])
    async with running(kube, selecting()) as made:
        assert made.found()["a/p"].status is None  # until it has looked, the status that stands there stays
        await until(lambda: made.found()["a/p"].status)
        found = made.found()["a/p"]
    assert found.status is not None
    assert (found.active, found.status.last_switch) == (planner, left.status.last_switch)
    assert left.status.last_switch is not None


async def test_a_spec_edited_while_its_interval_runs_is_chosen_for_right_after_it() -> None:
    kube = Kube()
    kube.open.clear()
    async with running(kube, selecting(intervalSeconds=600)) as made:
        await until(lambda: kube.asked)
        made.see([selecting(2, intervalSeconds=600, among=["one-per-host", "energy-lean"])])
        kube.open.set()
        await until(lambda: made.found()["a/p"].generation == 2)
        assert made.found()["a/p"].active in ("one-per-host", "energy-lean")
    assert kube.plan is not None
    assert kube.plan["spec"]["policyGeneration"] == 2


async def test_a_policy_that_is_off_for_a_while_forgets_nothing() -> None:
    kube, off = Kube(), "11111111-2222-4333-8444-555555555555"
    kube.data = {off: '{"interval":9}'}
    idle = replace(selecting(), uid=off, name="q", mode="Off")
    async with running(kube, selecting()) as made:
        made.see([selecting(), idle])
        await until(lambda: made.found()["a/p"].status)
    assert kube.data[off] == '{"interval":9}'


async def test_a_policy_deleted_while_its_interval_runs_leaves_no_plan_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, begun, go_on = Kube(), threading.Event(), threading.Event()

    def slowly(*parts: Any) -> Any:
        begun.set()
        go_on.wait(5)
        return run_interval(*parts)

    monkeypatch.setattr(loop_module, "run_interval", slowly)
    async with running(kube, selecting()) as made:
        await until(begun.is_set)
        made.see([])
        go_on.set()
        await asyncio.sleep(0.1)
    assert (kube.writes, kube.plan) == ([], None)


async def test_an_interval_that_fails_halfway_or_runs_away_leaves_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, metrics, go_on = Kube(), OperatorMetrics(), threading.Event()

    def breaks(memory: Memory, *parts: Any) -> Any:
        memory.interval += 10
        raise ValueError("a planner's mistake")

    def runs_away(memory: Memory, *parts: Any) -> Any:
        while not go_on.wait(0.01):
            pass
        memory.interval += 100

    def failing() -> float | None:
        return metrics.registry.get_sample_value("tiphys_operator_selection_failing")

    monkeypatch.setattr(loop_module, "_LONGEST_S", 0.2)
    monkeypatch.setattr(loop_module, "_LONGEST_QUICK_S", 0.2)
    monkeypatch.setattr(loop_module, "_AGAIN_S", 0.1)
    monkeypatch.setattr(loop_module, "run_interval", breaks)
    async with running(kube, selecting(), metrics=metrics) as made:
        await until(lambda: "mistake" in made.found()["a/p"].problem)
        assert failing() == 1
        monkeypatch.setattr(loop_module, "run_interval", runs_away)
        made.see([selecting(2)])
        await until(lambda: "TimeoutError" in made.found()["a/p"].problem)
        monkeypatch.setattr(loop_module, "run_interval", run_interval)
        go_on.set()
        made.see([selecting(3)])
        await until(lambda: made.found()["a/p"].status)
        status = made.found()["a/p"].status
        assert status is not None
        assert (status.interval, failing()) == (1, 0)


async def test_what_was_learned_is_waited_for_and_the_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_AGAIN_S", 0.05)
    kube = Kube()
    kube.fail = "read"
    async with running(kube, selecting()) as made:
        await until(lambda: "cannot be read" in made.found()["a/p"].problem)
        assert made.overdue_s() > 0
        kube.fail = ""
        await until(lambda: made.found()["a/p"].status)
        assert made.found()["a/p"].problem == ""
        assert made.overdue_s() < 0


async def test_a_watch_that_dies_of_a_mistake_ends_the_loop_even_before_its_first_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_BACKOFF_START_S", 0.01)
    monkeypatch.setattr(watches, "_BACKOFF_MAX_S", 0.02)
    kube = Kube()

    async def broken(*parts: Any, **rest: Any) -> AsyncGenerator[dict[str, Any], None]:
        for page in list[dict[str, Any]]():
            yield page
        raise TypeError("a mistake")

    kube.pages = broken  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        with pytest.raises(WatchBroken, match="8 times in a row: TypeError: a mistake"):
            await loop_on(kube, selecting()).run()


@pytest.mark.parametrize(
    ("among", "unjudged"),
    [(["cost-lean", "greedy"], ("greedy",)), (["greedy", "hashing"], ("greedy", "hashing")), (["gobi", "cost-lean"], ())],
)
async def test_candidates_that_a_learned_selector_does_not_know_are_named(among: list[str], unjudged: tuple[str, ...]) -> None:
    async with running(Kube(), selecting(by="metanet", among=among)) as made:
        await until(lambda: made.found()["a/p"].status)
        assert made.found()["a/p"].unjudged == unjudged


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


async def test_a_selector_that_fails_is_told_of_and_the_rules_candidate_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Choice:
        raise ArithmeticError("on purpose")

    monkeypatch.setattr(LookAhead, "choose", broken)
    metrics = OperatorMetrics()
    async with running(Kube(), selecting(among=["one-per-host", "cost-lean"], rule="cost-lean"), metrics=metrics) as loop:
        await until(lambda: loop.found()["a/p"].active)
        found = loop.found()["a/p"]
    assert found.active == "cost-lean"
    assert "the selector failed (policy-error), the rule's candidate decides" in found.problem
    assert found.status is not None
    assert found.status.reason == "SelectorFailed"
    assert 'tiphys_operator_selection_errors_total{reason="choice-failed"} 1.0' in metrics.render().decode()


async def test_whatever_one_policys_interval_raises_the_others_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, metrics = Kube(), OperatorMetrics()

    def trips(memory: Memory, route: Any, *parts: Any) -> Any:
        if route.name == "q":
            raise AttributeError("nobody foresaw it")
        return run_interval(memory, route, *parts)

    monkeypatch.setattr(loop_module, "run_interval", trips)
    other = selecting()
    assert other.route is not None
    bad = replace(other, uid="uid-q", name="q", route=replace(other.route, name="q", uid="uid-q"))
    async with running(kube, selecting(), metrics=metrics) as made:
        made.see([bad, selecting()])
        await until(lambda: "nobody foresaw it" in made.found()["a/q"].problem)
        await until(lambda: made.found()["a/p"].status)
        assert metrics.registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "SchedulingPolicy"}) == 1
        first = made.found()["a/p"].status
        await until(lambda: made.found()["a/p"].status != first)


async def test_an_interval_that_cannot_be_recorded_ends_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(route: Any, *parts: Any) -> Any:
        tripped.append(route.name)
        raise KeyError("nobody foresaw it")

    kube, metrics, tripped = Kube(), OperatorMetrics(), list[str]()
    monkeypatch.setattr(loop_module, "record_of", trips)
    async with running(kube, selecting(), metrics=metrics) as made:
        await until(lambda: len(tripped) > 1)
        assert made.found()["a/p"].problem == ""
        assert metrics.registry.get_sample_value("tiphys_operator_object_errors_total", {"kind": "SchedulingPolicy"}) == len(tripped)


async def test_policies_that_think_for_long_leave_a_place_to_those_that_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, metrics, closing, thinking = Kube(), OperatorMetrics(), threading.Event(), list[str]()

    def thinks(memory: Memory, route: Any, *parts: Any) -> Any:
        if route.name != "p":
            thinking.append(route.name)
            while not closing.wait(0.01):
                pass
        return run_interval(memory, route, *parts)

    monkeypatch.setattr(loop_module, "run_interval", thinks)
    quick = selecting()
    assert quick.route is not None
    slow = [
        replace(quick, uid=f"uid-{n}", namespace=f"b{n}", name="q", route=replace(quick.route, namespace=f"b{n}", name="q", uid=f"uid-{n}"))
        for n in range(3)
    ]
    async with running(kube, quick, metrics=metrics) as made:
        await until(lambda: made.found()["a/p"].status)
        made.see([quick, *slow])
        await until(lambda: thinking)
        first = made.found()["a/p"].status
        await until(lambda: made.found()["a/p"].status != first)
        assert len(thinking) == 1
        closing.set()


async def test_a_new_leader_hears_of_published_models_before_its_first_interval() -> None:
    """Else the first one would be decided with what ships, and what was learned beside published weights would be lost."""

    class Slow(Kube):
        async def pages(self, path: str, params: Any = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
            if not path.endswith("learnedmodels"):
                async for page in super().pages(path, params, accept=accept):
                    yield page
                return
            asked.set()
            await listed.wait()
            self.writes.append("models listed")
            yield {"metadata": {"resourceVersion": "1"}, "items": []}

    kube, asked, listed = Slow(), asyncio.Event(), asyncio.Event()
    models = ServedModels(cast("KubeClient", kube), "tiphys-system", None, SystemClock(), "selection")
    made = loop_on(kube, selecting(), models=models)
    task = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(5):
            await asked.wait()
            await asyncio.sleep(0.3)
            listed.set()
            await until(lambda: kube.plan)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert kube.writes[0] == "models listed"

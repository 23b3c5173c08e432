"""Scaling agents that never return: each is ended at its deadline, the rule answers, and threads do not pile up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.operator.scaling.harness import Life, World
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_operator.runtime import thinking
from tiphys_operator.scaling import agents, window

RUNAWAY: dict[str, Any] = {"agent": {"kind": "their-agent"}}


class Theirs:
    """An agent of another package, which does what a test tells it before it answers."""

    name = "their-agent"
    actions: tuple[str, ...] = ()

    def __init__(self, first: Callable[[], None]) -> None:
        self.first, self.asked, self.threads = first, 0, set[threading.Thread]()

    def answer(self, seen: ServiceHistory) -> Answers:
        self.asked += 1
        self.threads.add(threading.current_thread())
        self.first()
        return Answers(np.array([2]), np.array([300.0]))

    @property
    def alive(self) -> int:
        return sum(thread.is_alive() for thread in self.threads)


@pytest.fixture
def woken() -> Iterator[threading.Event]:
    """Set at the end of a test, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def life(monkeypatch: pytest.MonkeyPatch, agent: Theirs, world: World) -> Life:
    monkeypatch.setattr(agents, "make_agent", lambda *_: agent)
    monkeypatch.setattr(window, "LONGEST_THOUGHT_S", 0.1)
    monkeypatch.setattr(thinking, "_LONGEST_END_S", 0.1)
    return world.life()


def patient(operator: Life, longest_s: float) -> None:
    """From now on an agent has so long to answer: one that does answer must not be late because the machine stood still."""
    operator.runner._thinking._longest_s = longest_s


def loops() -> None:
    while True:
        try:
            for _ in range(10**6):
                pass
        except Exception:  # noqa: BLE001, S110 - an agent may catch what it likes
            pass


def counted(operator: Life, reason: str) -> float:
    labels = {"outcome": "fallback", "group": "", "reason": reason}
    return operator.metrics.registry.get_sample_value("tiphys_operator_scaling_answers_total", labels) or 0.0


async def gone(agent: Theirs) -> None:
    end_s = time.monotonic() + 10.0
    while agent.alive and time.monotonic() < end_s:  # noqa: ASYNC110 - the end of a thread is no event
        await asyncio.sleep(0.01)
    assert not agent.alive


async def test_for_an_agent_that_loops_for_ever_the_rule_answers_and_its_thread_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    world, agent = World(**RUNAWAY), Theirs(loops)
    operator = life(monkeypatch, agent, world)
    await operator.window()
    last = world.decision
    assert (last["agent"], last["outcome"], last["outcomeReason"]) == ("rule", "fallback", "deadline")
    assert counted(operator, "deadline") == 1
    await gone(agent)


async def test_an_agent_that_loops_is_asked_again_after_a_rest_and_decides_once_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    world, agent = World(**RUNAWAY), Theirs(loops)
    operator = life(monkeypatch, agent, world)
    await operator.window()
    await gone(agent)
    agent.first = lambda: None
    patient(operator, 10.0)
    await operator.window()
    assert agent.asked == 1, "it rests, and the rule answers at once"
    world.clock.advance(15)
    await operator.window()
    assert agent.asked == 2
    assert (world.decision["agent"], world.decision["outcome"]) == ("their-agent", "learned")
    assert counted(operator, "deadline") == 2


async def test_an_agent_that_sleeps_for_ever_keeps_one_thread_over_many_windows(
    monkeypatch: pytest.MonkeyPatch, woken: threading.Event
) -> None:
    world, agent = World(**RUNAWAY), Theirs(lambda: (woken.wait(), None)[1])  # no step of Python: nothing ends it from outside
    operator = life(monkeypatch, agent, world)
    for _ in range(20):
        await operator.window()
        world.clock.advance(15)
    assert agent.alive == agent.asked == 1
    assert counted(operator, "deadline") == 20, "the rule has answered every window"


async def test_an_agent_that_answers_too_late_leaves_nothing_in_what_is_compared(
    monkeypatch: pytest.MonkeyPatch, woken: threading.Event
) -> None:
    world, agent = World(agent={"kind": "their-agent", "learning": "Collect"}), Theirs(lambda: None)
    operator = life(monkeypatch, agent, world)
    patient(operator, 10.0)
    await operator.window()
    agent.first = lambda: (woken.wait(), None)[1]
    patient(operator, 0.1)
    world.clock.advance(15)
    await operator.window()
    judge = operator.running.judge
    assert judge is not None
    assert judge.settled is not None, "the window before is settled all the same"
    before = vars(judge).copy()
    woken.set()
    await gone(agent)
    assert vars(judge) == before

"""What every planner and every selector is asked by the conformance suite (`seats.checks`), and what their answers must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tiphys_models.seats.checks import Exam
from tiphys_models.selection.cloud.hosts import B2S, B4MS, B8MS, Fleet, HostType, make_fleet
from tiphys_models.selection.cloud.repair import infeasible, repair
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Outcome
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan, Running
from tiphys_models.selection.cloud.tasks import AIOTBENCH, ANY_POOL, Tasks
from tiphys_models.selection.planners import registry as planners
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.selectors import registry as selectors
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector

PLANNER, SELECTOR = "planner", "selector"
PLAN_BUDGET_S = 5.0
"""Most seconds for thirty tasks on fifty hosts. Intervals last 10 s by default, and a selector may ask several planners in one."""
CHOICE_BUDGET_S = 5.0
"""Most seconds for the same question; a selector that previews plans makes every candidate's."""
CANDIDATES = ("cost-lean", "energy-lean", "one-per-host")
REASONS = frozenset({"BestPredicted", "WithinMargin", "SwitchLimit", "Exploring", "Fallback"})
_KINDS: tuple[tuple[HostType, int], ...] = ((B2S, 4), (B4MS, 2), (B8MS, 2))
_SEED = 7


@dataclass(frozen=True, slots=True)
class Interval:
    """A cloud, its waiting tasks, and who may decide."""

    state: CloudState
    tasks: Tasks
    candidates: tuple[str, ...] = CANDIDATES
    number: int = 1


def waiting(*applications: int, pools: np.uint64 = ANY_POOL) -> Tasks:
    """Tasks of the mix, by index."""
    mine = [AIOTBENCH[a] for a in applications]
    return Tasks(
        application=np.array(applications, np.int64),
        work_core_s=np.array([a.work_core_s for a in mine], np.float64),
        age_s=np.zeros(len(mine)),
        deadline_s=np.array([a.deadline_s(2.0) for a in mine], np.float64),
        ram_mib=np.array([a.ram_mib for a in mine], np.float64),
        disk_mib=np.array([a.disk_mib for a in mine], np.float64),
        pools=np.full(len(mine), pools),
    )


def cloud(running: Sequence[tuple[int, int]] = (), fleet: Fleet | None = None, *, intervals: int = 6) -> CloudState:
    """A cloud with (application, host) pairs running for a few seconds, and so many intervals behind it."""
    fleet = fleet if fleet is not None else make_fleet(_KINDS)
    host = np.array([h for _, h in running], np.int64)
    present = replace(waiting(*(a for a, _ in running)), age_s=np.full(len(host), 3.0))
    used = np.full(len(host), 2.0)
    awake = np.bincount(host, minlength=len(fleet)) > 0
    past = 0.1 * (np.arange(intervals * len(fleet)) % 9).reshape(intervals, len(fleet))
    return CloudState(
        time_s=100.0,
        interval_s=10.0,
        fleet=fleet,
        applications=AIOTBENCH,
        running=Running(present, host, used, np.maximum(present.work_core_s - used, 0.1)),
        awake=awake,
        resume_s=1.0,
        utilisation=0.5 * awake,
        history=past,
        previous_application=np.array([0, 2], np.int64),
        previous_host=np.array([1, 0], np.int64),
    )


def questions() -> Mapping[str, Interval]:
    """Intervals of every sort."""
    one = make_fleet(((B2S, 1),))
    crowd = [(2, h % 8) for h in range(16)]
    some = waiting(0, 1, 5)
    return {
        "several tasks": Interval(cloud([(0, 0), (2, 1), (3, 4)]), waiting(0, 1, 2, 5, 6)),
        "a single task on a single host": Interval(cloud(fleet=one), waiting(3)),
        "no task": Interval(cloud([(0, 0)]), waiting()),
        "an empty cloud": Interval(cloud(), some),
        "a cloud without any past": Interval(cloud([(1, 2)], intervals=0), some),
        "a crowded cloud": Interval(cloud(crowd), waiting(*[i % 7 for i in range(9)])),
        "tasks for which no host has room": Interval(cloud(fleet=one), waiting(*[2] * 8)),
        "tasks that no host may run": Interval(cloud(), waiting(0, 1, pools=np.uint64(2))),
        "a cloud of a hundred hosts": Interval(cloud([(i % 7, i) for i in range(40)], make_fleet()), some),
        "hosts that are used to the full": Interval(replace(cloud(crowd), utilisation=np.ones(8)), some),
    }


def plan_fault(asked: Interval, plan: Plan) -> str:
    """What is wrong with a plan. What does not fit is repaired by whoever asked, so it is no fault of a planner."""
    host = np.asarray(plan.host)
    if host.shape != (len(asked.tasks),) or host.dtype.kind not in "iu":
        return f"{len(asked.tasks)} tasks need as many hosts, not {host.dtype} {host.shape}"
    if ((host < UNPLACED) | (host >= len(asked.state.fleet))).any():
        return f"it names a host that does not exist: there are {len(asked.state.fleet)}"
    mended = repair(asked.state, asked.tasks, plan)
    return "its plan cannot be repaired" if infeasible(asked.state, asked.tasks, mended) else ""


def choice_fault(asked: Interval, choice: Choice) -> str:
    """What is wrong with a choice."""
    if choice.candidate not in asked.candidates:
        return f"it names {choice.candidate!r}, which is not among the candidates"
    if choice.reason not in REASONS:
        return f"its reason {choice.reason!r} is none of {', '.join(sorted(REASONS))}"
    if not all(np.isfinite(cost) for cost in choice.predicted.values()):
        return "a predicted cost is no number"
    return "" if np.isfinite(choice.thinking_s) and choice.thinking_s >= 0 else "its seconds of thinking are no duration"


def _trace(asked: Interval) -> bytes:
    state, tasks = asked.state, asked.tasks
    arrays = [getattr(tasks, f.name) for f in fields(tasks)]
    further = (state.utilisation, state.history, state.awake, state.previous_host, state.running.remaining_core_s)
    return state.digest(tasks).to_bytes(8) + b"|".join(np.ascontiguousarray(a).tobytes() for a in (*arrays, *further))


def _large() -> Interval:
    fleet = make_fleet(((B2S, 30), (B4MS, 10), (B8MS, 10)))
    return Interval(cloud([(i % 7, i % 50) for i in range(60)], fleet), waiting(*[i % 7 for i in range(30)]))


def _planner(factory: Any) -> Planner:
    return planners.adopted(factory(), "checked")


def _assign(planner: Planner, asked: Interval) -> Plan:
    return planner.assign(asked.state, asked.tasks, asked.state.digest(asked.tasks))


def _selector(factory: Any) -> Selector:
    return selectors.adopted(factory(CANDIDATES, DEFAULT, DIVISORS["regime"], _SEED), "checked")


def _choose(selector: Selector, asked: Interval) -> Choice:
    return selector.choose(asked.number, asked.state, asked.tasks, asked.candidates)


def _same_choice(a: Choice, b: Choice) -> bool:
    return (a.candidate, a.reason, dict(a.predicted)) == (b.candidate, b.reason, dict(b.predicted))


def selector_questions() -> Mapping[str, Interval]:
    """Questions to selectors: the planners' intervals one after the other, and choices among few."""
    numbered = {name: replace(asked, number=i) for i, (name, asked) in enumerate(questions().items())}
    plain = numbered["several tasks"]
    return {
        **numbered,
        "a single candidate": replace(plain, candidates=CANDIDATES[:1], number=20),
        "candidates in another order": replace(plain, candidates=CANDIDATES[::-1], number=21),
    }


def _taught(factory: Any) -> Selector:
    """Decisions were made and measured; of one another candidate decided, and one is never measured."""
    selector = _selector(factory)
    for number in range(12):
        asked = replace(questions()["several tasks"], number=number)
        choice = _choose(selector, asked)
        selector.observe(asked.state, asked.tasks)
        selector.commit(number, choice, CANDIDATES[1] if number == 5 else choice.candidate)  # once another one decides
        if number == 3:
            selector.forget(number)
            continue
        selector.learn(Scored(number, Outcome(0.01, 900.0, 40.0, 1.0, 5.0), 0.002 * (1 + number % 3)))
    return selector


def _survives_restarts(factory: Any) -> str:
    taught, restarted = _taught(factory), _selector(factory)
    kept = taught.online_state()
    if not all(np.isfinite(array).all() for array in kept.values()):
        return "its checkpoint holds something that is no number"
    restarted.restore(kept)
    asked = replace(questions()["several tasks"], number=40)
    first, second = _choose(taught, asked), _choose(restarted, asked)
    return (
        "" if first.candidate == second.candidate else f"restored from its checkpoint it chooses {second.candidate}, not {first.candidate}"
    )


def _learns_strangers(factory: Any) -> str:
    """After a restart, measured costs come of decisions that nobody remembers."""
    selector = _selector(factory)
    selector.learn(Scored(99, Outcome(0.01, 900.0, 40.0, 0.0, 5.0), 0.002))
    selector.forget(98)
    asked = questions()["several tasks"]
    return choice_fault(asked, _choose(selector, asked))


EXAMS: Mapping[str, Exam[Any, Any]] = {
    PLANNER: Exam(
        make=_planner,
        ask=_assign,
        questions=questions,
        fault=plan_fault,
        same=lambda a, b: np.array_equal(a.host, b.host),
        trace=_trace,
        large=_large,
        budget_s=PLAN_BUDGET_S,
    ),
    SELECTOR: Exam(
        make=_selector,
        ask=_choose,
        questions=selector_questions,
        fault=choice_fault,
        same=_same_choice,
        trace=_trace,
        large=_large,
        budget_s=CHOICE_BUDGET_S,
        further={"survives a restart": _survives_restarts, "learns nothing from strangers' decisions": _learns_strangers},
    ),
}

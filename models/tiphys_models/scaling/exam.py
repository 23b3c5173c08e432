"""What every scaling agent is asked by the conformance suite (`seats.checks`), and what its answers must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tiphys_models.scaling.protocol import Answers, ScalingAgent, decide
from tiphys_models.scaling.registry import adopted
from tiphys_models.scaling.seen import ServiceHistory, seen_of
from tiphys_models.scaling.state import Bounds, Mask, Objective, ScalingState, Window
from tiphys_models.seats.checks import Exam

KIND = "scaling-agent"
ATTAINMENT = 0.95
BUDGET_S = 1.0
"""Most seconds for a hundred services; a window is at least 5 s long, and the operator may have a thousand policies."""
_NOW_S, _WINDOW_S = 1_700_000_000.0, 15.0


def service(*rates: float, replicas: int = 2, cpu_m: int = 300, **changed: Any) -> ScalingState:
    """A service that saw these rates, the last one just now; fields of its windows by `windows`."""
    measured = {"late": 0.0, "p90_s": 0.05, "in_flight": 1.0, "throttled": 0.0, **changed.pop("windows", {})}
    count = len(rates)
    windows = tuple(
        Window(_NOW_S - (count - 1 - i) * _WINDOW_S, _WINDOW_S, r * _WINDOW_S, r * _WINDOW_S, **{"used_cpu_m": r / 0.6, **measured})
        for i, r in enumerate(np.nan_to_num(rates).tolist())
    )
    return ScalingState(
        "shop/front", _NOW_S, _WINDOW_S, replicas, changed.pop("ready", replicas), cpu_m, windows, rates, 1 / 0.6, **changed
    )


def questions() -> Mapping[str, ServiceHistory]:
    """Services of every sort."""
    steady = [100.0 + 10 * (i % 7) for i in range(60)]
    nan = float("nan")
    nothing = {"late": None, "p90_s": None, "in_flight": None, "used_cpu_m": None, "throttled": None}
    held = Mask(replicas_up=False, replicas_down=False, cpu_up=False, cpu_down=False)
    return {
        "one service": seen_of([service(*steady)]),
        "several services": seen_of([service(*steady), service(5.0, 900.0, replicas=1), service(0.0, 0.0, 0.0, cpu_m=60)]),
        "a service in its first window": seen_of([service(40.0)]),
        "services that nobody asks anything": seen_of([service(*([0.0] * 30))]),
        "services with missing readings": seen_of([service(*steady, windows=nothing), service(nan, 80.0, nan, windows=nothing)]),
        "services of which no rate is known": seen_of([service(nan, nan, windows=nothing)]),
        "services under a very large load": seen_of([service(1e6, 2e6, windows={"late": 1.0, "in_flight": 1e7, "p90_s": 60.0})]),
        "services whose pods have not started": seen_of([service(*steady, ready=0)]),
        "services that may not move": seen_of([service(*steady, mask=held)]),
        "services with a single size and number": seen_of([service(*steady, bounds=Bounds(2, 2, 300, 300))]),
    }


def fault(seen: ServiceHistory, answers: Answers) -> str:
    """What is wrong with answers; bounds and limits are the operator's part."""
    count = len(seen)
    replicas, cpu_m = np.asarray(answers.replicas), np.asarray(answers.cpu_m)
    if replicas.shape != (count,) or cpu_m.shape != (count,):
        return f"{count} services need {count} numbers of pods and {count} sizes, not {replicas.shape} and {cpu_m.shape}"
    if replicas.dtype.kind not in "iu":
        return f"numbers of pods are whole, not {replicas.dtype}"
    if not np.isfinite(cpu_m).all() or (cpu_m < 0).any():
        return "a size is no number, or negative"
    return "a service gets a negative number of pods" if (replicas < 0).any() else ""


def _same(a: Answers, b: Answers) -> bool:
    return bool(np.array_equal(a.replicas, b.replicas) and np.allclose(a.cpu_m, b.cpu_m, rtol=1e-9, atol=1e-6))


def _arrays(seen: ServiceHistory) -> list[str]:
    return [f.name for f in fields(seen) if f.name != "window_s"]


def _permuted(seen: ServiceHistory) -> tuple[ServiceHistory, Callable[[Answers], Answers]]:
    order = np.arange(len(seen))[::-1]
    turned = replace(seen, **{name: getattr(seen, name)[order] for name in _arrays(seen)})
    return turned, lambda answers: Answers(np.asarray(answers.replicas)[order], np.asarray(answers.cpu_m)[order])


def _stale(factory: Any) -> str:
    """Without a recent reading nothing changes; the house sees to that, whatever the agent would say."""
    old = replace(service(100.0, 120.0), now_s=_NOW_S + 3600)
    decision = decide(_make(factory), old)
    return "" if (decision.replicas, decision.cpu_m) == (old.replicas, old.cpu_m) else "it changes a service of which nothing is known"


def _every_objective(factory: Any) -> str:
    for attainment in (0.5, 0.9, 0.99):
        agent = adopted(factory(attainment), "checked")
        seen = seen_of([service(80.0, 90.0, objective=Objective(attainment=attainment))])
        if wrong := fault(seen, agent.answer(seen)):
            return f"at an objective of {attainment:g}: {wrong}"
    return ""


def _make(factory: Any) -> ScalingAgent:
    return adopted(factory(ATTAINMENT), "checked")


def _ask(agent: ScalingAgent, seen: ServiceHistory) -> Answers:
    return agent.answer(seen)


def _names_actions(factory: Any) -> str:
    """A learned agent shows values of its actions: one name for each."""
    agent, seen = _make(factory), questions()["several services"]
    answers = agent.answer(seen)
    if answers.values is None:
        return ""
    if np.shape(answers.values) != (len(seen), len(agent.actions)):
        return f"{len(agent.actions)} actions have {np.shape(answers.values)} values"
    taken = np.asarray(answers.action if answers.action is not None else [-1])
    return "" if ((taken >= -1) & (taken < len(agent.actions))).all() else "it takes an action that has no name"


EXAMS: Mapping[str, Exam[Any, Any]] = {
    KIND: Exam(
        make=_make,
        ask=_ask,
        questions=questions,
        fault=fault,
        same=_same,
        trace=lambda seen: b"|".join(np.ascontiguousarray(getattr(seen, name)).tobytes() for name in _arrays(seen)),
        large=lambda: seen_of([service(*[50.0 + (i + k) % 40 for k in range(900)]) for i in range(100)]),
        budget_s=BUDGET_S,
        permuted=_permuted,
        further={
            "changes nothing without a recent reading": _stale,
            "answers under every objective": _every_objective,
            "names its actions": _names_actions,
        },
    )
}

"""Scaling agents by the names that the CRD, the command and the benchmarks use; others come through entry points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tiphys_models.artifacts.files import has_weights
from tiphys_models.scaling.protocol import Answers, ScalingAgent
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.seats.registry import Entry, Registry

GROUP = "tiphys.scaling_agents"
"""Entry point group of agents from other distributions: name -> a `Make`."""
Make = Callable[[float], ScalingAgent]
"""(wanted attainment of windows) -> agent; rules that have no such setting ignore it."""

_HERE = __name__.rsplit(".", 1)[0]
_RULES = {
    "naive": "naive", "hpa": "hpa", "rps-hpa": "rps_hpa", "rule-horizontal": "rule_horizontal", "rule": "rule", "rule+": "rule_plus",
}  # fmt: skip
_LEARNED = {"q-table": "q_table", "dqn-horizontal": "dqn_horizontal", "dqn-vertical": "dqn_vertical", "combined": "combined"}
REGISTRY: Registry[Callable[..., Any]] = Registry(
    "scaling-agent",
    GROUP,
    (
        *(Entry(name, f"{_HERE}.settings:{made}") for name, made in _RULES.items()),
        *(Entry(name, f"{_HERE}.learned:{made}", learned=True, model=f"scaling-{name}") for name, made in _LEARNED.items()),
    ),
)


class ForeignAgent:
    """A scaling agent of another package. Only `answer` is asked of it; `actions` and `digest` count where it has them."""

    def __init__(self, agent: Any, name: str, digest: str = "") -> None:
        self._agent, self.name = agent, name
        self.actions: tuple[str, ...] = tuple(getattr(agent, "actions", ()))
        self.digest = str(getattr(agent, "digest", "") or digest)

    def answer(self, seen: ServiceHistory) -> Answers:
        """See `ScalingAgent`; ValueError for anything but a number of pods and a finite size a service."""
        found = self._agent.answer(seen)
        replicas, cpu_m = np.asarray(found.replicas), np.asarray(found.cpu_m, np.float64)
        if replicas.shape != (len(seen),) or cpu_m.shape != (len(seen),) or replicas.dtype.kind not in "iu":
            raise ValueError(f"{len(seen)} services need as many numbers of pods and sizes")
        if not np.isfinite(cpu_m).all():
            raise ValueError("a size is no number")
        return Answers(replicas.astype(np.int64), cpu_m, getattr(found, "action", None), getattr(found, "values", None))


def adopted(agent: Any, name: str, digest: str = "") -> ScalingAgent:
    """Any object with a method `answer` as a scaling agent; InvalidInput for another one."""
    REGISTRY.needs(REGISTRY.entry(name) or Entry(name, ""), agent, "answer")
    return ForeignAgent(agent, name, digest)


def entries() -> tuple[Entry, ...]:
    """Our own that this installation has; a learned one without weights cannot serve."""
    return tuple(e for e in REGISTRY.ours.values() if not e.model or has_weights(e.model))


def model_of(kind: str) -> str:
    """Name of the weights that an agent of ours needs; empty: none."""
    return REGISTRY.ours[kind].model if kind in REGISTRY.ours else ""


def unshipped_model(kind: str) -> str:
    """Name of the weights that an agent of ours needs and this installation does not have; empty: none."""
    model = model_of(kind)
    return model if model and not has_weights(model) else ""


def agent_names() -> tuple[str, ...]:
    """Ours, then those of other distributions; ours cannot be replaced."""
    return (*(e.name for e in entries()), *REGISTRY.foreign)


def make_agent(name: str, attainment: float = 0.95) -> ScalingAgent:
    """The agent of that name; InvalidInput if there is none, or it cannot be used."""
    if name not in agent_names():
        raise REGISTRY.unknown(name, agent_names())
    made, foreign = REGISTRY.make(name, attainment), REGISTRY.foreign.get(name)
    return adopted(made, name, foreign.digest) if foreign is not None else made  # type: ignore[return-value]

"""The extender's process: the parts that every process of decisions has, and the gates of pods that may wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tiphys_extender.gates.keeper import GateKeeper, GateLimits
from tiphys_extender.gates.metrics import GATED_PODS, ExtenderMetrics
from tiphys_extender.gates.shapes import NodeShapes, shaped_nodes
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.objects import PodSink
from tiphys_extender.placement.waited import Gates
from tiphys_extender.server import Parts, run
from tiphys_extender.settings import Settings
from tiphys_extender.watches import WAITING, WAITING_PATH, Watches
from tiphys_models.base.clock import Clock
from tiphys_models.base.facts import function_of
from tiphys_models.kube.client import KubeClient

READY_PATH = "/openers/ready"
"""Whether this process takes gates off: admission puts them on only while somebody does."""
_LOOP, _LIMIT_S = "gates", 30.0


def run_extender() -> int:
    """The whole life of the process; its exit code."""
    return run(ExtenderParts)


class EndedPods(PodSink):
    """Bound pods into the placement state; whoever holds pods hears of each that ends."""

    def __init__(self, world: World, decisions: DecisionLog, clock: Clock, keeper: GateKeeper) -> None:
        super().__init__(world, decisions, clock)
        self._keeper = keeper

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted, or finished, which this watch shows as deleted."""
        super().drop(obj)
        metadata = obj["metadata"]
        ran = not metadata.get("deletionTimestamp") and (obj.get("status") or {}).get("phase") != "Failed"
        self._keeper.ended(metadata["uid"], function_of(metadata), ran=ran)


class ExtenderParts(Parts):
    """Everything that runs in an extender."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        metrics = ExtenderMetrics()
        super().__init__(settings, clock, metrics)
        self._gate_metrics = metrics.of_gates
        self._keeper: GateKeeper | None = None

    def _make_watches(self, client: KubeClient, learned: LearnedModels | None) -> Watches:
        if not self._settings.gates_enabled:
            return super()._make_watches(client, learned)
        settings, shapes = self._settings, NodeShapes(self.world.state.nodes)
        limits = GateLimits(settings.gates_longest_wait_s, settings.deadline_ms / 1000)
        keeper = self._keeper = GateKeeper(
            self.world, shapes, client, self._gate_metrics, self._clock, self._wall, limits, self._doubt, self._beats(_LOOP, _LIMIT_S)
        )
        self.answerer.gates = keeper
        self._jobs[_LOOP] = keeper.run
        return Watches(
            client, self.world, self.decisions, self.metrics, self._wall, settings.switch_configmap, learned,
            loops=self.loops,
            nodes=shaped_nodes(self.world, shapes),
            pods=EndedPods(self.world, self.decisions, self._clock, keeper),
            more={GATED_PODS: (WAITING_PATH, keeper)},
            selections={GATED_PODS: WAITING},
        )  # fmt: skip

    def _doubt(self) -> str:
        """Why what is known of the cluster may be wrong."""
        if (problem := self.health.problem()) or self.watches is None:
            return problem or "not started"
        deaf = self.watches.deaf("nodes", "pods", "policies", GATED_PODS)
        return f"watches fail: {', '.join(deaf)}" if deaf else ""

    def _probes(self) -> Mapping[str, Callable[[], str]]:
        return {READY_PATH: self._not_opening}

    def _not_opening(self) -> str:
        return "gates are not enabled" if self._keeper is None else self._keeper.problem()

    @property
    def _gates(self) -> Gates | None:
        return self._keeper

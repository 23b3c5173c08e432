"""The worlds that are played live: those that the simulator plays under Kubernetes' filter, as machines, functions and scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tiphys_models.placement.sim.functions import FunctionModel
from tiphys_models.placement.sim.invoker import InvokerRules
from tiphys_models.placement.sim.kube.scenario import DEAR_STARTS, LITTLE_MEMORY, PRINTED, PROFILED, READINGS_15, STANDARD, KubeScenario
from tiphys_models.placement.sim.scenario import profiled_functions
from tiphys_models.placement.sim.workloads import CallWorkload
from tiphys_testbed.bench.calls_platform import models
from tiphys_testbed.cluster.nodes import GIB, MachineType
from tiphys_testbed.demo.lanes import MACHINE


@dataclass(frozen=True, slots=True)
class LiveWorld:
    """One world; `scenario` says all that is particular about it."""

    name: str
    scenario: KubeScenario

    @property
    def nodes(self) -> int:
        """Machines of a lane."""
        return self.scenario.cluster.nodes

    @property
    def machine(self) -> MachineType:
        """One of them."""
        return replace(MACHINE, memory_bytes=int(self.scenario.cluster.memory_gib * GIB))

    @property
    def rules(self) -> InvokerRules:
        """How a machine runs its pods."""
        cluster, scenario = self.scenario.cluster, self.scenario
        return InvokerRules(
            keep_alive_s=cluster.keep_alive_s,
            reuse=cluster.reuse,
            interference=cluster.interference,
            image_mib=scenario.image_mib,
            pull_mib_per_s=scenario.pull_mib_per_s,
            images_kept_mib=scenario.images_kept_mib,
        )

    @property
    def functions(self) -> tuple[FunctionModel, ...]:
        """What its functions are like."""
        return tuple(models(self.scenario.cluster.start_cost))

    @property
    def scrape_s(self) -> float:
        """How often machines and runtimes are read."""
        return self.scenario.cluster.period_s

    def declared(self, workload: CallWorkload) -> list[str]:
        """The functions whose runtimes say what calls are like: the same ones as in the simulator."""
        known = profiled_functions(replace(self.scenario.cluster, profiled=self.scenario.declared), workload)
        return [function.name for function, said in zip(self.functions, known, strict=True) if said]


def _named(name: str, worlds: tuple[KubeScenario, ...]) -> KubeScenario:
    return next(world for world in worlds if world.name == name)


WORLDS: Mapping[str, LiveWorld] = {
    world.name: world
    for world in (
        LiveWorld("standard", STANDARD),
        LiveWorld("dear-starts", DEAR_STARTS),
        LiveWorld("readings-15s", READINGS_15),
        LiveWorld("memory-short", LITTLE_MEMORY),
        LiveWorld("half-profiles", _named("k8s-profiles-50", PROFILED)),
        LiveWorld("pulls", _named("k8s-pulls", PRINTED)),
    )
}

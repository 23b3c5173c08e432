"""The same calls, nodes and policies in the simulator, and the live choices without the control plane's latencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.registry import PolicyName, shipped_policy
from tiphys_models.placement.sim.invoker import CallStep, Invoker, InvokerRules
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import CallWorkload
from tiphys_testbed.demo.functions import BY_NAME
from tiphys_testbed.demo.lanes import CONTROL
from tiphys_testbed.demo.records import CallRecord


@dataclass(frozen=True, slots=True)
class LeastRequested:
    """kube-scheduler's default scores on nodes and pods like the demo's: CPU requests are in proportion to memory and images lie
    everywhere, so that least-allocated and balanced-allocation both prefer the node of which least memory is requested."""

    name: str = CONTROL
    row_wise: bool = True
    epsilon: float = 1e-9
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Free share of the memory."""
        return view.available_memory_bytes / view.memory_capacity_bytes


@dataclass(frozen=True, slots=True)
class Simulated:
    """Mean completion time and cold starts of one policy on one workload."""

    mean_s: float
    cold_starts: int


def policy_of(name: PolicyName | None) -> PlacementPolicy:
    """The object that serves; None is the plain scheduler."""
    if name is None:
        return LeastRequested()
    return shipped_policy(name)


def simulate(workload: CallWorkload, name: PolicyName | None, scenario: FaasScenario, *, kubernetes: bool = False) -> Simulated:
    """The simulator's result as the published tables have it, or with Kubernetes' filter and with completions that are seen at once."""
    records = Reference(workload, policy_of(name), scenario, kubernetes=kubernetes).run()
    return Simulated(float(records.completion_s.mean()), int(records.cold.sum()))


def replayed_mean_s(records: Sequence[CallRecord], nodes: Iterable[tuple[str, int, int]], *, reuse: bool) -> float:
    """Mean completion time if every call had been on its live node (name, cores, memory) the moment it was due."""
    due_s = {record.pod: record.due_s for record in records}
    invokers = {name: Invoker(cores, memory_bytes, 0.0, InvokerRules(reuse=reuse)) for name, cores, memory_bytes in nodes}
    events = []
    for record in sorted(records, key=lambda r: r.due_s):
        events += invokers[record.node].submit(record.pod, BY_NAME[record.function], record.due_s, record.noise)
    for invoker in invokers.values():
        events += invoker.advance(float("inf"))
    ends = [event.at_s - due_s[event.call] for event in events if event.step is CallStep.DONE]
    return sum(ends) / len(ends)

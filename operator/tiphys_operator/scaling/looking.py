"""Between two windows: CPU (for `rule+` pods, too) grows where more arrives than fits, and late pods are brought to size."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.base.clock import Clock
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.rule_plus import control_of
from tiphys_operator.scaling.acting import Actor, Workload
from tiphys_operator.scaling.carrying import Carrier
from tiphys_operator.scaling.decide import View, block_at
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.metrics import RaiseResult, ScalingMetrics
from tiphys_operator.scaling.raising import Glimpse, known_cpu_ms, overrun, raised
from tiphys_operator.scaling.running import Case, Running
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.surroundings import Surroundings
from tiphys_operator.scaling.verdicts import Finding


class Looker:
    """One holder of the Lease looks at all policies between their windows."""

    def __init__(
        self,
        around: Surroundings,
        actor: Actor,
        carrier: Carrier,
        prometheus: PrometheusClient | None,
        metrics: ScalingMetrics,
        clock: Clock,
    ) -> None:
        self._around, self._actor, self._carrier = around, actor, carrier
        self._prometheus, self._metrics, self._clock = prometheus, metrics, clock

    async def align(self, policy: ScalingSeen, running: Running) -> None:
        """Bring pods that started or were delayed to the size that is in force, between two windows."""
        spec = policy.spec
        if running.workload is None or spec is None or spec.vertical is None or running.in_force_m is None:
            return
        if Case(policy, spec, running).acts_between:
            # not what the status says: others may have written there
            await self._actor.size(running.workload, min(running.in_force_m, spec.vertical.max_cpu_milli), shrink=False)

    async def look(self, policy: ScalingSeen, running: Running) -> None:
        """Between two windows: raise CPU in place where more arrives than fits. Everything else waits for the window's end."""
        policy = running.trusted(policy, self._clock)
        spec, reader, workload = policy.spec, running.reader, running.workload
        if spec is None or reader is None or workload is None:
            return
        case = Case(policy, spec, running)
        if not case.looks:
            return
        pods = self._around.pods(workload.target)
        seen, now_s = await reader.look(self._prometheus, pods), self._clock.now_s()
        cpu_ms = known_cpu_ms(policy, spec)
        if seen is None or cpu_ms is None:
            return
        view = View(workload.target, workload.shape, pods, Measured(), (), self._around.place(()))
        control = _control(case, now_s)
        if not overrun(spec, view, seen, cpu_ms, control):
            return
        # first without asking the API server: an overload that bounds do not let grow lasts for many looks
        possible = raised(policy, spec, view, seen, now_s, control) is not None
        done = possible and await self._raise(case, workload, seen)
        self._metrics.raises.labels(RaiseResult.DONE if done else RaiseResult.HINDERED).inc()

    async def _raise(self, case: Case, workload: Workload, seen: Glimpse) -> bool:
        """Raise CPU with everything that a window looks at before it acts; whether it was done."""
        policy, spec, running = case.policy, case.spec, case.running
        target, quotas = await asyncio.gather(self._around.target(policy, spec), self._around.quotas(policy.namespace))
        if isinstance(target, Finding) or await self._around.conflict(policy, target) is not None:
            return False  # the window's end says why
        running.workload = replace(workload, target=target)
        view = View(target, workload.shape, self._around.pods(target), Measured(), (), self._around.place(quotas))
        now_s = self._clock.now_s()
        outcome = raised(policy, spec, view, seen, now_s, _control(case, now_s))
        if outcome is None:
            return False
        done = await self._carrier.carry_out(case, view, await self._actor.preflight(outcome, view))
        self._metrics.decisions.labels(done.decision.phase).inc()
        if done.decision.phase != DecisionPhase.DONE:
            return False
        if running.judge is not None:
            running.judge.raised()
        return True


def _control(case: Case, now_s: float) -> Control | None:
    """What the agent asks for whose turn it is; None for the rule's turn in a canary, too."""
    block, chosen = block_at(case.policy, case.spec, now_s), case.running.chosen
    return control_of(chosen.agent) if chosen is not None and (block is None or block.obeys) else None

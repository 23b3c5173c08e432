"""Carries a decision out: the intent is written first, then it is done, then what was done is written.

Whoever dies in between leaves an intent: a size, not a step. Its successor compares it with what is there and finishes it, so that nothing
is ever done twice.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.api.scaling_status import LastDecision
from tiphys_models.base.clock import Clock
from tiphys_operator.scaling.acting import Actor
from tiphys_operator.scaling.decide import Outcome, View, current_size
from tiphys_operator.scaling.finishing import allowed_now, too_old
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import IntentResult, ScalingMetrics
from tiphys_operator.scaling.resizing import sizing
from tiphys_operator.scaling.running import Case
from tiphys_operator.scaling.telling import Teller
from tiphys_operator.scaling.verdicts import Finding

log = logging.getLogger(__name__)


class Carrier:
    """One holder of the Lease carries out the decisions of all policies."""

    def __init__(self, actor: Actor, teller: Teller, keys: IntentKeys, metrics: ScalingMetrics, clock: Clock) -> None:
        self._actor, self._teller, self._keys, self._metrics, self._clock = actor, teller, keys, metrics, clock

    async def carry_out(self, case: Case, view: View, outcome: Outcome) -> Outcome:
        """Write the intent down, act, write what was done; what became of it."""
        policy, spec, running = case.policy, case.spec, case.running
        if outcome.changes and not outcome.decision.mac:
            outcome = replace(outcome, decision=self._keys.sign(policy, outcome.decision))
        sizes = sizing(view.pods, view.shape, outcome.decision.applied.cpu_milli, self._clock.now_s())
        finding = Finding(outcome=outcome, conflict=view.conflict, pods=sizes.counts, current=current_size(view), chosen=running.shown)
        written = await self._teller.tell(policy, finding, running)
        back = outcome.memory.rolled_back
        if written is not None and back is not None and back != policy.status.memory.rolled_back:
            self._metrics.rollbacks.inc()
            log.warning("the rule takes over", extra={"fields": {"policy": policy.key, "why": back.message}})
        if written is None or running.workload is None or view.conflict is not None or policy.paused or not spec.acts:
            running.in_force_m = None
            return outcome
        if outcome.held is not None:
            running.in_force_m = current_size(view).cpu_milli if running.in_force_m is None else running.in_force_m
            return outcome
        running.in_force_m = outcome.decision.applied.cpu_milli
        done = await self._actor.act(outcome, running.workload, vertical=spec.vertical is not None)
        return done if done is outcome else await self._done(replace(case, policy=written), view, finding, outcome, done)

    async def _done(self, case: Case, view: View, finding: Finding, intended: Outcome, done: Outcome) -> Outcome:
        """Write down what became of an intent."""
        running = case.running
        abandoned = done.decision.phase == DecisionPhase.ABANDONED
        running.in_force_m = (current_size(view) if abandoned else done.decision.applied).cpu_milli
        if running.judge is not None and (abandoned or done.decision.masked != intended.decision.masked):
            running.judge.hindered()
        done = replace(done, decision=done.decision.model_copy(update={"mac": ""}))  # of intents only
        if await self._teller.tell(case.policy, replace(finding, outcome=done), running) is not None:
            running.finished = intended.decision.mac
        return done

    def intent(self, case: Case, view: View) -> LastDecision | None:
        """What a predecessor was about to do for this very spec, if it was one of ours and may still be done."""
        policy, spec, running, now_s = case.policy, case.spec, case.running, self._clock.now_s()
        last = policy.status.last_decision
        if last is None or last.phase != DecisionPhase.INTENDED or not case.settled:
            return None
        if not spec.acts or view.conflict is not None or policy.paused or (last.mac and last.mac == running.finished):
            return None
        found = self._keys.doubt(policy, last)
        if found is None and too_old(last, spec, now_s, running.shift_s):
            found = IntentResult.OLD
        if found is None and not allowed_now(spec, policy.status.memory, last, view, now_s):
            found = IntentResult.NOT_ALLOWED
        self._metrics.intents.labels(found or IntentResult.FINISHED).inc()
        if found is not None:
            fields = {"policy": policy.key, "decision": last.number, "why": str(found)}
            log.warning("an intent in a status is not obeyed: decided anew", extra={"fields": fields})
        return last if found is None else None

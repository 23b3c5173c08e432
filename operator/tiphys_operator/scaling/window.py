"""One window of one policy: what is there, who decides, what is decided.

`carrying` does it, `telling` says so, and `looking` comes between two windows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.kube.prometheus import PrometheusClient, QueryTurns
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.transition import Transition
from tiphys_models.seats.seat import DEADLINE
from tiphys_operator.records import Records, make_records
from tiphys_operator.runtime.thinking import Overdue, Thinking
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.acting import Actor, Workload
from tiphys_operator.scaling.agents import AgentShelf
from tiphys_operator.scaling.carrying import Carrier
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.decide import Outcome, View
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.judging import judge_of, judged_window
from tiphys_operator.scaling.looking import Looker
from tiphys_operator.scaling.metrics import ScalingError, ScalingMetrics
from tiphys_operator.scaling.reach import Reach
from tiphys_operator.scaling.reader import FIRSTS_AT_ONCE, WindowReader
from tiphys_operator.scaling.running import Case, Running
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.shape import shape_of
from tiphys_operator.scaling.surroundings import Surroundings
from tiphys_operator.scaling.telling import Teller
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.verdicts import Finding
from tiphys_operator.scaling.workload import Target

log = logging.getLogger(__name__)

LONGEST_THOUGHT_S = 4.0
"""The longest that a window waits for its agent. Ours take milliseconds; those of other packages are held to this, too."""


class WindowRunner:
    """The steps of a window, the same for all policies."""

    def __init__(
        self, hands: Hands, writer: Writer, cluster: ScalingCluster, prometheus: PrometheusClient | None, metrics: ScalingMetrics,
        clock: Clock, shelf: AgentShelf, transitions: TransitionLog, on_written: Callable[[dict[str, Any]], object],
        reach: Reach, keys: IntentKeys, records: Records | None = None,
    ) -> None:  # fmt: skip
        self.records = records if records is not None else make_records()
        self._around = Surroundings(hands, writer, cluster, clock)
        self._teller = Teller(hands, writer, cluster, metrics, clock, transitions, self.records, on_written)
        self._actor, self._turns = Actor(hands, cluster, metrics, clock), QueryTurns(1)
        self._firsts = asyncio.Semaphore(FIRSTS_AT_ONCE)
        self._carrier = Carrier(self._actor, self._teller, keys, metrics, clock)
        self._looker = Looker(self._around, self._actor, self._carrier, prometheus, metrics, clock)
        self._shelf, self._reach, self._prometheus = shelf, reach, prometheus
        self._metrics, self._clock = metrics, clock
        self._thinking = Thinking("scaling", clock, LONGEST_THOUGHT_S)

    async def run(self, policy: ScalingSeen, running: Running) -> None:
        """ApiError or Unavailable if the API server fails; whatever the policy itself lacks stands in its status."""
        policy = running.trusted(policy, self._clock)
        found = await self._begun(policy, running)
        if isinstance(found, Finding):
            await self._teller.tell(policy, found, running)

    async def tell(self, policy: ScalingSeen, running: Running, reason: ScalingReason, message: str) -> None:
        """Say that a window came to nothing, and why."""
        await self._teller.tell(policy, Finding(reason, message), running)

    async def align(self, policy: ScalingSeen, running: Running) -> None:
        """The policy's pods are brought to its size between windows, see `Looker.align`."""
        await self._looker.align(policy, running)

    async def look(self, policy: ScalingSeen, running: Running) -> None:
        """The newest samples are read between windows, and CPU is raised if load waits, see `Looker.look`."""
        await self._looker.look(policy, running)

    async def _begun(self, policy: ScalingSeen, running: Running) -> Finding | None:
        """Decide, or say why nothing can be decided at all."""
        spec = policy.spec
        if spec is None:
            return Finding(ScalingReason.INVALID_SPEC, policy.invalid)
        if spec.mode == "Off":
            return Finding(ScalingReason.DISABLED, "mode is Off: nothing is measured")
        if (refusal := self._reach.refusal(policy.namespace)) is not None:
            return Finding(ScalingReason.NAMESPACE_NOT_ALLOWED, refusal)
        target = await self._around.target(policy, spec)
        if isinstance(target, Finding):
            return target
        case = Case(policy, spec, running)
        problem = await self._prepare(case, target)
        return problem if problem is not None else await self._window(case, target)

    async def _prepare(self, case: Case, target: Target) -> Finding | None:
        """Have ready who decides and what is read; what the last window left is kept where the spec is the same."""
        policy, spec, running = case.policy, case.spec, case.running
        shape = shape_of(target, spec.vertical)
        if isinstance(shape, str):
            return Finding(ScalingReason.TARGET_UNFIT, shape)
        running.workload = Workload(target, shape)
        same, former = running.generation == policy.generation, running.chosen
        try:
            running.chosen = await self._shelf.choose(spec, policy.status.agent, former if same else None)
        except (InvalidInput, ArtifactRefused) as error:
            return Finding(ScalingReason.AGENT_UNAVAILABLE, str(error))
        if not same or former is None or running.chosen.agent is not former.agent:
            running.judge = judge_of(running.chosen.agent, spec)
        if not same or running.reader is None:
            running.reader = WindowReader(spec, policy.namespace, shape.container, self._turns, self._firsts)
            running.in_force_m = None
            running.generation = policy.generation
        return None

    async def _window(self, case: Case, target: Target) -> Finding | None:
        """Decide and carry out; a Finding if nobody could decide."""
        case = replace(case, policy=await self._around.noticed(case.policy, case.spec, target))
        view = await self._view(case, target)
        if (intent := self._carrier.intent(case, view)) is not None:
            log.info("finishing what a predecessor intended", extra={"fields": {"policy": case.policy.key, "decision": intent.number}})
            outcome = Outcome(intent, case.policy.status.memory, None)
        else:
            decided = await self._decided(case, view)
            if isinstance(decided, Finding):
                return decided
            outcome = decided
        self._teller.record(case, await self._carrier.carry_out(case, view, outcome))
        return None

    async def _view(self, case: Case, target: Target) -> View:
        policy, reader, workload = case.policy, case.running.reader, case.running.workload
        if reader is None or workload is None:
            raise InvalidInput("a policy is prepared before it is looked at")
        found = await self._around.conflict(policy, target)
        pods = self._around.pods(target)
        measured = await reader.read(self._prometheus, pods, self._clock.now_s())
        place = self._around.place(await self._around.quotas(policy.namespace))
        return View(target, workload.shape, pods, measured, reader.rates, place, found, case.running.starts.seen(pods))

    async def _decided(self, case: Case, view: View) -> Outcome | Finding:
        """What agent or rule decides, as far as admission lets it pass."""
        policy, spec, running = case.policy, case.spec, case.running
        if running.chosen is None:
            raise InvalidInput("a policy is prepared before it decides")
        try:
            outcome, taught = await self._judged(case, view, running.chosen.agent)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            # not the agent, for which the rule answers: the rule, or what both are asked
            self._metrics.errors.labels(ScalingError.AGENT).inc()
            log.exception("nobody could decide", extra={"fields": {"policy": policy.key, "agent": spec.agent.kind}})
            return Finding(ScalingReason.AGENT_UNAVAILABLE, f"{spec.agent.kind} failed: {type(error).__name__}: {error}")
        self._teller.decided(case, outcome, taught)
        passed = await self._actor.preflight(outcome, view)
        if running.judge is not None and passed is not outcome:
            running.judge.hindered()
        return passed

    async def _judged(self, case: Case, view: View, agent: ScalingAgent) -> tuple[Outcome, Transition | None]:
        """The decision of agent and rule, in a thread because the Lease must be renewed meanwhile.

        For an agent that has no answer in time the rule answers, with all that was compared before.
        """
        policy, spec, running, now_s = case.policy, case.spec, case.running, self._clock.now_s()
        if isinstance(agent, Rule):
            return await asyncio.to_thread(judged_window, policy, spec, agent, running.judge, view, now_s)
        judge = running.judge.copy() if running.judge is not None else None
        try:
            thought = await self._thinking.ask(policy.uid, spec.agent.kind, partial(judged_window, policy, spec, agent, judge, view, now_s))
        except Overdue as error:
            log.warning("an agent has no answer", extra={"fields": {"policy": policy.key, "why": str(error)}})
            return await asyncio.to_thread(judged_window, policy, spec, agent, running.judge, view, now_s, DEADLINE)
        running.judge = judge
        return thought.found

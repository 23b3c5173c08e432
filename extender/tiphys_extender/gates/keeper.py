"""Holds pods behind the gate and lets them go: a sink of their watch, and the loop that looks at them again."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tiphys_extender.gates.looking import Verdict, look
from tiphys_extender.gates.metrics import GateMetrics
from tiphys_extender.gates.opening import AT_ONCE, End, Opener, Patcher
from tiphys_extender.gates.passed import PassedPods
from tiphys_extender.gates.room import HeldPod, HoldingRoom, read_held
from tiphys_extender.gates.shapes import NodeShapes
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.waited import Waited
from tiphys_models.api.reasons import OpenReason
from tiphys_models.base.clock import Clock
from tiphys_models.placement.gate import is_held, opening_patch
from tiphys_models.placement.waiting import LONGEST_S

LOOK_AGAIN_S = 0.2
"""How often those who wait are looked at where nothing has ended: as good as a scheduler that is woken by every end, to a hundredth."""
MOST_LOOKS = 50
"""Looks of one round; those who are due and those who come are always among them."""
_REST_S = 0.005
"""Time between two rounds in which more ends and newcomers gather."""
_AWAITED = 5_000
STALLED_S = 2.0
"""A loop that has not worked for so long opens nothing: nobody should rely on it."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """How long pods wait, and how long a decision about one may take."""

    bound_s: float = LONGEST_S
    deadline_s: float = 0.020


class GateKeeper:
    """All pods that carry the gate. Everything runs on the event loop, one look after the other."""

    def __init__(
        self,
        world: World,
        shapes: NodeShapes,
        client: Patcher,
        metrics: GateMetrics,
        clock: Clock,
        wall: Clock,
        limits: GateLimits,
        doubt: Callable[[], str] = lambda: "",
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`doubt` says why what is known of the cluster may be wrong; empty while it is sound."""
        self._world, self._shapes, self._metrics = world, shapes, metrics
        self._clock, self._wall, self._limits, self._doubt, self._beat = clock, wall, limits, doubt, beat
        self._room = HoldingRoom()
        self._opening: dict[str, HeldPod] = {}
        self._opener = Opener(client, metrics, clock.monotonic_s, self._ended)
        self._passed = PassedPods(metrics, clock.monotonic_s)
        self._awaited: dict[str, bool] = {}
        """Pods with a node reserved of which the scheduler has not asked; it does not ask about a single candidate."""
        self._woken = asyncio.Event()
        self._ended_functions: set[str] = set()
        self._ends = 1
        self._number = 0
        self._worked_s = -math.inf
        metrics.bound_s.set(limits.bound_s)
        metrics.gated.set_function(lambda: float(len(self)))
        metrics.oldest_s.set_function(self._oldest_s)

    # ---- what the watch of gated pods shows --------------------------------------------------------------------------

    def put(self, obj: dict[str, Any]) -> None:
        """A pod that may wait was added or changed, with its gate or without."""
        uid = obj["metadata"]["uid"]
        known = self._room.get(uid) or self._opening.get(uid)
        if not is_held(obj):
            self._gone(uid)
        elif known is not None:
            known.patch, known.version = opening_patch(obj), str(obj["metadata"].get("resourceVersion") or "")
        elif uid not in self._passed:  # a gate never comes back: what is shown is older than what we did
            self._number += 1
            clock = self._clock
            times = (clock.monotonic_s(), clock.now_s(), self._wall.now_s())
            pod = read_held(obj, self._world.scheduler_name, self._limits.bound_s, self._number, times)
            if pod.never is not None:
                self._open(pod, Verdict(pod.never))
            else:
                self._room.enter(pod)
                self._woken.set()

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted, bound, or no longer labelled as one that may wait: such a one is let go if it is still there."""
        uid = obj["metadata"]["uid"]
        pod = self._room.get(uid)
        if pod is not None and is_held(obj):
            self._open(pod, Verdict(OpenReason.OPTED_OUT))
        else:
            self._gone(uid)

    def listed(self, uids: set[str]) -> None:
        """Pods that are not in the list are gone, or are none of ours any more: those that still carry the gate are let go."""
        for pod in [pod for pod in self._room if pod.uid not in uids]:
            self._open(pod, Verdict(OpenReason.OPTED_OUT))

    def __len__(self) -> int:
        return len(self._room) + len(self._opening)

    # ---- what else happens -------------------------------------------------------------------------------------------

    def ended(self, uid: str, function: str, *, ran: bool) -> None:
        """A pod has ended somewhere: there may be an instance, or room."""
        if ran:
            self._passed.ran(uid)
        if len(self._room):
            self._ended_functions.add(function)
            self._ends += 1
            self._woken.set()

    async def run(self) -> None:
        """Look at those who wait, and take gates off, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._opener.work())
            group.create_task(self._keep_looking())

    async def round(self) -> float:
        """Look once at those whose turn it is; how long that took by itself."""
        now_s = self._clock.monotonic_s()
        ended, self._ended_functions = self._ended_functions, set()
        todo = self._room.in_turn(now_s, self._ends, ended, LOOK_AGAIN_S)
        spent_s = 0.0
        for looks, pod in enumerate(todo):
            if looks >= MOST_LOOKS and pod.until_s > now_s and math.isfinite(pod.looked_s):
                break
            if pod.uid in self._room:
                began_s = self._clock.monotonic_s()
                self._look(pod, began_s)
                spent_s += self._clock.monotonic_s() - began_s
            await asyncio.sleep(0)  # a look is up to some milliseconds: the scheduler's requests are let through in between
        self._worked_s = self._clock.monotonic_s()
        self._beat()
        return spent_s

    async def _keep_looking(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._woken.wait()
            self._woken.clear()
            # no more than a quarter of the loop's time, however many wait: the scheduler waits for the same loop
            await asyncio.sleep(max(3 * await self.round(), _REST_S))

    def problem(self) -> str:
        """Why nobody should put gates on now; empty while this process can take them off."""
        if (doubt := self._doubt()) != "":
            return doubt
        if self._opener.forbidden:
            return "the right to patch pods is missing"
        silent_s = self._clock.monotonic_s() - self._worked_s
        return f"the gates' loop has done nothing for {silent_s:.0f} s" if silent_s > STALLED_S else ""

    # ---- what answers and explain ask --------------------------------------------------------------------------------

    def waited(self, uid: str) -> Waited | None:
        """How this pod came past its gate; None if it had none, or nobody remembers."""
        if (passed := self._passed.get(uid)) is not None:
            return passed.waited
        if (pod := self._opening.get(uid)) is not None:  # the scheduler was faster than the answer to our patch
            return Waited(self._clock.monotonic_s() - pod.seen_s, str(pod.reason or ""))
        return None

    def is_awaited(self, uid: str) -> bool:
        """Whether a node was reserved for this pod when it was let go, and the scheduler had not asked about it until now."""
        return self._awaited.pop(uid, False)

    def goes_warm(self, uid: str, function: str) -> None:
        """A pod goes to an idle instance: it overtakes whoever is held for one, unless it has waited itself."""
        if self._room.holds(function) and uid not in self._passed and uid not in self._opening:
            self._metrics.overtaken.inc()

    def story(self, uid: str, namespace: str, pod: str) -> dict[str, Any] | None:
        """What explain says of a pod that is held or was, by its uid or by its name."""
        held = self._find(uid, namespace, pod)
        if held is None:
            passed = self._passed.get(uid) if uid else self._passed.named(namespace, pod)
            return None if passed is None else passed.story()
        now_s = self._clock.monotonic_s()
        told = {"state": "opening" if held.reason is not None else "held", "since": round(held.seen_at_s, 3)}
        told |= {"seconds": round(now_s - held.seen_s, 3), "until": round(held.seen_at_s + held.until_s - held.seen_s, 3)}
        if held.reason is not None:
            return told | {"reason": str(held.reason)}
        if held.wait is not None:
            expected = {"awaitedSeconds": round(held.wait.awaited_s, 3), "savesSeconds": round(held.wait.saved_s, 3)}
            told |= {"rank": self._room.before(held), "function": held.function, **expected}
        return told

    def _find(self, uid: str, namespace: str, pod: str) -> HeldPod | None:
        if uid:
            return self._room.get(uid) or self._opening.get(uid)
        known: Iterable[HeldPod] = chain(self._room, self._opening.values())
        return next((held for held in known if (held.namespace, held.name) == (namespace, pod)), None)

    # ---- one pod -----------------------------------------------------------------------------------------------------

    def _look(self, pod: HeldPod, now_s: float) -> None:
        pod.looked_s, pod.looked_after = now_s, self._ends
        verdict = self._judge(pod, now_s)
        if verdict.wait is not None:
            if not pod.held and not self._room.has_room(pod):
                self._open(pod, Verdict(OpenReason.TOO_MANY, None, verdict.request, verdict.node))
                return
            if not pod.held:
                pod.go_s = verdict.go_s
                self._metrics.held.inc()
                self._metrics.expected_s.inc(max(verdict.wait.saved_s, 0.0))
            self._room.told(pod, verdict.wait)
        else:
            self._open(pod, verdict)

    def _judge(self, pod: HeldPod, now_s: float) -> Verdict:
        if not self._world.synced:
            return Verdict(OpenReason.NOT_SYNCED)
        if self._doubt():
            return Verdict(OpenReason.IN_DOUBT)
        clock, deadline_s = self._clock, now_s + self._limits.deadline_s
        self._world.state.tick(clock.now_s())  # calls grow older
        self._metrics.looks.inc()
        before, due = self._room.before(pod), pod.until_s <= now_s
        return look(self._world, self._shapes, pod, before, due=due, now_s=clock.now_s(), in_time=lambda: clock.monotonic_s() < deadline_s)

    def _open(self, pod: HeldPod, verdict: Verdict) -> None:
        """The pod goes. Its node is reserved before anybody else is looked at: the scheduler asks about it some milliseconds from now."""
        self._room.leave(pod.uid)
        pod.reason = verdict.reason
        if verdict.request is not None and verdict.node:
            self._world.state.decided(verdict.request, verdict.node, self._clock.now_s())
            self._awaited[pod.uid] = True
            while len(self._awaited) > _AWAITED:
                del self._awaited[next(iter(self._awaited))]
        self._opening[pod.uid] = pod
        self._opener.put(pod)

    def _ended(self, pod: HeldPod, end: End) -> None:
        """What came of taking a gate off."""
        if self._opening.pop(pod.uid, None) is None or pod.reason is None:
            return
        if end == "gone":
            self._world.state.withdraw(pod.uid)
            self._count_end(pod, "gone")
            return
        if end == "opened":
            self._metrics.opened[pod.reason].inc()
            self._metrics.gate_s.observe(self._clock.monotonic_s() - pod.seen_s)
        self._passed.passes(pod)
        self._count_end(pod, str(pod.reason) if pod.reason in (OpenReason.WARM, OpenReason.BOUND) else "cold")

    def _gone(self, uid: str) -> None:
        """Nobody waits here under this uid any longer; one whose gate is being taken off is told by that."""
        pod = self._room.leave(uid)
        if pod is not None:
            self._count_end(pod, "gone")

    def _count_end(self, pod: HeldPod, how: str) -> None:
        if pod.held:
            self._metrics.held_ended[how].inc()

    def _oldest_s(self) -> float:
        oldest_s = min((pod.seen_s for pod in chain(self._room, self._opening.values())), default=math.nan)
        return 0.0 if math.isnan(oldest_s) else self._clock.monotonic_s() - oldest_s

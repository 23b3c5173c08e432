"""What is placed where, as policies see it.

It changes only by events: a node or a pod was seen, a placement was decided, bound, expired or finished, readings arrived. The
extender feeds it from watches, a simulator from its own clock; policies see the same columns either way.

Readings are seconds old while decisions come hundreds a second, so every decision is *reserved* at once: it counts in the
in-flight, memory and idle-instance columns until the pod is seen bound (then the true node counts) or the reservation expires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.beliefs import Beliefs
from tiphys_models.placement.calls import CallTable, FunctionProfile, OpenCalls
from tiphys_models.placement.candidates import MEMORY_CAPACITY, MEMORY_REQUESTED, CandidateView, PlacementMemory, PlacementRequest
from tiphys_models.placement.functions import MOST_FUNCTIONS, Functions
from tiphys_models.placement.glimpse import Glimpse
from tiphys_models.placement.idle import IdleInstances
from tiphys_models.placement.images import MOST_IMAGES
from tiphys_models.placement.lives import NodeLives
from tiphys_models.placement.placed import UNSEEN, Bounded, CallEnd, Placement, amounts
from tiphys_models.placement.profiles import ProfileGap
from tiphys_models.placement.runs import RunTimes
from tiphys_models.placement.starts import StartTimes
from tiphys_models.placement.table import UNKNOWN, NodeTable


@dataclass(frozen=True, slots=True)
class StateLimits:
    """How long things count."""

    reservation_ttl_s: float = 10.0
    """A decided pod that is not seen bound by then was not placed there."""
    max_reading_age_s: float = 60.0
    """Older node readings count as missing."""
    max_idle_age_s: float = 60.0
    """Older reports of idle instances count as missing."""
    keep_alive_s: float = 600.0
    """How long the books take an instance for idle after its last call; zero: not at all."""
    most_functions: int = MOST_FUNCTIONS
    """Functions without an unfinished pod that are kept, and functions with idle instances; beyond, the least recently used go."""
    most_images: int = MOST_IMAGES
    """Names of images that are kept; the least recently used go."""


class PlacementState:
    """All known nodes, the pods on them and the reservations of pods not yet seen bound."""

    def __init__(self, limits: StateLimits | None = None) -> None:
        self.limits = limits or StateLimits()
        self.nodes = NodeTable(most_images=self.limits.most_images)
        self._placements: dict[str, Placement] = {}
        self._on_node: dict[str, dict[str, Placement]] = {}  # node -> its placements by uid, also of nodes that nobody has shown
        self._reserved: dict[str, float] = {}  # uid -> expiry, in order of decision
        self._oversize: dict[str, dict[str, Placement]] = {}  # node -> its placements that ask for more than it has, by uid
        self._schedulable: set[str] = set()
        self._newest: tuple[float, str] = (-math.inf, "")
        self._starts = StartTimes()
        self._idle = IdleInstances(self.nodes, self.limits.most_functions)
        self._idle_reported = False
        self._calls = CallTable()
        self.functions = Functions(self.limits.most_functions, self._forget)
        self.beliefs = Beliefs(self.nodes, self.functions, self._calls, self.limits.keep_alive_s)
        self._runs = RunTimes()
        self.lives = NodeLives(self.nodes, self._on_node, self.limits.most_functions)
        self._stores: Mapping[str, Bounded] = {
            "functions": self.functions, "images": self.nodes.images, "idle-functions": self._idle, "start-times": self._starts,
            "lifetimes": self.lives,
        }  # fmt: skip
        self._now_s = -math.inf

    # ---- what was seen -------------------------------------------------------------------------------------------

    def put_node(self, facts: NodeFacts) -> None:
        """A node exists, with these facts."""
        new = facts.name not in self.nodes.row_of
        for placement in (oversize := list(self._oversize.pop(facts.name, {}).values())):  # the node may be larger now
            self._count(placement, -1)
        self.nodes.put(facts)
        for placement in oversize:
            self._count(placement, +1)
        (self._schedulable.add if facts.schedulable else self._schedulable.discard)(facts.name)
        if new:
            row = self.nodes.row_of[facts.name]
            self._idle.forget_row(row)
            self.beliefs.came(facts.name, row)
            self.lives.renewed(facts.name)
            for placement in self._on_node.get(facts.name, {}).values():  # pods that were seen before their node
                self._count(placement, +1)
                self._calls.put_on(placement.uid, row)

    def drop_node(self, name: str) -> None:
        """A node is gone; its pods count again if it comes back."""
        row = self.nodes.drop(name)
        if row != UNKNOWN:
            self._calls.node_gone(row)
            self.beliefs.forget_row(row)
        self._oversize.pop(name, None)
        self._schedulable.discard(name)

    def put_pod(self, facts: PodFacts, now_s: float, end: CallEnd = UNSEEN) -> None:
        """A pod as the API server shows it: unbound, bound or finished; what is known of its end, if it has."""
        if facts.finished:
            (self.finished(facts.uid) if facts.failed else self.ran(facts.uid, now_s, end))
        elif facts.node:
            self.bound(facts, now_s)
            if (placement := self._placements.get(facts.uid)) is not None and (started_s := facts.computing_since_s) is not None:
                placement.started_s = started_s
        self._starts.learn(facts)

    def bound(self, facts: PodFacts, now_s: float) -> None:
        """A pod runs, or will run, on its node: the reservation, right or wrong, gives way to the truth."""
        known = self._placements.get(facts.uid)
        if known is not None and facts.uid not in self._reserved and known.node == facts.node:
            if (known.cpu_milli, known.memory_bytes, known.protected) != (facts.cpu_milli, facts.memory_bytes, facts.protected):  # in place
                self._count(known, -1)
                known.cpu_milli, known.memory_bytes, known.protected = facts.cpu_milli, facts.memory_bytes, facts.protected
                self._count(known, +1)
                self.lives.renewed(known.node)
            return
        if known is not None and known.is_for(facts):  # the reservation was right: nothing a policy reads has changed
            del self._reserved[facts.uid]
            self.beliefs.books.settled(facts.uid)
            known.expires_s = math.inf
            return
        # a reservation knows better than the one-second resolution of the condition when the decision fell
        at_s = known.at_s if known is not None else (facts.scheduled_s or now_s)
        warm = self._calls.was_warm(facts.uid) if known is not None and known.node == facts.node else None
        self.finished(facts.uid)
        self._place(
            Placement(
                facts.uid, facts.node, facts.function, *amounts(facts.cpu_milli, facts.memory_bytes), facts.in_flight, at_s,
                math.inf, protected=facts.protected,
            ),
            warm,
        )  # fmt: skip

    def decided(self, request: PlacementRequest, node: str, now_s: float) -> None:
        """A policy said where; until the bind is seen this is a reservation. A pod asked again moves its reservation."""
        self.tick(now_s)
        if request.uid in self._placements and request.uid not in self._reserved:
            return  # already bound: an answer that came too late changes nothing
        self.finished(request.uid)
        expires_s = now_s + self.limits.reservation_ttl_s
        self._reserved[request.uid] = expires_s
        self._place(
            Placement(
                request.uid, node, request.function, request.cpu_milli, request.memory_bytes, bool(request.function), now_s,
                expires_s, protected=request.protected,
            )
        )  # fmt: skip

    def withdraw(self, uid: str) -> None:
        """What is reserved for this pod is no longer."""
        if uid in self._reserved:
            self.finished(uid)

    def ran(self, uid: str, now_s: float, end: CallEnd = UNSEEN) -> None:
        """A pod, or call, ran on its node to its end, which is now; what it was like is remembered of its function."""
        placement = self._placements.get(uid)
        if placement is not None and placement.in_flight and uid not in self._reserved:
            self._runs.learn(placement.function, now_s - placement.at_s, self.profile(placement.function))
            self.beliefs.ended(placement, now_s, end)
        self.finished(uid)

    def finished(self, uid: str) -> None:
        """A pod is done, deleted, or its reservation is withdrawn."""
        if reserved := self._reserved.pop(uid, None) is not None:
            self.beliefs.books.undo(uid)
        placement = self._placements.pop(uid, None)
        if placement is None:
            return
        self.lives.left(placement, self._now_s, ran=not reserved)
        self._count(placement, -1)
        there = self._on_node[placement.node]
        del there[uid]
        if not there:
            del self._on_node[placement.node]
        self._calls.remove(uid)
        function = self.functions.get(placement.function)
        if function is not None and placement.in_flight:
            left = function.unfinished.get(placement.node, 0) - 1
            if left > 0:
                function.unfinished[placement.node] = left
            else:
                function.unfinished.pop(placement.node, None)
        self._idle.finished(placement.function, uid)
        if function is not None and not function.unfinished:
            self.functions.rest(placement.function)

    def expire(self, now_s: float) -> int:
        """Withdraw reservations past their time and blank readings past their age; how many reservations lapsed."""
        self.tick(now_s)
        lapsed = [uid for uid, _ in takewhile(lambda reserved: reserved[1] <= now_s, self._reserved.items())]  # in order of decision
        for uid in lapsed:
            self.finished(uid)
        stale = np.flatnonzero(self.nodes.read_at_s < now_s - self.limits.max_reading_age_s)
        for row in stale:
            self.nodes.readings[row] = np.nan
            self.nodes.read_at_s[row] = np.nan
            self.nodes.touch(int(row))
        for row in self._idle.expire(now_s - self.limits.max_idle_age_s).tolist():
            self.nodes.touch(row)
        if self.lives.due(now_s):
            self.lives.refresh(now_s)
            self.nodes.touch_all()
        return len(lapsed)

    def bound_except(self, uids: Set[str]) -> list[str]:
        """Bound pods, and calls, that are not among these; reservations are nobody's to list."""
        return [uid for uid in self._placements if uid not in uids and uid not in self._reserved]

    def tick(self, now_s: float) -> None:
        """It is this late: views show the age of calls and readings as of the latest time the state has heard of."""
        self._now_s = max(self._now_s, now_s)

    # ---- what was measured ---------------------------------------------------------------------------------------

    def put_readings(self, names: Sequence[str], values: FloatArray, read_at_s: FloatArray) -> None:
        """Node readings: float32[len(names), 21] with the time of each row; unknown names are left out."""
        rows = self.nodes.rows(names)
        known = rows != UNKNOWN
        rows = rows[known]
        self.nodes.readings[rows] = values[known]
        self.nodes.read_at_s[rows] = read_at_s[known]
        self.nodes.touch_all()

    def put_idle(self, counts: Mapping[str, Mapping[str, float]], read_at_s: float | Mapping[str, float]) -> None:
        """Idle instances by function and node, as the runtimes reported at one time, or each node at its own. A node that
        reports any function has zero of the functions it does not name; a node that reports nothing, or of whose report
        nobody knows the time, stays as it was."""
        reporting = sorted({node for by_node in counts.values() for node in by_node})
        if isinstance(read_at_s, Mapping):
            reporting = [node for node in reporting if node in read_at_s]
            times = np.array([read_at_s[node] for node in reporting], np.float64)
        else:
            times = np.full(len(reporting), read_at_s)
        rows = self.nodes.rows(reporting)
        known = rows != UNKNOWN
        reporting, rows, times = [node for node, there in zip(reporting, known, strict=True) if there], rows[known], times[known]
        if not len(rows) and not self._idle_reported:
            return  # nobody reports and nobody did: nothing to tell apart
        self._idle_reported = bool(len(rows)) or len(self._idle) > 0
        self._idle.report(counts, reporting, rows, times)
        self.beliefs.books.report(self._idle.reported, rows, times)
        self.nodes.touch_all()

    def put_profiles(self, profiles: Mapping[str, FunctionProfile]) -> None:
        """What calls of these functions are like alone on a node, as runtimes report it."""
        self.functions.report(profiles)
        self._runs.compare(profiles)
        self.nodes.touch_all()

    def profile_gap(self, function: str) -> ProfileGap | None:
        """Why a policy that reads profiles cannot judge calls of this function; None if it can."""
        return self.functions.profile_gap(function, contradicted=self._runs.contradict(function))

    def profile(self, function: str) -> FunctionProfile | None:
        """What was reported of a function; None if nothing was."""
        return self.functions.profile(function)

    # ---- what policies see ---------------------------------------------------------------------------------------

    def view(self, request: PlacementRequest, rows: IntArray) -> CandidateView:
        """The columns of these rows for this request."""
        nodes = self.nodes
        function = self.functions.get(request.function)
        numbers = nodes.numbers.take(rows, axis=0)  # of rows of a table `take` makes a third of the work that an index does
        return CandidateView(
            request=request,
            rows=rows,
            table=nodes,
            numbers=numbers,
            available_memory_bytes=numbers[:, MEMORY_CAPACITY] - numbers[:, MEMORY_REQUESTED],
            idle_instances=self._idle.left(request.function, rows),
            init_time_s=self.init_time_s(request.function),
            calls=partial(self._open_calls, -1 if function is None else function.index, rows),
            believed=partial(self.beliefs.shown, request.function, rows, self._now_s),
            lives=self.lives,
            now_s=self._now_s,
        )

    def _forget(self, function: str, row: int) -> None:
        self._idle.forget(function)
        self.beliefs.forget(function, row)

    def _open_calls(self, own_function: int, rows: IntArray) -> OpenCalls:
        return self._calls.seen(
            self._now_s,
            self.nodes.capacity,
            self.functions.filled_profiles(),
            own_function,
            self.nodes.read_at_s[rows],
            self._idle.total_bytes(rows),
        )

    def glimpse(self, request: PlacementRequest, rows: IntArray) -> Glimpse:
        """What `view` would show of a few rows now, for the price of a few copies: to be looked at later, if ever."""
        nodes = self.nodes
        return Glimpse(
            readings=nodes.readings[rows],
            numbers=nodes.numbers[rows],
            idle_instances=self._idle.left(request.function, rows),
            requested_memory_bytes=request.memory_bytes,
            init_time_s=self.init_time_s(request.function),
        )

    def init_time_s(self, function: str) -> float:
        """Moving mean of scheduled-to-ready of this function's pods; NaN before the first."""
        return self._starts.of(function)

    def memory(self) -> PlacementMemory:
        """State that policies keep between decisions: the node placed on last."""
        row = self.nodes.row_of[self._newest[1]]
        return PlacementMemory(newest_position=-1 if row == UNKNOWN else int(self.nodes.position[row]))

    @property
    def reservations(self) -> int:
        """How many decided pods are not yet seen bound."""
        return len(self._reserved)

    @property
    def pods(self) -> int:
        """How many unfinished pods are bound or reserved."""
        return len(self._placements)

    def crowded(self, function: str, percent: int) -> list[int]:
        """Rows of the nodes that hold more than this percent of the function's unfinished pods, bound or reserved."""
        known = self.functions.get(function)
        if known is None or not known.unfinished:
            return []
        limit = sum(known.unfinished.values()) * percent / 100
        rows = (self.nodes.row_of[node] for node, pods in known.unfinished.items() if pods > limit)
        return [row for row in rows if row != UNKNOWN]

    def unfinished(self, function: str) -> Mapping[str, int]:
        """Unfinished pods of a function by node, bound or reserved."""
        known = self.functions.get(function)
        return {} if known is None else known.unfinished

    # ---- book-keeping --------------------------------------------------------------------------------------------

    def _place(self, placement: Placement, warm: bool | None = None) -> None:
        self._placements[placement.uid] = placement
        self._on_node.setdefault(placement.node, {})[placement.uid] = placement
        self._count(placement, +1)
        self.lives.came(placement)
        if placement.in_flight:
            if placement.at_s >= self._newest[0]:
                self._newest = (placement.at_s, placement.node)
            function = self.functions.working(placement.function)
            function.unfinished[placement.node] = function.unfinished.get(placement.node, 0) + 1
            row = self.nodes.row_of[placement.node]
            if warm is None:
                warm = self._idle.can_take(placement.function, row)
            memory_bytes = placement.memory_bytes if row == UNKNOWN else placement.booked[1]
            cold = self.beliefs.placed(placement, row, memory_bytes)
            self._calls.add(placement.uid, row, placement.at_s, function.index, warm, memory_bytes, cold)
            self._idle.placed(placement.function, placement.uid, placement.node, row, placement.at_s, memory_bytes)

    def _count(self, placement: Placement, sign: int) -> None:
        row = self.nodes.row_of[placement.node]
        if row == UNKNOWN:
            return  # it counts when its node is shown
        if sign > 0:
            placement.booked = self._clamped(placement, row)
        self.nodes.book(row, sign, *placement.booked, placement.in_flight)
        if sign < 0 and (oversize := self._oversize.get(placement.node)) is not None:
            oversize.pop(placement.uid, None)
            if not oversize:
                del self._oversize[placement.node]

    def _clamped(self, placement: Placement, row: int) -> tuple[int, int]:
        """A kubelet refuses a pod that asks for more than its node has, and no policy should see a debt of petabytes meanwhile."""
        cpu_milli, memory_bytes = placement.cpu_milli, placement.memory_bytes
        most_milli, most_bytes = round(float(self.nodes.cores[row]) * 1000), int(self.nodes.memory_capacity[row])
        if cpu_milli > most_milli or memory_bytes > most_bytes:
            self._oversize.setdefault(placement.node, {})[placement.uid] = placement
            # nothing allocatable is a node that has not said yet what it has
            return amounts(min(cpu_milli, most_milli or cpu_milli), min(memory_bytes, most_bytes or memory_bytes))
        return amounts(cpu_milli, memory_bytes)

    @property
    def kept(self) -> dict[str, int]:
        """How many entries each bounded store holds."""
        return {name: len(store) for name, store in self._stores.items()}

    @property
    def evicted(self) -> dict[str, int]:
        """How many each has let go because it was full."""
        return {name: store.evicted for name, store in self._stores.items()}

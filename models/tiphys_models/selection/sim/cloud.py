"""The simulated cloud: `present -> (state, tasks) -> place(plan) -> advance`, interval by interval; cloneable at any boundary.

Tasks start `scheduling_s + latency` after the boundary (and after their host has resumed), and share their host's cores. A host is
billed and powered for a whole interval when its CPU was used in it. Bills are attributed to decisions by the CPU seconds of their
tasks, responses and violations when tasks end: a decision is scored when its last task has.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.hosts import Fleet, make_fleet
from tiphys_models.selection.cloud.outlook import expected_outcome
from tiphys_models.selection.cloud.repair import infeasible
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.cloud.state import HISTORY, UNPLACED, CloudState, Plan, Running
from tiphys_models.selection.cloud.tasks import Tasks, expected_remaining
from tiphys_models.selection.sim.kernel import bill_hosts, drain_hosts, share_hosts
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO, CloudScenario
from tiphys_models.selection.sim.workloads import TaskWorkload


@dataclass(frozen=True, slots=True)
class Machines:
    """The fleet as the kernel reads it; shared by all clones."""

    fleet: Fleet
    cores: FloatArray
    usd_per_s: FloatArray
    power_w: FloatArray
    latency_s: FloatArray
    cheapest: int

    @staticmethod
    def of(fleet: Fleet) -> Machines:
        """Columns once, instead of at every interval."""
        price = fleet.usd_per_s()
        return Machines(fleet, fleet.column("cores"), price, fleet.power_curves(), fleet.column("latency_s"), int(np.argmin(price)))


class Cloud:
    """Mutable. `clone()` shares what is constant and copies the rest; a clone that must not see true works uses `drained(works=...)`."""

    def __init__(self, workload: TaskWorkload, scenario: CloudScenario = DEFAULT_SCENARIO) -> None:
        self.workload, self.scenario = workload, scenario
        self.machines = Machines.of(make_fleet(scenario.kinds, workload.pools_count))
        hosts, tasks = len(self.machines.fleet), len(workload)
        self._presented = workload.presented_at()
        self.interval = 0
        self._next = int(np.searchsorted(self._presented, 0, side="right"))
        self.waiting: IntArray = np.arange(self._next)
        self.running: IntArray = np.empty(0, np.int64)
        self.remaining = workload.work_core_s.astype(np.float64)
        self.host: IntArray = np.full(tasks, UNPLACED, np.int64)
        self._start_s, self._end_s = np.full(tasks, np.inf), np.full(tasks, np.nan)
        self.decision_of: IntArray = np.full(tasks, -1, np.int64)
        """The interval in which each task was placed."""
        self._resuming, self._ready_s = np.zeros(hosts, np.bool_), np.zeros(hosts)
        self._idle_left: IntArray = np.zeros(hosts, np.int64)
        self._used_by: IntArray = np.full(hosts, -1, np.int64)
        """The decision whose task used a host last: it pays for lingering."""
        self._utilisation, self._history = np.zeros(hosts), np.zeros((0, hosts))
        self._previous: tuple[IntArray, IntArray] = (np.empty(0, np.int64), np.empty(0, np.int64))
        self.usd: list[float] = []
        self.joules: list[float] = []
        self.active: list[int] = []
        self.cpu_sum: list[float] = []
        """Per interval, of utilisation over active hosts."""
        self._ledger: dict[int, Outcome] = {}
        self._open: dict[int, int] = {}

    def clone(self) -> Cloud:
        """An independent copy at this boundary."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray | list | dict) and name != "_presented":
                setattr(other, name, value.copy())
        return other

    @property
    def time_s(self) -> float:
        """Seconds from the start to the present interval boundary."""
        return self.interval * self.workload.interval_s

    @property
    def over(self) -> bool:
        """No arrivals are left, and nothing waits or runs."""
        return self._next >= len(self.workload) and not len(self.waiting) and not len(self.running)

    def state(self) -> CloudState:
        """What may be known: expectations, never true works."""
        w, hosts = self.workload, len(self.machines.fleet)
        used = w.work_core_s[self.running] - self.remaining[self.running]
        tasks = self._tasks(self.running)
        expected = [expected_remaining(mean, u) for mean, u in zip(tasks.work_core_s.tolist(), used.tolist(), strict=True)]
        has = np.bincount(self.host[self.running], minlength=hosts) > 0
        return CloudState(
            self.time_s, w.interval_s, self.machines.fleet, w.applications,
            Running(tasks, self.host[self.running], used, np.array(expected, np.float64)),
            has | (self._idle_left > 0), self.scenario.resume_s, self._utilisation, self._history, *self._previous,
        )  # fmt: skip

    def tasks(self) -> Tasks:
        """Tasks that wait, in order of creation."""
        return self._tasks(self.waiting)

    def _tasks(self, ids: IntArray) -> Tasks:
        w = self.workload
        means = np.array([app.work_core_s for app in w.applications], np.float64)
        return Tasks(
            w.application[ids], means[w.application[ids]], self.time_s - w.created_s[ids], w.deadline_s[ids],
            w.ram_mib[ids], w.disk_mib[ids], w.pools[ids],
        )  # fmt: skip

    def place(self, plan: Plan, scheduling_s: float) -> None:
        """Carry out a plan for `tasks()`; InvalidInput if it does not fit (plans are repaired before)."""
        if len(plan) != len(self.waiting):
            raise InvalidInput(f"a plan for {len(plan)} tasks, but {len(self.waiting)} wait")
        wrong = infeasible(self.state(), self.tasks(), plan)
        if wrong:
            raise InvalidInput(f"tasks {wrong} do not fit where the plan puts them")
        chosen = plan.host != UNPLACED
        ids, hosts = self.waiting[chosen], plan.host[chosen]
        self._wake(hosts)
        self.host[ids] = hosts
        self._start_s[ids] = self._starts(hosts, scheduling_s)
        self.decision_of[ids] = self.interval
        self._previous = (self.workload.application[ids], hosts)
        self._ledger[self.interval] = Outcome(usd=serverless_usd(scheduling_s))
        self._open[self.interval] = len(ids)
        self.running = np.concatenate([self.running, ids])
        self.waiting = self.waiting[~chosen]

    def _wake(self, hosts: IntArray) -> None:
        if self.scenario.resume_s <= 0:
            return
        awake = (np.bincount(self.host[self.running], minlength=len(self._resuming)) > 0) | (self._idle_left > 0)
        asleep = np.unique(hosts[~awake[hosts]])
        self._resuming[asleep] = True
        self._ready_s[asleep] = self.time_s + self.scenario.resume_s

    def _starts(self, hosts: IntArray, scheduling_s: float) -> FloatArray:
        """A host that resumes does so from the moment the plan is known."""
        ready = np.maximum(self._ready_s[hosts], self.time_s)
        return ready + scheduling_s + self.machines.latency_s[hosts]

    def advance(self) -> None:
        """One interval: work, bills, ends; then the tasks of the next boundary are presented."""
        m, dt, ids = self.machines, self.workload.interval_s, self.running
        hosts = len(m.cores)
        host, remaining = self.host[ids], self.remaining[ids]
        used, end_s, busy = np.zeros(len(ids)), np.full(len(ids), np.nan), np.zeros(hosts)
        share_hosts(self.time_s, self.time_s + dt, host, remaining, self._start_s[ids], m.cores, used, end_s, busy)
        self.remaining[ids], self._end_s[ids] = remaining, end_s
        ended = remaining == 0.0
        has_tasks = np.bincount(host[~ended], minlength=hosts) > 0
        usd, joules = np.zeros(hosts), np.zeros(hosts)
        bill_hosts(
            dt, busy, has_tasks, self._resuming, self._idle_left, self.scenario.linger_intervals,
            m.cores, m.usd_per_s, m.power_w, usd, joules,
        )  # fmt: skip
        self._attribute(ids, host, used, busy, usd, joules)
        self._settle(ids[ended])
        self.running = ids[~ended]
        self._utilisation = busy / (m.cores * dt)
        self._history = np.vstack([self._history, self._utilisation])[-HISTORY:]
        self.usd.append(float(usd.sum()))
        self.joules.append(float(joules.sum()))
        self.active.append(int((usd > 0).sum()))
        self.cpu_sum.append(float(self._utilisation[usd > 0].sum()))
        self.interval += 1
        start = self._next
        while self._next < len(self.workload) and self._presented[self._next] <= self.interval:
            self._next += 1
        self.waiting = np.concatenate([self.waiting, np.arange(start, self._next)])

    def _attribute(self, ids: IntArray, host: IntArray, used: FloatArray, busy: FloatArray, usd: FloatArray, joules: FloatArray) -> None:
        for i, h, u in zip(ids.tolist(), host.tolist(), used.tolist(), strict=True):
            decision = int(self.decision_of[i])
            self._used_by[h] = decision  # a resuming host belongs to whoever woke it
            if u > 0:
                self._charge(decision, Outcome(usd[h] * u / busy[h], joules[h] * u / busy[h]))
        for h in np.flatnonzero((usd > 0) & (busy == 0)).tolist():
            self._charge(int(self._used_by[h]), Outcome(usd[h], joules[h]))

    def _settle(self, ended: IntArray) -> None:
        for i in ended.tolist():
            response = float(self._end_s[i] - self.workload.created_s[i])
            late = float(response > self.workload.deadline_s[i])
            decision = int(self.decision_of[i])
            self._charge(decision, Outcome(response_s=response, violations=late, tasks=1.0))
            self._open[decision] -= 1

    def _charge(self, decision: int, outcome: Outcome) -> None:
        self._ledger[decision] = self._ledger[decision] + outcome

    def settled(self) -> list[tuple[int, Outcome]]:
        """Decisions (by interval) whose tasks have all ended since the last call, with what they cost; each is reported once."""
        done = [d for d, count in self._open.items() if count == 0]
        for decision in done:
            del self._open[decision]
        return [(decision, self._ledger[decision]) for decision in done]

    def ledger(self) -> dict[int, Outcome]:
        """Every decision's account so far; they add up to the whole bill."""
        return dict(self._ledger)

    def responses_s(self) -> FloatArray:
        """Response times of ended tasks, in order of creation."""
        ended = ~np.isnan(self._end_s)
        return np.asarray(self._end_s[ended] - self.workload.created_s[ended])

    def violated(self) -> FloatArray:
        """1 for every ended task that missed its deadline."""
        ended = ~np.isnan(self._end_s)
        late = self._end_s[ended] - self.workload.created_s[ended] > self.workload.deadline_s[ended]
        return np.asarray(late, np.float64)

    def drained(self, plan: Plan, scheduling_s: float, works: tuple[FloatArray, FloatArray] | None = None) -> Outcome:
        """What everything that runs or waits would cost to completion under a plan, if nothing more arrived; the cloud is unchanged.

        `works`: remaining CPU seconds of running and of waiting tasks to believe in, instead of the truth. Tasks that the plan leaves
        waiting count as run alone on the cheapest host from the next interval on, and as violations.
        """
        m, w = self.machines, self.workload
        run_work, wait_work = works if works is not None else (self.remaining[self.running], self.remaining[self.waiting])
        chosen = plan.host != UNPLACED
        ids = np.concatenate([self.running, self.waiting[chosen]])
        hosts = np.concatenate([self.host[self.running], plan.host[chosen]])
        resuming, ready = self._resuming.copy(), self._ready_s
        if self.scenario.resume_s > 0:
            probe = self.clone()
            probe._wake(plan.host[chosen])
            resuming, ready = probe._resuming, probe._ready_s
        fresh = np.maximum(ready[plan.host[chosen]], self.time_s) + scheduling_s + m.latency_s[plan.host[chosen]]
        start_s = np.concatenate([self._start_s[self.running], fresh])
        end_s = np.full(len(ids), np.nan)
        usd, joules = drain_hosts(
            self.time_s, w.interval_s, hosts, np.concatenate([run_work, wait_work[chosen]]), start_s, resuming, self._idle_left.copy(),
            self.scenario.linger_intervals, m.cores, m.usd_per_s, m.power_w, end_s,
        )  # fmt: skip
        response = end_s - w.created_s[ids]
        total = Outcome(
            usd + serverless_usd(scheduling_s), joules, float(response.sum()), float((response > w.deadline_s[ids]).sum()), len(ids)
        )
        for i, work in zip(self.waiting[~chosen].tolist(), wait_work[~chosen].tolist(), strict=True):
            kind = m.fleet.types[int(m.fleet.type_of[m.cheapest])]
            age = self.time_s - float(w.created_s[i]) + w.interval_s
            total = total + expected_outcome(kind, [work], [age], [w.deadline_s[i]], w.interval_s) + Outcome(violations=1.0)
        return total

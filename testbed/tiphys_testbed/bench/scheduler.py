"""`tiphys bench scheduler`: pods a second through the real kube-scheduler, with Tiphys and without, in alternated pairs.

A backlog is ready before the scheduler starts, so that scheduling itself is what is measured; kwok does not run, the
controller-manager is paused, nodes are bare objects that are Ready for good. The scheduler without Tiphys keeps Kubernetes' own
sampling of nodes. On few cores everything competes for them, hence pairs run after each other, medians of their ratios, and CPU
time a pod (scheduler, extender, API server, etcd) beside the rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.kube.kubeconfig import read_kubeconfig
from tiphys_models.api.crd import crd
from tiphys_models.artifacts.files import card_of
from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row, median
from tiphys_models.placement.score_network import load_network
from tiphys_testbed.bench.binds import BindWatch, middle_rate
from tiphys_testbed.bench.extender import ESTIMATOR, FAASRANK
from tiphys_testbed.bench.service import Extender, ExtenderOptions, ScrapedMetrics, cpu_s, machine_cpu_s
from tiphys_testbed.bench.workload import FUNCTIONS, NAMESPACE, Cell, pod_manifest, policy_object, write_inputs
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import create_nodes, delete_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions, SchedulerOptions

NAMES_A_CALL = 100
LEAST_SCORED = 0.99
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_PAUSED = ("kube-controller-manager",)
_RUN_DEADLINE_S = 180.0
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """One comparison: a cluster size, the scheduler's sampling, and the ratio to reach."""

    nodes: int
    percentage: int | None
    """percentageOfNodesToScore of the scheduler with Tiphys; None: Kubernetes' own sampling."""
    target: float | None
    """Least median ratio; None: measured without a claim."""

    @property
    def label(self) -> str:
        """How it is called in claims."""
        return f"{self.nodes}-nodes-{'default-sampling' if self.percentage is None else f'{NAMES_A_CALL}-names'}"


@dataclass(frozen=True, slots=True)
class SchedulerPlan:
    """How much is measured."""

    nodes: tuple[int, ...] = (500, 5000)
    pairs: int = 5
    pods: int = 1000
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    model: str = "faasrank"
    """One of the shipped models."""
    policy: str = "faasrank"
    """Who decides; a policy without weights takes no model."""

    def settings(self) -> list[Setting]:
        """All comparisons, by number of nodes."""
        made = []
        for nodes in self.nodes:
            percentage = max(NAMES_A_CALL * 100 // nodes, 1)
            made.append(Setting(nodes, percentage, self._target(nodes, default_sampling=False)))
            if nodes <= 1000:
                made.append(Setting(nodes, None, self._target(nodes, default_sampling=True)))
        return made

    def _target(self, nodes: int, *, default_sampling: bool) -> float | None:
        if nodes not in (500, 5000):
            return None
        if self.policy == ESTIMATOR:
            return 0.8 if default_sampling else 0.9
        return 0.45 if default_sampling else {500: 0.8, 5000: 0.6}[nodes]


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a pair."""

    pods_per_s: float
    cpu_ms_per_pod: float
    others_cores: float
    names: float = 0.0
    model_scored: float = 0.0
    neutral: str = ""


def run(plan: SchedulerPlan, tell: Callable[[str], None]) -> Result:
    """Start a control plane and measure; Unavailable or ClusterError if something does not come up."""
    started = time.monotonic()
    rows: list[Row] = []
    options = LocalOptions(name="bench-scheduler", kwok=False, default_scheduler=False, node_monitor_grace_s=3600)
    inputs: dict[str, Any] = {"pods": plan.pods, "functions": len(FUNCTIONS), "scheduler_qps": 5000, "least_model_scored": LEAST_SCORED}
    with LocalCluster(options) as cluster:
        inputs["kubernetes"] = cluster.version
        _prepare(cluster, plan)
        inputs["policy"] = plan.policy
        if plan.policy == FAASRANK:
            inputs["model"] = {"name": plan.model, "sha256": load_network(card_of(plan.model)).card.sha256}
        for seed in plan.seeds:
            for nodes in plan.nodes:
                bench = _Bench(cluster, plan, nodes, seed, tell)
                bench.warm_up()
                for setting in (s for s in plan.settings() if s.nodes == nodes):
                    rows += [bench.pair(setting, index) for index in range(plan.pairs)]
                bench.close()
    return Result(
        "scheduler",
        plan.quick,
        plan.seeds,
        time.monotonic() - started,
        inputs,
        rows,
        _summary(rows),
        _claims(plan, rows),
    )


def _prepare(cluster: LocalCluster, plan: SchedulerPlan) -> None:
    cluster.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    path = f"/apis/tiphys.io/v1alpha1/namespaces/{NAMESPACE}/schedulingpolicies"
    end = time.monotonic() + 30
    while True:
        try:
            cluster.api.create(path, policy_object(policy=plan.policy, model=plan.model))
        except RequestRefused as error:
            if error.status != 404 or time.monotonic() > end:  # 404: the API server does not serve the new kind yet
                raise
            time.sleep(0.2)
        else:
            break
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    while True:  # pods are admitted once the controller-manager has made it
        try:
            cluster.api.get(account)
        except RequestRefused as error:
            if error.status != 404 or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


class _Bench:
    """A number of nodes on a running control plane."""

    def __init__(self, cluster: LocalCluster, plan: SchedulerPlan, nodes: int, seed: int, tell: Callable[[str], None]) -> None:
        self._cluster, self._plan, self._tell = cluster, plan, tell
        self._fleet = fleet(nodes, pool=f"bench-{nodes}", bare=True)
        tell(f"making {nodes:,} nodes")
        create_nodes(cluster.api, self._fleet)
        # from here on nobody may touch nodes and pods: bare nodes renew no lease
        for name in _PAUSED:
            cluster.pause(name)
        directory = cluster.options.run_dir / f"inputs-{nodes}-{seed}"
        directory.mkdir()
        self._readings, _, _ = write_inputs(Cell(tuple(self._fleet), 0, seed), directory)

    def warm_up(self) -> None:
        """A run that is not counted: a fresh API server takes twice the CPU for its first pods."""
        self._measure("plain", SchedulerOptions(name="plain", scheduler_name="plain", qps=5000, burst=5000), None)

    def close(self) -> None:
        """Make room for another number of nodes."""
        delete_nodes(self._cluster.api, [node.name for node in self._fleet])
        for name in _PAUSED:
            self._cluster.resume(name)

    def pair(self, setting: Setting, index: int) -> Row:
        """One run with and one without, the order alternating; again if the policy answered too little of it."""
        for attempt in range(_ATTEMPTS):
            sides = [self._with, self._without]
            done = [side(setting) for side in (sides if (index + attempt) % 2 else sides[::-1])]
            ours, plain = done if (index + attempt) % 2 else done[::-1]
            if ours.model_scored >= LEAST_SCORED:
                break
            self._tell(f"the policy answered only {ours.model_scored:.1%} ({ours.neutral}); this pair does not count")
        row: Row = {
            "nodes": setting.nodes,
            "sampling": "default" if setting.percentage is None else f"{setting.percentage}%",
            "names": round(ours.names),
            "pods": self._plan.pods,
            "with_pods_per_s": round(ours.pods_per_s, 1),
            "without_pods_per_s": round(plain.pods_per_s, 1),
            "ratio": round(ours.pods_per_s / plain.pods_per_s, 3),
            "with_cpu_ms_per_pod": round(ours.cpu_ms_per_pod, 2),
            "without_cpu_ms_per_pod": round(plain.cpu_ms_per_pod, 2),
            "model_scored": round(ours.model_scored, 4),
            "run": index,
            "counts": ours.model_scored >= LEAST_SCORED,
            "others_cores": round(max(ours.others_cores, plain.others_cores), 2),
        }
        self._tell(
            f"{setting.label} pair {index}: {row['with_pods_per_s']} ÷ {row['without_pods_per_s']} pods/s = {row['ratio']}, "
            f"CPU {row['with_cpu_ms_per_pod']} and {row['without_cpu_ms_per_pod']} ms a pod, {row['names']} names, "
            f"model {row['model_scored']:.1%}"
        )
        return row

    def _without(self, _setting: Setting) -> Side:
        return self._measure("plain", SchedulerOptions(name="plain", scheduler_name="plain", qps=5000, burst=5000), None)

    def _with(self, setting: Setting) -> Side:
        options = ExtenderOptions(kubeconfig=self._cluster.kubeconfig, readings_file=self._readings)
        extender = Extender.start(self._cluster.processes, options)
        try:
            extender.wait_ready()
            extender.wait_covered()
            scheduler = SchedulerOptions(
                name="tiphys",
                scheduler_name="tiphys",
                extender_url=extender.url,
                percentage_of_nodes_to_score=setting.percentage,
                qps=5000,
                burst=5000,
            )
            return self._measure("tiphys", scheduler, extender)
        finally:
            extender.stop()

    def _measure(self, scheduler_name: str, options: SchedulerOptions, extender: Extender | None) -> Side:
        cluster, pods = self._cluster, self._plan.pods
        manifests = [pod_manifest(f"pod-{index:05d}", FUNCTIONS[index % len(FUNCTIONS)], scheduler_name) for index in range(pods)]
        cluster.api.each(lambda pod: cluster.api.create(_PODS, pod), manifests)
        pids = [cluster.process(name).pid for name in ("kube-apiserver", "etcd")] + ([extender.process.pid] if extender else [])
        meter = _Meter(pids)
        before = extender.metrics() if extender else ScrapedMetrics({})
        try:
            # the scheduler starts with the backlog in its first list
            marks = ((pods // 10, meter.start), (pods - pods // 10, meter.stop))
            with BindWatch(read_kubeconfig(cluster.kubeconfig), NAMESPACE, marks) as watch:
                process = cluster.start_scheduler(options)
                meter.pids.append(process.pid)
                watch.wait(pods, _RUN_DEADLINE_S)
            rate = middle_rate(watch.times_s)
            after = extender.metrics() if extender else before
        finally:
            if cluster.processes.find(options.name) is not None:
                cluster.stop_process(options.name)
            self._clear()
        cpu_ms = meter.used_s * 1000 / max(pods - 2 * (pods // 10), 1)
        return Side(rate, cpu_ms, meter.others_cores, *_answers(before, after, pods, self._plan.policy))

    def _clear(self) -> None:
        api = self._cluster.api
        end = time.monotonic() + 120
        while True:
            api.delete(_PODS, gracePeriodSeconds=0)
            if not api.get(_PODS, limit=1).get("items"):
                return
            if time.monotonic() > end:
                raise Unavailable(f"pods of {NAMESPACE} were not gone within 120 s")


class _Meter:
    """CPU time of some processes between two moments, and what everybody else used of the machine meanwhile."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.used_s = self.others_cores = 0.0
        self._started: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def _now(self) -> tuple[float, float, float]:
        return sum(cpu_s(pid) for pid in self.pids), machine_cpu_s() - time.process_time(), time.monotonic()

    def start(self) -> None:
        """The measurement begins now."""
        self._started = self._now()

    def stop(self) -> None:
        """The measurement ends, and its results are set."""
        used, machine, at = (now - then for now, then in zip(self._now(), self._started, strict=True))
        self.used_s = used
        self.others_cores = max(machine - used, 0.0) / max(at, 1e-9)


def _answers(before: ScrapedMetrics, after: ScrapedMetrics, pods: int, policy: str) -> tuple[float, float, str]:
    """(names a call, share of pods that the policy decided, why not the others)."""

    def grown(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    calls = grown("tiphys_extender_candidates_count")
    names = grown("tiphys_extender_candidates_sum") / calls if calls else 0.0
    scored = grown("tiphys_extender_policy_answers_total", policy=policy)
    reasons = [
        f"{dict(labels).get('reason')}: {value - before.samples.get((name, labels), 0.0):.0f}"
        for (name, labels), value in after.samples.items()
        if name in ("tiphys_extender_neutral_answers_total", "tiphys_extender_fallback_answers_total")
        and value > before.samples.get((name, labels), 0.0)
    ]
    # a pod asked about twice counts twice in both
    return names, scored / max(calls, pods) if calls else 0.0, ", ".join(reasons)


def _summary(rows: list[Row]) -> list[Row]:
    summary = []
    for nodes, sampling in dict.fromkeys((row["nodes"], row["sampling"]) for row in rows):
        counted = [row for row in rows if (row["nodes"], row["sampling"]) == (nodes, sampling) and row["counts"]]
        if not counted:
            continue
        for metric in ("ratio", "with_pods_per_s", "without_pods_per_s", "with_cpu_ms_per_pod", "without_cpu_ms_per_pod"):
            values = [row[metric] for row in counted]
            measured = interval(values).as_json(3)
            summary.append({"nodes": nodes, "sampling": sampling, "metric": metric, "median": median(values), **measured})
    return summary


def _claims(plan: SchedulerPlan, rows: list[Row]) -> list[Claim]:
    claims = []
    for setting in plan.settings():
        if setting.target is None:
            continue
        sampling = "default" if setting.percentage is None else f"{setting.percentage}%"
        counted = [row for row in rows if (row["nodes"], row["sampling"]) == (setting.nodes, sampling) and row["counts"]]
        claims.append(Claim(f"scheduler-ratio-{setting.label}", median([row["ratio"] for row in counted]), setting.target, ">="))
    slowest = min((row["with_pods_per_s"] for row in rows), default=None)
    return [*claims, Claim("scheduler-least-pods-per-s", slowest, 60.0, ">="), _scored(rows)]


def _scored(rows: list[Row]) -> Claim:
    return Claim("scheduler-model-scored", min((row["model_scored"] for row in rows), default=None), LEAST_SCORED, ">=")

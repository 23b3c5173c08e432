"""`tiphys kind monitor|features|functions`: real metrics and real calls on a kind cluster that runs."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tiphys_cli.console import print_table, reported_errors
from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.model.commands import send
from tiphys_cli.model.publishing import NAMESPACE, paper_publication
from tiphys_models.kube.access import find_access
from tiphys_testbed.kind import comparison, features, images, monitoring
from tiphys_testbed.kind.cluster import KindCluster, KindOptions
from tiphys_testbed.kind.workloads import FUNCTIONS

WORKER_CPUS = 0.8
SETTLE_S = 32.0
_HELM_DEADLINE_S = 200.0
Name = Annotated[str, typer.Option(help="name of the cluster")]
Markdown = Annotated[bool, typer.Option("--markdown", help="for a document")]
WorkerCpus = Annotated[float, typer.Option(help="cores that each worker may use")]


@dataclass(frozen=True, slots=True)
class FunctionLoad:
    """Calls of real functions."""

    calls: int = 12
    rate_per_s: float = 0.8
    rounds: int = 3
    seed: int = 0


def monitor(name: Name = "tiphys", worker_cpus: WorkerCpus = WORKER_CPUS) -> None:
    """Install node exporter, kube-state-metrics and Prometheus, let the release read them, give each worker a share of the machine."""
    with reported_errors(), _running(name) as cluster:
        install(cluster, worker_cpus)


def show_features(
    name: Name = "tiphys",
    settle_s: Annotated[float, typer.Option(help="seconds before each look: longer than the window of rates")] = SETTLE_S,
    markdown: Markdown = False,
) -> None:
    """Every input of a decision on every worker, idle and under load, as the extender had it; and what kubelets say."""
    with reported_errors(), _running(name) as cluster:
        print_features(cluster, settle_s, markdown=markdown)


def functions(
    name: Name = "tiphys",
    calls: Annotated[int, typer.Option(min=3, help="calls of a round")] = 12,
    rate: Annotated[float, typer.Option(min=0.05, help="calls a second")] = 0.8,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of all lanes")] = 3,
    seed: Annotated[int, typer.Option(help="of arrivals and functions")] = 0,
    markdown: Markdown = False,
) -> None:
    """Real calls placed by the default scheduler, static-rank and faasrank: seconds from creation to end."""
    with reported_errors(), _running(name) as cluster:
        print_functions(cluster, FunctionLoad(calls, rate, rounds, seed), markdown=markdown)


def install(cluster: KindCluster, worker_cpus: float | None = WORKER_CPUS) -> None:
    """Metrics into a cluster on which the release already is; None leaves the workers all that the machine has."""
    with tempfile.TemporaryDirectory(prefix="tiphys-kind-") as scratch:
        for archive in monitoring.write_images(cluster.toolbox, Path(scratch)):
            cluster.load_image(archive)
    nodes = cluster.api.items("/api/v1/nodes")
    cluster.apply(monitoring.manifests(nodes))
    for program in ("daemonset/node-exporter", "deployment/kube-state-metrics", "deployment/prometheus"):
        cluster.kubectl("rollout", "status", "--namespace", monitoring.NAMESPACE, program, "--timeout=90s")
    settings = {"url": monitoring.URL, "scrapeWindowSeconds": monitoring.WINDOW_S, "readingsIntervalSeconds": monitoring.SCRAPE_S}
    flags = [part for key, value in settings.items() for part in ("--set", f"extender.prometheus.{key}={value}")]
    command = ["helm/tiphys", "--namespace", "tiphys-system", "--reuse-values", "--wait", "--timeout", "2m", *flags]
    _helm(cluster, ["upgrade", "tiphys", *command])
    if worker_cpus is None:
        return
    # All nodes share the machine: without a share of its own, a busy worker would simply use the other's cores.
    for node in nodes:
        if "node-role.kubernetes.io/control-plane" not in node["metadata"]["labels"]:
            cluster.limit_node(node["metadata"]["name"], worker_cpus)


def print_features(cluster: KindCluster, settle_s: float = SETTLE_S, *, markdown: bool) -> None:
    """A line an input, a column a node."""
    _publish(cluster, features.POLICY["model"])
    nodes, rows = features.measure(cluster.api, cluster.kubeconfig, _image(), settle_s)
    header = ["input", "unit", *(f"{node} idle" for node in nodes), *(f"{node} loaded" for node in nodes), "remark"]
    body = [[row.name, row.unit, *map(_number, (*row.idle, *row.loaded)), row.remark] for row in rows]
    print_table(header, body, markdown=markdown)


def print_functions(cluster: KindCluster, load: FunctionLoad, *, markdown: bool) -> None:
    """A line a lane."""
    stream = comparison.arrivals(load.calls, load.rate_per_s, np.random.default_rng(load.seed))
    for chosen in comparison.LANES.values():
        if chosen is not None and "model" in chosen:
            _publish(cluster, chosen["model"])
    played = comparison.play(cluster.api, cluster.kubeconfig, _image(), stream, load.rounds)
    body = []
    for lane, chosen in comparison.LANES.items():
        mine = [each for each in played if each.lane == lane]
        by_function = [np.concatenate([each.durations_s[f.name] for each in mine]) for f in FUNCTIONS]
        means = [float(np.mean([s for values in each.durations_s.values() for s in values])) for each in mine]
        spread = f"{min(means):.2f} to {max(means):.2f}"
        fuller = np.mean([max(each.nodes.values()) / load.calls for each in mine])
        judged = "–" if chosen is None else f"{sum(each.scored for each in mine)} of {load.calls * load.rounds}"
        per_function = [f"{values.mean():.2f}" if len(values) else "–" for values in by_function]
        body.append([lane, f"{np.mean(means):.2f}", spread, *per_function, f"{100 * fuller:.0f} %", judged])
    per_function = [f"{f.name} s" for f in FUNCTIONS]
    header = ["placed by", "mean s", "means of rounds s", *per_function, "calls on the fuller worker", "judged by the policy itself"]
    print_table(header, body, markdown=markdown)


def _publish(cluster: KindCluster, model: str) -> None:
    """Weights of a paper's own row, which images do not carry."""
    send(find_access(cluster.kubeconfig), paper_publication(model, NAMESPACE))


def _running(name: str) -> KindCluster:
    return KindCluster(KindOptions(name=name, attach=True))


def _image() -> str:
    return images.name_of("extender", Path())


def _helm(cluster: KindCluster, arguments: list[str]) -> None:
    command = [str(cluster.toolbox.path("helm")), *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_HELM_DEADLINE_S, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        raise ClusterError(f"helm {arguments[0]} failed: {answer.stderr.strip()}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"

"""`tiphys kind scaling`: the same load under Tiphys, HPA, VPA and no autoscaler, on the kind cluster that runs or on one made for it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tiphys_cli.console import make_console, print_table
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_testbed.kind import images, measuring, monitoring, peers
from tiphys_testbed.kind.cluster import KindCluster, KindOptions
from tiphys_testbed.kind.release import timed, with_release
from tiphys_testbed.kind.scaling.lanes import LANES, missing, play_lane, request_cpu_s
from tiphys_testbed.kind.scaling.objects import APPS, FIBONACCI, App
from tiphys_testbed.kind.scaling.plan import ComparisonPlan, draw
from tiphys_testbed.kind.scaling.results import COLUMNS, claims, line, row, with_means
from tiphys_testbed.tools.programs import ToolError

_USUAL = ComparisonPlan()


def scaling(
    name: Annotated[str, typer.Option(help="name of the cluster; the one that runs is used and left running")] = "tiphys",
    lanes: Annotated[str, typer.Option(help=f"of {', '.join(LANES)}; played in this order")] = ",".join(LANES),
    agent: Annotated[str, typer.Option(help="who decides in the lane tiphys: an agent of tiphys bench scaling")] = "combined",
    workload: Annotated[str, typer.Option(help=f"{' or '.join(APPS)}: three services, each scaled by itself")] = FIBONACCI.name,
    seeds: Annotated[str, typer.Option(help="one round of all lanes each")] = "0",
    seconds: Annotated[int, typer.Option(min=30, help="of a lane, after its warm-up")] = _USUAL.seconds,
    window: Annotated[int, typer.Option(min=5, help="seconds of a window; the shape's 15 s are shortened to it")] = _USUAL.window_s,
    out: Annotated[Path | None, typer.Option(help="directory for result.json")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="tables for a document")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="leave a cluster running that was made for this")] = False,
) -> None:
    """Flash load on real services under Tiphys, HPA, VPA and no autoscaler: windows within the SLO, cost, time until CPU was there."""
    with timed() as phases:
        if window > seconds:
            raise ClusterError(f"--seconds {seconds} is less than one window of {window} s")
        plans = [ComparisonPlan(seed=seed, window_s=window, seconds=seconds) for seed in _seeds(seeds)]
        wanted, app = _lanes(lanes), _app(workload)
        options = KindOptions(name=name, keep=keep)

        def work(cluster: KindCluster) -> None:
            with phases.phase("autoscalers and metrics"):
                absent = prepare(cluster, wanted)
            with phases.phase("lanes"):
                result = compare(cluster, app, plans, wanted, agent, absent)
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                (out / "result.json").write_text(json.dumps(result.as_json(), indent=1), encoding="utf-8")
            _print(result, markdown=markdown)

        if options.run_dir.exists():
            with KindCluster(replace(options, attach=True)) as running:
                work(running)
        else:
            made = KindCluster(options)
            with_release(phases, made, lambda _: work(made))


def prepare(cluster: KindCluster, lanes: Sequence[str]) -> dict[str, str]:
    """Prometheus, and the autoscalers of these lanes, where they are not there yet; what could not be installed, and why."""
    failed: dict[str, str] = {}
    if monitoring.NAMESPACE not in {item["metadata"]["name"] for item in cluster.api.items("/api/v1/namespaces")}:
        measuring.install(cluster)
    autoscalers = (
        ("hpa", peers.install_metrics_server, peers.remove_metrics_server),
        ("vpa", peers.install_vpa, peers.remove_vpa),
    )
    for lane, install, remove in autoscalers:
        if {lane, "vpa"} & set(lanes) and missing(cluster.api, lane):
            try:
                install(cluster)
            except (ClusterError, ToolError) as error:
                make_console(stderr=True).print(f"{lane}: not installed: {error}", markup=False)
                failed[lane] = f"not installed: {error}"
                with contextlib.suppress(ClusterError, ToolError):
                    remove(cluster)  # half of it would look installed to the next run
    return failed


def compare(
    cluster: KindCluster, app: App, plans: Sequence[ComparisonPlan], lanes: Sequence[str], agent: str, failed: Mapping[str, str]
) -> Result:
    """Play every lane with every seed; a lane whose autoscaler is not there is named, never made up."""
    begun_s, said, image = time.monotonic(), make_console(stderr=True), images.name_of("extender", Path())
    absent = {lane: why for lane in lanes if (why := failed.get(lane) or missing(cluster.api, lane))}
    for lane, why in absent.items():
        said.print(f"lane {lane} is missing: {why}", markup=False)
    cpu_s = request_cpu_s(cluster, app, image)
    told = ", ".join(f"{name} {1000 * each:.2f}" for name, each in cpu_s.items())
    said.print(f"ms of CPU that a request takes: {told}", markup=False)
    rows: list[Row] = []
    for plan in plans:
        load = draw(plan, cpu_s)
        for lane in lanes:
            if lane not in absent:
                said.print(f"{plan.shape}, seed {plan.seed}: {lane}", markup=False)
                rows.append(row(play_lane(cluster, lane, plan, load, image, agent, app), plan, load))
    first = plans[0]
    inputs = {
        "agent": agent,
        "missing": absent,
        "workload": app.name,
        "request_cpu_ms": {name: round(1000 * each, 3) for name, each in cpu_s.items()},
        "window_s": first.window_s,
        "seconds": first.seconds,
        "warm_up_s": first.warm_up_s,
        "peak_cores": first.peak_cores,
        "kubernetes": cluster.version,
    }
    seeds = tuple(plan.seed for plan in plans)
    return Result("kind-scaling", False, seeds, time.monotonic() - begun_s, inputs, rows, [], claims(rows, first.window_s))


def _print(result: Result, *, markdown: bool) -> None:
    print_table([title for title, _ in COLUMNS.values()], [line(each) for each in with_means(result.rows)], markdown=markdown)
    print_table(["claim", "value", "bound", "verdict"], [_claim(each) for each in result.claims], markdown=markdown)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ClusterError(f"--seeds: {text!r} is no list of numbers") from None


def _lanes(text: str) -> list[str]:
    found = text.split(",")
    if unknown := [lane for lane in found if lane not in LANES]:
        raise ClusterError(f"--lanes: no lane is called {', '.join(unknown)}; there are {', '.join(LANES)}")
    return found


def _app(name: str) -> App:
    if name not in APPS:
        raise ClusterError(f"--workload: {name!r} is none of {', '.join(APPS)}")
    return APPS[name]


def _claim(claim: Claim) -> list[str]:
    value = "–" if claim.value is None else f"{claim.value:.4g}"
    return [claim.id, value, claim.bound, "holds" if claim.holds else "does not hold"]

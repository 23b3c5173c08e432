"""`tiphys explain`, `doctor`, `snapshot`, `policies`, `unroute`."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.table import Table

from tiphys_cli.cluster.api import ApiClient
from tiphys_cli.cluster.errors import ApiError
from tiphys_cli.cluster.existing import ExistingCluster
from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.support import doctor as doctor_facts
from tiphys_cli.support import explain as explaining
from tiphys_cli.support import policies as listing
from tiphys_cli.support import snapshot as snapshots
from tiphys_cli.support.extenders import doors
from tiphys_cli.support.findings import diagnose
from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_models.clients.access import find_access
from tiphys_models.clients.kube import KubeClient
from tiphys_models.clients.unroute import ROUTING_NAME, UnrouteReport
from tiphys_models.clients.unroute import unroute as free_pods
from tiphys_models.domain.errors import InvalidInput, Unavailable

Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, else ~/.kube/config")]
Json = Annotated[bool, typer.Option("--json", help="print exactly one JSON object on standard output")]
ExtenderUrl = Annotated[
    str, typer.Option(envvar="TIPHYS_EXTENDER_URL", help="explain listener of an extender; default: port-forward to the release's pods")
]
TiphysNamespace = Annotated[str, typer.Option(help="where the chart is installed; default: found by its labels")]
SchedulerName = Annotated[str, typer.Option(help="what routed pods name in spec.schedulerName")]
_FEATURE_NODES = 3


def explain(
    target: Annotated[str, typer.Argument(metavar="pod/NAME", help="the pod")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="its namespace")] = "default",
    kubeconfig: Kubeconfig = None,
    extender_url: ExtenderUrl = "",
    tiphys_namespace: TiphysNamespace = "",
    scheduler_name: SchedulerName = DEFAULT_SCHEDULER_NAME,
    top: Annotated[int, typer.Option(min=1, max=100, help="candidates to show")] = 5,
    json: Json = False,
) -> None:
    """Say why a pod was placed where it is: scores, features, policy, model, attempts; or why nobody asked."""
    with reported_errors():
        name = explaining.parse_target(target)
        if not name:
            raise InvalidInput(f"{target!r} names no pod: write pod/NAME")
        config = _kubeconfig(kubeconfig)
        with ApiClient.from_kubeconfig(config) as api:
            pod = _pod(api, namespace, name)
            record, where = ask_extenders(api, config, extender_url, tiphys_namespace, namespace, name, pod)
        found = explaining.explanation(namespace, name, pod, record, where, scheduler_name)
        if json:
            typer.echo(orjson.dumps(found.as_json()).decode())
        else:
            _show(found, top)
        if pod is None and not record.get("asked"):
            raise typer.Exit(1)


def doctor(
    kubeconfig: Kubeconfig = None, tiphys_namespace: TiphysNamespace = "", extender_url: ExtenderUrl = "", json: Json = False
) -> None:
    """Check the wiring of an installation; exit status 1 if something is broken."""
    with reported_errors():
        config = _kubeconfig(kubeconfig)
        with ApiClient.from_kubeconfig(config) as api:
            findings = diagnose(doctor_facts.gather(api, config, tiphys_namespace, extender_url))
        counts = Counter(finding.grade for finding in findings)
        if json:
            summary = {grade: counts[grade] for grade in ("OK", "WARN", "FAIL")}
            typer.echo(orjson.dumps({"summary": summary, "findings": [finding.as_json() for finding in findings]}).decode())
        else:
            console = make_console()
            style = {"OK": "green", "WARN": "yellow", "FAIL": "red"}
            for finding in findings:
                console.print(f"[{style[finding.grade]}]{finding.grade:4}[/] {finding.check:17}", end=" ")
                console.print(finding.message, markup=False)
                if finding.advice:
                    console.print(f"{'':22} → {finding.advice}", markup=False)
            console.print(f"{counts['OK']} fine, {counts['WARN']} to look at, {counts['FAIL']} broken")
        if counts["FAIL"]:
            raise typer.Exit(1)


def snapshot(
    file: Annotated[Path, typer.Argument(help="where to write; replay it with TIPHYS_EXTENDER_SNAPSHOT=FILE")],
    kubeconfig: Kubeconfig = None,
    prometheus: Annotated[str, typer.Option(help="Prometheus to take readings from; without it the snapshot has none")] = "",
    window_s: Annotated[int, typer.Option(min=1, max=3600, help="window of rates, in seconds")] = 60,
    node_label: Annotated[str, typer.Option(help="label of the series that holds the node's name")] = "node",
) -> None:
    """Write a cluster's nodes, pods, policies and readings to a file: no environment, no secrets, no annotations."""
    with reported_errors():
        console = make_console(stderr=True)
        taken = asyncio.run(
            snapshots.take(find_access(kubeconfig), file, prometheus, window_s, node_label, lambda line: console.print(line, markup=False))
        )
        if prometheus and not taken.readings:
            raise Unavailable(f"Prometheus at {prometheus} has no reading of any node with a label {node_label!r}: try --node-label")
        console.print(f"wrote {file} ({file.stat().st_size:,} bytes)", markup=False)


def policies(json: Json = False) -> None:
    """List placement policies, planners and selectors by the names that a SchedulingPolicy and the benchmarks use."""
    rows = listing.rows()
    if json:
        typer.echo(orjson.dumps(rows).decode())
        return
    table = Table("name", "kind", "learned", "what it does")
    for row in rows:
        table.add_row(row["name"], row["kind"], "yes" if row["learned"] else "", row["summary"])
    make_console().print(table)


def unroute(
    kubeconfig: Kubeconfig = None,
    routing_name: Annotated[str, typer.Option(help="name of the MutatingAdmissionPolicy and its binding")] = ROUTING_NAME,
    scheduler_name: SchedulerName = DEFAULT_SCHEDULER_NAME,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="remove nothing, only list")] = False,
    json: Json = False,
) -> None:
    """Stop routing pods to Tiphys, and list what still names it; exit status 1 if something would be stranded."""

    async def work() -> UnrouteReport:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-unroute") as client:
            return await free_pods(client, routing_name, scheduler_name, dry_run=dry_run)

    with reported_errors():
        report = asyncio.run(work())
        parts = {
            "removed": report.removed,
            "pending_pods": report.pending_pods,
            "workloads": report.workloads,
            "problems": report.problems,
        }
        if json:
            typer.echo(orjson.dumps({key: [str(item) for item in items] for key, items in parts.items()}).decode())
        else:
            _show_report(report, scheduler_name, dry_run=dry_run)
        if not report.clean:
            raise typer.Exit(1)


def _show_report(report: UnrouteReport, scheduler_name: str, *, dry_run: bool) -> None:
    console = make_console()
    verb = "would remove" if dry_run else "removed"
    for ref in report.removed:
        console.print(f"{verb} {ref}", markup=False)
    if not report.removed:
        console.print("no routing policy was there")
    for ref in report.pending_pods:
        console.print(f"waits for {scheduler_name!r}: {ref}; delete it, so that its owner makes a new one", markup=False)
    for ref in report.workloads:
        console.print(f"names {scheduler_name!r}: {ref}; remove spec.schedulerName from its pod template", markup=False)
    for problem in report.problems:
        console.print(problem, markup=False)
    if report.clean:
        console.print("nothing else names Tiphys's scheduler: it can go")


def _pod(api: ApiClient, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def ask_extenders(
    api: ApiClient, config: Path, extender_url: str, tiphys_namespace: str, namespace: str, name: str, pod: dict[str, Any] | None
) -> tuple[dict[str, Any], str]:
    """The first extender that knows the pod; of several replicas only the one beside the leading scheduler was asked."""
    troubles, asked = [], []
    for door in doors(api, config, extender_url, tiphys_namespace):
        # by uid where there is one: a name may have belonged to another pod before
        query = {"uid": pod["metadata"]["uid"]} if pod is not None else {"namespace": namespace, "pod": name}
        try:
            status, answer = door.ask("/v1/explain", **query)
        except Unavailable as error:
            troubles.append(str(error))
            continue
        asked.append(door.label)
        if status == 200 and isinstance(answer, dict) and answer.get("asked"):
            return answer, door.label
    if not asked:
        raise Unavailable("; ".join(troubles))
    return {}, ", ".join(asked)


def _show(found: explaining.Explanation, top: int) -> None:
    console = make_console()
    console.print(found.headline, markup=False, style="bold")
    for sentence in found.because:
        console.print(f"  {sentence}", markup=False)
    record = found.record
    if not record:
        console.print(f"  asked: {found.extender}", markup=False)
        return
    facts = {
        "policy": record.get("policy"),
        "mode": record.get("mode"),
        "decided by": record.get("policyName"),
        "model": record.get("modelDigest"),
        "candidates": record.get("candidates"),
        "attempts": len(record.get("attempts") or ()),
        "took": f"{record.get('durationMs')} ms",
        "extender": found.extender,
    }
    for key, value in facts.items():
        if value not in (None, ""):
            console.print(f"  {key:10} {value}", markup=False)
    scores = explaining.top_scores(record, top)
    if scores:
        table = Table("candidate", "score", "raw")
        for score in scores:
            raw = score.get("raw")
            table.add_row(str(score["node"]), str(score["score"]), "unknown" if raw is None else f"{raw:.6g}")
        console.print(table)
    if profile := record.get("callProfile"):
        console.print(explaining.profile_line(str(record.get("function")), profile))
    features = dict(record.get("features") or {})
    if features:
        nodes = [score["node"] for score in scores if score["node"] in features][:_FEATURE_NODES] or list(features)[:_FEATURE_NODES]
        table = Table("feature", *nodes)
        for feature in features[nodes[0]]:
            values = [features[node].get(feature) for node in nodes]
            table.add_row(feature, *("–" if value is None else f"{value:.5g}" for value in values))
        console.print(table)


def _kubeconfig(given: Path | None) -> Path:
    found = ExistingCluster(given).kubeconfig
    if not found.exists():
        raise InvalidInput(f"no kubeconfig at {found}: set KUBECONFIG, or give --kubeconfig")
    return found

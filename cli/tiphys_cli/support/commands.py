"""`tiphys doctor`, `snapshot`, `policies`, `unroute`."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from tiphys_cli.console import make_console, print_table, reported_errors
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.kubeconfig import kubeconfig_path
from tiphys_cli.support import doctor as doctor_facts
from tiphys_cli.support import policies as listing
from tiphys_cli.support import snapshot as snapshots
from tiphys_cli.support.findings import diagnose
from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.access import find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unroute import ROUTING_NAME, WAITING_NAME, UnrouteReport
from tiphys_models.kube.unroute import unroute as free_pods

Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, else ~/.kube/config")]
Json = Annotated[bool, typer.Option("--json", help="print exactly one JSON object on standard output")]
ExtenderUrl = Annotated[
    str,
    typer.Option(envvar="TIPHYS_EXTENDER_URL", help="explain listener of an extender or binder; default: port-forward to the release's"),
]
TiphysNamespace = Annotated[str, typer.Option(help="where the chart is installed; default: found by its labels")]
SchedulerName = Annotated[str, typer.Option(help="what routed pods name in spec.schedulerName")]


def doctor(
    kubeconfig: Kubeconfig = None, tiphys_namespace: TiphysNamespace = "", extender_url: ExtenderUrl = "", json: Json = False
) -> None:
    """Check the wiring of an installation, and objects of every kind; exit status 1 if something is broken."""
    with reported_errors():
        config = kubeconfig_at(kubeconfig)
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


def policies(
    check: Annotated[str, typer.Option(help="run the conformance suite over the decider of this name")] = "",
    kind: Annotated[str, typer.Option(help="with --check: its kind, if the name has several")] = "",
    json: Json = False,
) -> None:
    """List placement policies, planners, selectors, scaling agents and stream policies, ours and those of installed packages."""
    if check:
        _check_policy(check, kind, json)
        return
    rows = listing.rows()
    if json:
        typer.echo(orjson.dumps(rows).decode())
        return
    table = Table("name", "kind", "origin", "learned", "what it does")
    for row in rows:
        text = f"cannot be used: {row['problem']}" if row["problem"] else row["summary"]
        table.add_row(*map(escape, (row["name"], row["kind"], row["origin"], "yes" if row["learned"] else "", text)))
    make_console().print(table)


def _check_policy(name: str, kind: str, json: bool) -> None:
    with reported_errors():
        kind, ended = listing.check(name, kind)
    holds = all(checked.holds for checked in ended)
    if json:
        checks = [{"check": c.name, "holds": c.holds, "fault": c.fault, "seconds": round(c.took_s, 3)} for c in ended]
        typer.echo(orjson.dumps({"name": name, "kind": kind, "holds": holds, "checks": checks}).decode())
    else:
        print_table(["check", "holds", "what is wrong"], [[escape(c.name), "yes" if c.holds else "no", escape(c.fault)] for c in ended])
    if not holds:
        raise typer.Exit(1)


def unroute(
    kubeconfig: Kubeconfig = None,
    routing_name: Annotated[str, typer.Option(help="name of the MutatingAdmissionPolicy and its binding")] = ROUTING_NAME,
    scheduler_name: SchedulerName = DEFAULT_SCHEDULER_NAME,
    waiting_name: Annotated[str, typer.Option(help="name of the one that holds pods which may wait")] = WAITING_NAME,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="remove nothing, only list")] = False,
    json: Json = False,
) -> None:
    """Stop routing pods to Tiphys and holding them, and list what still names it; exit status 1 if something would be stranded."""

    async def work() -> UnrouteReport:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-unroute") as client:
            return await free_pods(client, routing_name, scheduler_name, waiting_name, dry_run=dry_run)

    with reported_errors():
        report = asyncio.run(work())
        parts = {
            "removed": report.removed,
            "opened": report.opened,
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
        console.print("no policy that routes or holds pods was there")
    for pod in report.opened:
        console.print(f"{'would let go' if dry_run else 'let go'} {pod}, which is held", markup=False)
    for ref in report.pending_pods:
        console.print(f"waits for {scheduler_name!r}: {ref}; delete it, so that its owner makes a new one", markup=False)
    for ref in report.workloads:
        console.print(f"names {scheduler_name!r}: {ref}; remove spec.schedulerName from its pod template", markup=False)
    for problem in report.problems:
        console.print(problem, markup=False)
    if report.clean:
        console.print("nothing else names Tiphys's scheduler: it can go")


def kubeconfig_at(given: Path | None) -> Path:
    """The kubeconfig to use; InvalidInput if there is none."""
    found = kubeconfig_path(given)
    if not found.exists():
        raise InvalidInput(f"no kubeconfig at {found}: set KUBECONFIG, or give --kubeconfig")
    return found

"""`tiphys gates`: pods that are held, let go by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
import typer

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.support.commands import Json, Kubeconfig
from tiphys_models.kube.access import find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.held_pods import Release, open_all

gates_app = typer.Typer(no_args_is_help=True, help="Pods that wait, held by a scheduling gate.")


@gates_app.callback()
def gates() -> None:
    """Pods that wait, held by a scheduling gate."""


@gates_app.command("open")
def open_gates(
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="of the pods; default: all")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="open nothing, only list")] = False,
    json: Json = False,
) -> None:
    """Let go all pods that are held, whoever else would; exit status 1 if one may still be held."""

    async def work() -> Release:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-gates") as client:
            return await open_all(client, namespace, dry_run=dry_run)

    with reported_errors():
        release = asyncio.run(work())
        if json:
            typer.echo(orjson.dumps({"opened": release.opened, "problems": release.problems}).decode())
        else:
            _show(release, dry_run=dry_run)
        if release.problems:
            raise typer.Exit(1)


def _show(release: Release, *, dry_run: bool) -> None:
    console = make_console()
    for pod in release.opened:
        console.print(f"{'held:' if dry_run else 'let go:'} {pod}", markup=False)
    for problem in release.problems:
        console.print(problem, markup=False)
    if not release.opened and not release.problems:
        console.print("no pod is held")

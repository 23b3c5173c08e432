"""`tiphys model publish`, `tiphys model list`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, get_args

import orjson
import typer
from rich.table import Table

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.model.publishing import NAMESPACE, Publication, listed, publication, publish
from tiphys_models.api.learned_model import SERVES, Stage
from tiphys_models.clients.access import ApiAccess, find_access
from tiphys_models.clients.kube import KubeClient
from tiphys_models.domain.errors import InvalidInput

model_app = typer.Typer(no_args_is_help=True, help="Learned models of a cluster: publish, list.")

Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, else ~/.kube/config, else the pod's own account")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="where the chart is installed: models are read there only")]


@model_app.callback()
def model_root() -> None:
    """Learned models of a cluster: publish, list."""


@model_app.command(name="publish")
def publish_command(
    card: Annotated[Path, typer.Argument(metavar="CARD.json", help="the card; the weights stand beside it as CARD.safetensors")],
    name: Annotated[str, typer.Option(help="name of the LearnedModel, which policies give as spec.model; default: the card's")] = "",
    namespace: Namespace = NAMESPACE,
    stage: Annotated[str, typer.Option(help=", ".join(get_args(Stage)))] = "candidate",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Check an artifact, write it into a ConfigMap and make, or change, the LearnedModel that points to it."""
    with reported_errors():
        made = publication(card, name, namespace, checked_stage(stage))
        send(find_access(kubeconfig), made)
        told = f"published {namespace}/{made.model['metadata']['name']} at stage {stage}, sha256 {made.sha256}"
        modes = ", ".join(sorted(SERVES[stage])) or "no mode yet"
        make_console(stderr=True).print(f"{told}; it serves {modes}. `tiphys model list` shows what the operator says of it.", markup=False)


@model_app.command(name="list")
def list_command(
    namespace: Namespace = NAMESPACE,
    kubeconfig: Kubeconfig = None,
    json: Annotated[bool, typer.Option("--json", help="print exactly one JSON array on standard output")] = False,
) -> None:
    """List the LearnedModels with what the operator says of them."""

    async def work() -> list[dict[str, str]]:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-model") as client:
            return await listed(client, namespace)

    with reported_errors():
        rows = asyncio.run(work())
        if json:
            typer.echo(orjson.dumps(rows).decode())
            return
        table = Table("name", "policy", "stage", "accepted", "loaded", "reason", "sha256", "served", "evaluation")
        for row in rows:
            cells = (row["sha256"][:12], row["servedDigest"][:12], row["evaluation"])
            table.add_row(row["name"], row["policy"], row["stage"], row["accepted"], row["loaded"], row["reason"], *cells)
        make_console().print(table)


def checked_stage(stage: str) -> Stage:
    """The stage, or what there is to choose from."""
    if stage not in SERVES:
        raise InvalidInput(f"no stage is called {stage!r}: there are {', '.join(SERVES)}")
    return stage  # type: ignore[return-value]


def send(access: ApiAccess, made: Publication) -> None:
    """Publish from code that has no event loop."""

    async def work() -> None:
        async with KubeClient(access, user_agent="tiphys-model") as client:
            await publish(client, made)

    asyncio.run(work())

"""`tiphys model publish`, `ship`, `needed`, `list`; and those of `learned`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, get_args

import orjson
import typer
from rich.table import Table

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.model.learned import export_command, learned_command
from tiphys_cli.model.listing import Row, Use, mounted_rows, published_rows, shipped_rows, uses, with_users
from tiphys_cli.model.publishing import NAMESPACE, Publication, paper_publication, publication, publish
from tiphys_models.api.learned_model import SERVES, Stage
from tiphys_models.artifacts.shipped import Role, shipped
from tiphys_models.artifacts.shipping import cards_in, ship
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.access import ApiAccess, find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unshipped import Needs, needed

model_app = typer.Typer(no_args_is_help=True, help="Learned models of all systems: publish, ship, list; and what was learned online.")

Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, else ~/.kube/config, else the pod's own account")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="where the chart is installed: models are read there only")]


@model_app.callback()
def model_root() -> None:
    """Learned models of all systems: publish, ship, list; and what was learned online."""


model_app.command(name="learned")(learned_command)
model_app.command(name="export")(export_command)


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


@model_app.command(name="ship")
def ship_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="NAME|DIR|CARD.json",
            help="a paper's own row, to be published; or a trained artifact, or a directory of them with their seeds/, to be copied",
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(help="directory, such as a models volume; default: where such weights ship from, with their table"),
    ] = None,
    role: Annotated[
        str, typer.Option(help="default, paper or seed: what the table calls it; default: as before, a new one is a default")
    ] = "",
    command: Annotated[str, typer.Option(help="the command line that trained it, for the card")] = "",
    commit: Annotated[str, typer.Option(help="the commit at which it ran, for the card")] = "",
    namespace: Namespace = NAMESPACE,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Publish weights that no image carries, by name; or copy trained artifacts to where they ship from. Twice changes nothing."""
    with reported_errors():
        if not source.exists() and str(source) in shipped():
            if into is not None or role or command or commit:
                raise InvalidInput(f"{source} is published as it is: --into, --role, --command and --commit are for files")
            made = paper_publication(str(source), namespace)
            send(find_access(kubeconfig), made)
            make_console().print(f"{namespace}/{made.model['metadata']['name']} at stage active, sha256 {made.sha256[:12]}", markup=False)
            return
        known: dict[str, Role] = {name: name for name in get_args(Role)}
        if role and role not in known:
            raise InvalidInput(f"no role is called {role!r}: there are {', '.join(known)}")
        done = ship(cards_in(source), into, role=known.get(role), command=command, commit=commit)
        out = make_console()
        for one in done:
            what = f"changed {', '.join(one.changed)}" if one.changed else "is there already"
            out.print(f"{one.name} ({one.policy}), sha256 {one.digest[:12]}: {what}", markup=False)


@model_app.command(name="needed")
def needed_command(namespace: Namespace = NAMESPACE, kubeconfig: Kubeconfig = None) -> None:
    """List the policies that name weights which no image carries and nobody has published. Reads only."""

    async def work() -> Needs:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-model") as client:
            return await needed(client, namespace)

    with reported_errors():
        found, out = asyncio.run(work()), make_console()
        for need in found.needs:
            out.print(str(need), markup=False)
        for problem in found.problems:
            make_console(stderr=True).print(problem, markup=False)
        if not found.needs and not found.problems:
            out.print("every policy has its weights")


@model_app.command(name="list")
def list_command(
    namespace: Namespace = NAMESPACE,
    kubeconfig: Kubeconfig = None,
    models_dir: Annotated[Path | None, typer.Option(help="a models volume that is mounted on this machine, to be listed, too")] = None,
    everything: Annotated[bool, typer.Option("--all", help="with --json: mounted and shipped models, too, as in the table")] = False,
    json: Annotated[bool, typer.Option("--json", help="print exactly one JSON array on standard output")] = False,
) -> None:
    """List published, mounted and shipped models of all systems, with stage, digest and the policies that decide with them."""

    async def work() -> tuple[list[Row], list[Use]]:
        async with KubeClient(find_access(kubeconfig), user_agent="tiphys-model") as client:
            return await published_rows(client, namespace), await uses(client)

    with reported_errors():
        local = [*(mounted_rows(models_dir) if models_dir is not None else ()), *shipped_rows()]
        published, policies, problem = _published(work, required=json and not everything)
        rows = with_users([*published, *local], policies)
        if json:
            typer.echo(orjson.dumps([row.as_json() for row in (rows if everything else rows[: len(published)])]).decode())
        else:
            make_console().print(_table(rows))
        if problem:
            make_console(stderr=True).print(f"published models are not listed: {problem}", markup=False)


def _published(work: Callable[[], Coroutine[Any, Any, tuple[list[Row], list[Use]]]], *, required: bool) -> tuple[list[Row], list[Use], str]:
    """What a cluster has; without one, why not, unless it is all that was asked for."""
    try:
        return *asyncio.run(work()), ""
    except InvalidInput as error:
        if required:
            raise
        return [], [], str(error)


def _table(rows: list[Row]) -> Table:
    table = Table(
        "system", "name", "policy", "source", "stage", "accepted", "loaded", "reason", "sha256", "served", "evaluation", "used by"
    )
    for row in sorted(rows, key=lambda row: (row.system, row.name)):
        digests = (row.sha256[:12], row.served_digest[:12])
        said = (row.stage, row.accepted, row.loaded, row.reason, *digests, row.evaluation, "\n".join(row.used_by))
        table.add_row(row.system, row.name, row.policy, str(row.source), *said)
    return table


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

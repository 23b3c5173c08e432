"""`tiphys model learned` and `export`: what running extenders have learned online, to look at, or to give to other clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.table import Table

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.support.commands import kubeconfig_at
from tiphys_cli.support.extenders import DirectDoor, Door, doors
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.placement import checkpoint
from tiphys_models.placement.checkpoint import Learned
from tiphys_models.placement.learned_profiles import ENDED, NOTHING_KNOWN, TYPICAL_CALLS, WIDTH, believe
from tiphys_models.placement.published_profiles import POLICY, export

LEARNED_PATH = "/v1/learned"
_OK = 200

Url = Annotated[str, typer.Option("--extender-url", help="an extender's loopback listener, behind your own port-forward")]
File = Annotated[Path | None, typer.Option("--from", help="a document that was taken before: learned.json of a state directory")]
Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, else ~/.kube/config")]
Installed = Annotated[str, typer.Option(help="namespace of the release; default: found by its labels")]


def learned_command(
    extender_url: Url = "",
    source: File = None,
    kubeconfig: Kubeconfig = None,
    tiphys_namespace: Installed = "",
    json: Annotated[bool, typer.Option("--json", help="print the whole document")] = False,
) -> None:
    """Show what a running extender has learned: functions with their profiles, speeds of nodes, lifetimes. Reads only."""
    with reported_errors():
        found = _learned(extender_url, source, kubeconfig, tiphys_namespace)
        if json:
            typer.echo(orjson.dumps(checkpoint.as_json(found)).decode())
            return
        out = make_console()
        out.print(_table(found))
        out.print(f"{len(found.functions)} functions, {len(found.nodes)} nodes, lifetimes of {len(found.lives.names)} applications")


def export_command(
    into: Annotated[Path, typer.Argument(metavar="DIR", help="where NAME.json and NAME.safetensors go, for `tiphys model publish`")],
    name: Annotated[str, typer.Option(help="name of the artifact; extenders take the one that is called estimator")] = POLICY,
    extender_url: Url = "",
    source: File = None,
    kubeconfig: Kubeconfig = None,
    tiphys_namespace: Installed = "",
) -> None:
    """Make an artifact of the profiles that an extender has learned, as a prior for another cluster, or for this one's next nodes."""
    with reported_errors():
        taken, left = export(_learned(extender_url, source, kubeconfig, tiphys_namespace), into, name)
        told = f"{into / name}.json: {taken} functions; {left} left out, of which too little is known or for which there is no room"
        make_console(stderr=True).print(told, markup=False)


def _learned(url: str, source: Path | None, kubeconfig: Path | None, namespace: str) -> Learned:
    if source is not None:
        try:
            return checkpoint.read(source.read_bytes())
        except OSError as error:
            raise InvalidInput(f"--from: cannot read {source}: {error.strerror}") from error
    if url:
        return _of_all([DirectDoor(url)])
    config = kubeconfig_at(kubeconfig)
    with ApiClient.from_kubeconfig(config) as api:
        return _of_all(doors(api, config, "", namespace))


def _of_all(asked: Sequence[Door]) -> Learned:
    """What the extender knows that knows most: replicas have seen the same pods, some for longer."""
    found = [_ask(door) for door in asked]
    return max(found, key=lambda learned: sum(float(row[ENDED]) for row in learned.functions.values()))


def _ask(door: Door) -> Learned:
    status, answer = door.ask(LEARNED_PATH)
    if status != _OK:
        raise Unavailable(f"{door.label} answers {status} to {LEARNED_PATH}: is it an extender of this release?")
    return checkpoint.read(orjson.dumps(answer))


def _table(found: Learned) -> Table:
    table = Table("function", "calls ended", "start s", "warm core-s", "cold core-s", "cores", "processor time")
    for name, row in sorted(found.functions.items(), key=lambda item: (-float(item[1][ENDED]), item[0])):
        profile = believe(row[:WIDTH], np.array(NOTHING_KNOWN), TYPICAL_CALLS)
        table.add_row(name, f"{row[ENDED]:.0f}", *(f"{number:.3g}" for number in profile.tolist()), "seen" if row[WIDTH] > 0 else "unseen")
    return table

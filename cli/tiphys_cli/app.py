"""The root of the command line: a list of names, each imported only when somebody calls it.

`tiphys explain` should not wait for the parts that make certificates, and a part that cannot be imported (an extra that
is not installed) must not take the others with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.metadata import EntryPoint
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command as to_command

from tiphys_cli.brought import COMMANDS, absent, entries

Function = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Part:
    """One command, or group of commands, and where it lives."""

    module: str
    """Empty: in another distribution, which names it by an entry point."""
    attribute: str
    """A typer app or a plain function."""
    help: str


PARTS: dict[str, Part] = {
    "demo": Part("", "", "Replay a function workload through Tiphys and a plain scheduler, side by side."),
    "explain": Part("tiphys_cli.support.explain_commands", "explain", "Say why a pod, a stream or a policy came out as it did."),
    "doctor": Part("tiphys_cli.support.commands", "doctor", "Check the wiring of an installation, and objects of every kind."),
    "policies": Part("tiphys_cli.support.commands", "policies", "List policies that place, plan, select, scale and bind; check one."),
    "snapshot": Part("tiphys_cli.support.commands", "snapshot", "Write a cluster's nodes, pods, policies and readings to a file."),
    "unroute": Part("tiphys_cli.support.commands", "unroute", "Stop routing pods to Tiphys, and list what still names it."),
    "gates": Part("tiphys_cli.support.gates_commands", "gates_app", "Let go, by hand, pods that wait behind a scheduling gate."),
    "bench": Part("tiphys_cli.bench.app", "bench_app", "Benchmarks."),
    "train": Part("tiphys_cli.train.commands", "train_app", "Train learned policies from simulation."),
    "model": Part("tiphys_cli.model.commands", "model_app", "Learned models of a cluster: publish, list."),
    "cluster": Part("", "", "The local control plane: real Kubernetes, simulated nodes."),
    "kind": Part("", "", "Real nodes: kind on Docker, or on podman without Docker and registry."),
    "tools": Part("", "", "Programs of the local control plane: build, find, list."),
}


class PartsGroup(TyperGroup):
    """Finds its commands in `PARTS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order in which a new user needs them."""
        return [*PARTS, *sorted(entries(COMMANDS).keys() - PARTS.keys())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one part; one that cannot be imported becomes a command that says why."""
        part, entry = PARTS.get(cmd_name), entries(COMMANDS).get(cmd_name)
        if part is None and entry is None:
            return None
        try:
            found = getattr(import_module(part.module), part.attribute) if part is not None and part.module else _brought(cmd_name, entry)
        except (ImportError, AttributeError) as error:
            found = _unavailable(cmd_name, error)
        command = to_command(found if isinstance(found, typer.Typer) else _single(found))
        command.name = cmd_name
        command.short_help = part.help if part is not None else command.get_short_help_str()
        return command


app = typer.Typer(
    cls=PartsGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals hold tokens and kubeconfigs
    help="Learned placement for Kubernetes.",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        Console(highlight=False).print(f"tiphys {metadata.version('tiphys')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_say_version, is_eager=True, help="print the version and end")] = False,
) -> None:
    """Learned placement for Kubernetes."""


def _brought(name: str, entry: EntryPoint | None) -> Any:
    if entry is None:
        return _lenient(absent(name))
    try:
        return entry.load()
    except Exception as error:  # noqa: BLE001 - somebody else's package spoils its own command only
        return _unavailable(name, error)


def _single(function: Function) -> typer.Typer:
    """A plain function as a command of its own."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
    alone.command()(function)
    return alone


def _unavailable(name: str, error: Exception) -> typer.Typer:
    def explain_absence() -> NoReturn:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(
            f"error: `tiphys {name}` cannot be loaded: {error}\nIs everything installed? pip install 'tiphys[run]'"
        )
        raise typer.Exit(1)

    return _lenient(explain_absence)


def _lenient(function: Function) -> typer.Typer:
    """A command that takes whatever stands behind its name, because all it does is to say why there is nothing."""
    alone = typer.Typer(add_completion=False)
    alone.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(function)
    return alone

"""`tiphys tools`: build the programs of the local control plane, and say where they are."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tiphys_testbed.tools.programs import ToolError, programs
from tiphys_testbed.tools.toolbox import Toolbox

tools_app = typer.Typer(no_args_is_help=True, help="Programs of the local control plane: build, find, list.")


@tools_app.command()
def build(
    names: Annotated[list[str] | None, typer.Argument(help="programs; without: all that the demo needs")] = None,
) -> None:
    """Build programs into the cache, unless they are there."""
    chosen = names or [program.name for program in programs().values() if not program.on_demand]
    try:
        Toolbox().ensure(chosen)
    except (ToolError, TimeoutError) as error:
        raise _fail(error) from error


@tools_app.command()
def path(name: Annotated[str, typer.Argument(help="a program, such as kubectl or kubectl@1.35")]) -> None:
    """Print the path of one program, built first if need be."""
    try:
        found = Toolbox().path(name)
    except (ToolError, TimeoutError) as error:
        raise _fail(error) from error
    Console(soft_wrap=True, highlight=False, markup=False).print(str(found))


@tools_app.command("list")
def list_programs() -> None:
    """List programs, versions and whether they are built."""
    toolbox = Toolbox()
    table = Table("program", "version", "state", "path")
    for program in programs().values():
        try:
            found = toolbox.find(program.name)
        except ToolError as error:
            raise _fail(error) from error
        state = "ready" if found else ("on demand" if program.on_demand else "not built")
        table.add_row(program.name, program.module.version, state, str(found or ""))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)  # a pipe gets whole paths


def _fail(error: Exception) -> typer.Exit:
    Console(stderr=True, highlight=False, markup=False).print(f"error: {error}")
    return typer.Exit(1)

"""What commands share when they speak to people: width, and one line for an error that can be named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table

from tiphys_models.base.errors import InvalidInput, TiphysError

_WIDE = 160


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or wide enough for a table where there is no terminal."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, soft_wrap=True, width=_WIDE)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Bad input ends with status 2, anything else that can be named with 1; one line either way."""
    try:
        yield
    except InvalidInput as error:
        make_console(stderr=True).print(f"error: {error}", markup=False)
        raise typer.Exit(2) from error
    except TiphysError as error:
        make_console(stderr=True).print(f"error: {error}", markup=False)
        raise typer.Exit(1) from error


def print_table(header: Sequence[str], body: Sequence[Sequence[str]], *, markdown: bool = False) -> None:
    """The table on standard output: boxed for people, or as Markdown with an empty line after it, since another table may follow."""
    if markdown:
        for line in (header, ["---"] * len(header), *body):
            typer.echo(f"| {' | '.join(line)} |")
        typer.echo()
        return
    table = Table(*header)
    for row in body:
        table.add_row(*row)
    make_console().print(table)

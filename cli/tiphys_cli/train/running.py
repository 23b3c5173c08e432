"""How every training ends on the command line: a table of seeds, the best one's card, publishing, and one clear line for an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from tiphys_cli.bench.printing import parse_numbers
from tiphys_cli.model.commands import send
from tiphys_cli.model.publishing import publication
from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.kube.access import find_access
from tiphys_models.lab.trainer import train_seeds

if TYPE_CHECKING:
    from tiphys_models.lab.trainer import Training


@dataclass(frozen=True, slots=True)
class Publishing:
    """Under which name the best is published; empty: it is not."""

    name: str = ""
    namespace: str = ""


@contextmanager
def reported() -> Iterator[Console]:
    """Errors as one line, with exit status 2 (bad input) or 1."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        yield errors
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2 if isinstance(error, InvalidInput) else 1) from error


@contextmanager
def installed() -> Iterator[None]:
    """Imports of what trains: what is missing is told with the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error


def train(make: Callable[[Callable[[str], None]], Training[Any]], seeds: str, out: Path, publishing: Publishing = Publishing()) -> None:
    """Train all seeds of what `make` makes, print them, and publish the best."""
    with reported() as errors:
        access = find_access() if publishing.name else None  # hours of training must not end with a missing kubeconfig
        numbers = parse_numbers(seeds, "seeds", least=0)
        with installed():
            training = make(errors.print)
        found = train_seeds(training, numbers, out, errors.print)
        printed(found.title, found.lines)
        if found.card is None:
            return
        Console(highlight=False).print(f"seed {found.best} is the best by validation: {found.card}")
        if access is not None:
            made = publication(found.card, publishing.name, publishing.namespace, "candidate")
            send(access, made)
            errors.print(f"published {publishing.namespace}/{publishing.name} at stage candidate, sha256 {made.sha256}")


def printed(title: str, lines: Sequence[dict[str, Any]]) -> None:
    """A table on standard output."""
    table = Table(*lines[0], title=title)
    for line in lines:
        table.add_row(*map(str, line.values()))
    Console(highlight=False).print(table)

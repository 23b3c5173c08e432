"""Commands that other distributions bring by entry points, the test bed's among them, and what is said where they are absent."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import typer
from rich.console import Console

COMMANDS = "tiphys.commands"
"""Entry-point group: a typer app or a plain function, under the name of its command."""
HOW_TO_INSTALL = "pip install tiphys-testbed (from a clone: make setup)"


def entries(group: str) -> dict[str, EntryPoint]:
    """What is installed of a group, by name; nothing is imported yet."""
    return {entry.name: entry for entry in entry_points(group=group)}


def brought(group: str) -> dict[str, typer.Typer]:
    """Apps of a group that can be imported; one that cannot is left out, as if it were not installed."""
    found: dict[str, typer.Typer] = {}
    for name, entry in entries(group).items():
        try:
            loaded: Any = entry.load()
        except Exception as error:  # noqa: BLE001 - somebody else's package spoils its own commands only
            Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"{name} ({entry.value}) cannot be loaded: {error}")
            continue
        found[name] = loaded
    return found


def absent(name: str) -> Callable[[], NoReturn]:
    """A command of the test bed where there is none."""

    def explain_absence() -> NoReturn:
        """Say how to install the test bed."""
        message = f"error: `tiphys {name}` is part of the test bed, which is not installed: {HOW_TO_INSTALL}"
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(message)
        raise typer.Exit(1)

    return explain_absence

"""How every benchmark of the command line ends: tables or one JSON object, files, and one clear line for an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import orjson
import typer
from rich.console import Console
from rich.table import Table

from tiphys_cli.bench.plots import Bars, svg
from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.lab.documents import Tables
from tiphys_models.lab.report import Claim, Result

_FILE_WIDTH = 220
"""Columns of a table that goes into a file or a pipe: wide enough not to cut any."""


def parse_numbers(text: str, what: str, least: int) -> tuple[int, ...]:
    """`0,1,2` as numbers; InvalidInput names the option."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--{what} wants whole numbers with commas between them, such as 0,1,2; it got {text!r}") from None
    if min(numbers) < least or len(set(numbers)) != len(numbers):
        raise InvalidInput(f"--{what}: {text!r} repeats a number or has one below {least}")
    return numbers


def guarded(work: Callable[[Callable[[str], None]], Result], quick_docs: list[Path] | None = None) -> Result:
    """Do the work, or end with one clear line and exit status 2 (bad input) or 1."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        if quick_docs:
            raise InvalidInput(f"--docs: a run with --quick is not for quoting, and {quick_docs[0]} is quoted")
        return work(errors.print)
    except InvalidInput as error:
        _end(errors, error, 2)
    except (TiphysError, TimeoutError) as error:
        _end(errors, error, 1)


def _end(console: Console, error: Exception, status: int) -> NoReturn:
    console.print(f"error: {error}")
    raise typer.Exit(status)


def finish(result: Result, *, json: bool, out: Path | None, check: bool, plots: dict[str, Bars], tables: Tables = ()) -> None:
    """Print and write what was measured; with `check`, exit status 1 if a claim does not hold."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_bytes(orjson.dumps(result.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        for name, bars in plots.items():
            (out / name).write_text(svg(bars), encoding="utf-8")
    if json:
        typer.echo(orjson.dumps(result.as_json()).decode())
    else:
        _print_tables(result, tables or (("rows", result.rows), ("summary", result.summary)))
    if check and not result.holds:
        raise typer.Exit(1)


def _print_tables(result: Result, tables: Tables) -> None:
    console = Console(highlight=False) if Console().is_terminal else Console(highlight=False, width=_FILE_WIDTH)
    for title, block in tables:
        if isinstance(block, str):
            console.print(f"{title}: {block}", markup=False)
            continue
        keys = list(dict.fromkeys(key for row in block for key in row))
        table = Table(*keys, title=f"{result.bench}: {title}" + (" (quick: not for quoting)" if result.quick else ""))
        for row in block:
            table.add_row(*("" if row.get(key) is None else str(row[key]) for key in keys))
        if block:
            console.print(table)
    for claim in result.claims:
        console.print(_said(claim), markup=False)


def _said(claim: Claim) -> str:
    trivial = "" if claim.trivial is None else f"; {claim.trivial.policy}: {claim.trivial.value}"
    return f"{claim.id}: {claim.value} ({claim.bound}{trivial}) {claim.verdict.replace('does not hold', 'DOES NOT HOLD')}"

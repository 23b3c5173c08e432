"""The tables of docs/binding.md: those that are printed."""

from __future__ import annotations

from collections.abc import Mapping

from tiphys_cli.bench.binding_tables import made_tables
from tiphys_cli.bench.documents import printed
from tiphys_cli.bench.report import Result


def blocks(result: Result) -> Mapping[str, str]:
    """By the names of the marks."""
    return printed(result, made_tables(result))

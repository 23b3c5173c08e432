"""The tables of docs/binding.md, rewritten from a result: those that are printed, and the claims."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tiphys_cli.bench.binding_tables import made_tables
from tiphys_cli.bench.documents import claim_line, table
from tiphys_cli.bench.report import Result, Row

_NOT_IN_MARKS = re.compile("[^a-z0-9]+")


def blocks(result: Result) -> Mapping[str, str]:
    """By the names of the marks: the tables' titles in lower case, with hyphens for everything but letters and digits."""
    made = {_NOT_IN_MARKS.sub("-", title.lower()).strip("-"): _markdown(rows) for title, rows in made_tables(result) if rows}
    return {**made, "claims": table(("claim", "value", "bound", ""), [claim_line(c) for c in result.claims])}


def _markdown(rows: Sequence[Row]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return table(keys, [[str(row.get(key, "")) for key in keys] for row in rows])

"""The tables of docs/binding.md, rewritten from a result: those that are printed, and the claims."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tiphys_cli.bench.binding_tables import made_tables
from tiphys_cli.bench.documents import claim_line, markdown, table
from tiphys_cli.bench.report import Result

_NOT_IN_MARKS = re.compile("[^a-z0-9]+")


def blocks(result: Result) -> Mapping[str, str]:
    """By the names of the marks: the tables' titles in lower case, with hyphens for everything but letters and digits."""
    made = {_NOT_IN_MARKS.sub("-", title.lower()).strip("-"): markdown(rows) for title, rows in made_tables(result) if rows}
    return {**made, "claims": table(("claim", "value", "bound", ""), [claim_line(c) for c in result.claims])}

"""The tables of documents, rewritten from a result: what stands between `<!-- bench:NAME -->` and `<!-- /bench -->`.

So a figure in a document can only come from a run, and a reader sees in the text which parts a run has written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tiphys_cli.bench.report import Claim, Result, Row
from tiphys_models.domain.errors import InvalidInput

_NOT_IN_MARKS = re.compile("[^a-z0-9]+")
_BLOCK = re.compile(r"<!-- bench:(?P<name>[a-z0-9-]+) -->\n.*?<!-- /bench -->", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\(images/([a-z0-9-]+\.svg)\)")


def check(paths: Iterable[Path], marks: Collection[str]) -> None:
    """Before anything is played: InvalidInput names what cannot be read, and a mark that nothing will belong to."""
    for path in paths:
        _checked(path, marks)


def rewrite(path: Path, blocks: Mapping[str, str]) -> None:
    """Replace every marked block of the document; InvalidInput as in `check`."""
    text = _checked(path, blocks)
    path.write_text(
        _BLOCK.sub(lambda match: f"<!-- bench:{match['name']} -->\n{blocks[match['name']]}\n<!-- /bench -->", text), encoding="utf-8"
    )


def shown_pictures(path: Path) -> set[str]:
    """Files of the directory `images` beside the document that it shows."""
    return set(_PICTURE.findall(_read(path)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--docs: cannot read {path}: {error.strerror}") from error


def _checked(path: Path, marks: Collection[str]) -> str:
    text = _read(path)
    unknown = sorted({match["name"] for match in _BLOCK.finditer(text)} - set(marks))
    if unknown:
        raise InvalidInput(f"--docs: {path} has a block {unknown[0]!r}, which is none of {', '.join(marks)}")
    return text


def mark_of(title: str) -> str:
    """Of a printed table: its title in lower case, with hyphens for everything but letters and digits."""
    return _NOT_IN_MARKS.sub("-", title.lower()).strip("-")


def printed(result: Result, tables: Sequence[tuple[str, Sequence[Row]]]) -> Mapping[str, str]:
    """The printed tables and the claims, by marks."""
    made = {mark_of(title): markdown(rows) for title, rows in tables if rows}
    return {**made, "claims": table(("claim", "value", "bound", ""), [claim_line(c) for c in result.claims])}


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


def markdown(rows: Sequence[Row]) -> str:
    """All keys of all rows."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return table(keys, [[str(row.get(key, "")) for key in keys] for row in rows])


def claim_line(claim: Claim) -> list[str]:
    """Name, value, bound, verdict."""
    value = "" if claim.value is None else f"{claim.value:.4g}"
    return [claim.id, value, claim.bound, "holds" if claim.holds else "**does not hold**"]

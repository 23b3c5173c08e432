"""The tables of documents, rewritten from a result: what stands between `<!-- bench:NAME -->` and `<!-- /bench -->`.

So a figure in a document can only come from a run, and a reader sees in the text which parts a run has written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.report import Claim, Row

Block = Sequence[Row] | str
"""A table whose columns are the keys of its rows, or a sentence."""
Tables = Sequence[tuple[str, Block]]
"""Blocks by title, in the order of printing."""
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
    """The mark of a table: its title in lower case, with hyphens for everything but letters and digits."""
    return _NOT_IN_MARKS.sub("-", title.lower()).strip("-")


def blocks(tables: Tables, claims: Sequence[Row]) -> Mapping[str, str]:
    """Every block as Markdown, by marks."""
    return {mark_of(title): markdown(block) for title, block in (*tables, ("claims", claims))}


def markdown(block: Block) -> str:
    """A sentence as it is; a table with all keys of all rows; nothing of nothing."""
    if isinstance(block, str) or not block:
        return block if isinstance(block, str) else ""
    keys = list(dict.fromkeys(key for row in block for key in row))
    lines = (keys, ["---"] * len(keys), *([str(row.get(key, "")) for key in keys] for row in block))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def claim_row(claim: Claim) -> Row:
    """Name, value, bound, the trivial policy's value, verdict."""
    trivial = "" if claim.trivial is None else f"{_figure(claim.trivial.value)} (`{claim.trivial.policy}`)"
    shown = claim.verdict.replace("does not hold", "**does not hold**").replace("void", "**void**")
    return {"claim": claim.id, "value": _figure(claim.value), "bound": claim.bound, "trivial policy": trivial, "": shown}


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"

"""The tables and pictures of docs/binding.md: those that are printed and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tiphys_cli.bench.binding_play import available
from tiphys_cli.bench.binding_tables import made_tables, titles
from tiphys_cli.bench.documents import check, mark_of, printed, rewrite, shown_pictures
from tiphys_cli.bench.report import Result
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.sim.binding.topology import TOPOLOGIES

_PREFIX = "binding-"
_PICTURES = {
    name: f"{_PREFIX}{name}.svg" for name in ("applications", *(f"{kind}-{t}" for kind in ("over-time", "rates") for t in TOPOLOGIES))
}
"""Files in `images` beside a document, by name."""


def marks(policies: Sequence[str], arrivals: Path | None) -> list[str]:
    """Of all blocks that a run with these will have."""
    return [*(mark_of(title) for title in titles(available(policies), None if arrivals is None else arrivals.stem)), "claims"]


def blocks(result: Result) -> Mapping[str, str]:
    """By the names of the marks."""
    return printed(result, made_tables(result))


def check_documents(paths: Iterable[Path], policies: Sequence[str], arrivals: Path | None) -> None:
    """Before anything is played: marks and pictures."""
    for path in paths:
        check([path], marks(policies, arrivals))
        shown = {file for file in shown_pictures(path) if file.startswith(_PREFIX)}
        if unknown := sorted(shown - set(_PICTURES.values())):
            raise InvalidInput(f"--docs: {path} shows {unknown[0]!r}, which is none of {', '.join(_PICTURES.values())}")


def write(result: Result, path: Path) -> None:
    """Tables into the document, and the pictures that it shows beside it."""
    rewrite(path, blocks(result))
    if files := {name: file for name, file in _PICTURES.items() if file in shown_pictures(path)}:
        from tiphys_cli.bench.binding_plots import illustrate  # noqa: PLC0415 - matplotlib, only where there is something to draw

        illustrate(result, path.parent / "images", files)

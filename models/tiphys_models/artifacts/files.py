"""Reading the two files of an artifact, and where those lie that come with the package."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from stat import S_ISREG

import tiphys_models
from tiphys_models.base.errors import ArtifactRefused

_log = logging.getLogger(__name__)

MAX_BYTES = 16 * 1024 * 1024
CARD_FILE_MAX_BYTES = 1024 * 1024
"""Cards are parsed whole."""
SHIPPED = Path(tiphys_models.__file__).resolve().parent / "weights"
GROUP = "tiphys.weights"
"""Entry point group of distributions that bring weights: its value is a package whose directory holds them."""


@lru_cache(maxsize=1)
def brought() -> tuple[Path, ...]:
    """Directories of weights from other distributions, found once a process; what cannot be imported is as if it were not installed."""
    return tuple(_brought())


def _brought() -> Iterator[Path]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.value):
        try:
            places = [Path(place).resolve() for place in point.load().__path__]
        except Exception as error:  # noqa: BLE001 - somebody else's package must not keep ours from starting
            fields = {"package": point.value, "error": type(error).__name__}
            _log.warning("weights of another package cannot be used", extra={"fields": fields})
            continue
        yield from places


def directories() -> tuple[Path, ...]:
    """Everywhere weights of this installation lie, the package's own first: they cannot be replaced."""
    return (SHIPPED, *brought())


def card_of(name: str) -> Path:
    """The card of a shipped name, of a training seed as `seeds/NAME`; where nobody has it, where the package would."""
    found = (directory / f"{name}.json" for directory in directories())
    return next((path for path in found if path.exists()), SHIPPED / f"{name}.json")


def has_weights(name: str) -> bool:
    """Whether this installation has the weights of a shipped name."""
    return card_of(name).exists()


@dataclass(frozen=True, slots=True)
class Parts:
    """A card and its weights, unchecked."""

    card: bytes
    weights: bytes
    origin: str
    """Name of the file or object they come from, for messages."""


def read_part(path: Path) -> bytes:
    """A card or its weights; ArtifactRefused if it is missing or larger than any model of ours."""
    most = CARD_FILE_MAX_BYTES if path.suffix == ".json" else MAX_BYTES
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe would be waited for, a device never ends
            raise ArtifactRefused("Missing", f"{path.name} is not a file")
        with path.open("rb") as file:
            content = file.read(most + 1)  # whatever its size was said to be
    except OSError as error:
        raise ArtifactRefused("Missing", f"{path.name}: {error.strerror}") from error
    if len(content) > most:
        raise ArtifactRefused("TooLarge", f"{path.name} has more than {most} bytes")
    return content


def read_parts(card_path: Path) -> Parts:
    """`NAME.json` with the `NAME.safetensors` beside it."""
    if card_path.suffix != ".json":
        raise ArtifactRefused("ForbiddenFormat", f"{card_path.name}: a model is named by its card, NAME.json")
    return Parts(read_part(card_path), read_part(card_path.with_suffix(".safetensors")), card_path.name)

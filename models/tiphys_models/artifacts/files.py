"""Reading the two files of an artifact, and where those lie that come with the package."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISREG

import tiphys_models
from tiphys_models.domain.errors import ArtifactRefused

MAX_BYTES = 16 * 1024 * 1024
CARD_FILE_MAX_BYTES = 1024 * 1024
"""Cards are parsed whole."""
SHIPPED = Path(tiphys_models.__file__).resolve().parent / "weights"


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

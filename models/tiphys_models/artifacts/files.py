"""Reading the two files of an artifact, and where those lie that come with the package."""

from __future__ import annotations

from pathlib import Path

import tiphys_models
from tiphys_models.domain.errors import ArtifactRefused

MAX_BYTES = 16 * 1024 * 1024
SHIPPED = Path(tiphys_models.__file__).resolve().parent / "weights"


def read_part(path: Path) -> bytes:
    """A card or its weights; ArtifactRefused if it is missing or larger than any model of ours."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ArtifactRefused("TooLarge", f"{path.name} has more than {MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactRefused("Missing", f"{path.name}: {error.strerror}") from error

"""Writes an image's digest into the chart's values: `pin_image.py VALUES COMPONENT sha256:...`. Standard library only; comments stay."""

import re
import sys
from pathlib import Path


def pinned(text: str, component: str, digest: str) -> str:
    """The values with the digest of one component's image; SystemExit if there is no place for it."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"{digest!r} is no digest")
    # From the component's line to its first `digest: ""`, without leaving the component.
    place = re.compile(rf'(?ms)^({re.escape(component)}:\n(?:(?:[ #][^\n]*)?\n)*?    digest: )""$')
    changed, count = place.subn(rf'\g<1>"{digest}"', text)
    if count != 1:
        raise SystemExit(f"{component} has no empty image.digest")
    return changed


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(pinned(path.read_text(encoding="utf-8"), sys.argv[2], sys.argv[3]), encoding="utf-8")

"""Installs fail closed: what was not locked by its hash does not get in."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_install_of_ours_asks_for_hashes_or_takes_what_lies_here() -> None:
    for name in ("Makefile", "Dockerfile"):
        lines = (ROOT / name).read_text().splitlines()
        installs = [line for line in lines if re.search(r"pip install\b", line)]
        assert installs, name
        for line in installs:
            from_here = re.search(r"--no-deps\b.*(-e \.|/wheels/)", line)
            assert "--require-hashes" in line or from_here or re.search(r"uv==\d", line), f"{name}: {line.strip()}"

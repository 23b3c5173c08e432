"""`python cpu.py FILE [SHA256 ...]`: a locked file on standard output, with torch's CPU build instead of its CUDA build.

CPU wheels of torch stand in another index under other hashes. Given those, torch is asked for by them in the locked version, and what
only its CUDA build needs is left out; without any, the file comes out as it is. Either way everything is checked by its hash.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CUDA = re.compile(r"(nvidia-|cuda-|triton)")


def for_cpu(text: str, hashes: list[str]) -> str:
    """The file with torch by these hashes, and without what only its CUDA build needs; as it is without hashes."""
    if not hashes:
        return text
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    (torch,) = {block.split(maxsplit=1)[0] for block in blocks if block.startswith("torch==")}
    kept = "".join(block for block in blocks if not block.startswith("torch==") and not CUDA.match(block))
    return kept + " ".join([torch, *(f"--hash=sha256:{given}" for given in hashes)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(for_cpu(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]))

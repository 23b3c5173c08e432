"""What a real queue-proxy said; the file beside this one begins with its version."""

from __future__ import annotations

from pathlib import Path

_LINES = Path(__file__).with_name("queue-proxy.txt").read_text(encoding="utf-8").splitlines()
POD = "resize-00001-deployment-7d9c5b-x2x4k"


def stats(moment: str) -> bytes:
    """The statistics at one of the recorded moments."""
    (found,) = [line.split()[2] for line in _LINES if line.startswith(f"stats {moment} ")]
    return bytes.fromhex(found)


def metrics(moment: str) -> list[str]:
    """Lines that it showed Prometheus at that moment."""
    return [line.split(" ", 2)[2] for line in _LINES if line.startswith(f"metrics {moment} ")]

"""The text of /metrics, made seldom enough that nobody who reads it slows down anything else."""

from __future__ import annotations

import time
from collections.abc import Callable

from tiphys_models.serving.bounds import ListenerBounds, Peers

_PER_SECOND = 1.0
_BURST = 10.0


class Exposition:
    """Making the text takes milliseconds that decisions wait for: whoever asks too often reads that of a second ago."""

    def __init__(self, render: Callable[[], bytes], on_read: Callable[[], object], now_s: Callable[[], float] = time.monotonic) -> None:
        self._render, self._on_read = render, on_read
        self._made = Peers(ListenerBounds(per_second=_PER_SECOND, burst=_BURST), now_s)
        self._text = b""

    def read(self) -> bytes:
        """The text of /metrics: made anew, or that of a second ago for whoever asks too often."""
        if self._made.spend("") or not self._text:
            self._text = self._render()
        self._on_read()
        return self._text

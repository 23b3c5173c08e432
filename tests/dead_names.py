"""A resolver that never answers for some names: what a broken DNS server, or a zone that somebody made for the purpose, does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

DEAD = ".dead.example"


@contextlib.contextmanager
def dead_names(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Whoever looks up such a name waits until the end of the test; the names that were asked for."""
    asked: list[str] = []
    end, look_up = threading.Event(), socket.getaddrinfo

    def hang(host: Any, *args: Any, **options: Any) -> Any:
        if str(host).endswith(DEAD) and not options.get("flags"):  # only addresses are asked for with flags
            asked.append(str(host))
            end.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return look_up(host, *args, **options)

    with patch.context() as patched:
        patched.setattr(socket, "getaddrinfo", hang)
        try:
            yield asked
        finally:
            end.set()

"""A stranger who does all it can against one port from one process: `python -m tiphys_testbed.bench.flooder HOST PORT CORE`.

Its connections take turns: requests for metrics as fast as they are answered, connections that are opened and closed, heads without
end, requests sent far ahead, TLS where there is none. It ends when its standard input does, and then says what it sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from dataclasses import dataclass, field

_GET = b"GET /metrics HTTP/1.1\r\nHost: flood\r\n\r\n"
_KINDS = (
    _GET,
    _GET * 200,
    b"GET /metrics HTTP/1.1\r\n" + b"a:b\r\n" * 12_000,
    b"GET /readyz HTTP/1.1\r\nHost: flood\r\nConnection: close\r\n\r\n",
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
)
_CONNECTIONS = 120


@dataclass
class Flood:
    """Connections that are open now, and what has been sent."""

    address: tuple[str, int]
    open: dict[socket.socket, int] = field(default_factory=dict)
    opened: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0

    def round(self) -> None:
        """One turn of each connection: missing ones are opened, then all that can are read from and written to."""
        while len(self.open) < _CONNECTIONS:
            self._connect()
        readable, writable, _ = select.select(self.open, self.open, (), 0.05)
        for connection in readable:
            self._read(connection)
        for connection in writable:
            if connection in self.open:
                self._send(connection)

    def _connect(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect(self.address)
        self.open[connection] = self.opened % len(_KINDS)
        self.opened += 1

    def _send(self, connection: socket.socket) -> None:
        said = _KINDS[self.open[connection]]
        if not said:
            self._close(connection)
            return
        try:
            self.sent_bytes += connection.send(said)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)

    def _read(self, connection: socket.socket) -> None:
        try:
            part = connection.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self.read_bytes += len(part)
        if not part:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        del self.open[connection]
        connection.close()


def main() -> None:
    """Flood until standard input ends."""
    host, port, core = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(OSError):  # where there is but one core, or not this one
        os.sched_setaffinity(0, {core})
    flood = Flood((host, port))
    began_s = time.monotonic()
    while not select.select([sys.stdin], (), (), 0)[0]:
        flood.round()
    seconds = time.monotonic() - began_s
    counted = {"opened": flood.opened, "sent_bytes": flood.sent_bytes, "read_bytes": flood.read_bytes, "seconds": round(seconds, 3)}
    sys.stdout.write(json.dumps(counted) + "\n")


if __name__ == "__main__":
    main()

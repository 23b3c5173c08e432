"""Free loopback ports that stay free."""

import secrets
import socket

LOW, HIGH = 20_000, 32_000
"""Below the ephemeral range (Linux: from 32,768), so that no outgoing connection takes a port while its server restarts."""


def free_ports(count: int) -> list[int]:
    """Distinct ports nobody listens on now."""
    found: list[int] = []
    while len(found) < count:
        port = LOW + secrets.randbelow(HIGH - LOW)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

"""Networks that settings name."""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks of a list of CIDRs with commas; ValueError says which is none."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())

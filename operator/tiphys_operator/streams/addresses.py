"""Where a probe may go. Whoever may create an InferenceSite chooses an address; what only the operator can reach is not theirs to ask.

Rules look at the address that is about to be connected to, not at what was written: a name may mean another address a second later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tiphys_models.api.stream_reasons import ProbeRefusal
from tiphys_models.kube.names import Names
from tiphys_operator.networks import Network

log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")))
"""Where clouds tell a machine its own secrets."""
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_IN_CLUSTER = "kubernetes.default.svc"
_RESOLVED_WITHIN_S = 2.0


class ProbeRefused(OSError):
    """A probe that is not sent. An OSError, so that whoever connects gives up that address and closes what is open."""

    def __init__(self, rule: ProbeRefusal) -> None:
        super().__init__(str(rule))
        self.rule = rule


def address_of(text: str) -> Address:
    """Without the zone that a link-local address may carry."""
    return ipaddress.ip_address(text.partition("%")[0])


def _meant(address: Address) -> list[Address]:
    """The address, and the IPv4 ones inside it: mapped, translated and tunnelled ones reach what is inside."""
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        found += [inner for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if inner is not None]
        if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
            found.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return found


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What the environment sets, and where the API server is."""

    allow: tuple[Network, ...] = ()
    """Probed whatever the rules say."""
    only: tuple[Network, ...] = ()
    """Nothing else is probed; empty: everything that the rules leave."""
    api_server: Callable[[], frozenset[Address]] = frozenset

    def check(self, text: str) -> None:
        """ProbeRefused says which rule an address breaks."""
        meant = _meant(address_of(text))
        if any(_inside(meant[0], network) for network in self.allow):
            return
        for address in meant:
            if (rule := self._broken(address)) is not None:
                raise ProbeRefused(rule)
        if self.only and not any(_inside(meant[0], network) for network in self.only):
            raise ProbeRefused(ProbeRefusal.OUTSIDE_CIDRS)

    def _broken(self, address: Address) -> ProbeRefusal | None:
        v4 = isinstance(address, ipaddress.IPv4Address)
        rules = (
            (ProbeRefusal.METADATA, address in _METADATA),
            (ProbeRefusal.LOOPBACK, address.is_loopback),
            (ProbeRefusal.LINK_LOCAL, address.is_link_local),
            (ProbeRefusal.UNSPECIFIED, address.is_unspecified or _inside(address, _THIS_NETWORK)),
            (ProbeRefusal.MULTICAST, address.is_multicast or (v4 and address.is_reserved)),
            (ProbeRefusal.API_SERVER, address in self.api_server()),
        )
        return next((rule for rule, broken in rules if broken), None)


def _inside(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


class ApiServer:
    """Addresses of the API server: as the client knows it, and as pods of the cluster do."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = [host for host in dict.fromkeys((*hosts, _IN_CLUSTER)) if host]
        self._addresses: dict[str, frozenset[Address]] = {}
        self._names = Names(of_one=1)

    def addresses(self) -> frozenset[Address]:
        """The addresses of all names of the API server, as last resolved."""
        return frozenset().union(*self._addresses.values())

    async def refresh(self) -> None:
        """Resolve again. A name that does not resolve keeps its last addresses; out of a cluster one has none."""
        await asyncio.gather(*map(self._resolve, self._hosts))

    async def _resolve(self, host: str) -> None:
        try:
            async with asyncio.timeout(_RESOLVED_WITHIN_S):
                found = await self._names.look_up(host, 0, host)
        except (OSError, TimeoutError) as error:
            log.debug("a name of the API server does not resolve", extra={"fields": {"name": host, "error": type(error).__name__}})
        else:
            self._addresses[host] = frozenset(address_of(str(address[4][0])) for address in found)

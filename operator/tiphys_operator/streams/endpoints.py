"""Ready endpoints of Services, from their EndpointSlices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SLICES_PATH = "/apis/discovery.k8s.io/v1/endpointslices"
_SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Slice:
    """One EndpointSlice as plain data."""

    service: tuple[str, str]
    """The namespace and name of its Service."""
    family: str
    """The address type, IPv4, IPv6 or FQDN."""
    ready: tuple[str, ...]
    """Addresses, with port where the slice has exactly one."""


def slice_of(obj: dict[str, Any]) -> Slice:
    """A `Slice` made from the EndpointSlice as the API server sends it."""
    metadata = obj["metadata"]
    service = (metadata.get("labels") or {}).get(_SERVICE_LABEL, "")
    numbers = [port.get("port") for port in obj.get("ports") or ()]
    port = numbers[0] if len(numbers) == 1 else None
    family = obj["addressType"]
    # a condition that is not set counts as ready: the API says so
    ready = [e["addresses"][0] for e in obj.get("endpoints") or () if (e.get("conditions") or {}).get("ready") is not False]
    return Slice((metadata["namespace"], service), family, tuple(_with_port(address, family, port) for address in ready if address))


def ready_addresses(slices: Iterable[Slice]) -> tuple[str, ...]:
    """The ready addresses of one Service, sorted. Slices of two IP families show the same pods: those of the larger family count."""
    by_family: defaultdict[str, set[str]] = defaultdict(set)
    for found in slices:
        by_family[found.family].update(found.ready)
    largest: set[str] = set()
    for addresses in by_family.values():
        largest = max(largest, addresses, key=len)
    return tuple(sorted(largest))


class SliceSink:
    """What the watch on EndpointSlices shows."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._by_service: defaultdict[tuple[str, str], dict[str, Slice]] = defaultdict(dict)
        self._services: dict[str, tuple[str, str]] = {}

    def ready(self, namespace: str, service: str) -> tuple[str, ...]:
        """Addresses of a Service's ready endpoints."""
        return ready_addresses(self._by_service.get((namespace, service), {}).values())

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed; one that cannot be read counts as gone."""
        uid = obj["metadata"]["uid"]
        former, found = self._take(uid), None
        try:
            found = slice_of(obj)
            self._by_service[found.service][uid] = found
            self._services[uid] = found.service
        finally:
            if found is None or found != former:
                self._on_change()

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that the EndpointSlice was deleted."""
        self._take(obj["metadata"]["uid"])
        self._on_change()

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in [uid for uid in self._services if uid not in uids]:
            self._take(uid)
        self._on_change()

    def _take(self, uid: str) -> Slice | None:
        service = self._services.pop(uid, None)
        if service is None:
            return None
        former = self._by_service[service].pop(uid)
        if not self._by_service[service]:
            del self._by_service[service]
        return former


def _with_port(address: str, family: str, port: int | None) -> str:
    if port is None:
        return address
    return f"[{address}]:{port}" if family == "IPv6" else f"{address}:{port}"

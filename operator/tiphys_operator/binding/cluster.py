"""Objects of binding as the watches show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tiphys_operator.binding.quota import Wish
from tiphys_operator.binding.seen import PolicyObject, SiteObject, VariantObject, policy_object, site_object, variant_object

Seen = TypeVar("Seen", SiteObject, VariantObject, PolicyObject)


class Objects(Generic[Seen]):
    """A sink: all objects of one kind, by uid."""

    def __init__(self, read: Callable[[Mapping[str, Any]], Seen], on_change: Callable[[], None]) -> None:
        self._read: Callable[[Mapping[str, Any]], Seen] = read
        self._on_change = on_change
        self.by_uid: dict[str, Seen] = {}

    def all(self) -> tuple[Seen, ...]:
        """Those that are not being deleted."""
        return tuple(seen for seen in self.by_uid.values() if not seen.deleting)

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed, or written by us just now; our own statuses come back here too and are no news."""
        seen = self._read(obj)
        former = self.by_uid.get(seen.uid)
        if former is not None and _number(former.version) > _number(seen.version):
            return
        self.by_uid[seen.uid] = seen
        if former is None or (former.generation, former.deleting) != (seen.generation, seen.deleting):
            self._on_change()

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self.by_uid.pop(obj["metadata"]["uid"], None)
        self._on_change()

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in set(self.by_uid) - uids:
            del self.by_uid[uid]
        self._on_change()


class BindingCluster:
    """The three kinds."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.sites = Objects(site_object, on_change)
        self.variants = Objects(variant_object, on_change)
        self.policies = Objects(policy_object, on_change)

    def probes(self) -> list[Wish]:
        """What is to be probed."""
        asking = [(site, site.spec.probe) for site in self.sites.all() if site.spec is not None and site.spec.probe is not None]
        return [Wish(site.uid, site.namespace, (site.created, site.name), probe) for site, probe in asking]

    def needs_slices(self) -> bool:
        """Whether any variant is a Service of this cluster."""
        return any(v.spec is not None and v.spec.endpoint.service is not None for v in self.variants.all())

    def site(self, namespace: str, name: str) -> SiteObject | None:
        """The site of that name."""
        return next((site for site in self.sites.all() if (site.namespace, site.name) == (namespace, name)), None)

    def governing(self, namespace: str, access_site: str) -> PolicyObject | None:
        """The StreamPolicy that an access site obeys: the oldest, then the first by name."""
        found = [p for p in self.policies.all() if p.spec is not None and (p.namespace, p.spec.access_site) == (namespace, access_site)]
        return min(found, key=lambda p: (p.created, p.name), default=None)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0

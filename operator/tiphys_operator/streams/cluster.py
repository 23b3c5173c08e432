"""Objects of binding as the watches show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tiphys_operator.streams.quota import ProbeWish
from tiphys_operator.streams.seen import PolicyObject, SiteObject, VariantObject, policy_object, site_object, variant_object

Seen = TypeVar("Seen", SiteObject, VariantObject, PolicyObject)


class Objects(Generic[Seen]):
    """A sink: all objects of one kind, by uid."""

    def __init__(self, read: Callable[[Mapping[str, Any]], Seen], on_change: Callable[[], None]) -> None:
        self._read: Callable[[Mapping[str, Any]], Seen] = read
        self._on_change = on_change
        self.by_uid: dict[str, Seen] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def all(self) -> tuple[Seen, ...]:
        """All objects that are not being deleted."""
        return tuple(seen for seen in self.by_uid.values() if not seen.deleting)

    def named(self, namespace: str, name: str) -> Seen | None:
        """The one of that name, unless it is being deleted."""
        seen = self.by_uid.get(self._uids.get((namespace, name), ""))
        return seen if seen is not None and not seen.deleting else None

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed; our own statuses come back here too and are no news."""
        seen = self._read(obj)
        former = self.by_uid.get(seen.uid)
        if former is not None and _number(former.version) > _number(seen.version):
            return
        self.by_uid[seen.uid] = seen
        self._uids[seen.namespace, seen.name] = seen.uid
        if former is None or (former.generation, former.deleting) != (seen.generation, seen.deleting):
            self._on_change()

    def written(self, obj: dict[str, Any]) -> None:
        """What one of our own writes was answered with, unless the watch has told meanwhile that the object is gone."""
        if obj["metadata"]["uid"] in self.by_uid:
            self.put(obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that the object was deleted."""
        self._forget(obj["metadata"]["uid"])
        self._on_change()

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in set(self.by_uid) - uids:
            self._forget(uid)
        self._on_change()

    def _forget(self, uid: str) -> None:
        gone = self.by_uid.pop(uid, None)
        # another one of that name may have come before this one went
        if gone is not None and self._uids.get((gone.namespace, gone.name)) == uid:
            del self._uids[gone.namespace, gone.name]


class BindingCluster:
    """The sites, variants and stream policies of the cluster."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.sites = Objects(site_object, on_change)
        self.variants = Objects(variant_object, on_change)
        self.policies = Objects(policy_object, on_change)

    def probes(self) -> list[ProbeWish]:
        """What is to be probed."""
        asking = [(site, site.spec.probe) for site in self.sites.all() if site.spec is not None and site.spec.probe is not None]
        return [ProbeWish(site.uid, site.namespace, (site.created, site.name), probe) for site, probe in asking]

    def needs_slices(self) -> bool:
        """Whether any variant is a Service of this cluster."""
        return any(v.spec is not None and v.spec.endpoint.service is not None for v in self.variants.all())

    def site(self, namespace: str, name: str) -> SiteObject | None:
        """The site of that name."""
        return self.sites.named(namespace, name)

    def governing(self, namespace: str, access_site: str) -> PolicyObject | None:
        """The StreamPolicy that an access site obeys."""
        return self.governors().get((namespace, access_site))

    def governors(self) -> dict[tuple[str, str], PolicyObject]:
        """The StreamPolicy that each access site obeys, by namespace and site: the oldest, then the first by name."""
        found: dict[tuple[str, str], PolicyObject] = {}
        for policy in sorted(self.policies.all(), key=lambda p: (p.created, p.name)):
            if policy.spec is not None:
                found.setdefault((policy.namespace, policy.spec.access_site), policy)
        return found


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0

"""Objects of binding as the watches show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel

from tiphys_models.kube.kinds import INFERENCE_SITES, MODEL_VARIANTS, STREAM_POLICIES
from tiphys_models.kube.objects import Kind, Objects, ObjectSeen
from tiphys_operator.streams.quota import ProbeWish
from tiphys_operator.streams.seen import PolicyObject, SiteObject, VariantObject

Spec = TypeVar("Spec")
Status = TypeVar("Status", bound=BaseModel)


class BindingCluster:
    """The sites, variants and stream policies of the cluster."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called when somebody wants something else, and after each whole list."""
        self._on_change = on_change
        self.site_store = self._store(INFERENCE_SITES)
        self.variant_store = self._store(MODEL_VARIANTS)
        self.policy_store = self._store(STREAM_POLICIES)

    def sites(self) -> tuple[SiteObject, ...]:
        """Those that are not being deleted."""
        return _living(self.site_store)

    def variants(self) -> tuple[VariantObject, ...]:
        """Those that are not being deleted."""
        return _living(self.variant_store)

    def policies(self) -> tuple[PolicyObject, ...]:
        """Those that are not being deleted."""
        return _living(self.policy_store)

    def uids(self) -> set[str]:
        """All objects, also those that are being deleted."""
        return {seen.uid for store in (self.site_store, self.variant_store, self.policy_store) for seen in store}

    def probes(self) -> list[ProbeWish]:
        """What is to be probed."""
        asking = [(site, site.spec.probe) for site in self.sites() if site.spec is not None and site.spec.probe is not None]
        return [ProbeWish(site.uid, site.namespace, (site.created, site.name), probe) for site, probe in asking]

    def needs_slices(self) -> bool:
        """Whether any variant is a Service of this cluster."""
        return any(v.spec is not None and v.spec.endpoint.service is not None for v in self.variants())

    def site(self, namespace: str, name: str) -> SiteObject | None:
        """The site of that name, unless it is being deleted."""
        site = self.site_store.named(namespace, name)
        return site if site is not None and not site.deleting else None

    def governing(self, namespace: str, access_site: str) -> PolicyObject | None:
        """The StreamPolicy that an access site obeys."""
        return self.governors().get((namespace, access_site))

    def governors(self) -> dict[tuple[str, str], PolicyObject]:
        """The StreamPolicy that each access site obeys, by namespace and site: the oldest, then the first by name."""
        found: dict[tuple[str, str], PolicyObject] = {}
        for policy in sorted(self.policies(), key=lambda p: (p.created, p.name)):
            if policy.spec is not None:
                found.setdefault((policy.namespace, policy.spec.access_site), policy)
        return found

    def _store(self, kind: Kind[Spec, Status]) -> Objects[ObjectSeen[Spec, Status]]:
        return Objects(kind.read, self._changed, listed=self._on_change)

    def _changed(self, former: ObjectSeen[Any, Any] | None, now: ObjectSeen[Any, Any] | None) -> None:
        """Our own statuses come back through the watch, too, and are no news."""
        if former is None or now is None or (former.generation, former.deleting) != (now.generation, now.deleting):
            self._on_change()


def _living(store: Objects[ObjectSeen[Spec, Status]]) -> tuple[ObjectSeen[Spec, Status], ...]:
    return tuple(seen for seen in store if not seen.deleting)

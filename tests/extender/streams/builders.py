"""A stream binder but its sockets: two sites, some variants, keys, and a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from prometheus_client import CollectorRegistry

from tests.streams.small import DELAYS, NAMES, OFFERS
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Chooser, Obeyed, Weights
from tiphys_extender.streams.metrics import StreamMetrics
from tiphys_extender.streams.requests import Renewal, ReportedQueries, Wanted
from tiphys_extender.streams.tokens import Keys
from tiphys_models.api.catalogue import Catalogue
from tiphys_models.api.stream_policy import StreamPolicySpec
from tiphys_models.artifacts.files import directories
from tiphys_models.artifacts.shipped import names_of
from tiphys_models.artifacts.store import Store
from tiphys_models.base.clock import ManualClock

CAPACITY = dict(zip(NAMES, OFFERS.columns.capacity_qps.tolist(), strict=True))
KEYS = Keys.of([("k1", "s" * 40)])
PLATFORM = Tenant("platform", (), frozenset({"default"}))
OTHER = Tenant("other", (), frozenset({"default"}))
STRANGER = Tenant("stranger", (), frozenset({"elsewhere"}))
WANTED = {"task": "detect", "maxDelayMs": 200, "minAccuracy": 20, "rateQps": 10, "sizeKb": 40, "bitRateMbps": 100, "accessDelayMs": 1}


def shipped_models() -> Store:
    """A store with what ships and nothing else."""
    store = Store()
    store.take_shipped(directories(), names_of("streams"))
    return store


def refused(reason: str) -> Any:
    """Within it something is, for that reason."""
    return pytest.raises(Refused, check=lambda error: error.reason == reason)


def catalogue(*down: str) -> Catalogue:
    """The offers of `tests.streams.small`, but for these all up."""
    return Catalogue(OFFERS, OFFERS.network_ms(DELAYS), np.array([name not in down for name in NAMES]), {})


def spec(**changed: Any) -> StreamPolicySpec:
    """Active, whatever is free everywhere, leases of ten seconds."""
    plain = {"accessSite": "edge", "mode": "Active", "policy": "relative-load", "ceiling": 0.9, "recoveryCeiling": 0.7}
    return StreamPolicySpec.model_validate(plain | changed)


class Binder:
    """One process's life."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        *,
        recover: bool = False,
        promised: float | None = 0.9,
        keys: Keys = KEYS,
        site: str = "edge",
        **policy: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.registry = CollectorRegistry()
        self.streams = StreamBinder(
            site, "default", lambda: keys, Chooser(Weights(shipped_models()).load), StreamMetrics(self.registry), self.clock
        )
        self.streams.publish(catalogue())
        self.obey(**policy)
        self.streams.activate(lambda: True, recover=recover, promised=promised)

    def obey(self, **policy: Any) -> None:
        """A StreamPolicy with these changes."""
        self.streams.obey(Obeyed("p", 1, spec(**policy)))

    def bind(self, tenant: Tenant = PLATFORM, **changed: Any) -> dict[str, Any]:
        """The answer."""
        return self.streams.bind(tenant, parse(Wanted, orjson.dumps(WANTED | changed)))

    def fill(self, tenant: Tenant = PLATFORM, until: str = "no-capacity", **changed: Any) -> list[dict[str, Any]]:
        """Bind until nothing is left, or until this refusal."""
        bound = []
        while True:
            try:
                bound.append(self.bind(tenant, **changed))
            except Refused as refused:
                if refused.reason != until:
                    raise
                return bound

    def renew(self, bound: dict[str, Any], tenant: Tenant = PLATFORM, **said: Any) -> dict[str, Any]:
        """With the token of an answer."""
        return self.streams.renew(tenant, bound["id"], parse(Renewal, orjson.dumps({"lease": bound["lease"], **said})))

    def release(self, bound: dict[str, Any], tenant: Tenant = PLATFORM, **said: Any) -> dict[str, Any]:
        """Over."""
        return self.streams.release(tenant, bound["id"], parse(ReportedQueries, orjson.dumps(said)))

    @property
    def loads(self) -> dict[str, float]:
        """Bound load by offer, those without left out."""
        return self.streams.loads()["loads"]  # type: ignore[no-any-return]

    def counted(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        value = self.registry.get_sample_value(f"tiphys_binder_{name}", labels)
        assert value is not None, f"no such sample: {name} {labels}"
        return value

"""How many different functions a tenant names: each costs memory beside every node, whoever made the name up."""

from __future__ import annotations

import math
from collections import OrderedDict

from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant

FORGOTTEN_AFTER_S = 600.0


class FunctionNames:
    """Names by tenant in order of use. What was not used for a while makes room."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[str, float]] = {}

    def use(self, tenant: Tenant, function: str, now_s: float) -> None:
        """Refused if it is one too many."""
        names = self._of.setdefault(tenant.name, OrderedDict())
        _forget(names, now_s)
        if function not in names and len(names) >= tenant.caps.max_functions:
            wait_s = max(math.ceil(next(iter(names.values())) + FORGOTTEN_AFTER_S - now_s), 1)
            message = f"this tenant may name {tenant.caps.max_functions} functions within {FORGOTTEN_AFTER_S:g} s"
            raise Refused("too-many-functions", message, retry_after_s=wait_s)
        names[function] = now_s
        names.move_to_end(function)

    def renewed(self, tenant: str, function: str, now_s: float) -> None:
        """A call of it still runs."""
        names = self._of.get(tenant)
        if names is not None and function in names:
            names[function] = now_s
            names.move_to_end(function)

    def tick(self, now_s: float) -> None:
        """Time has passed; tenants that name nothing any more leave nothing behind."""
        for names in self._of.values():
            _forget(names, now_s)
        self._of = {tenant: names for tenant, names in self._of.items() if names}


def _forget(names: OrderedDict[str, float], now_s: float) -> None:
    while names and next(iter(names.values())) <= now_s - FORGOTTEN_AFTER_S:
        names.popitem(last=False)

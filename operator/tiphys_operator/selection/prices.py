"""What nodes cost and draw, keyed by instance type: the shipped table, and a file (of the chart) that adds to it or overrides it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.hosts import B2S, B4MS, B8MS, HostType
from tiphys_operator.cluster.live import LiveNode

SHIPPED: Mapping[str, HostType] = {kind.name: kind for kind in (B2S, B4MS, B8MS)}
_POINTS = 11
_IDLE_W, _CORE_W = 60.0, 10.0
"""Power of a type without a curve: about what the shipped curves come to."""


_Watts = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    usdPerHour: float = Field(ge=0, allow_inf_nan=False)  # noqa: N815 - as users write it
    powerWatts: tuple[_Watts, ...] | None = Field(default=None, min_length=_POINTS, max_length=_POINTS)  # noqa: N815


class PriceTable:
    """Price and power curve by instance type."""

    def __init__(self, lines: Mapping[str, tuple[float, tuple[float, ...] | None]] | None = None) -> None:
        self._lines = {name: (kind.usd_per_hour, kind.power_w) for name, kind in SHIPPED.items()} | dict(lines or {})
        self._usd_per_core = max((kind.usd_per_hour / kind.cores for kind in SHIPPED.values()), default=0.0)

    def knows(self, instance_type: str) -> bool:
        """Whether the table has a price for this instance type."""
        return instance_type in self._lines

    def host_types(self, nodes: Iterable[LiveNode]) -> dict[str, HostType]:
        """One type per instance type, as small as its smallest usable node; the third capacity is CPU requests in milli-cores.

        Types of which no node is usable are here too: what still runs on cordoned nodes is paid.
        """
        found: dict[str, HostType] = {}
        for node in sorted(nodes, key=lambda node: not node.usable):
            kind = self._host_type(node)
            known = found.get(kind.name)
            if known is None or node.usable:
                found[kind.name] = kind if known is None else _smaller(known, kind)
        return dict(sorted(found.items()))

    def _host_type(self, node: LiveNode) -> HostType:
        usd, curve = self._lines.get(node.instance_type, (node.cores * self._usd_per_core, None))
        power = curve or tuple(_IDLE_W + _CORE_W * node.cores * share / (_POINTS - 1) for share in range(_POINTS))
        latency_s = SHIPPED[node.instance_type].latency_s if node.instance_type in SHIPPED else 0.0
        return HostType(node.instance_type or "unknown", node.cores, node.ram_mib, node.cores * 1000, usd, power, latency_s)


def _smaller(a: HostType, b: HostType) -> HostType:
    return replace(a, cores=min(a.cores, b.cores), ram_mib=min(a.ram_mib, b.ram_mib), disk_mib=min(a.disk_mib, b.disk_mib))


def read_prices(path: Path | None) -> PriceTable:
    """A YAML or JSON table `TYPE: {usdPerHour: 0.1, powerWatts: [11 numbers at 0, 10, .. 100 % CPU]}`; without a file, the shipped one."""
    if path is None:
        return PriceTable()
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        lines = {str(name): _Line.model_validate(line) for name, line in raw.items()}
    except (OSError, yaml.YAMLError, AttributeError, ValidationError) as error:
        raise InvalidInput(f"the price table {path.name} cannot be read: {str(error)[:300]}") from error
    return PriceTable({name: (line.usdPerHour, line.powerWatts) for name, line in lines.items()})

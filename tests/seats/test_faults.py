from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from tests.foreign import brought
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.placement.registry import usable_rules
from tiphys_models.seats.faults import FaultCollector
from tiphys_operator.metrics import OperatorMetrics


def counted(registry: CollectorRegistry, service: str, kind: str) -> float | None:
    return registry.get_sample_value(f"tiphys_{service}_unusable_deciders", {"kind": kind})


def test_what_cannot_be_used_is_counted_from_the_moment_that_it_is_known() -> None:
    with brought(PLACEMENT, gone="acme.nowhere:Policy", hashing=f"{__name__}:test_nothing"):
        registry = CollectorRegistry()
        registry.register(FaultCollector("extender", (PLACEMENT,)))
        assert counted(registry, "extender", "placement-policy") == 1, "a name of ours is seen without importing anything"
        usable_rules()
        assert counted(registry, "extender", "placement-policy") == 2


def test_every_service_counts_the_kinds_that_it_asks_and_they_start_at_zero() -> None:
    binder, operator = BinderMetrics().registry, OperatorMetrics().registry
    assert counted(binder, "binder", "stream-policy") == 0
    for kind in ("planner", "selector", "scaling-agent", "placement-policy"):
        assert counted(operator, "operator", kind) == 0
    assert b"tiphys_operator_unusable_deciders" in generate_latest(operator)

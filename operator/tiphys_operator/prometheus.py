"""The Prometheus that selection and scaling ask, as the settings describe it."""

from __future__ import annotations

from tiphys_models.kube.prometheus import Asker, PrometheusClient, Provenance, QueryLimits
from tiphys_operator.settings import Settings

_PROMETHEUS_S = 2.0


def prometheus_of(settings: Settings) -> PrometheusClient:
    """A client that is not open yet."""
    return PrometheusClient(
        settings.prometheus_url,
        window_s=settings.scrape_window_s,
        node_label=settings.node_label,
        timeout_s=_PROMETHEUS_S,
        limits=QueryLimits(settings.answer_max_bytes, settings.answer_max_series),
        asker=Asker(
            settings.prometheus_headers,
            settings.prometheus_tenant_header,
            settings.prometheus_tenant,
            settings.prometheus_tenant_url,
        ),
        provenance=Provenance(node=settings.prometheus_node_matchers),
    )

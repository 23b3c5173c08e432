"""What the environment sets for binding, as the loop takes it."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.networks import networks_of
from tiphys_operator.settings import Settings
from tiphys_operator.streams.controller import BindingOptions
from tiphys_operator.streams.quota import ProbeQuota


def binding_options(settings: Settings, api_server_url: str, authority: TrustedAuthority) -> BindingOptions:
    """The API server is known by the URL that we use, and by the address that pods are given."""
    return BindingOptions(
        settings.access_site,
        settings.binder_urls,
        settings.sent_token_file,
        networks_of(settings.probe_allow),
        networks_of(settings.probe_cidrs),
        ProbeQuota(settings.probe_sites, settings.probe_rate, settings.probe_interval_s),
        (urlsplit(api_server_url).hostname or "", os.environ.get("KUBERNETES_SERVICE_HOST", "")),
        authority,
    )

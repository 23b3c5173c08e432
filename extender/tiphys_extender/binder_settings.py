"""What the binder alone is told, each as TIPHYS_BINDER_<NAME>; what it shares with the extender keeps the extender's variables."""

from __future__ import annotations

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tiphys_extender.serve.caps import CapDefaults, Caps
from tiphys_extender.settings import OptionalPath, wrong_variable
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.selector import LabelSelector, Requirement

PREFIX = "TIPHYS_BINDER_"


class BinderSettings(BaseSettings):
    """Settings of one binder process, beside those of `tiphys_extender.settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    tenants_file: OptionalPath = Field(default=None, description="JSON: who may call, with which token, for which namespaces. Needed.")
    pool: str = Field(
        default="tiphys.io/door=calls",
        pattern=r"^([^\s,=]+(=[^\s,=]*)?(,[^\s,=]+(=[^\s,=]*)?)*)?$",
        description="Labels of the nodes that calls are placed on, as key=value or key, with commas; empty: every node.",
    )
    lease_s: float = Field(default=60.0, ge=1, le=3600, description="A placement that is neither finished nor renewed counts so long.")
    max_open: int = Field(default=10_000, ge=1, le=1_000_000, description="Placements that may be open at once; 429 above.")
    max_replies_mib: int = Field(default=32, ge=1, le=1_024, description="Memory of answers kept for calls that are sent again.")

    tenant_max_open: int = Field(default=1_000, ge=1, le=1_000_000, description="Calls that one tenant may have open; 429 above.")
    tenant_max_streams: int = Field(default=1_000, ge=1, le=1_000_000, description="Streams that one tenant may have bound; 429 above.")
    tenant_share_percent: int = Field(
        default=50,
        ge=1,
        le=100,
        description="Share of the pool's cores, of its memory and of every site's capacity for one tenant, as soon as there are two.",
    )
    tenant_requests_per_second: int = Field(default=200, ge=1, le=100_000, description="Requests of one tenant, renewals of streams aside.")
    tenant_burst: int = Field(default=400, ge=1, le=1_000_000, description="Requests of one tenant that may come at once.")
    tenant_max_replies_mib: int = Field(default=8, ge=1, le=1_024, description="Of MAX_REPLIES_MIB, for one tenant.")
    tenant_max_functions: int = Field(
        default=500, ge=1, le=100_000, description="Different functions that one tenant may name within ten minutes; 429 above."
    )
    calls_lease: str = Field(
        default="",
        pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$",
        description="Lease in our own namespace: one binder of the pool places calls, the others answer 503. Empty: this one always does.",
    )

    access_site: str = Field(
        default="",
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        description="InferenceSite whose streams are bound here (docs/streams.md); empty: none are.",
    )
    streams_namespace: str = Field(
        default="", description="Namespace of the InferenceSites, ModelVariants and StreamPolicies; default: our own."
    )
    pod_uid: str = Field(default="", description="Of our pod: a container that is started again waits for nobody of the same pod.")
    lease_keys_file: OptionalPath = Field(default=None, description="JSON: keys that sign leases of streams. Needed with ACCESS_SITE.")
    stream_objects: OptionalPath = Field(
        default=None, description="JSON List of InferenceSites, ModelVariants and StreamPolicies, instead of an API server: for benchmarks."
    )
    other_binders: str = Field(
        default="", description="Status addresses of other access sites' binders, as http://HOST:PORT with commas: their load counts, too."
    )

    @property
    def cap_defaults(self) -> CapDefaults:
        """Bounds of the tenants of whom the tenants file says nothing else."""
        caps = Caps(
            max_open=self.tenant_max_open,
            max_streams=self.tenant_max_streams,
            requests_per_s=float(self.tenant_requests_per_second),
            burst=self.tenant_burst,
            replies_bytes=self.tenant_max_replies_mib * 2**20,
            max_functions=self.tenant_max_functions,
        )
        return CapDefaults(caps, self.tenant_share_percent / 100)

    @property
    def pool_selector(self) -> LabelSelector:
        """The pool's node selector as the library's `LabelSelector`."""
        parts = [part.partition("=") for part in self.pool.split(",") if part]
        return LabelSelector(
            tuple(Requirement(key, "In", frozenset({value})) if equals else Requirement(key, "Exists") for key, equals, value in parts)
        )


def read_binder_settings() -> BinderSettings:
    """Settings read from the environment; InvalidInput names the variable that is wrong."""
    try:
        settings = BinderSettings()
    except ValidationError as error:
        raise wrong_variable(error, PREFIX) from error
    if settings.tenants_file is None:
        raise InvalidInput(f"set {PREFIX}TENANTS_FILE: nobody may place calls without a token")
    if settings.access_site and settings.lease_keys_file is None:
        raise InvalidInput(f"set {PREFIX}LEASE_KEYS_FILE: leases of streams are signed")
    if settings.stream_objects is not None and not settings.access_site:
        raise InvalidInput(f"{PREFIX}STREAM_OBJECTS needs {PREFIX}ACCESS_SITE")
    return settings

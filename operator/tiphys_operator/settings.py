"""What the environment may set, each as TIPHYS_OPERATOR_<NAME>."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.prometheus_settings import HeaderName, Headers, Labels, OfNamespace
from tiphys_operator.networks import networks_of

PREFIX = "TIPHYS_OPERATOR_"


def _empty_is_none(value: Any) -> Any:
    return None if value == "" else value


def _names(value: Any) -> Any:
    return frozenset(name for name in (part.strip() for part in value.split(",")) if name) if isinstance(value, str) else value


def _cidrs(value: str) -> str:
    networks_of(value)
    return value


Cidrs = Annotated[str, AfterValidator(_cidrs)]
OptionalPath = Annotated[Path | None, BeforeValidator(_empty_is_none)]
Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Names = Annotated[frozenset[Namespace], NoDecode, BeforeValidator(_names)]
"""Namespaces separated by commas, instead of pydantic's JSON."""


class Settings(BaseSettings):
    """Settings of one operator process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    namespace: str = Field(default="tiphys-system", min_length=1, description="Namespace of this release: home of the Lease, never placed.")
    lease_name: str = Field(default="tiphys-operator", min_length=1, description="Lease that makes one operator the leader.")
    claim_namespace: str = Field(
        default="",
        description="Namespace of the Lease that one release of the cluster holds; empty: other releases are not looked for.",
    )
    claim_name: str = Field(default="tiphys-operator", min_length=1, description="Name of that Lease.")
    identity: str = Field(default_factory=socket.gethostname, min_length=1, description="Who holds the Lease: the name of the pod.")
    lease_duration_s: float = Field(default=15.0, gt=0, description="A candidate takes a Lease that has not changed for so long.")
    renew_s: float = Field(default=10.0, gt=0, description="A leader that could not renew for so long stops writing and ends.")
    retry_s: float = Field(default=2.0, gt=0, description="Time between two renewals.")
    scheduler_name: str = Field(default="tiphys", min_length=1, description="Pods that name it count as routed.")
    models_dir: OptionalPath = Field(default=None, description="Directory of NAME.json and NAME.safetensors.")
    extender_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s/,]+/?(,https?://[^\s/,]+/?)*)?$",
        description="Status listeners of extenders and binder, with commas; empty: not read.",
    )
    token_file: OptionalPath = Field(
        default=None,
        description="Bearer tokens for all purposes, one a line: what extenders and binders want, and what our transitions want.",
    )
    decisions_token_file: OptionalPath = Field(default=None, description="Bearer tokens that extenders and binders want, instead.")
    transitions_token_file: OptionalPath = Field(default=None, description="Bearer tokens accepted for scaling transitions, besides.")
    status_ca_file: OptionalPath = Field(default=None, description="CA of status listeners asked as https; unset: the system's.")
    status_tls_cert_file: OptionalPath = Field(default=None, description="Certificate of our status listener; unset: plain HTTP.")
    status_tls_key_file: OptionalPath = Field(default=None, description="Its key.")
    max_connections: int = Field(default=1_024, ge=8, le=65_536, description="Connections that the status listener keeps at once.")
    max_connections_per_peer: int = Field(default=64, ge=1, le=65_536, description="Of one address.")
    status_requests_per_second: float = Field(
        default=100.0, ge=0, le=1e6, description="Requests, and connections, of one address to the status listener; 0: no limit."
    )
    selection_configmap: str = Field(
        default="tiphys-selection",
        min_length=1,
        description="ConfigMap that keeps what selections have learned, in the release's namespace.",
    )
    prices_file: OptionalPath = Field(default=None, description="Prices and power curves by instance type, beside those that are shipped.")
    scaling: bool = Field(default=True, description="Whether ScalingPolicies are looked at.")
    scaling_namespaces: Names = Field(
        default=frozenset(), description="Namespaces in which workloads may be scaled, with commas; empty: all but those that never are."
    )
    scaling_excluded_namespaces: Names = Field(default=frozenset(), description="Namespaces in which nothing is scaled, with commas.")
    intent_keys_file: OptionalPath = Field(
        default=None,
        description="Keys that sign intents of ScalingPolicies; without them a successor decides anew what its predecessor intended.",
    )
    binding: bool = Field(default=True, description="Whether InferenceSites, ModelVariants and StreamPolicies are looked at.")
    access_site: str = Field(
        default="",
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        description="InferenceSite at which this operator stands: delays are measured from there. Empty: probes only tell who answers.",
    )
    binder_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s/,]+/?(,https?://[^\s/,]+/?)*)?$",
        description="Status listeners of binders of streams, with commas; empty: StreamPolicies hear of nobody.",
    )
    probe_allow: Cidrs = Field(
        default="", description="Networks, with commas, whose sites are probed though they are loopback, link-local or the API server's."
    )
    probe_cidrs: Cidrs = Field(default="", description="Networks, with commas, beside which no site is probed; empty: any.")
    probe_sites: int = Field(default=100, ge=1, le=10_000, description="Sites of one namespace that are probed: the oldest.")
    probe_rate: float = Field(default=50.0, gt=0, le=10_000, description="Probes a second of one namespace; above, all come more seldom.")
    probe_interval_s: float = Field(default=1.0, ge=1, le=300, description="Shortest time between two probes of a site.")
    knative: bool = Field(default=False, description="Whether instances of Knative's revisions are asked if they are idle.")
    knative_interval_s: float = Field(default=5.0, ge=1, le=60, description="Time between two such rounds.")
    prometheus_url: str = Field(
        default="", description="Nodes' CPU use for select (empty: what pods request counts), and requests for scaling (empty: it holds)."
    )
    prometheus_headers: Headers = Field(default_factory=dict, description="Headers of every query, as JSON.")
    prometheus_tenant_header: HeaderName = Field(default="", description="Header that tells the tenant of a ScalingPolicy; empty: none.")
    prometheus_tenant: OfNamespace = Field(default="{namespace}", description="Its value; {namespace} is the policy's.")
    prometheus_tenant_url: OfNamespace = Field(
        default="", description="Address that ScalingPolicies are measured at, instead; {namespace} is the policy's."
    )
    prometheus_node_matchers: Labels = Field(default_factory=dict, description="Labels that node-exporter's series must have, as JSON.")
    answer_max_bytes: int = Field(default=8 << 20, ge=1 << 16, le=1 << 30, description="Longest answer of Prometheus that is read.")
    answer_max_series: int = Field(default=20_000, ge=10, le=1_000_000, description="Most series in one.")
    scrape_window_s: int = Field(default=60, ge=1, le=3600, description="Window of rates.")
    node_label: str = Field(default="node", pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", description="Label that holds the node's name.")
    resync_s: float = Field(default=30.0, gt=0, description="Longest time between two reconciliations.")
    gates_enabled: bool = Field(default=False, description="Whether pods that are held longer than anybody may wait are let go.")
    gates_longest_wait_s: float = Field(default=10.0, gt=0, le=3600, description="So long the extender may hold a pod; we come 3 s later.")
    hints: bool = Field(default=False, description="Whether hints of SchedulingPolicies are written on pods.")
    hints_namespaces: Names = Field(default=frozenset(), description="Namespaces in which they may be, with commas; empty: all.")
    status_host: str = Field(default="0.0.0.0", description="Address of metrics and probes.")  # noqa: S104
    status_port: int = Field(default=8080, ge=0, le=65535, description="Port of metrics and probes; 0 takes a free one and logs it.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least severe line written.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        # with 1.2 = client-go's JitterFactor: a leader must be able to miss a renewal, and must stop before others may start
        if not self.lease_duration_s > self.renew_s > 1.2 * self.retry_s:
            raise ValueError("needs LEASE_DURATION_S > RENEW_S > 1.2 × RETRY_S")
        return self

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if (self.status_tls_cert_file is None) != (self.status_tls_key_file is None):
            raise ValueError("set both STATUS_TLS_CERT_FILE and STATUS_TLS_KEY_FILE, or neither")
        return self

    @property
    def sent_token_file(self) -> Path | None:
        """The file with the token that the operator sends to extenders and binders."""
        return self.decisions_token_file or self.token_file

    @property
    def binder_urls(self) -> tuple[str, ...]:
        """The addresses in `binder_url`, one by one."""
        return tuple(url.rstrip("/") for url in self.binder_url.split(",") if url)

    @property
    def dead_after_s(self) -> float:
        """Without a successful list for so long, a leader is dead."""
        return 3 * self.resync_s + 60.0


def read_settings() -> Settings:
    """The settings from environment variables; InvalidInput names the variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = "_".join(str(part) for part in problem["loc"]).upper().removeprefix(PREFIX)
        where = f"{PREFIX}{name}: " if name else ""
        raise InvalidInput(f"{where}{problem['msg'].removeprefix('Value error, ')}, got {problem['input']!r}") from error

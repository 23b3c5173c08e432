"""What the environment may set, each as TIPHYS_EXTENDER_<NAME>."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.prometheus_settings import Headers, Labels
from tiphys_models.placement.pod_cpu import POD_CPU_SERIES

PREFIX = "TIPHYS_EXTENDER_"


def _empty_is_none(value: Any) -> Any:
    return None if value == "" else value


OptionalPath = Annotated[Path | None, BeforeValidator(_empty_is_none)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseSettings):
    """Settings of one extender process."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address of the scheduler's listener.")
    port: Port = Field(default=8888, description="Port of the scheduler's listener; 0 takes a free one and logs it.")
    status_host: str = Field(default="0.0.0.0", description="Address of metrics, probes and the decision log.")  # noqa: S104
    status_port: Port = Field(default=8080, description="Port of metrics, probes and the decision log.")
    explain_port: Port = Field(default=8081, description="Port of explain, on 127.0.0.1 only: reached by port-forward.")
    max_connections: int = Field(default=1_024, ge=8, le=65_536, description="Connections that each listener keeps at once.")
    max_connections_per_peer: int = Field(
        default=64, ge=1, le=65_536, description="Of one address; loopback is not held to it on the scheduler's listener."
    )
    status_requests_per_second: float = Field(
        default=20.0, ge=0, le=1e6, description="Requests, and connections, of one address to the status listener; 0: no limit."
    )
    scheduler_name: str = Field(default="tiphys", description="Pods that name another scheduler get neutral answers.")
    own_namespace: str = Field(default="", description="Namespace of this release: its pods are never placed by Tiphys.")
    account_dir: OptionalPath = Field(
        default=None, description="Directory of token and ca.crt to log in to the API server with, instead of the pod's own account."
    )
    snapshot: OptionalPath = Field(default=None, description="Snapshot file to answer from, instead of an API server.")
    prometheus_url: str = Field(default="", description="Where node readings come from; empty: there are none.")
    prometheus_headers: Headers = Field(default_factory=dict, description="Headers of every query, as JSON.")
    prometheus_node_matchers: Labels = Field(default_factory=dict, description="Labels that node-exporter's series must have, as JSON.")
    prometheus_runtime_matchers: Labels = Field(
        default_factory=dict, description="Labels that function runtimes' series must have (idle instances, call profiles), as JSON."
    )
    prometheus_pod_cpu_series: str = Field(
        default=POD_CPU_SERIES,
        pattern=r"^([a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})?)?$",
        description="Series of containers' processor time, by namespace, pod and container; empty: it is not learned of pods.",
    )
    readings_file: OptionalPath = Field(
        default=None, description="Snapshot file whose readings count as fresh for ever, instead of Prometheus: for benchmarks."
    )
    scrape_window_s: int = Field(default=60, ge=1, le=3600, description="Window of rates; a model should be trained for it.")
    readings_interval_s: float = Field(default=5.0, gt=0, le=300, description="How often readings are taken.")
    node_label: str = Field(default="node", pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", description="Label that holds the node's name.")
    models_dir: OptionalPath = Field(default=None, description="Directory of NAME.json and NAME.safetensors.")
    deadline_ms: float = Field(default=20.0, gt=0, description="Budget of an answer; beyond it the answer is neutral.")
    max_body_bytes: int = Field(default=2_000_000, ge=1_000, description="Larger requests are refused with 413.")
    max_names: int = Field(default=6_000, ge=2, description="More candidates than that get a neutral answer.")
    expose_floor: bool = Field(default=False, description="Serve POST /floor, which benchmarks compare with.")
    token_file: OptionalPath = Field(
        default=None,
        description="Bearer tokens for all purposes, one a line; better one file a purpose. Without either those routes answer 403.",
    )
    decisions_token_file: OptionalPath = Field(default=None, description="Bearer tokens for decisions, models and summaries.")
    loads_token_file: OptionalPath = Field(default=None, description="Bearer tokens for loads, accepted of other binders and sent to them.")
    status_tls_cert_file: OptionalPath = Field(default=None, description="Certificate of the status listener; unset: plain HTTP.")
    status_tls_key_file: OptionalPath = Field(default=None, description="Its key.")
    status_ca_file: OptionalPath = Field(default=None, description="CA of other status listeners, asked as https; unset: the system's.")
    decision_log_dir: OptionalPath = Field(default=None, description="Where decisions survive a restart of the container.")
    decision_log_max: int = Field(default=20_000, ge=10, le=1_000_000, description="How many decisions are kept.")
    state_dir: OptionalPath = Field(
        default=None, description="Where what placement has learned survives a restart of the container; unset: it is learned anew."
    )
    switch_configmap: str = Field(default="tiphys-switch", description="ConfigMap in the own namespace; data.enabled=false stops Tiphys.")
    tls_cert_file: OptionalPath = Field(default=None, description="Certificate of the scheduler's listener; read again when it changes.")
    tls_key_file: OptionalPath = Field(default=None, description="Its key.")
    tls_client_ca_file: OptionalPath = Field(default=None, description="CA of the scheduler's client certificate, then required.")
    stall_limit_s: float = Field(default=2.0, gt=0, le=60, description="An event loop silent for longer ends the process.")
    reservation_ttl_s: float = Field(default=10.0, gt=0, le=600, description="How long a decided pod counts without being seen bound.")
    gates_enabled: bool = Field(default=False, description="Hold pods that may wait behind their scheduling gate, and take it off.")
    gates_longest_wait_s: float = Field(default=10.0, gt=0, le=60, description="How long a pod waits at the most.")
    max_functions: int = Field(
        default=2_000,
        ge=1,
        le=1_000_000,
        description="Functions without an unfinished pod that are remembered; the least recently used go.",
    )
    max_images: int = Field(
        default=20_000, ge=1, le=1_000_000, description="Names of images on nodes that are remembered; the least recently used go."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least severe line written.")


def read_settings() -> Settings:
    """Settings read from the environment; InvalidInput names the variable that is wrong."""
    try:
        settings = Settings()
    except ValidationError as error:
        raise wrong_variable(error, PREFIX) from error
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        raise InvalidInput(f"set both {PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE, or neither")
    if (settings.status_tls_cert_file is None) != (settings.status_tls_key_file is None):
        raise InvalidInput(f"set both {PREFIX}STATUS_TLS_CERT_FILE and {PREFIX}STATUS_TLS_KEY_FILE, or neither")
    if settings.tls_client_ca_file is not None and settings.tls_cert_file is None:
        raise InvalidInput(f"{PREFIX}TLS_CLIENT_CA_FILE needs {PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE")
    if settings.prometheus_url and settings.readings_file is not None:
        raise InvalidInput(f"set {PREFIX}PROMETHEUS_URL or {PREFIX}READINGS_FILE, not both")
    return settings


def wrong_variable(error: ValidationError, prefix: str) -> InvalidInput:
    """What is wrong with the first variable that is."""
    problem = error.errors(include_url=False)[0]
    name = "_".join(str(part) for part in problem["loc"]).upper()
    return InvalidInput(f"{prefix}{name.removeprefix(prefix)}: {problem['msg']}, got {problem['input']!r}")

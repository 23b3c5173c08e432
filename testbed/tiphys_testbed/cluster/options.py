"""What can be chosen about a local control plane and its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES
from tiphys_testbed.tools.toolbox import cache_directory

DECISIVE_WEIGHT = 121
"""One step of an extender's answer (10 × 121) then outvotes all default Score plugins together (1,200)."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """A local control plane. Two of different names can run side by side."""

    name: str = "default"
    kubernetes: str = DEFAULT_KUBERNETES
    """Kubernetes' minor version, `1.36` or `1.35`."""
    root: Path = field(default_factory=lambda: cache_directory() / "run")
    """The run directory is `root / name`."""
    kwok: bool = True
    """Simulate nodes with the label `type=kwok`."""
    default_scheduler: bool = True
    """Run a plain kube-scheduler for `default-scheduler`: also the control of every comparison."""
    keep: bool = False
    """Leave everything running when the starting program ends, until `tiphys cluster down`."""
    client_qps: int = 500
    """Requests a second of the controller-manager and of schedulers; Kubernetes' own 20 and 50 make bursts crawl."""
    client_burst: int = 1000
    node_monitor_grace_s: int = 50
    """Without a lease for this long a node is NotReady. Raise it for bare nodes, which renew no lease."""
    event_ttl_s: int = 900
    max_requests_inflight: int = 2000
    max_mutating_requests_inflight: int = 1000
    ready_deadline_s: float = 90.0
    stages: tuple[Path, ...] = ()
    """Further files of kwok stages: what simulated nodes and pods do by themselves."""
    apiserver_flags: tuple[str, ...] = ()
    """Further flags, such as `--feature-gates=…`."""

    @property
    def run_dir(self) -> Path:
        """Where certificates, logs, pid files and etcd's data lie."""
        return self.root / self.name


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of a further kube-scheduler."""

    name: str = "tiphys-scheduler"
    """Name of the process."""
    program: str = "kube-scheduler"
    """The tool that is started; another one than Kubernetes' own has further plugins."""
    scheduler_name: str = "tiphys"
    """What pods put into `spec.schedulerName`."""
    extender_url: str | None = None
    """`http://127.0.0.1:PORT`; the scheduler adds `/prioritize`. None: a plain scheduler."""
    weight: int = DECISIVE_WEIGHT
    http_timeout_s: float = 0.2
    percentage_of_nodes_to_score: int | None = None
    """None: Kubernetes' own adaptive sampling."""
    qps: int = 500
    burst: int = 1000
    lease: str | None = None
    """Name of a Lease to hold, in `lease_namespace`; needs a kubeconfig that may. None: no leader election."""
    lease_namespace: str = "kube-system"
    kubeconfig: Path | None = None
    """The credentials of the scheduler; None: those of `system:kube-scheduler`."""
    config_text: str | None = None
    """A ready KubeSchedulerConfiguration (as a chart renders it). Then only the kubeconfig is put into it, and
    `extender_url` if given; profiles, weights, time-outs and leader election stay as they are."""
    verbosity: int = 1
    flags: tuple[str, ...] = ()

    def render(self, kubeconfig: Path) -> str:
        """The KubeSchedulerConfiguration that this scheduler starts with."""
        if self.config_text is not None:
            return _adapt(self.config_text, kubeconfig, self.extender_url)
        election: dict[str, Any] = {"leaderElect": False}
        if self.lease is not None:
            election = {
                "leaderElect": True,
                "resourceName": self.lease,
                "resourceNamespace": self.lease_namespace,
                "leaseDuration": "15s",
                "renewDeadline": "10s",
                "retryPeriod": "2s",
            }
        config: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": election,
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": self.qps, "burst": self.burst},
            "enableProfiling": False,
            "profiles": [{"schedulerName": self.scheduler_name}],
        }
        if self.percentage_of_nodes_to_score is not None:
            config["percentageOfNodesToScore"] = self.percentage_of_nodes_to_score
        if self.extender_url is not None:
            config["extenders"] = [
                {
                    "urlPrefix": self.extender_url,
                    "prioritizeVerb": "prioritize",
                    "weight": self.weight,
                    "nodeCacheCapable": True,
                    "httpTimeout": f"{round(self.http_timeout_s * 1000)}ms",
                    "ignorable": True,
                }
            ]
        return yaml.safe_dump(config, sort_keys=False)


@dataclass(frozen=True, slots=True)
class ScrapeJob:
    """Something else that Prometheus reads."""

    name: str
    url: str
    """The address to scrape, `http(s)://host:port/path`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """One Prometheus on a loopback port."""

    node_urls: Mapping[str, str] = field(default_factory=dict)
    """Node name → URL of its metrics; the series carry the labels `node` and `instance`."""
    jobs: tuple[ScrapeJob, ...] = ()
    scrape_interval_s: float = 1.0
    retention: str = "2h"
    name: str = "prometheus"


def _adapt(text: str, kubeconfig: Path, extender_url: str | None) -> str:
    config = yaml.safe_load(text)
    if not isinstance(config, dict) or config.get("kind") != "KubeSchedulerConfiguration":
        raise ClusterError("config_text is not a KubeSchedulerConfiguration")
    config.setdefault("clientConnection", {})["kubeconfig"] = str(kubeconfig)
    if extender_url is not None:
        if not config.get("extenders"):
            raise ClusterError("extender_url was given, but the configuration has no extender to point there")
        for extender in config["extenders"]:
            extender["urlPrefix"] = extender_url
    return yaml.safe_dump(config, sort_keys=False)

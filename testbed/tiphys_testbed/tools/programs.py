"""Which programs there are, and how each is built: pure data and the cache key made from it."""

import hashlib
import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tiphys_models.base.errors import TiphysError
from tiphys_testbed.tools.substitutions import MODEL_TIME, Substitution, karpenter_timers

KUBERNETES_TAGS = "selinux,notest,grpcnotrace"  # upstream's own, kubernetes hack/lib/golang.sh
# One date for every build: a stamp that changes would make two equal builds differ.
BUILD_DATE = "2026-01-01T00:00:00Z"

DEFAULT_KUBERNETES = "1.36"


class ToolError(TiphysError):
    """A program cannot be found or built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """One directory with go.mod and go.sum; all its programs are built with the same tags and stamps."""

    directory: str
    """Beside this file, or absolute."""
    dependency: str
    """The Go module whose version is the programs' version."""
    tags: str = ""
    kubernetes_minor: str = ""
    """`1.36` for a Kubernetes module, else empty."""
    substitutions: tuple[Substitution, ...] = ()
    """Pieces of the dependency's source that are built otherwise than upstream wrote them."""

    @property
    def path(self) -> Path:
        """The module's directory in the repository."""
        return Path(str(files("tiphys_testbed.tools"))) / self.directory

    def go_mod(self) -> str:
        """The text of go.mod."""
        return (self.path / "go.mod").read_text(encoding="utf-8")

    @property
    def version(self) -> str:
        """The version of the programs as go.mod requires it, such as `v1.36.3`."""
        return required_version(self.go_mod(), self.dependency)

    @property
    def minimum_go(self) -> tuple[int, int, int]:
        """The oldest Go that may build this module."""
        match = re.search(r"^go (\S+)$", self.go_mod(), re.MULTILINE)
        if match is None:
            raise ToolError(f"{self.path / 'go.mod'} has no `go` line")
        return parse_go_version(match.group(1))


@dataclass(frozen=True, slots=True)
class Program:
    """One program that is built from source."""

    name: str
    """What users write: `kube-apiserver`, `helm3`, `kubectl@1.35`."""
    module: Module
    package: str
    on_demand: bool = False
    """Left out of `tiphys tools build` without names."""

    @property
    def executable(self) -> str:
        """The file name: the name without the version."""
        return self.name.partition("@")[0]

    @property
    def ldflags(self) -> str:
        """Linker flags: stripped, and stamped with the version."""
        return linker_flags(self.module)


_KUBERNETES = {
    "kube-apiserver": False,
    "kube-controller-manager": False,
    "kube-scheduler": False,
    "kubectl": False,
    "kubelet": True,
    "kubeadm": True,
    "kube-proxy": True,
}
_EXPORTER = "github.com/prometheus/node_exporter"
_STATE = "k8s.io/kube-state-metrics/v2"
_METRICS = "sigs.k8s.io/metrics-server"
_KNATIVE = "knative.dev/serving"
_VPA = "k8s.io/autoscaler/vertical-pod-autoscaler"
_PLUGINS = "sigs.k8s.io/scheduler-plugins"
_KARPENTER = "sigs.k8s.io/karpenter"
KARPENTER = "karpenter-kwok"
KARPENTER_MODEL_TIME = f"{KARPENTER}@x{MODEL_TIME}"
VPA_PARTS = ("recommender", "updater", "admission-controller")
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def programs() -> dict[str, Program]:
    """Every program by name, in the order a reader expects."""
    current = Module("kubernetes", "k8s.io/kubernetes", KUBERNETES_TAGS, DEFAULT_KUBERNETES)
    previous = Module("kubernetes-1.35", "k8s.io/kubernetes", KUBERNETES_TAGS, "1.35")
    # Without the tag Prometheus links every cloud's SDK: more than 10 minutes and 3 GB for one compile.
    prometheus = Module("prometheus", "github.com/prometheus/prometheus", "remove_all_sd")
    # On real nodes pods come and go, and only the API server knows them.
    discovering = Module("prometheus", "github.com/prometheus/prometheus", "remove_all_sd,enable_kubernetes_sd")
    karpenter = Module(KARPENTER, _KARPENTER)
    hastened = Module(KARPENTER, _KARPENTER, substitutions=karpenter_timers(MODEL_TIME))
    vpa = Module("vertical-pod-autoscaler", _VPA)
    found = [
        Program("etcd", Module("etcd", "go.etcd.io/etcd/server/v3"), "go.etcd.io/etcd/server/v3"),
        *(Program(name, current, f"k8s.io/kubernetes/cmd/{name}", late) for name, late in _KUBERNETES.items()),
        Program("kwok", Module("kwok", "sigs.k8s.io/kwok"), "sigs.k8s.io/kwok/cmd/kwok"),
        Program("helm", Module("helm", "helm.sh/helm/v4"), "helm.sh/helm/v4/cmd/helm"),
        Program("prometheus", prometheus, "github.com/prometheus/prometheus/cmd/prometheus"),
        Program("promtool", prometheus, "github.com/prometheus/prometheus/cmd/promtool"),
        Program("prometheus@kubernetes", discovering, "github.com/prometheus/prometheus/cmd/prometheus", on_demand=True),
        Program("kind", Module("kind", "sigs.k8s.io/kind"), "sigs.k8s.io/kind", on_demand=True),
        Program("coredns", Module("coredns", "github.com/coredns/coredns"), "github.com/coredns/coredns", on_demand=True),
        Program("node_exporter", Module("node-exporter", _EXPORTER), _EXPORTER, on_demand=True),
        Program("kube-state-metrics", Module("kube-state-metrics", _STATE), _STATE, on_demand=True),
        Program("metrics-server", Module("metrics-server", _METRICS), f"{_METRICS}/cmd/metrics-server", on_demand=True),
        Program("scheduler-plugins", Module("scheduler-plugins", _PLUGINS), f"{_PLUGINS}/cmd/scheduler", on_demand=True),
        # The proxy that Knative puts beside each instance of a function: what it says of the instance is what our recording rules read.
        Program("knative-queue", Module("knative", _KNATIVE), f"{_KNATIVE}/cmd/queue", on_demand=True),
        *(Program(f"vpa-{part}", vpa, f"{_VPA}/pkg/{part}", on_demand=True) for part in VPA_PARTS),
        Program(KARPENTER, karpenter, f"{_KARPENTER}/kwok", on_demand=True),
        Program(KARPENTER_MODEL_TIME, hastened, f"{_KARPENTER}/kwok", on_demand=True),
        Program("helm3", Module("helm3", "helm.sh/helm/v3"), "helm.sh/helm/v3/cmd/helm", on_demand=True),
        *(Program(f"{name}@1.35", previous, f"k8s.io/kubernetes/cmd/{name}", on_demand=True) for name in _KUBERNETES),
    ]
    return {program.name: program for program in found}


def linker_flags(module: Module) -> str:
    """The flags of one module: every program of it gets the same, so that one `go build` makes them all."""
    flags = ["-s", "-w"]
    version = module.version
    if module.kubernetes_minor:
        # Unstamped, `kubectl version` fails and Helm refuses every chart that names a kubeVersion.
        major, minor = module.kubernetes_minor.split(".")
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            stamps = {
                "gitVersion": version,
                "gitMajor": major,
                "gitMinor": minor,
                "gitTreeState": "clean",
                "buildDate": BUILD_DATE,
            }
            flags += [f"-X {package}.{key}={value}" for key, value in stamps.items()]
    elif module.directory == "helm3":
        # Else `helm template` renders for Kubernetes 1.20.
        client = required_version(module.go_mod(), "k8s.io/client-go")
        minor = client.split(".")[1]
        flags += [
            f"-X helm.sh/helm/v3/internal/version.version={version}",
            "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
            f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={minor}",
        ]
    elif module.directory == "helm":
        flags += [f"-X helm.sh/helm/v4/internal/version.version={version}"]
    elif module.directory == "metrics-server":
        flags += [f"-X k8s.io/client-go/pkg/version.gitVersion={version}"]
    elif module.directory == "karpenter-kwok":
        flags += [f"-X sigs.k8s.io/karpenter/pkg/operator.Version={version.removeprefix('v')}"]
    elif module.directory == "kwok":
        flags += [f"-X sigs.k8s.io/kwok/pkg/consts.Version={version}"]
    elif module.directory == "prometheus":
        # The module's tag v0.3NN.y is release 3.NN.y.
        _, minor, patch = version.removeprefix("v").split(".")
        release = f"3.{int(minor) - 300}.{patch}"
        flags += [f"-X github.com/prometheus/common/version.Version={release}"]
    return " ".join(flags)


def cache_key(program: Program, go_version: str, platform: str) -> str:
    """Sixteen hex digits of everything that decides the binary."""
    parts = [
        program.module.go_mod(),
        (program.module.path / "go.sum").read_text(encoding="utf-8"),
        program.package,
        go_version,
        program.module.tags,
        program.ldflags,
        platform,
        "CGO_ENABLED=0 -trimpath",
    ]
    if program.module.substitutions:
        parts += [text for piece in program.module.substitutions for text in (piece.file, piece.former, piece.now)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def required_version(go_mod: str, dependency: str) -> str:
    """The version that go.mod requires of a module."""
    match = re.search(rf"^\s*(?:require )?{re.escape(dependency)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise ToolError(f"go.mod does not require {dependency}")
    return match.group(1)


def parse_go_version(text: str) -> tuple[int, int, int]:
    """`go1.26.8` or `1.26` as three numbers; release candidates count as their release."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise ToolError(f"{text!r} is not a Go version")
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)

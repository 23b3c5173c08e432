"""What kind runs its nodes on: Docker, or podman in namespaces of our own."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster import host
from tiphys_testbed.cluster.runs import Run
from tiphys_testbed.kind import nodeimage, packages
from tiphys_testbed.kind.sandbox import NODES, Sandbox
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES
from tiphys_testbed.tools.toolbox import Toolbox

_COMMAND_DEADLINE_S = 60.0
_KUBELET = "kind: KubeletConfiguration\nfailCgroupV1: false\ncgroupDriver: cgroupfs\n"
"""The kubelet refuses cgroup v1 by default; the driver has to be that of node/containerd.toml."""


class EngineMissingError(ClusterError):
    """This machine has nothing that nodes could run on."""


class Engine(Protocol):
    """Where node containers run."""

    name: str

    def prepare(self, toolbox: Toolbox, run: Run, name: str) -> None:
        """Have whatever `kind create cluster` needs, and note in the run how a cluster of that name is deleted."""

    def attach(self, run: Run) -> None:
        """Work with the cluster of that run."""

    def node_image(self) -> str | None:
        """What to pass as `--image`; None: kind's own."""

    def adapted(self, config: dict[str, Any]) -> dict[str, Any]:
        """A cluster configuration with what this engine needs beyond the user's."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command as it has to be started."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables to add for it."""

    def address(self, node: str) -> str | None:
        """Where the host reaches the node's ports; None: where the kubeconfig says."""

    def route(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Make pods of different nodes reach each other, where the cluster's network does not."""


def choose() -> Engine:
    """Docker if its engine answers, else podman."""
    if docker_answers():
        return Docker()
    if platform.system() != "Linux":
        raise EngineMissingError("no Docker engine answers, and nodes on podman need Linux")
    if os.geteuid() != 0:
        raise EngineMissingError("no Docker engine answers, and nodes on podman need root")
    return Podman()


def docker_answers() -> bool:
    """Whether there is a Docker engine behind the `docker` command."""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=_COMMAND_DEADLINE_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class Docker:
    """The machine's Docker engine, with the node images that kind publishes."""

    name = "docker"
    environment: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._image: str | None = None

    def prepare(self, toolbox: Toolbox, run: Run, name: str) -> None:
        """Nothing but a name: kind pulls the image."""
        host.note(run.path, command=[str(toolbox.path("kind")), "delete", "cluster", "--name", name])
        if toolbox.kubernetes != DEFAULT_KUBERNETES:
            self._image = f"kindest/node:{toolbox.program('kubelet').module.version}"

    def attach(self, run: Run) -> None:
        """The engine is the machine's."""

    def node_image(self) -> str | None:
        """kind's own, or the one it publishes for another Kubernetes version."""
        return self._image

    def adapted(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration unchanged: Docker needs nothing beyond the user's."""
        return config

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command unchanged: Docker's needs no wrapper."""
        return list(argv)

    def address(self, node: str) -> str | None:
        """Docker publishes the API server's port on loopback."""
        return None

    def route(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """kind's own network does that."""


class Podman:
    """podman, with its state, network and processes in namespaces that end with the run."""

    name = "podman"

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._image: str | None = None

    def prepare(self, toolbox: Toolbox, run: Run, name: str) -> None:
        """Packages, node image, namespaces and the nodes' network."""
        absent = packages.missing()
        if absent:
            raise EngineMissingError(f"no Docker engine answers; for podman install: {' '.join(packages.install_command(absent))}")
        image = nodeimage.ensure(toolbox)
        self._image = image.name
        self._sandbox = Sandbox.start(run, image.store, sys.executable)
        # kind takes the network of this name if there is one; its own would get an address range that the host may use.
        self.run(["podman", "network", "create", "--subnet", NODES, "kind"])

    def attach(self, run: Run) -> None:
        """The namespaces of that run are used from now on."""
        self._sandbox = Sandbox.attach(run)

    def node_image(self) -> str | None:
        """The one made here."""
        return self._image

    def adapted(self, config: dict[str, Any]) -> dict[str, Any]:
        """The node image has a bridge of its own instead of kind's network, which only comes as an image."""
        networking = {**config.get("networking", {}), "disableDefaultCNI": True, "kubeProxyMode": "nftables"}
        return {**config, "networking": networking, "kubeadmConfigPatches": [*config.get("kubeadmConfigPatches", []), _KUBELET]}

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command, started inside the namespaces."""
        return self._inside().command(argv)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that point podman to its configuration files."""
        return self._inside().environment

    def address(self, node: str) -> str | None:
        """The node's own address, to which the host has a route."""
        template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self.run(["podman", "inspect", "--format", template, node]).strip()

    def route(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Every node gets a route to every other node's pods."""
        ranges = {node["metadata"]["name"]: node["spec"]["podCIDR"] for node in nodes}
        addresses = {name: self.address(name) for name in ranges}
        for name in ranges:
            others = [f"ip route replace {ranges[other]} via {addresses[other]}" for other in ranges if other != name]
            if others:
                self.run(["podman", "exec", name, "sh", "-ec", "\n".join(others)])

    def run(self, argv: Sequence[str]) -> str:
        """Run a command inside the namespaces; what it prints."""
        answer = subprocess.run(
            self.command(argv), env=os.environ | self.environment, capture_output=True, text=True, timeout=_COMMAND_DEADLINE_S, check=False
        )
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(argv)} failed: {answer.stderr.strip()}")
        return answer.stdout

    def _inside(self) -> Sandbox:
        if self._sandbox is None:
            raise ClusterError("the kind cluster is not started")
        return self._sandbox

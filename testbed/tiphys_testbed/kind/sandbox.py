"""Namespaces for a kind cluster on podman: one process holds them, and its end is the end of all nodes, mounts and links."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster import host
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.runs import Run
from tiphys_testbed.kind.holder import READY

NODES = "10.229.0.0/24"
"""Addresses of the nodes; the only ones that the host has a route to."""
_LINK = "tiphys-kind"
_HOST, _INSIDE = "10.229.255.1", "10.229.255.2"
_START_S = 20.0
_CONTAINERS = """\
[containers]
# Without CAP_SYS_RESOURCE podman's own limits are refused.
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
[engine]
# runc and cgroupfs: crun refuses the hybrid hierarchy, and there may be no systemd.
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{directory}/networks"
"""
_STORAGE = """\
[storage]
driver = "overlay"
runroot = "/run/podman"
graphroot = "{directory}/storage"
[storage.options]
additionalimagestores = ["{images}"]
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The namespaces (mounts, network, processes) of one cluster, and podman's private state."""

    pid: int
    directory: Path

    @classmethod
    def start(cls, run: Run, images: Path, python: str) -> "Sandbox":
        """New namespaces. `run.remove()` undoes everything, whichever process calls it."""
        # The kernel's own list of modules is mounted into nodes; it may be empty, and missing on small machines.
        host.note(run.path, sysctls=True, directories=[Path("/lib/modules")], cgroups=["libpod_parent"])
        directory = run.path / "podman"
        (directory / "networks").mkdir(parents=True)
        (directory / "containers.conf").write_text(_CONTAINERS.format(directory=directory), encoding="utf-8")
        (directory / "storage.conf").write_text(_STORAGE.format(directory=directory, images=images), encoding="utf-8")
        unshare = shutil.which("unshare") or "unshare"
        command = [unshare, "--fork", "--kill-child", "--pid", "--mount", "--net", "--mount-proc"]
        process = ProcessTable(run.path).start("sandbox", [*command, python, "-m", "tiphys_testbed.kind.holder", str(directory)])
        end = time.monotonic() + _START_S
        while not (directory / READY).exists():
            if not process.alive() or time.monotonic() > end:
                raise ClusterError(f"cannot make namespaces for the nodes:\n{process.log_tail()}")
            time.sleep(0.02)
        sandbox = cls.attach(run)
        sandbox._connect()
        return sandbox

    @classmethod
    def attach(cls, run: Run) -> "Sandbox":
        """The namespaces of a cluster that runs already."""
        process = ProcessTable(run.path).get("sandbox")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        if not children:
            raise ClusterError(f"the nodes of {run.path} are gone")
        return cls(int(children[0]), run.path / "podman")

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run inside. Paths must be absolute: it starts in the root directory."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--", *argv]

    @property
    def environment(self) -> dict[str, str]:
        """Where podman finds its configuration."""
        return {
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
            "KIND_EXPERIMENTAL_PROVIDER": "podman",
        }

    def _connect(self) -> None:
        """A link between host and sandbox, and the route to the nodes; it ends with the namespace."""
        for command in (
            ["ip", "link", "add", _LINK, "type", "veth", "peer", "name", "host", "netns", str(self.pid)],
            ["ip", "address", "add", f"{_HOST}/30", "dev", _LINK],
            ["ip", "link", "set", _LINK, "up"],
            self.command(["ip", "address", "add", f"{_INSIDE}/30", "dev", "host"]),
            self.command(["ip", "link", "set", "host", "up"]),
            ["ip", "route", "add", NODES, "via", _INSIDE],
        ):
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=os.environ)
            if answer.returncode != 0:
                raise ClusterError(f"{' '.join(command)}: {answer.stderr.strip()} (does another kind cluster of ours run?)")

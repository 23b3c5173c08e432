"""Debian packages that the kind path needs on a machine without Docker."""

import os
import shutil
import subprocess

from tiphys_cli.kube.errors import ClusterError

PROGRAMS = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
}
"""Program → package that holds it."""
_ALSO = ("netavark", "aardvark-dns")  # podman's network and its names; neither is on PATH
INSTALL_DEADLINE_S = 600.0


def missing() -> list[str]:
    """Packages that are not installed."""
    absent = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return absent + [name for name in _ALSO if not os.access(f"/usr/lib/podman/{name}", os.X_OK)]


def install_command(packages: list[str]) -> list[str]:
    """The command that installs the packages."""
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def install() -> list[str]:
    """Install what is missing; the packages that were. Services of packages are not started."""
    packages = missing()
    if not packages:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"missing: {', '.join(packages)}; as root on Debian: {' '.join(install_command(packages))}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["apt-get", "update", "-q"], install_command(packages)):
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
        )
        if answer.returncode != 0 and command[1] == "install":
            raise ClusterError(f"{' '.join(command)} failed:\n{answer.stderr.strip()}")
    return packages

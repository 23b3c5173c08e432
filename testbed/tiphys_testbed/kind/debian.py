"""Root file systems of Debian, made by debootstrap: what node and base images start from where there is no registry."""

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tiphys_cli.kube.errors import ClusterError

SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
BUILD_DEADLINE_S = 1800.0


def mirror() -> str:
    """The mirror that this machine's apt uses for the suite, else Debian's own."""
    if shutil.which("apt-get") is None:
        return _MIRROR
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    listed = [line.split()[0] for line in answer.stdout.splitlines() if line.split()[1:] == [SUITE]]
    return listed[0] if listed else _MIRROR


def run_apart(argv: Sequence[str], what: str) -> None:
    """Run a program in mount and process namespaces of its own: mounts and helpers it leaves end with it."""
    if platform.system() != "Linux":
        raise ClusterError(f"{what}: needs Linux")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *argv]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=BUILD_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{what} did not end within {BUILD_DEADLINE_S:.0f} s") from None
    if answer.returncode != 0:
        tail = "\n".join(answer.stderr.decode(errors="replace").splitlines()[-25:])
        raise ClusterError(f"{what} failed:\n{tail}")


def store_image(tree: Path, command: Sequence[str], what: str) -> None:
    """Hand a root file system to `podman import`."""
    run_apart(["bash", "-o", "pipefail", "-c", 'tar --numeric-owner -C "$0" -cf - . | "$@"', str(tree), *command], what)

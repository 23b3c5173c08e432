"""The project's own images, built from its Dockerfile: by Docker, or by buildah on a Debian base where there is no registry."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.kind.debian import BUILD_DEADLINE_S, SUITE, mirror, run_apart, store_image
from tiphys_testbed.kind.engines import docker_answers
from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.toolbox import Toolbox

SERVICES = ("operator", "extender")
"""What a release needs; `trainer` is built when asked for."""
_REPOSITORY = "ghcr.io/tiphys-io/tiphys-{}"
_SOURCES = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "requirements",
    "operator",
    "extender",
    "models",
    "cli",
)
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_CONFIG = Path("/etc/pip.conf")
# python and venv under the names that the Dockerfile knows them by; $0 is the tree, $1 the suite, $2 the mirror.
_BASE = """
set -euo pipefail
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$1" "$0" "$2" >&2
ln -s python3 "$0/usr/bin/python"
chroot "$0" apt-get clean
rm -rf "$0"/var/lib/apt/lists/* "$0"/var/cache/debconf/* "$0"/var/log/* "$0"/usr/share/{doc,man,locale}/*
"""


@dataclass(frozen=True, slots=True)
class ProjectImage:
    """One image of the project, as an archive that every engine and containerd loads."""

    name: str
    """The image's name as the Helm chart refers to it."""
    archive: Path

    @property
    def size_mib(self) -> float:
        """The size of the archive, whose layers are not compressed."""
        return self.archive.stat().st_size / 2**20


def name_of(target: str, source: Path) -> str:
    """The name by which the chart of these sources asks for the image."""
    chart = yaml.safe_load((source / "helm" / "tiphys" / "Chart.yaml").read_text(encoding="utf-8"))
    return f"{_REPOSITORY.format(target)}:{chart['appVersion']}"


def build(toolbox: Toolbox, source: Path, targets: Sequence[str] = SERVICES) -> list[ProjectImage]:
    """Images of these targets of the Dockerfile; built unless the sources are those of the archive that is there."""
    engine = "docker" if docker_answers() else "buildah"
    home = toolbox.cache_dir / "kind" / "images"
    home.mkdir(parents=True, exist_ok=True)
    key = content_key(source, engine)
    made = []
    with exclusive(home / ".lock", lambda: None):
        for target in targets:
            image = ProjectImage(name_of(target, source), home / f"{target}-{key}.tar")
            with toolbox.progress.step(f"image {image.name} with {engine}"):
                if not image.archive.exists():
                    for old in home.glob(f"{target}-*.tar"):
                        old.unlink()
                    with tempfile.TemporaryDirectory(prefix=".build-", dir=home) as scratch:
                        new = Path(scratch) / "image.tar"
                        (_docker if engine == "docker" else _buildah)(source, target, image.name, new, home.parent)
                        new.rename(image.archive)
            made.append(image)
    return made


def _docker(source: Path, target: str, name: str, archive: Path, _home: Path) -> None:
    for command in (["docker", "build", "--target", target, "--tag", name, "."], ["docker", "save", "--output", str(archive), name]):
        answer = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(command)} failed:\n{answer.stderr[-3000:]}")


def _buildah(source: Path, target: str, name: str, archive: Path, home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tiphys-") as state:  # podman takes no runroot of more than 50 characters
        storage = ["--root", str(home / "buildah"), "--runroot", state, "--storage-driver", "overlay"]
        base = _base_image(storage, home / f"{SUITE}.made", archive.parent / "base")
        # Isolation by chroot needs no cgroups and no capability that a container may lack. pip gets what the host trusts.
        trusted = [(Path(os.environ.get("SSL_CERT_FILE", _CA_BUNDLE)), _CA_BUNDLE), (_PIP_CONFIG, _PIP_CONFIG)]
        volumes = [f"--volume={here}:{there}:ro" for here, there in trusted if here.exists()]
        options = ["--pull-never", "--isolation=chroot", "--ulimit=nofile=1024:1024", "--layers", f"--build-arg=PYTHON={base}", *volumes]
        run_apart(["buildah", *storage, "build", *options, "--target", target, "--tag", name, str(source)], f"building {name}")
        run_apart(["buildah", *storage, "push", name, f"docker-archive:{archive}:{name}"], f"writing {archive.name}")


def _base_image(storage: Sequence[str], made: Path, tree: Path) -> str:
    """A Debian root with Python in the store, made once."""
    name = f"localhost/tiphys/python:{SUITE}"
    if not made.exists():
        run_apart(["bash", "-c", _BASE, str(tree), SUITE, mirror()], "making the base image")
        store_image(tree, ["podman", *storage, "import", "-", name], "storing the base image")
        made.touch()
    return name


def content_key(source: Path, engine: str) -> str:
    """Sixteen hex digits of what the build reads."""
    digest = hashlib.sha256(f"{engine} {_BASE}".encode())
    for name in _SOURCES:
        start = source / name
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(source)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

"""Container images without an engine: one layer of given files, written as an archive that Docker, podman and containerd load."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_testbed.tools.golang import host_platform


@dataclass(frozen=True, slots=True)
class Layer:
    """What an image made from nothing holds, and what it runs."""

    files: Mapping[str, Path]
    """Path in the image → file here; all become executable and root's."""
    entrypoint: Sequence[str] = ()


def write_image(archive: Path, names: Sequence[str], layer: Layer) -> None:
    """Write the image under these names. The same files give the same archive."""
    content = _layer_tar(layer)
    digest = hashlib.sha256(content).hexdigest()
    system, architecture = host_platform().split("/")
    config = {
        "architecture": architecture,
        "os": system,
        "config": {"Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Entrypoint": list(layer.entrypoint) or None},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for name, data in (
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
            ("layer.tar", content),
        ):
            tar.addfile(_member(name, len(data)), io.BytesIO(data))


def _layer_tar(layer: Layer) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        parents = {str(parent) for name in layer.files for parent in Path(name.lstrip("/")).parents if parent.name}
        for name in sorted(parents):
            directory = _member(name, 0)
            directory.type = tarfile.DIRTYPE
            tar.addfile(directory)
        for name, source in sorted(layer.files.items()):
            with source.open("rb") as content:
                tar.addfile(_member(name.lstrip("/"), source.stat().st_size), content)
    return buffer.getvalue()


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o755
    return member

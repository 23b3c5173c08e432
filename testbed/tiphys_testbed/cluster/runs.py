"""Run directories: who owns one, and what is left of those whose owner is gone."""

import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster import host
from tiphys_testbed.cluster.identity import identity_of
from tiphys_testbed.cluster.processes import ProcessTable, spawn

_DISMISS_S = 30.0
_CLAIM_S = 60.0  # a directory without an owner file is being made, unless it is older than this


@dataclass(frozen=True, slots=True)
class Run:
    """One run directory on disk."""

    path: Path

    @property
    def kept(self) -> bool:
        """Whether it was left running on purpose."""
        return bool(_owner(self.path).get("kept"))

    def owned(self) -> bool:
        """Whether the program that started it still lives, or it was kept on purpose."""
        owner = _owner(self.path)
        if not owner:
            with suppress(FileNotFoundError):
                return time.time() - self.path.stat().st_mtime < _CLAIM_S
            return False
        if owner.get("kept"):
            return True
        return identity_of(int(str(owner["pid"]))) == owner["identity"]

    def owner_pid(self) -> int | None:
        """The program that started it, if it still lives."""
        owner = _owner(self.path)
        pid = int(str(owner.get("pid", 0)))
        return pid if pid and identity_of(pid) == owner.get("identity") else None

    def remove(self) -> None:
        """End its processes in order, undo what it changed on the host, then delete it."""
        ProcessTable(self.path).stop_all()
        host.restore(self.path)
        shutil.rmtree(self.path, ignore_errors=True)


def claim(path: Path, *, keep: bool) -> Run:
    """Make the run directory ours alone; clear what a crashed former owner left there."""
    run = Run(path)
    for _ in range(3):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if run.owned():
                hint = "tiphys cluster down" if run.kept else "wait for it to end, or choose another name"
                raise ClusterError(f"a cluster already runs in {path}; {hint}") from None
            run.remove()
            continue
        owner = {"pid": os.getpid(), "identity": identity_of(os.getpid()), "kept": keep}
        (path / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
        return run
    raise ClusterError(f"cannot clear {path}; delete it by hand")


def sweep(root: Path) -> list[Path]:
    """Remove every run under `root` whose owner is gone; return what was removed."""
    removed = []
    for path in sorted(root.glob("*/")):
        run = Run(path)
        if not run.owned():
            run.remove()
            removed.append(path)
    return removed


@dataclass(frozen=True, slots=True)
class Guardian:
    """A process that ends the run as soon as this program is gone.

    A pipe, not PR_SET_PDEATHSIG: that one fires when the starting *thread* ends, exists on Linux only and would end
    everything at once, while the API server has to go before etcd.
    """

    pid: int
    lifeline: int
    """Our end of the pipe; the guardian acts when nobody holds it any more."""

    @classmethod
    def start(cls, run: Run) -> "Guardian":
        """Start it, with the pipe as its standard input."""
        read_end, write_end = os.pipe()
        try:
            argv = [sys.executable, "-m", "tiphys_testbed.cluster.guardian", str(run.path)]
            pid = spawn(argv, dict(os.environ), run.path / "guardian.log", stdin=read_end)
        except ClusterError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return cls(pid, write_end)

    def dismiss(self) -> None:
        """Let it go, after the run was removed: it finds nothing left to do."""
        os.close(self.lifeline)
        end = time.monotonic() + _DISMISS_S
        while identity_of(self.pid) is not None:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)  # our own child, not yet reaped: the pid cannot be another's
                os.waitpid(self.pid, 0)
                return
            time.sleep(0.02)


def _owner(path: Path) -> dict[str, object]:
    try:
        owner: dict[str, object] = json.loads((path / "owner.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return {}
    return owner

"""Processes of a local control plane: started in their own sessions, remembered in pid files, ended in order."""

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.identity import identity_of

GRACE_S = 5.0
"""The time between SIGTERM and SIGKILL. An API server with open watches would take a minute to end by itself."""
KILL_DEADLINE_S = 10.0
_POLL_S = 0.02

# Who goes first: clients, then the API server, then its store. An API server without etcd hangs on every open watch.
RANK_CLIENT = 0
RANK_CONTROLLER = 10
RANK_APISERVER = 20
RANK_ETCD = 30


@dataclass(frozen=True, slots=True)
class Process:
    """One process that runs, or ran. Signals reach it only while it is still the same process."""

    name: str
    pid: int
    identity: str
    rank: int
    argv: tuple[str, ...]
    log: str
    url: str = ""
    """Where it serves health and metrics, if it does."""

    def alive(self) -> bool:
        """Whether it still runs (a paused one does)."""
        return identity_of(self.pid) == self.identity

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its sockets stay open and nobody answers."""
        self._must(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._must(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL), and wait until it is gone."""
        self._must(signal.SIGKILL)
        if not _wait_gone([self], KILL_DEADLINE_S):
            raise ClusterError(f"{self.name} (pid {self.pid}) survived SIGKILL for {KILL_DEADLINE_S:.0f} s")

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            text = Path(self.log).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def _must(self, number: signal.Signals) -> None:
        if not self.send(number):
            raise ClusterError(f"{self.name} (pid {self.pid}) is not running; its log: {self.log}")


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The processes of one run directory. The pid files are the truth, so a second program can end them too."""

    run_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every process."""

    def start(self, name: str, argv: Sequence[str], rank: int = RANK_CLIENT, url: str = "") -> Process:
        """Start a program with its output in `logs/NAME.log`."""
        former = self.find(name)
        if former is not None and former.alive():
            raise ClusterError(f"{name} is already running (pid {former.pid})")
        log = self.run_dir / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        pid = spawn(argv, os.environ | self.environment, log)
        identity = identity_of(pid)
        process = Process(name, pid, identity or "gone", rank, tuple(argv), str(log), url)
        self._pid_file(name).parent.mkdir(parents=True, exist_ok=True)
        staged = self._pid_file(name).with_suffix(".new")
        staged.write_text(json.dumps(asdict(process)), encoding="utf-8")
        staged.rename(self._pid_file(name))
        return process

    def find(self, name: str) -> Process | None:
        """The process of that name, running or not."""
        return _read(self._pid_file(name))

    def get(self, name: str) -> Process:
        """The process of that name; an error if none was started."""
        process = self.find(name)
        if process is None:
            started = ", ".join(p.name for p in self.all()) or "none"
            raise ClusterError(f"no process {name!r} here; there are: {started}")
        return process

    def all(self) -> list[Process]:
        """Every process with a pid file, in the order in which they are to end."""
        found = [_read(path) for path in sorted((self.run_dir / "pids").glob("*.json"))]
        return sorted((p for p in found if p is not None), key=lambda p: (p.rank, p.name))

    def stop(self, name: str, grace_s: float = GRACE_S) -> None:
        """End one process and forget it."""
        self._end([self.get(name)], grace_s)

    def stop_all(self, grace_s: float = GRACE_S) -> None:
        """End all: rank by rank, those of a rank together. Never raises before every rank was tried."""
        stubborn: list[str] = []
        for _, group in groupby(self.all(), key=lambda p: p.rank):
            try:
                self._end(list(group), grace_s)
            except ClusterError as error:
                stubborn.append(str(error))
        if stubborn:
            raise ClusterError("; ".join(stubborn))

    def _end(self, group: Iterable[Process], grace_s: float) -> None:
        pending = [process for process in group if process.alive() or self._forget(process)]
        for process in pending:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a paused process acts on SIGTERM only when it goes on
        if not _wait_gone(pending, grace_s):
            for process in pending:
                process.send(signal.SIGKILL)
            _wait_gone(pending, KILL_DEADLINE_S)
        for process in pending:
            if process.alive():
                raise ClusterError(f"{process.name} (pid {process.pid}) survived SIGKILL; end it by hand")
            self._forget(process)

    def _forget(self, process: Process) -> bool:
        self._pid_file(process.name).unlink(missing_ok=True)
        return False

    def _pid_file(self, name: str) -> Path:
        return self.run_dir / "pids" / f"{name}.json"


def spawn(argv: Sequence[str], environment: Mapping[str, str], log: Path, stdin: int | None = None) -> int:
    """Start a program as leader of its own session, so that a terminal's Ctrl-C does not reach it; return its pid."""
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing.fileno() if stdin is None else stdin, 0),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
        ]
        try:
            return os.posix_spawn(
                argv[0],
                list(argv),
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT],  # Python ignores SIGPIPE; nobody else should
            )
        except OSError as error:
            raise ClusterError(f"cannot start {argv[0]}: {error.strerror}") from error


def _wait_gone(group: Sequence[Process], deadline_s: float) -> bool:
    end = time.monotonic() + deadline_s
    while any(process.alive() for process in group):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def _read(path: Path) -> Process | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Process(**(data | {"argv": tuple(data["argv"])}))

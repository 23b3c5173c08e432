"""The identity of a process: a pid is used again after its end, a pid with its start time is not."""

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path


def identity_of(pid: int) -> str | None:
    """A text no other process ever has, or None if the process is gone (or dead and not yet reaped)."""
    with suppress(ChildProcessError, ProcessLookupError):
        os.waitpid(pid, os.WNOHANG)  # reap it if it is a dead child of ours
    if platform.system() == "Linux":
        return _from_proc(pid)
    return _from_ps(pid)


def _from_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in brackets may hold anything, so fields count from the last bracket (proc(5): state is field 3).
    fields = stat.rpartition(")")[2].split()
    if fields[0] == "X" or (fields[0] == "Z" and not _threads_left(pid)):
        return None
    return f"{boot}/{fields[19]}"  # field 22: start time in ticks since boot


def _threads_left(pid: int) -> bool:
    """Whether threads of a process outlive its first: until they have ended, too, its ports and files are not free."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    return False


def _from_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()

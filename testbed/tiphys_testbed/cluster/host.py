"""What real nodes change on the host beside processes: noted before, undone after, also by whoever clears up a crash."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_FILE = "host.json"
_SYSCTL = Path("/proc/sys")
_GLOBAL = ("kernel", "vm", "fs")  # what belongs to no namespace: the kubelet sets three of them, systemd in a node four more
_CGROUPS = Path("/sys/fs/cgroup")


_COMMAND_DEADLINE_S = 120.0
_DYING_S = 10.0
"""The wait for processes that were killed with their namespace to end."""


def note(
    run_dir: Path, *, sysctls: bool = False, directories: Sequence[Path] = (), cgroups: Sequence[str] = (), command: Sequence[str] = ()
) -> None:
    """Note in the run directory what `restore` is to undo, then make the directories that are missing.

    `sysctls`: settings of the kernel as they are now. `cgroups`: names, in every hierarchy, of groups that are to go as far
    as nothing runs in them. `command`: what deletes the rest.
    """
    missing = [str(path) for path in directories if not path.exists()]
    noted = {"sysctls": _read_sysctls() if sysctls else {}, "made": missing, "cgroups": list(cgroups), "command": list(command)}
    (run_dir / _FILE).write_text(json.dumps(noted), encoding="utf-8")
    for path in missing:
        Path(path).mkdir(parents=True)


def restore(run_dir: Path) -> None:
    """Undo what was noted there, if anything. Settings that cannot be written are left as they are."""
    try:
        noted = json.loads((run_dir / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if noted["command"]:
        subprocess.run(noted["command"], capture_output=True, timeout=_COMMAND_DEADLINE_S, check=False, stdin=subprocess.DEVNULL)
    _write_sysctls(noted["sysctls"])
    for name in noted["made"]:
        with suppress(OSError):
            Path(name).rmdir()
    groups = [hierarchy / name for name in noted["cgroups"] for hierarchy in _CGROUPS.glob("*/")]
    end = time.monotonic() + _DYING_S
    while left := [group for group in groups if not remove_empty(group)]:
        if time.monotonic() > end:  # somebody else's processes live there too
            return
        groups = left
        time.sleep(0.1)


def _write_sysctls(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        path = _SYSCTL / name
        with suppress(OSError):
            if path.read_text(encoding="ascii") != value:
                path.write_text(value, encoding="ascii")


def remove_empty(group: Path) -> bool:
    """Remove a control group and those below it; the kernel refuses one in which a process lives. Whether it is gone."""
    for directory, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()
    return not group.exists()


def _read_sysctls() -> dict[str, str]:
    found = {}
    for area in _GLOBAL:
        for directory, _, names in os.walk(_SYSCTL / area):
            for path in (Path(directory) / name for name in names):
                settable = path.stat().st_mode & 0o600 == 0o600
                if not settable or path.parent.name == "random" or path.name == "ns_last_pid":  # these two change by themselves
                    continue
                with suppress(OSError, UnicodeDecodeError):
                    found[str(path.relative_to(_SYSCTL))] = path.read_text(encoding="ascii")
    return found

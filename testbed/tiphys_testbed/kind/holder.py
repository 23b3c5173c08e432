"""First process of the namespaces that a kind cluster lives in: when it ends, the kernel ends everything else in there."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

READY = "ready"


def main(run_dir: Path) -> None:
    """Prepares mounts and loopback, says so in a file, and then, as pid 1, collects processes whose parent has ended."""
    signal.signal(signal.SIGTERM, _leave)
    resolver = Path("/etc/resolv.conf")
    resolvers = resolver.read_text(encoding="utf-8")
    # podman's state is this cluster's alone: nothing of a podman of the host is seen or changed.
    for path in ("/run", "/dev/shm"):  # noqa: S108
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True, timeout=10)
    if not resolver.exists():  # systemd-resolved keeps it in /run
        target = resolver.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(resolvers, encoding="utf-8")
    subprocess.run(["mount", "--make-rshared", "/"], check=True, timeout=10)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    (run_dir / READY).touch()
    while True:
        with suppress(ChildProcessError):
            os.wait()
            continue
        time.sleep(1.0)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

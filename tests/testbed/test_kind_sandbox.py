"""The namespaces of a kind cluster on podman, really opened: what is inside, and that a crash leaves nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LINK = Path("/sys/class/net/tiphys-kind")
PROBE = ["unshare", "--fork", "--pid", "--mount", "--net", "ip", "link"]
STARTER = """
import sys, time
from pathlib import Path
from tiphys_testbed.kind.sandbox import Sandbox
from tiphys_testbed.cluster.runs import Guardian, claim
run = claim(Path(sys.argv[1]), keep=False)
guardian = Guardian.start(run)
sandbox = Sandbox.start(run, Path(sys.argv[1]), sys.executable)
print(sandbox.pid, flush=True)
time.sleep(60)
"""


def allowed() -> bool:
    """Whether this machine lets us open namespaces, and no kind cluster of ours runs."""
    if sys.platform != "linux" or os.geteuid() != 0 or LINK.exists() or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    return subprocess.run(PROBE, capture_output=True, timeout=10, check=False).returncode == 0


@pytest.mark.slow
def test_a_killed_starter_leaves_no_process_no_link_and_no_file(tmp_path: Path) -> None:
    if not allowed():
        pytest.skip("needs root, namespaces, and no running kind cluster")
    run_dir = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", STARTER, str(run_dir)], stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            holder = int(starter.stdout.readline())
            inside = ["nsenter", f"--target={holder}", "--mount", "--net", "--pid"]
            # A daemon of a daemon: nobody is left who would wait for it.
            subprocess.run([*inside, "sh", "-c", "sleep 1000 & touch /run/private"], check=True, timeout=10)
            listed = subprocess.run([*inside, "ps", "-e", "-o", "comm="], capture_output=True, text=True, timeout=10, check=True)
            assert "sleep" in listed.stdout.split()
            assert len(listed.stdout.split()) < 6, "processes of the host are not seen"
            assert not Path("/run/private").exists(), "its /run is its own"
            assert LINK.exists()
            os.kill(starter.pid, signal.SIGKILL)
            end = time.monotonic() + 30
            while (run_dir.exists() or LINK.exists() or Path(f"/proc/{holder}").exists()) and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            starter.kill()
    assert not run_dir.exists()
    assert not LINK.exists()
    assert not Path(f"/proc/{holder}").exists()

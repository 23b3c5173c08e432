"""Processes of a cluster: ended in order, by identity, also when their owner is gone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.identity import identity_of
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import RANK_APISERVER, RANK_CLIENT, RANK_ETCD, Process, ProcessTable
from tiphys_testbed.cluster.readiness import PortTakenError, wait_healthy
from tiphys_testbed.cluster.runs import Run, claim, sweep

SLEEP = ("/bin/sleep", "60")
STUBBORN = ("/bin/sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done")


def until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not within the deadline"
        time.sleep(0.01)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    table = ProcessTable(tmp_path / "run")
    table.run_dir.mkdir()
    yield table
    table.stop_all(grace_s=0.1)


def test_a_process_leads_its_own_session_and_writes_a_log(table: ProcessTable) -> None:
    process = table.start("one", ("/bin/sh", "-c", "echo hello; exec sleep 60"))
    assert process.alive()
    assert os.getsid(process.pid) == process.pid
    until(lambda: "hello" in process.log_tail())
    assert table.get("one") == process


def test_a_program_that_is_not_there_is_named(table: ProcessTable) -> None:
    with pytest.raises(ClusterError, match=r"cannot start /no/such/program: No such file"):
        table.start("one", ("/no/such/program",))


def test_a_name_runs_once(table: ProcessTable) -> None:
    table.start("one", SLEEP)
    with pytest.raises(ClusterError, match="already running"):
        table.start("one", SLEEP)


def test_stop_ends_and_forgets(table: ProcessTable) -> None:
    process = table.start("one", SLEEP)
    table.stop("one")
    assert not process.alive()
    assert table.find("one") is None
    with pytest.raises(ClusterError, match="no process 'one'"):
        table.stop("one")


def test_one_that_ignores_sigterm_is_killed_at_the_deadline(table: ProcessTable) -> None:
    process = table.start("one", STUBBORN)
    until(lambda: "ready" in process.log_tail())
    started = time.monotonic()
    table.stop("one", grace_s=0.3)
    assert 0.3 <= time.monotonic() - started < 3
    assert not process.alive()


def test_a_paused_process_is_stopped_too(table: ProcessTable) -> None:
    process = table.start("one", SLEEP)
    process.pause()
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert process.alive()
    started = time.monotonic()
    table.stop("one", grace_s=5)
    assert time.monotonic() - started < 2
    assert not process.alive()


def test_clients_go_first_and_etcd_last(table: ProcessTable, tmp_path: Path) -> None:
    order = tmp_path / "order"
    for name, rank in (("etcd", RANK_ETCD), ("apiserver", RANK_APISERVER), ("client", RANK_CLIENT)):
        script = f"trap 'echo {name} >> {order}; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
        process = table.start(name, ("/bin/sh", "-c", script), rank)
        until(lambda process=process: "ready" in process.log_tail())  # type: ignore[misc]
    table.stop_all()
    assert order.read_text().split() == ["client", "apiserver", "etcd"]
    assert table.all() == []


def test_a_recycled_pid_is_never_hit(table: ProcessTable) -> None:
    innocent = table.start("innocent", SLEEP)
    stranger = replace(innocent, name="former", identity="another boot/1")
    (table.run_dir / "pids" / "former.json").write_text(json.dumps(asdict(stranger)))
    assert not stranger.alive()
    assert not stranger.send(signal.SIGKILL)
    table.stop("former")
    assert innocent.alive()
    assert table.find("former") is None


def test_signals_to_a_dead_process_say_so(table: ProcessTable) -> None:
    process = table.start("one", SLEEP)
    process.kill()
    with pytest.raises(ClusterError, match="is not running; its log"):
        process.pause()


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 500)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def serve(table: ProcessTable, name: str, port: int) -> Process:
    return table.start(name, (sys.executable, "-c", SERVER, str(port)), url=f"http://127.0.0.1:{port}")


def test_a_server_is_waited_for_and_one_that_stays_ill_has_its_log_shown(table: ProcessTable) -> None:
    process = serve(table, "server", free_ports(1)[0])
    wait_healthy(process, "/healthz", None, 10)
    with pytest.raises(ClusterError, match=r"not healthy within 0 s \(500\); the end of its log"):
        wait_healthy(process, "/other", None, 0.2)


def test_another_programs_answer_on_a_taken_port_is_not_ours(table: ProcessTable) -> None:
    port = free_ports(1)[0]
    wait_healthy(serve(table, "first", port), "/healthz", None, 10)
    second = serve(table, "second", port)
    until(lambda: not second.alive())
    with pytest.raises(PortTakenError, match="second: its port was taken"):
        wait_healthy(second, "/healthz", None, 10)


def test_a_server_that_dies_is_reported_with_the_end_of_its_log(table: ProcessTable) -> None:
    process = table.start("server", ("/bin/sh", "-c", "echo bad flag; exit 1"), url="http://127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"server ended at its start(?s:.*)bad flag"):
        wait_healthy(process, "/healthz", None, 10)


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        until(lambda: identity_of(child.pid) is None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_whose_first_thread_has_ended_still_holds_its_ports(table: ProcessTable) -> None:
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); ctypes.CDLL(None).pthread_exit(None)"
    )
    process = table.start("leaderless", (sys.executable, "-c", program))
    until(lambda: ") Z " in Path(f"/proc/{process.pid}/stat").read_text())
    assert process.alive()
    process.kill()
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_run_belongs_to_one_owner(tmp_path: Path) -> None:
    run = claim(tmp_path / "run", keep=False)
    assert run.owned()
    with pytest.raises(ClusterError, match="already runs in"):
        claim(tmp_path / "run", keep=False)
    assert sweep(tmp_path) == []
    run.remove()
    assert not run.path.exists()


def test_a_kept_run_is_left_alone_and_says_how_to_end_it(tmp_path: Path) -> None:
    run = claim(tmp_path / "run", keep=True)
    (run.path / "owner.json").write_text(json.dumps({"pid": 1, "identity": "gone", "kept": True}))
    assert sweep(tmp_path) == []
    with pytest.raises(ClusterError, match="tiphys cluster down"):
        claim(tmp_path / "run", keep=False)


def test_what_a_crashed_owner_left_is_ended_and_removed(tmp_path: Path) -> None:
    run = claim(tmp_path / "run", keep=False)
    process = ProcessTable(run.path).start("one", SLEEP)
    (run.path / "owner.json").write_text(json.dumps({"pid": process.pid, "identity": "gone", "kept": False}))
    again = claim(tmp_path / "run", keep=False)
    assert not process.alive()
    assert again.owned()
    assert ProcessTable(again.path).all() == []
    again.remove()


def test_a_directory_that_is_just_being_claimed_is_not_swept(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert sweep(tmp_path) == []
    os.utime(fresh, (time.time() - 3600, time.time() - 3600))
    assert sweep(tmp_path) == [fresh]


OWNER = """
import sys, time
from pathlib import Path
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.runs import Guardian, claim

run = claim(Path(sys.argv[1]), keep=False)
guardian = Guardian.start(run)
table = ProcessTable(run.path)
pids = [table.start(name, ("/bin/sleep", "60")).pid for name in ("one", "two")]
print(guardian.pid, *pids, flush=True)
time.sleep(60)
"""


def test_the_guardian_ends_everything_when_the_owner_is_killed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", OWNER, str(run_dir)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 3
        assert all(identity_of(pid) for pid in pids)
        owner.kill()
        owner.wait(timeout=10)
        until(lambda: not any(identity_of(pid) for pid in pids))
    until(lambda: not run_dir.exists())


def test_an_orphan_run_ends_even_if_the_guardian_was_killed_first(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", OWNER, str(run_dir)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        guardian, *children = [int(pid) for pid in owner.stdout.readline().split()]
        os.kill(guardian, signal.SIGKILL)
        owner.kill()
        owner.wait(timeout=10)
    assert all(identity_of(pid) for pid in children)
    assert not Run(run_dir).owned()
    assert sweep(tmp_path) == [run_dir]
    assert not any(identity_of(pid) for pid in children)

"""The process itself: start, settings, signals, a stalled loop, what it imports, what it keeps over a restart."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.builders import node, pod, policy_object
from tests.extender.harness import arguments, check_contract, pod_json, untrained
from tiphys_models.placement.checkpoint import document, learned_of, read
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.snapshot import Snapshot, write_snapshot
from tiphys_models.placement.state import PlacementState

NAMES = [f"n{i}" for i in range(6)]
pytestmark = pytest.mark.slow  # a start of the interpreter with numpy and FastAPI takes a second


def snapshot(directory: Path, **spec: Any) -> Path:
    """Six nodes, two bound pods, readings and one policy, in a file."""
    nodes = [
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for name in NAMES
    ]
    pods = [pod_json(f"bound-{i}", spec={"nodeName": "n0"}) for i in range(2)]
    policy = policy_object(mode="Active", **({"policy": "faasrank", "model": "m"} | spec))
    readings = {name: [float(i % 5) for i in range(index, index + 21)] for index, name in enumerate(NAMES)}
    path = directory / "snapshot.json"
    write_snapshot(Snapshot(time.time(), nodes, pods, [policy], readings), path)  # type: ignore[arg-type]
    return path


@dataclass
class Process:
    """A running extender."""

    process: subprocess.Popen[bytes]
    log: Path
    ports: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def call(self, where: str, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[where], timeout=5)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, uid: str) -> bytes:
        status, answer = self.call("prioritize", "POST", "/prioritize", json.dumps(arguments(NAMES, uid=uid)).encode())
        assert status == 200
        check_contract(answer, NAMES)
        return answer


def environment(**settings: object) -> dict[str, str]:
    ours = {"PORT": 0, "STATUS_PORT": 0, "STATUS_HOST": "127.0.0.1", "EXPLAIN_PORT": 0, **settings}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TIPHYS_", "KUBE"))}
    kubeconfig = ours.pop("KUBECONFIG", None)
    given = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
    prefixes = {name: "TIPHYS_" if name.startswith("BINDER_") else "TIPHYS_EXTENDER_" for name in ours}
    return kept | given | {f"{prefixes[name]}{name}": str(value) for name, value in ours.items()}


def started(directory: Path, **settings: object) -> contextlib.AbstractContextManager[Process]:
    """An extender process that listens; killed at the end if it is still there."""
    return started_as(directory, (), "prioritize", settings)


@contextlib.contextmanager
def started_as(
    directory: Path, arguments: Sequence[str], hot: str, settings: Mapping[str, object], python: str = sys.executable
) -> Generator[Process]:
    """The same for any service of the package; `hot` is what its log calls the listener that decides."""
    log = directory / f"log-{time.monotonic_ns()}"
    with log.open("wb") as output:
        process = subprocess.Popen([python, "-m", "tiphys_extender", *arguments], stderr=output, env=environment(**settings))
    running = Process(process, log)
    try:
        deadline_s = time.monotonic() + 30
        while not running.ports:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            for line in running.lines():
                if line["message"] == "listening":
                    running.ports = {k: int(line[k].rpartition(":")[2]) for k in (hot, "status", "explain")}
            time.sleep(0.05)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def test_a_whole_life_from_a_snapshot(tmp_path: Path) -> None:
    digest = untrained(tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "kept").mkdir()
    settings = {
        "SNAPSHOT": snapshot(tmp_path), "MODELS_DIR": tmp_path, "TOKEN_FILE": tmp_path / "token", "DECISION_LOG_DIR": tmp_path / "kept",
        "SCRAPE_WINDOW_S": 5, "EXPOSE_FLOOR": "true",
    }  # fmt: skip
    with started(tmp_path, **settings) as extender:
        assert extender.call("status", "GET", "/readyz") == (200, b"ok")
        first = extender.ask("u1")
        assert extender.call("prioritize", "POST", "/floor", json.dumps(arguments(NAMES)).encode())[0] == 200
        assert extender.call("prioritize", "GET", "/metrics")[0] == 404  # nothing but the scheduler's route on its listener
        _, body = extender.call("status", "GET", "/v1/decisions", Authorization="Bearer t")
        (item,) = json.loads(body)["items"]
        assert (item["outcome"], item["policyName"], item["modelDigest"]) == ("scored", "faasrank", digest)
        assert item["would"] == max(json.loads(first), key=lambda entry: entry["Score"])["Host"]
        status, body = extender.call("explain", "GET", "/v1/explain?namespace=default&pod=pod-u1")
        assert status == 200
        assert len(json.loads(body)["features"]) == 3
        state = json.loads(extender.call("explain", "GET", "/v1/state")[1])
        assert state["torchImported"] is False
        time.sleep(0.7)  # one tick: gauges and the log on disk
        _, metrics = extender.call("status", "GET", "/metrics")
        assert b'tiphys_extender_policy_answers_total{policy="faasrank"} 1.0' in metrics
        assert b"tiphys_extender_reservations 1.0" in metrics
        assert b"tiphys_extender_readings_coverage_ratio 1.0" in metrics
        extender.process.send_signal(signal.SIGTERM)
        assert extender.process.wait(10) == 0
        text = extender.log.read_text()
        assert "hunter2" not in text
        assert [line for line in extender.lines() if line["level"] not in ("info", "warning")] == []
    with started(tmp_path, **settings) as again:
        _, body = again.call("status", "GET", "/v1/decisions", Authorization="Bearer t")
        assert [item["uid"] for item in json.loads(body)["items"]] == ["u1"]
        again.ask("u2")
        _, body = again.call("status", "GET", "/v1/decisions?after=1", Authorization="Bearer t")
        assert [(item["seq"], item["uid"]) for item in json.loads(body)["items"]] == [(2, "u2")]


def test_what_a_former_process_has_learned_is_served_and_handed_on(tmp_path: Path) -> None:
    former = PlacementState()
    former.put_node(node("n0"))
    for i in range(5):
        former.bound(pod(f"c{i}", function="shop/pay", node="n0", scheduled_s=10.0 * i), 10.0 * i)
        former.ran(f"c{i}", 10.0 * i + 4.0, CallEnd(start_s=1.0, core_seconds=6.0, cold=True))
    file = tmp_path / "learned.json"
    file.write_bytes(document(learned_of(former, time.time())).content)
    before_s = read(file.read_bytes()).at_s
    (tmp_path / "token").write_text("t")
    untrained(tmp_path)
    with started(tmp_path, SNAPSHOT=snapshot(tmp_path), MODELS_DIR=tmp_path, STATE_DIR=tmp_path, TOKEN_FILE=tmp_path / "token") as extender:
        assert extender.call("status", "GET", "/v1/learned")[0] == 401
        status, body = extender.call("status", "GET", "/v1/learned", Authorization="Bearer t")
        assert (status, list(json.loads(body)["learned"]["functions"])) == (200, ["shop/pay"])
        assert extender.call("explain", "GET", "/v1/learned")[0] == 200
        extender.process.send_signal(signal.SIGTERM)
        assert extender.process.wait(10) == 0
    after = read(file.read_bytes())
    assert after.at_s > before_s
    assert after.functions["shop/pay"] == pytest.approx(read(document(learned_of(former, 0.0)).content).functions["shop/pay"], rel=1e-2)


def test_two_processes_give_the_same_answers(tmp_path: Path) -> None:
    untrained(tmp_path)
    settings = {"SNAPSHOT": snapshot(tmp_path), "MODELS_DIR": tmp_path}
    with started(tmp_path, **settings) as one, started(tmp_path, **settings) as other:
        for index in range(20):
            assert one.ask(f"u{index}") == other.ask(f"u{index}")


def test_sigterm_lets_the_call_in_hand_finish(tmp_path: Path) -> None:
    with started(tmp_path, SNAPSHOT=snapshot(tmp_path, policy="greedy", model=None)) as extender:
        connection = http.client.HTTPConnection("127.0.0.1", extender.ports["prioritize"], timeout=5)
        body = json.dumps(arguments(NAMES)).encode()
        connection.putrequest("POST", "/prioritize")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:-20])
        time.sleep(0.1)
        extender.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert extender.call("status", "GET", "/readyz") == (503, b"stopping")
        connection.send(body[-20:])
        answer = connection.getresponse()
        check_contract(answer.read(), NAMES)
        connection.close()
        assert extender.process.wait(8) == 0


def test_a_stalled_loop_ends_the_process(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from tiphys_extender import model_store\n"
        "from tiphys_extender.__main__ import main\n"
        "calls = []\n"
        "async def stuck(self):\n"
        "    calls.append(1)\n"
        "    if len(calls) > 1:\n"
        "        time.sleep(60)\n"  # what a blocking call on the loop does
        "model_store.ModelStore.rescan = stuck\n"
        "sys.exit(main())\n"
    )
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(SNAPSHOT=snapshot(tmp_path), STALL_LIMIT_S=0.5),
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 70
    assert b"event loop stalled" in done.stderr
    assert time.monotonic() - began_s < 20


def test_a_process_that_was_stopped_as_a_whole_goes_on(tmp_path: Path) -> None:
    with started(tmp_path, SNAPSHOT=snapshot(tmp_path, policy="greedy", model=None), STALL_LIMIT_S=0.5) as extender:
        extender.ask("before")
        extender.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        extender.process.send_signal(signal.SIGCONT)
        extender.ask("after")
        time.sleep(1.0)
        assert extender.process.poll() is None
        extender.ask("later")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"PORT": "many"}, "TIPHYS_EXTENDER_PORT"),
        ({"DEADLINE_MS": "-1"}, "TIPHYS_EXTENDER_DEADLINE_MS"),
        ({"SNAPSHOT": "/does/not/exist"}, "/does/not/exist"),
        ({"TLS_CERT_FILE": "/x"}, "TIPHYS_EXTENDER_TLS_KEY_FILE"),
        ({"LOG_LEVEL": "loud"}, "TIPHYS_EXTENDER_LOG_LEVEL"),
        ({}, "KUBECONFIG"),
    ],
    ids=str,
)
def test_wrong_settings_end_the_start_with_a_name_and_a_reason(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    env = environment(**settings) | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tiphys_extender"], env=env, capture_output=True, timeout=30)
    assert done.returncode == 2
    (line,) = [json.loads(text) for text in done.stderr.splitlines()]
    assert line["message"] == "cannot start"
    assert said in line["why"]


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    settings = {"SNAPSHOT": snapshot(tmp_path, policy="greedy", model=None)}
    with started(tmp_path, **settings) as first:
        env = environment(**settings, PORT=first.ports["prioritize"])
        done = subprocess.run([sys.executable, "-m", "tiphys_extender"], env=env, capture_output=True, timeout=30)
    assert done.returncode == 2
    assert f"127.0.0.1:{first.ports['prioritize']}".encode() in done.stderr


def test_the_extender_imports_no_torch_no_official_client_and_no_kopf() -> None:
    script = "import sys, tiphys_extender.server; print([m for m in ('torch', 'kubernetes', 'kopf', 'cryptography') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=True)
    assert done.stdout.strip() == b"[]"


def test_a_flood_of_headers_on_the_status_port_costs_the_process_next_to_nothing(tmp_path: Path) -> None:
    with started(tmp_path, SNAPSHOT=snapshot(tmp_path, policy="greedy", model=None)) as extender:
        extender.ask("before")
        before_kib = resident_kib(extender)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", extender.ports["status"]), 5) as flood, contextlib.suppress(OSError):
                flood.sendall(b"GET /metrics HTTP/1.1\r\n")
                for _ in range(37):
                    flood.sendall(b"a:b\r\n" * 200_000)
        assert resident_kib(extender) - before_kib < 5 * 1024
        extender.ask("after")
        _, metrics = extender.call("status", "GET", "/metrics")
        assert b'tiphys_extender_bad_requests_total{reason="head-too-large"} 3.0' in metrics


def resident_kib(extender: Process) -> int:
    """The most memory that the process ever held."""
    (line,) = [line for line in Path(f"/proc/{extender.process.pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])

"""Knative's real queue-proxy, each in a network namespace of its own as in a pod, in front of a function that tests hold and release."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self, TypeVar

from e2e.conftest import wait_until

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
SERVING_PORT, USER_PORT = 8012, 8080
AUTOSCALER_PORT, METRICS_PORT = 9090, 9091
"""The queue-proxy's statistics for Knative's autoscaler, and what it says to Prometheus."""


class QueueProxy:
    """One instance of a function: calls go to it, and its statistics are reachable at a loopback address that nothing else has."""

    def __init__(self, program: Path, namespace: str, revision: str, pod: str, log: Path, concurrency: int = 1) -> None:
        self.address = ".".join(map(str, (127, *(random.SystemRandom().randint(10, 250) for _ in range(3)))))
        self.holding, self.entered = Event(), Event()
        """While `holding` is not set, a call of /held stays in progress; `entered`: one is."""
        self._stack = ExitStack()
        self._program, self._log, self.pod = program, log, pod
        self._environment = {
            "CONTAINER_CONCURRENCY": str(concurrency),
            "QUEUE_SERVING_PORT": str(SERVING_PORT),
            "QUEUE_SERVING_TLS_PORT": "8112",
            "USER_PORT": str(USER_PORT),
            "REVISION_TIMEOUT_SECONDS": "300",
            "SERVING_LOGGING_CONFIG": "",
            "SERVING_LOGGING_LEVEL": "",
            "SERVING_NAMESPACE": namespace,
            "SERVING_CONFIGURATION": revision.rpartition("-")[0],
            "SERVING_REVISION": revision,
            "SERVING_POD": pod,
            "SERVING_POD_IP": "127.0.0.1",
            "POD_NAME": pod,
            "SYSTEM_NAMESPACE": "knative-serving",
            "OBSERVABILITY_CONFIG": '{"requestMetrics":{"protocol":"prometheus"}}',
        }

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            output = stack.enter_context(self._log.open("wb"))
            command = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$0"', str(self._program)]
            process = subprocess.Popen(command, env=os.environ | self._environment, stdout=output, stderr=output)
            stack.callback(process.wait, 10)
            stack.callback(process.kill)  # asked to end, it would wait half a minute for its neighbours to notice
            self._process = process
            here = Path("/proc/self/ns/net").stat().st_ino
            wait_until(lambda: Path(f"/proc/{process.pid}/ns/net").stat().st_ino != here, 10, "a network namespace of its own")
            wait_until(lambda: self._answers(AUTOSCALER_PORT), 30, "the queue-proxy listens")
            self._serve(stack)
            self._relay(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.holding.set()
        self._stack.close()

    def get(self, path: str, port: int = SERVING_PORT) -> bytes:
        """The body of an answer from within the namespace; by default through the queue-proxy, as a call comes."""
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.sock = self._within(lambda: socket.create_connection(("127.0.0.1", port), 60))
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, body
        return body

    def hold(self) -> Thread:
        """A call that is in progress until `holding` is set; it has reached the function when this returns."""
        self.holding.clear()
        self.entered.clear()
        call = Thread(target=self.get, args=("/held",), daemon=True)
        call.start()
        assert self.entered.wait(30), "the call has not reached the function"
        return call

    def _answers(self, port: int) -> bool:
        with suppress(OSError):
            self.get("/metrics", port)
            return True
        return False

    def _within(self, make: Callable[[], T]) -> T:
        """What is made in the proxy's namespace: a socket stays where it was opened. The thread that went there ends."""
        made: list[T] = []

        def go() -> None:
            with Path(f"/proc/{self._process.pid}/ns/net").open("rb") as there:
                if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            with suppress(OSError):  # nobody listens yet, or its loopback is not up
                made.append(make())

        thread = Thread(target=go)
        thread.start()
        thread.join(60)
        if not made:
            raise ConnectionRefusedError(f"nothing was opened in the namespace of {self.pod}")
        return made[0]

    def _serve(self, stack: ExitStack) -> None:
        """The server of a function, which the queue-proxy stands in front of."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/held":
                    proxy.entered.set()
                    proxy.holding.wait(120)
                self.send_response(200)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"ok\n")

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is that of the base class
                """Calls are no news."""

        server = ThreadingHTTPServer(("127.0.0.1", USER_PORT), Handler, bind_and_activate=False)
        server.socket.close()
        server.socket = self._within(lambda: socket.create_server(("127.0.0.1", USER_PORT)))
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stack.callback(thread.join, 5)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)

    def _relay(self, stack: ExitStack) -> None:
        """Whoever connects to our address reaches the port of the same number within."""
        listener = socket.create_server((self.address, AUTOSCALER_PORT))
        stack.callback(listener.close)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)

        def accept() -> None:
            while True:
                try:
                    outside, _ = listener.accept()
                    inside = self._within(lambda: socket.create_connection(("127.0.0.1", AUTOSCALER_PORT), 5))
                except OSError:
                    return
                for source, sink in ((outside, inside), (inside, outside)):
                    Thread(target=_pump, args=(source, sink), daemon=True).start()

        Thread(target=accept, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError), source, sink:
        source.settimeout(None)
        while data := source.recv(65_536):
            sink.sendall(data)

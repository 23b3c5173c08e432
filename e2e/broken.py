"""Extenders that answer, and answer wrong: what a proxy, a bad release or somebody else's port might send."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

Answer = tuple[int, bytes, bool]
"""Status, body, whether Content-Length tells the truth."""


def wrong_answers(names: list[str]) -> dict[str, Answer]:
    """Everything wrong that a scheduler must survive, by name."""
    first = names[0] if names else ""
    return {
        "status 500": (500, b'{"error":"oops"}', True),
        "status 404": (404, b"", True),
        "empty body": (200, b"", True),
        "not JSON": (200, b"<html>gateway</html>", True),
        "an object": (200, b'{"Host":"a","Score":10}', True),
        "a fraction": (200, orjson.dumps([{"Host": name, "Score": 7.5} for name in names]), True),
        "a string score": (200, orjson.dumps([{"Host": name, "Score": "7"} for name in names]), True),
        "not a number": (200, b'[{"Host":"a","Score":NaN}]', True),
        "an unknown host": (200, b'[{"Host":"no-such-node","Score":10}]', True),
        "no host": (200, b"[]", True),
        "null": (200, b"null", True),
        "one host twice": (200, orjson.dumps([{"Host": first, "Score": 0}, {"Host": first, "Score": 0}]), True),
        "cut short": (200, b'[{"Host":"', False),
    }


class BrokenExtender:
    """Serves the wrong answers in turn, and counts which it gave."""

    def __init__(self) -> None:
        self.given: Counter[str] = Counter()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                args = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body, honest = outer._next(args.get("NodeNames") or [])
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body) if honest else len(body) + 1000))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = not honest

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Nothing: the test counts."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """kube-scheduler hangs up on some of these answers, as it should."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def _next(self, names: list[str]) -> Answer:
        answers = wrong_answers(names)
        with self._lock:
            kind = list(answers)[self.given.total() % len(answers)]
            self.given[kind] += 1
        return answers[kind]


class Deaf:
    """An address whose packets are dropped, as a NetworkPolicy drops them: the queue of its listener is full, so that the kernel answers
    no further connection, not even with a refusal."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.address = self._listener.getsockname()
        self._waiting: list[socket.socket] = []
        while self.answers():
            pass
        self.url = f"http://127.0.0.1:{self.address[1]}"

    def answers(self, within_s: float = 0.3) -> bool:
        """Whether one more connection is taken; it stays open, and nobody serves it."""
        attempt = socket.socket()
        self._waiting.append(attempt)
        attempt.settimeout(within_s)
        try:
            attempt.connect(self.address)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """End it."""
        for one in (*self._waiting, self._listener):
            one.close()

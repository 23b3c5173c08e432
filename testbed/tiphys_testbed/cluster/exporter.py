"""One HTTP server for the readings of all simulated nodes: `/nodes/NAME/metrics`."""

import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote

from tiphys_testbed.cluster.counters import NodeCounters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STOP_DEADLINE_S = 5.0


class Exporter:
    """Serves the counters of named nodes on a loopback port."""

    def __init__(self, nodes: Mapping[str, NodeCounters]) -> None:
        self.nodes = nodes
        self._server = _Server(nodes)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="exporter", daemon=True)

    @property
    def url(self) -> str:
        """The server's address, `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def node_urls(self) -> dict[str, str]:
        """Where Prometheus finds each node."""
        return {name: f"{self.url}/nodes/{quote(name, safe='')}/metrics" for name in self.nodes}

    def start(self) -> Self:
        """Serve from now on."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """The server ends and its port is free again."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(STOP_DEADLINE_S)
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def answer(path: str, nodes: Mapping[str, NodeCounters]) -> tuple[HTTPStatus, str]:
    """Status and body for one path."""
    parts = path.partition("?")[0].strip("/").split("/")
    if len(parts) != 3 or parts[0] != "nodes" or parts[2] != "metrics":
        return HTTPStatus.NOT_FOUND, "ask for /nodes/NAME/metrics\n"
    counters = nodes.get(unquote(parts[1]))
    if counters is None:
        return HTTPStatus.NOT_FOUND, f"no simulated node {unquote(parts[1])!r}\n"
    return HTTPStatus.OK, counters.render()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # an idle kept-alive scrape must not hold the program open

    def __init__(self, nodes: Mapping[str, NodeCounters]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.nodes = nodes

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0
    # Head and body in one packet: in two, Nagle's algorithm and delayed acknowledgement cost 40 ms a scrape.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        status, text = answer(self.path, self.server.nodes)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are not logged."""

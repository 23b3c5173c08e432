"""The made-up API server of `tiphys bench scale` as its drivers see it: started, told what to do, asked what it saw."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from tiphys_testbed.bench.scale_objects import Fleet

_START_S = 120.0
_CONTROL_S = 300.0


@dataclass(frozen=True, slots=True)
class Api:
    """A running server; it ends with the block, or with this process."""

    url: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, fleet: Fleet) -> Self:
        """Start it and wait until the cluster is made."""
        sizes = [f"--{name}={getattr(fleet, name)}" for name in ("nodes", "workloads", "pods", "jobs")]
        process = subprocess.Popen(
            [sys.executable, "-m", "tiphys_testbed.bench.scale_server", *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        line = process.stdout.readline() if process.stdout is not None else b""
        if not line:
            process.kill()
            raise RuntimeError(f"the made-up API server ended with status {process.wait()}")
        return cls(str(orjson.loads(line)["url"]), process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kubeconfig(self, directory: Path) -> Path:
        """A file that leads a client here."""
        path = directory / "scale.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "scale",
            "clusters": [{"name": "scale", "cluster": {"server": self.url}}],
            "users": [{"name": "scale", "user": {"token": "none"}}],
            "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": "scale"}}],
        }
        path.write_bytes(orjson.dumps(config))
        return path

    def pods(self, fleet: str, first: int, count: int, phase: str) -> None:
        """Bring pods of a fleet (`pods` or `jobs`) into a phase, or remove them (`Gone`)."""
        self._post("/-/pods", {"fleet": fleet, "first": first, "count": count, "phase": phase})

    def vanish(self, fleet: str, first: int, count: int) -> None:
        """Remove pods without an event, and forget all history: only a new list shows that they are gone."""
        self._post("/-/pods", {"fleet": fleet, "first": first, "count": count, "phase": "Vanished"})
        self.expire()

    def put(self, path: str, *objects: dict[str, Any]) -> None:
        """Put objects at the path of their resource, or replace them."""
        self._post("/-/objects", {"path": path, "objects": list(objects)})

    def expire(self) -> None:
        """Forget all history: every client lists again."""
        self._post("/-/expire", {})

    def stats(self) -> dict[str, Any]:
        """Requests by verb and path, bytes sent, objects by path."""
        return dict(self._post("/-/stats", {}))

    def _post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.url + path, orjson.dumps(body), method="POST")  # noqa: S310 - our own address
        with urllib.request.urlopen(request, timeout=_CONTROL_S) as answer:  # noqa: S310
            return orjson.loads(answer.read())

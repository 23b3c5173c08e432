"""The extender as a process of its own, for benchmarks and end-to-end tests: started by its settings, measured through /proc."""

from __future__ import annotations

import http.client
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import Process, ProcessTable

READY_DEADLINE_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """What the process is told, by the names of its settings."""

    name: str = "extender"
    arguments: tuple[str, ...] = ()
    """("binder",) starts that service of the same package."""
    snapshot: Path | None = None
    """Answer from a file; else `kubeconfig` is needed."""
    kubeconfig: Path | None = None
    models_dir: Path | None = None
    readings_file: Path | None = None
    """A snapshot whose readings count as measured now: for load tests on clusters without a Prometheus."""
    prometheus_url: str = ""
    expose_floor: bool = False
    own_namespace: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings without their prefix: {"DEADLINE_MS": "50"}."""


@dataclass(frozen=True, slots=True)
class Extender:
    """A running extender, with its process and ports."""

    process: Process
    table: ProcessTable
    port: int
    status_port: int
    explain_port: int

    @property
    def url(self) -> str:
        """What kube-scheduler gets as `urlPrefix`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def status_url(self) -> str:
        """Address of the status listener: metrics, health, decisions."""
        return f"http://127.0.0.1:{self.status_port}"

    @property
    def explain_url(self) -> str:
        """Address of the loopback listener: explain and state."""
        return f"http://127.0.0.1:{self.explain_port}"

    @classmethod
    def start(
        cls,
        table: ProcessTable,
        options: ExtenderOptions,
        ports: tuple[int, int, int] | None = None,
        *,
        probe: Path | None = None,
        hastened: float | None = None,
    ) -> Extender:
        """Start it; give the ports of a former one to take its place, a file to have `scale_probe` measure its callbacks, and how much
        faster than the wall clock its cluster lives."""
        port, status_port, explain_port = ports or tuple(free_ports(3))
        given = {
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "STATUS_HOST": "127.0.0.1",
            "STATUS_PORT": str(status_port),
            "EXPLAIN_PORT": str(explain_port),
            "SNAPSHOT": str(options.snapshot or ""),
            "MODELS_DIR": str(options.models_dir or ""),
            "READINGS_FILE": str(options.readings_file or ""),
            "PROMETHEUS_URL": options.prometheus_url,
            "EXPOSE_FLOOR": "true" if options.expose_floor else "false",
            "OWN_NAMESPACE": options.own_namespace,
            "STATUS_REQUESTS_PER_SECOND": "1000",  # on one machine everybody who asks is one address
            **options.settings,
        }
        environment = {f"TIPHYS_EXTENDER_{key}": value for key, value in given.items() if value}
        environment["PYTHONUNBUFFERED"] = "1"
        if options.kubeconfig is not None:
            environment["KUBECONFIG"] = str(options.kubeconfig)
        own = ProcessTable(table.run_dir, {**table.environment, **environment})
        measured = [] if probe is None else ["tiphys_testbed.bench.scale_probe", str(probe)]
        clock = [] if hastened is None else ["tiphys_testbed.bench.bill_clock", str(hastened)]
        module = [*measured, *clock, "tiphys_extender"]
        process = own.start(options.name, [sys.executable, "-m", *module, *options.arguments], url=f"http://127.0.0.1:{port}")
        return cls(process, own, port, status_port, explain_port)

    @property
    def ports(self) -> tuple[int, int, int]:
        """The extender's ports, for a successor on the same addresses."""
        return self.port, self.status_port, self.explain_port

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """The wait until /readyz says that the extender's caches are synced."""
        end = time.monotonic() + deadline_s
        last = "no answer"
        while time.monotonic() < end:
            if not self.process.alive():
                raise Unavailable(f"the extender ended while starting; the end of its log:\n{self.process.log_tail()}")
            try:
                status, body = fetch(self.status_url + "/readyz", timeout_s=2.0)
            except Unavailable as error:
                last = str(error)
            else:
                if status == 200:
                    return
                last = f"{status} {body[:200].decode('utf-8', 'replace')}"
            time.sleep(0.05)
        raise Unavailable(f"the extender was not ready within {deadline_s:.0f} s: {last}; its log: {self.process.log}")

    def wait_covered(self, least: float = 0.99, deadline_s: float = READY_DEADLINE_S) -> None:
        """The wait until this share of nodes has fresh readings: they come round by round, and the first may precede the nodes."""
        end = time.monotonic() + deadline_s
        while (coverage := float(self.explain("/v1/state")[1]["coverage"])) < least:
            if time.monotonic() > end:
                raise Unavailable(f"only {coverage:.0%} of nodes had fresh readings after {deadline_s:.0f} s; log: {self.process.log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and wait."""
        self.table.stop(self.process.name)

    def metrics(self) -> ScrapedMetrics:
        """The extender's metrics at this moment."""
        status, body = fetch(self.status_url + "/metrics", timeout_s=5.0)
        if status != 200:
            raise Unavailable(f"/metrics answered {status}")
        return ScrapedMetrics.parse(body.decode())

    def explain(self, query: str) -> tuple[int, Any]:
        """GET a path of the loopback listener; status and decoded body."""
        status, body = fetch(self.explain_url + query, timeout_s=5.0)
        return status, orjson.loads(body) if body else None


@dataclass(frozen=True, slots=True)
class ScrapedMetrics:
    """Samples of the Prometheus text format, by name and labels."""

    samples: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

    @classmethod
    def parse(cls, text: str) -> ScrapedMetrics:
        """The samples in a text of Prometheus' exposition format."""
        samples = {}
        for line in text.splitlines():
            if match := _SAMPLE.match(line):
                labels = tuple(sorted(_LABEL.findall(match.group(2) or "")))
                samples[match.group(1), labels] = float(match.group(3))
        return cls(samples)

    def total(self, name: str, **labels: str) -> float:
        """Sum over all series of that name which have these labels; 0 of none."""
        wanted = set(labels.items())
        return sum(value for (found, having), value in self.samples.items() if found == name and wanted <= set(having))


def fetch(url: str, timeout_s: float, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """GET a plain http URL; Unavailable if nobody answers in time."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""), headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"GET {url}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def cpu_s(pid: int) -> float:
    """User and system time the process has used so far, all threads."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        raise Unavailable(f"process {pid} is gone") from None
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def machine_cpu_s() -> float:
    """Time all cores together were not idle since the machine started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def peak_mib(pid: int) -> float:
    """The most memory that was ever resident (VmHWM), in MiB."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if match is None:
        raise Unavailable(f"/proc/{pid}/status has no VmHWM: memory is measured on Linux only")
    return int(match.group(1)) / 1024


def maps_library(pid: int, part: str) -> bool:
    """Whether a file with this in its name is mapped into the process."""
    return part in Path(f"/proc/{pid}/maps").read_text()

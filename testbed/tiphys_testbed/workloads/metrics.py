"""What a service counts, as text for Prometheus: requests by latency, those in flight, CPU used, and the cores its cgroup grants."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
"""Edges of the histogram; an objective must be one of them."""
_CGROUPS = Path("/sys/fs/cgroup")


class RequestMetrics:
    """Counters of one process. Every number is read and written under one lock: a scrape sees one moment."""

    def __init__(self, edges_s: Sequence[float] = EDGES_S) -> None:
        self._edges_s = tuple(sorted(edges_s))
        self._buckets = [0] * (len(self._edges_s) + 1)
        self._sum_s = 0.0
        self._in_flight = 0
        self._lock = threading.Lock()

    def taken(self) -> None:
        """A request has arrived."""
        with self._lock:
            self._in_flight += 1

    def answered(self, latency_s: float) -> None:
        """The request was answered, or given up, this long after it had arrived."""
        with self._lock:
            self._in_flight -= 1
            self._buckets[bisect_left(self._edges_s, latency_s)] += 1
            self._sum_s += latency_s

    @property
    def in_flight(self) -> int:
        """Taken and not yet answered."""
        return self._in_flight

    def render(self) -> str:
        """The names that a ScalingPolicy's preset `tiphys` reads; the scraper adds namespace and pod."""
        with self._lock:
            buckets, total_s, in_flight = list(self._buckets), self._sum_s, self._in_flight
        lines, count = ["# TYPE http_request_duration_seconds histogram"], 0
        for edge, number in zip((*(f"{e:g}" for e in self._edges_s), "+Inf"), buckets, strict=True):
            count += number
            lines.append(f'http_request_duration_seconds_bucket{{le="{edge}"}} {count}')
        lines += [
            f"http_request_duration_seconds_sum {total_s:.6f}",
            f"http_request_duration_seconds_count {count}",
            *_lines("http_requests_in_flight", "gauge", in_flight),
            *_lines("process_cpu_seconds_total", "counter", f"{time.process_time():.6f}"),
        ]
        if (cores := granted_cores()) is not None:
            lines += _lines("container_granted_cores", "gauge", f"{cores:.4f}")
        return "\n".join(lines) + "\n"


def granted_cores(root: Path = _CGROUPS) -> float | None:
    """The CPU quota that this process's own cgroup files say, either version; None without one."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text(encoding="ascii").strip() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None


def parse(text: str) -> Mapping[str, float]:
    """Series as written → value."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def _lines(name: str, kind: str, value: object) -> Iterable[str]:
    return f"# TYPE {name} {kind}", f"{name} {value}"

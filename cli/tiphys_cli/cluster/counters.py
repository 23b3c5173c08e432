"""What a simulated node measures: counters and gauges under node-exporter's names."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

LOAD1_S = 60.0
SECTOR_MERGE = 0.1  # merged requests per completed one, an ordinary share on ext4
_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a node does over a span of time. Cores are busy cores, rates are per second."""

    busy_cores: float = 0.0
    """Cores that run something; never more than there are, the rest waits (see `runnable`)."""
    system_share: float = 0.15
    """Part of the busy time that is the kernel's."""
    iowait_cores: float = 0.0
    steal_cores: float = 0.0
    runnable: float | None = None
    """Threads that run or want to; None: the busy cores."""
    memory_used_bytes: float = 0.0
    reads_per_s: float = 0.0
    writes_per_s: float = 0.0
    seconds_per_io: float = 0.002
    receive_bytes_per_s: float = 0.0
    transmit_bytes_per_s: float = 0.0


@dataclass(slots=True)
class NodeCounters:
    """The readings of one node. A simulator advances them, the exporter renders them; safe from several threads."""

    cores: int
    memory_bytes: int
    base_memory_bytes: float = 300e6
    """What the system itself uses."""
    idle_instances: dict[str, int] = field(default_factory=dict)
    """Warm instances by function (`namespace/name`); replace through `set_idle_instances`."""
    _cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CPU_MODES, 0.0))
    _context_switches: float = 0.0
    _load1: float = 0.0
    _used_bytes: float = 0.0
    _cached_bytes: float = 0.0
    _disk: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("reads", "writes", "read_s", "write_s"), 0.0))
    _received_bytes: float = 0.0
    _sent_bytes: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def advance(self, dt_s: float, load: NodeLoad) -> None:
        """Let `dt_s` seconds pass under a load."""
        if dt_s < 0:
            raise ValueError(f"time runs forward, not by {dt_s} s")
        busy = min(max(load.busy_cores, 0.0), self.cores)
        waiting = min(load.iowait_cores, self.cores - busy)
        stolen = min(load.steal_cores, self.cores - busy - waiting)
        runnable = busy if load.runnable is None else load.runnable
        with self._lock:
            kernel = busy * load.system_share
            spent = {
                "user": busy - kernel,
                "system": kernel * 0.9,
                "irq": kernel * 0.02,
                "softirq": kernel * 0.08,
                "iowait": waiting,
                "steal": stolen,
                "idle": self.cores - busy - waiting - stolen,
            }
            for mode, cores in spent.items():
                self._cpu_s[mode] += cores * dt_s
            # An idle machine switches a few hundred times a second, a busy core some thousand times.
            self._context_switches += (300 + 2000 * busy + load.reads_per_s + load.writes_per_s) * dt_s
            fade = math.exp(-dt_s / LOAD1_S)
            self._load1 = self._load1 * fade + runnable * (1 - fade)
            self._used_bytes = max(load.memory_used_bytes, 0.0)
            self._disk["reads"] += load.reads_per_s * dt_s
            self._disk["writes"] += load.writes_per_s * dt_s
            self._disk["read_s"] += load.reads_per_s * load.seconds_per_io * dt_s
            self._disk["write_s"] += load.writes_per_s * load.seconds_per_io * dt_s
            # What was read stays in the page cache (64 KiB a request) as long as nobody needs the memory.
            self._cached_bytes = min(self._cached_bytes + load.reads_per_s * dt_s * 65536, self._spare_bytes())
            self._received_bytes += load.receive_bytes_per_s * dt_s
            self._sent_bytes += load.transmit_bytes_per_s * dt_s

    def set_idle_instances(self, instances: Mapping[str, int]) -> None:
        """Replace the warm instances that the node's runtime reports."""
        with self._lock:
            self.idle_instances = dict(instances)

    def render(self) -> str:
        """All readings in Prometheus' text format."""
        with self._lock:
            return "".join(self._lines())

    def _spare_bytes(self) -> float:
        return max(self.memory_bytes - self.base_memory_bytes - self._used_bytes, 0.0)

    def _lines(self) -> list[str]:
        buffers = min(50e6, self._spare_bytes() * 0.05)
        cached = min(self._cached_bytes, self._spare_bytes() - buffers)
        free = self._spare_bytes() - buffers - cached
        disk = '{device="sda"}'
        link = '{device="eth0"}'
        lines = ["# TYPE node_cpu_seconds_total counter\n"]
        for cpu in range(self.cores):
            lines += [f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {self._cpu_s[mode] / self.cores:.6f}\n' for mode in _CPU_MODES]
        for name, kind, labels, value in (
            ("node_context_switches_total", "counter", "", self._context_switches),
            ("node_load1", "gauge", "", self._load1),
            ("node_memory_MemTotal_bytes", "gauge", "", float(self.memory_bytes)),
            ("node_memory_MemFree_bytes", "gauge", "", free),
            ("node_memory_Buffers_bytes", "gauge", "", buffers),
            ("node_memory_Cached_bytes", "gauge", "", cached),
            ("node_memory_MemAvailable_bytes", "gauge", "", free + buffers + cached),
            ("node_disk_reads_completed_total", "counter", disk, self._disk["reads"]),
            ("node_disk_reads_merged_total", "counter", disk, self._disk["reads"] * SECTOR_MERGE),
            ("node_disk_read_time_seconds_total", "counter", disk, self._disk["read_s"]),
            ("node_disk_writes_completed_total", "counter", disk, self._disk["writes"]),
            ("node_disk_writes_merged_total", "counter", disk, self._disk["writes"] * SECTOR_MERGE),
            ("node_disk_write_time_seconds_total", "counter", disk, self._disk["write_s"]),
            ("node_network_receive_bytes_total", "counter", link, self._received_bytes),
            ("node_network_transmit_bytes_total", "counter", link, self._sent_bytes),
        ):
            lines.append(f"# TYPE {name} {kind}\n{name}{labels} {value:.6f}\n")
        lines.append("# TYPE tiphys_runtime_idle_instances gauge\n")
        lines += [
            f'tiphys_runtime_idle_instances{{function="{escape_label(function)}"}} {count}\n'
            for function, count in sorted(self.idle_instances.items())
        ]
        return lines


def escape_label(value: str) -> str:
    """A label value in the text format: backslash, quote and line feed are escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""What a simulated node measures: counters and gauges under node-exporter's names."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiphys_models.placement.calls import PROFILE_QUANTITIES, FunctionProfile

LOAD1_S = 60.0
# The readings of the placement simulator (tiphys_models.placement.sim.observe), which models were trained on: a test holds them together.
KERNEL_SHARE = 0.06
READ_MERGE, WRITE_MERGE = 0.2, 0.4
SECONDS_PER_READ, SECONDS_PER_WRITE = 2e-4, 4e-4
SOFTIRQ_CORE_S_PER_BYTE = 1e-9
BUFFERS_BYTES = 64 * 2**20
CACHED_BYTES, CACHED_SHARE = 128 * 2**10, 0.25
SWITCHES_PER_S, SWITCHES_PER_THREAD_S = 100.0, 400.0
_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a node does over a span of time. Cores are busy cores, rates are per second."""

    busy_cores: float = 0.0
    """Cores that run something; never more than there are, the rest waits (see `runnable`)."""
    iowait_cores: float = 0.0
    steal_cores: float = 0.0
    runnable: float | None = None
    """Threads that run or want to; None: the busy cores."""
    memory_used_bytes: float = 0.0
    reads_per_s: float = 0.0
    writes_per_s: float = 0.0
    receive_bytes_per_s: float = 0.0
    transmit_bytes_per_s: float = 0.0


@dataclass(slots=True)
class NodeCounters:
    """The readings of one node. A simulator advances them, the exporter renders them; safe from several threads."""

    cores: int
    memory_bytes: int
    """What functions and pods may use. Buffers and most of the page cache lie in what the system keeps for itself."""
    system_memory_bytes: float = 2**30
    idle_instances: dict[str, int] = field(default_factory=dict)
    """Warm instances by function (`namespace/name`); replace through `set_idle_instances`."""
    profiles: str = ""
    """What the runtime says of its functions, as text (`profile_lines`): it does not change."""
    _cpu_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_CPU_MODES, 0.0))
    _context_switches: float = 0.0
    _load1: float = 0.0
    _used_bytes: float = 0.0
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
            network = (load.receive_bytes_per_s + load.transmit_bytes_per_s) * SOFTIRQ_CORE_S_PER_BYTE
            softirq = min(network, self.cores - busy - waiting - stolen)
            spent = {
                "user": busy * (1 - KERNEL_SHARE),
                "system": busy * KERNEL_SHARE,
                "softirq": softirq,
                "iowait": waiting,
                "steal": stolen,
                "idle": self.cores - busy - waiting - stolen - softirq,
            }
            for mode, cores in spent.items():
                self._cpu_s[mode] += cores * dt_s
            self._context_switches += (SWITCHES_PER_S + SWITCHES_PER_THREAD_S * runnable) * dt_s
            fade = math.exp(-dt_s / LOAD1_S)
            self._load1 = self._load1 * fade + runnable * (1 - fade)
            self._used_bytes = max(load.memory_used_bytes, 0.0)
            self._disk["reads"] += load.reads_per_s * dt_s
            self._disk["writes"] += load.writes_per_s * dt_s
            self._disk["read_s"] += load.reads_per_s * SECONDS_PER_READ * dt_s
            self._disk["write_s"] += load.writes_per_s * SECONDS_PER_WRITE * dt_s
            self._received_bytes += load.receive_bytes_per_s * dt_s
            self._sent_bytes += load.transmit_bytes_per_s * dt_s

    def set_idle_instances(self, instances: Mapping[str, int]) -> None:
        """Replace the warm instances that the node's runtime reports."""
        with self._lock:
            self.idle_instances = dict(instances)

    def load(self) -> tuple[float, float]:
        """Busy core-seconds so far, and the share of the memory that is used now."""
        with self._lock:
            busy = sum(self._cpu_s[mode] for mode in _CPU_MODES if mode not in ("idle", "iowait"))
            return busy, min(self._used_bytes / self.memory_bytes, 1.0)

    def render(self) -> str:
        """All readings in Prometheus' text format."""
        with self._lock:
            return "".join(self._lines())

    def _lines(self) -> list[str]:
        free = max(self.memory_bytes - self._used_bytes, 0.0)
        cached = min(CACHED_BYTES + CACHED_SHARE * self._used_bytes, self.system_memory_bytes - BUFFERS_BYTES)
        total = self.memory_bytes + self.system_memory_bytes
        disk = '{device="sda"}'
        link = '{device="eth0"}'
        lines = ["# TYPE node_cpu_seconds_total counter\n"]
        for cpu in range(self.cores):
            lines += [f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {self._cpu_s[mode] / self.cores:.6f}\n' for mode in _CPU_MODES]
        for name, kind, labels, value in (
            ("node_context_switches_total", "counter", "", self._context_switches),
            ("node_load1", "gauge", "", self._load1),
            ("node_memory_MemTotal_bytes", "gauge", "", total),
            ("node_memory_MemFree_bytes", "gauge", "", free),
            ("node_memory_Buffers_bytes", "gauge", "", BUFFERS_BYTES),
            ("node_memory_Cached_bytes", "gauge", "", cached),
            ("node_memory_MemAvailable_bytes", "gauge", "", free + BUFFERS_BYTES + cached),
            ("node_disk_reads_completed_total", "counter", disk, self._disk["reads"]),
            ("node_disk_reads_merged_total", "counter", disk, self._disk["reads"] * READ_MERGE),
            ("node_disk_read_time_seconds_total", "counter", disk, self._disk["read_s"]),
            ("node_disk_writes_completed_total", "counter", disk, self._disk["writes"]),
            ("node_disk_writes_merged_total", "counter", disk, self._disk["writes"] * WRITE_MERGE),
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
        return [*lines, self.profiles]


def profile_lines(profiles: Mapping[str, FunctionProfile]) -> str:
    """What calls of each function (`namespace/name`) are like alone on a node, in Prometheus' text format."""
    lines = ["# TYPE tiphys_runtime_call_profile gauge\n"]
    for function, profile in profiles.items():
        for quantity, value in zip(PROFILE_QUANTITIES, profile.as_row(), strict=True):
            lines.append(f'tiphys_runtime_call_profile{{function="{escape_label(function)}",quantity="{quantity}"}} {value:.6f}\n')
    return "".join(lines)


def escape_label(value: str) -> str:
    """A label value in the text format: backslash, quote and line feed are escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""The 26 inputs of FaaSRank in the paper's order (Yu et al., table I), each with its real source.

The first 21 are readings of the node (node-exporter names, read from Prometheus). Counters become per-second rates, so that
one model serves any scrape window it was trained for; the window is part of the schema version a model's card names.
The last five are what Tiphys knows itself, event-fresh: bound and reserved pods, idle instances, the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tiphys_models.base.promql import ANY_LABELS, held_to

SCHEMA = "faasrank-26/1"

IDLE_INSTANCES = "tiphys_runtime_idle_instances"
IDLE_AGE = "tiphys_runtime_idle_age_seconds"
"""How old, at the scrape, what is said of a node's idle instances is; a runtime that counts when it is scraped need not say so."""
_DISKS = 'device!~"(loop|ram|dm-|zram|sr).*"'
_LINKS = 'device!~"(lo|veth.*|cali.*|cni.*|flannel.*|docker.*|br-.*|kube-.*)"'


@dataclass(frozen=True, slots=True)
class Feature:
    """One input of the score network."""

    name: str
    kind: Literal["rate", "gauge", "own"]
    """`rate`: counter per second over the window; `gauge`: last value; `own`: from the API server or the request."""
    unit: str
    source: str
    """The metric selector, or in words where Tiphys takes it from."""
    parts: str = ""
    """Label that tells apart what adds up to a node's rate."""

    def promql(self, window_s: int, node_label: str, provenance: Mapping[str, str] = ANY_LABELS) -> str:
        """The instant query that gives this feature for every node at once, of series with these labels only."""
        if self.kind == "own":
            raise ValueError(f"{self.name} is not measured by Prometheus")
        source = held_to(self.source, provenance)
        if self.kind == "rate":
            return _summed(f"rate({source}[{window_s}s])", node_label, self.parts)
        return f"max by ({node_label}) ({source})"


def _summed(rates: str, node_label: str, *parts: str) -> str:
    """An exporter that is scraped twice tells everything twice: of each part the largest counts, and only parts are added."""
    apart = ", ".join((node_label, *filter(None, parts)))
    return f"sum by ({node_label}) (max by ({apart}) ({rates}))"


def _cpu(name: str, mode: str) -> Feature:
    return Feature(name, "rate", "core-seconds/s", f'node_cpu_seconds_total{{mode="{mode}"}}', "cpu")


FEATURES: tuple[Feature, ...] = (
    _cpu("cpu_user", "user"),
    _cpu("cpu_nice", "nice"),
    _cpu("cpu_kernel", "system"),
    _cpu("cpu_idle", "idle"),
    _cpu("cpu_iowait", "iowait"),
    _cpu("cpu_irq", "irq"),
    _cpu("cpu_softirq", "softirq"),
    _cpu("cpu_steal", "steal"),
    Feature("ctx_switches", "rate", "1/s", "node_context_switches_total"),
    Feature("cpu_load_avg", "gauge", "runnable threads", "node_load1"),
    Feature("memory_free", "gauge", "bytes", "node_memory_MemFree_bytes"),
    Feature("memory_buffers", "gauge", "bytes", "node_memory_Buffers_bytes"),
    Feature("memory_cached", "gauge", "bytes", "node_memory_Cached_bytes"),
    Feature("disk_read", "rate", "1/s", f"node_disk_reads_completed_total{{{_DISKS}}}", "device"),
    Feature("disk_read_merged", "rate", "1/s", f"node_disk_reads_merged_total{{{_DISKS}}}", "device"),
    Feature("disk_read_time", "rate", "s/s", f"node_disk_read_time_seconds_total{{{_DISKS}}}", "device"),
    Feature("disk_write", "rate", "1/s", f"node_disk_writes_completed_total{{{_DISKS}}}", "device"),
    Feature("disk_write_merged", "rate", "1/s", f"node_disk_writes_merged_total{{{_DISKS}}}", "device"),
    Feature("disk_write_time", "rate", "s/s", f"node_disk_write_time_seconds_total{{{_DISKS}}}", "device"),
    Feature("net_recv", "rate", "bytes/s", f"node_network_receive_bytes_total{{{_LINKS}}}", "device"),
    Feature("net_sent", "rate", "bytes/s", f"node_network_transmit_bytes_total{{{_LINKS}}}", "device"),
    Feature("avail_memory", "own", "bytes", "node allocatable memory less requests of bound and reserved pods"),
    Feature("inflight", "own", "pods", "unfinished function pods bound to or reserved on the node"),
    Feature("warm", "own", "instances", "idle instances of the function that the runtime reports, less newer placements"),
    Feature("requested_memory", "own", "bytes", "memory requests of the pod"),
    Feature("init_time", "own", "s", "moving mean of PodScheduled to Ready of this function's pods"),
)

NODE_READINGS: tuple[Feature, ...] = tuple(f for f in FEATURES if f.kind != "own")
"""The columns that come from Prometheus, in order: the first 21."""

COLUMN = {feature.name: index for index, feature in enumerate(FEATURES)}


def busy_cores_query(window_s: int, node_label: str, provenance: Mapping[str, str]) -> str:
    """Cores in use by node."""
    source = held_to('node_cpu_seconds_total{mode!~"idle|iowait"}', provenance)
    return _summed(f"rate({source}[{window_s}s])", node_label, "cpu", "mode")


def idle_instances_query(node_label: str, provenance: Mapping[str, str]) -> str:
    """What function runtimes on the node report; `function` is `namespace/name` as in `function_of`.

    Runtimes of one node are told apart by their pods, where the scrape names them: one that is scraped twice counts once.
    """
    source = held_to(IDLE_INSTANCES, provenance)
    return f"sum by ({node_label}, function) (max by ({node_label}, function, pod) ({source}))"


def idle_times_query(node_label: str, provenance: Mapping[str, str]) -> str:
    """When each node was last scraped, less how old its runtime says the counts were by then. The time of an instant vector is that of the
    query, up to a scrape interval later. No runtime can make its counts younger than their scrape."""
    scraped = f"timestamp({held_to(IDLE_INSTANCES, provenance)})"
    age = f"clamp_min(max by ({node_label}) ({held_to(IDLE_AGE, provenance)}), 0)"
    return f"min by ({node_label}) ({scraped} - on ({node_label}) group_left () {age} or {scraped})"

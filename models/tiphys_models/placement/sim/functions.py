"""The ten functions of FaaSRank's evaluation, as the simulator runs them.

Memory and times: Yu et al., "FaaSRank: Learning to Schedule Functions in Serverless Platforms", ACSOS 2021, table II. How
many cores each can use: the same group's simulator (IntelliSys-Lab/Freyr-sim), 16 of `alu` cut to the 8 cores of a node.
Disk and network figures per call are our choice: nobody published them; they only shape the readings.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
NOISE_CV = 0.3
"""Coefficient of variation of the work of single calls (log-normal): published times are means, and nobody knows a call's own."""


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """One function: what it asks for and how long it takes alone on a node."""

    name: str
    memory_mib: int
    cold_s: float
    """Start of a new instance and first execution."""
    warm_s: float
    init_s: float
    """Part of `cold_s` before the execution: the node's cores are idle meanwhile."""
    parallelism: int
    """Cores it can use at once."""
    disk_reads_cold: float
    disk_writes: float
    net_received_bytes: float
    net_sent_bytes: float

    @property
    def warm_work_core_s(self) -> float:
        """Mean work of a call on an idle instance."""
        return self.warm_s * self.parallelism

    @property
    def cold_work_core_s(self) -> float:
        """Mean work of a call on a new instance, after its start."""
        return (self.cold_s - self.init_s) * self.parallelism


FUNCTIONS: tuple[FunctionModel, ...] = (
    FunctionModel("dh", 512, 4.45, 2.34, 1.55, 8, 400, 20, 2e4, 4e5),
    FunctionModel("eg", 256, 2.20, 0.21, 1.55, 2, 300, 10, 1e4, 5e4),
    FunctionModel("ip", 256, 5.88, 3.52, 1.69, 2, 350, 120, 2e6, 2e6),
    FunctionModel("vp", 512, 6.86, 1.19, 4.77, 1, 900, 400, 8e6, 6e6),
    FunctionModel("ir", 512, 4.28, 0.09, 1.33, 1, 1500, 5, 5e5, 2e3),
    FunctionModel("knn", 512, 4.99, 1.11, 3.45, 6, 1200, 5, 1e6, 2e3),
    FunctionModel("gd", 512, 4.15, 0.60, 2.59, 2, 1000, 5, 1e6, 2e3),
    FunctionModel("alu", 256, 5.72, 3.45, 1.50, 8, 250, 2, 2e3, 2e3),
    FunctionModel("ms", 256, 3.87, 1.94, 1.54, 6, 250, 2, 2e4, 2e4),
    FunctionModel("dv", 512, 8.57, 3.11, 4.13, 4, 800, 60, 4e6, 3e6),
)

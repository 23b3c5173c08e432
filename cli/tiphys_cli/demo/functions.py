"""The ten functions of the FaaSRank paper (Yu et al., ACSOS 2021, table II): what a call needs and how long it takes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB = 1024**2
MILLI_CPU_PER_MIB = 250 / 256
"""Function platforms sell CPU with memory; a pod asks for a quarter of a core per 256 MiB and may use whatever is free."""


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """One function. The times are those of a call that has its node for itself."""

    name: str
    title: str
    memory_bytes: int
    cold_s: float
    """A call that has to start a container first: start and run together."""
    warm_s: float
    """A call that finds an idle container."""
    init_s: float
    """Start of a container: it waits, it does not compute."""
    parallelism: int
    """Cores a call can use at once."""

    @property
    def warm_work_core_s(self) -> float:
        """Computation of a warm call."""
        return self.warm_s * self.parallelism

    @property
    def cold_work_core_s(self) -> float:
        """Computation of a cold call after its start; more than a warm one's, for caches are cold as well."""
        return (self.cold_s - self.init_s) * self.parallelism

    @property
    def cpu_milli(self) -> int:
        """CPU request of its pods."""
        return round(self.memory_bytes / MIB * MILLI_CPU_PER_MIB)

    @property
    def image(self) -> str:
        """Image of its pods, as a kubelet reports it."""
        return f"registry.example/functions/{self.name}:1.0"

    def scaled(self, factor: float) -> FunctionProfile:
        """The same function on a clock that runs `factor` times as long."""
        return replace(self, cold_s=self.cold_s * factor, warm_s=self.warm_s * factor, init_s=self.init_s * factor)


def _function(name: str, title: str, memory_mib: int, cold_s: float, warm_s: float, init_s: float, parallelism: int) -> FunctionProfile:
    return FunctionProfile(name, title, memory_mib * MIB, cold_s, warm_s, init_s, parallelism)


# Times and memory from table II. Parallelism is not in the paper; these values reproduce the CPU seconds of its table III
# (8.7 core-seconds a call all warm, 20.4 all cold; measured there: 12.6 to 15.8).
FUNCTIONS: tuple[FunctionProfile, ...] = (
    _function("dh", "dynamic HTML", 512, 4.45, 2.34, 1.55, 8),
    _function("eg", "e-mail generation", 256, 2.20, 0.21, 1.55, 2),
    _function("ip", "image processing", 256, 5.88, 3.52, 1.69, 2),
    _function("vp", "video processing", 512, 6.86, 1.19, 4.77, 1),
    _function("ir", "image recognition", 512, 4.28, 0.09, 1.33, 1),
    _function("knn", "k nearest neighbours", 512, 4.99, 1.11, 3.45, 6),
    _function("gd", "gradient descent", 512, 4.15, 0.60, 2.59, 2),
    _function("alu", "arithmetic", 256, 5.72, 3.45, 1.50, 8),
    _function("ms", "merge sort", 256, 3.87, 1.94, 1.54, 6),
    _function("dv", "DNA visualisation", 512, 8.57, 3.11, 4.13, 4),
)


def functions_by_name(factor: float = 1.0) -> dict[str, FunctionProfile]:
    """All of them on a clock that runs `factor` times as long."""
    return {function.name: function.scaled(factor) for function in FUNCTIONS}

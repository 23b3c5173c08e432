"""The simulator's ten functions as pods and as what a function runtime reports of them."""

from __future__ import annotations

from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.sim.functions import FUNCTIONS, MIB, FunctionModel

MILLI_CPU_PER_MIB = 250 / 256
"""Function platforms sell CPU with memory; a pod asks for a quarter of a core per 256 MiB and may use whatever is free."""
BY_NAME = {function.name: function for function in FUNCTIONS}


def memory_bytes(function: FunctionModel) -> int:
    """Memory request of its pods."""
    return function.memory_mib * MIB


def cpu_milli(function: FunctionModel) -> int:
    """CPU request of its pods."""
    return round(function.memory_mib * MILLI_CPU_PER_MIB)


def image(function: FunctionModel) -> str:
    """Image of its pods, as a kubelet reports it."""
    return f"registry.example/functions/{function.name}:1.0"


def profile(function: FunctionModel) -> FunctionProfile:
    """What the function's owner has declared, or a platform has measured on an idle node: means. No call's own work is known."""
    return FunctionProfile(
        function.warm_s, function.cold_s, function.warm_work_core_s, function.cold_work_core_s, float(function.parallelism)
    )

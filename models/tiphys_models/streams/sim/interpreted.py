"""Bindings by a policy that cannot be compiled, such as another package's: the very code of `kernel`, run by Python.

It is slower by one to two orders of magnitude. Constraints, ties and loads are the compiled ones; only the preference is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.kernels import Candidates
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.sim import kernel
from tiphys_models.streams.sim.kernel import EdgeCloud, Options, State, Streams
from tiphys_models.streams.sim.topology import TASK
from tiphys_models.streams.stream import Stream

Bind = Callable[[EdgeCloud, Streams, State, float, Options], None]


def bind_until_by(policy: BindingPolicy, names: tuple[str, ...]) -> Bind:
    """`kernel.bind_until` with this policy's scores; `names` are those of the applications."""
    asked: list[Stream] = []

    def preference(kind: int, candidates: Candidates, weights: FloatArray) -> FloatArray:
        return policy.score(asked[0], candidates)

    bind = _uncompiled(kernel.bind_one, _preference=preference)

    def bind_one(world: EdgeCloud, streams: Streams, state: State, i: int, options: Options) -> None:
        asked[:] = [stream_of(streams, i, names)]
        bind(world, streams, state, i, options)

    made: Bind = _uncompiled(kernel.bind_until, bind_one=bind_one)
    return made


def stream_of(streams: Streams, i: int, names: tuple[str, ...]) -> Stream:
    """One stream as a binder sees it. The ways are known together only: all of them stand as transmission."""
    size_kb, lost_ms = float(streams.size_kb[i]), float(streams.max_delay_ms[i] - streams.slack_ms[i])
    return Stream(
        task=TASK,
        max_delay_ms=float(streams.max_delay_ms[i]),
        min_accuracy=float(streams.min_accuracy[i]),
        rate_qps=float(streams.rate_qps[i]),
        size_kb=size_kb,
        bit_rate_mbps=size_kb * 8 / lost_ms if lost_ms > 0 else float("inf"),
        access_delay_ms=0.0,
        application=names[streams.application[i]],
        draw=int(streams.draw[i]),
    )


def _uncompiled(function: Any, **uses: Any) -> Any:
    """The Python function behind a compiled one, with other functions under some of the names that it calls."""
    plain = getattr(function, "py_func", function)
    return FunctionType(plain.__code__, {**plain.__globals__, **uses}, plain.__name__)

"""A service whose learned lifetimes are counted in model time: the constants of `placement.lifetimes` are divided before it starts.

`python -m tiphys_testbed.bench.bill_clock FACTOR MODULE`. What is served knows no model time; only a benchmark whose cluster lives
faster than the wall clock needs it.
"""

from __future__ import annotations

import os
import runpy
import sys


def hasten(factor: float) -> None:
    """Divide every length of time that lifetimes are kept and foreseen by."""
    from tiphys_models.placement import lifetimes, lives  # noqa: PLC0415 - numpy reads the environment when it is imported

    for array in (lifetimes.EDGES_S, lifetimes.WIDTHS_S, lifetimes.AHEAD_S, lifetimes.SPANS_S):
        array[:] = array / factor  # in place: whoever has imported them sees it
    lifetimes.FIRST_EDGE_S /= factor
    lifetimes.HALF_LIFE_S /= factor
    lifetimes.HORIZON_S /= factor
    lives.REFRESH_S /= factor


def main() -> None:
    """Runs the module named on the command line with divided constants."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # as the extender itself does, too late from in here
    factor, module, *arguments = sys.argv[1:]
    hasten(float(factor))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

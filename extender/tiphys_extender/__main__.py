"""`python -m tiphys_extender`: the service, configured by TIPHYS_EXTENDER_* variables; with the argument `binder`: the one that places
calls, configured by TIPHYS_BINDER_* variables as well."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run until SIGTERM; the exit code says why it ended."""
    # numpy's BLAS starts a thread per core with megabytes of buffers each; products of 500 x 26 gain nothing from them
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # imported here: numpy reads the variables when it is imported
    if sys.argv[1:] == ["binder"]:
        from tiphys_extender.binder.server import run_binder  # noqa: PLC0415

        return run_binder()
    if sys.argv[1:]:
        sys.stderr.write("usage: python -m tiphys_extender [binder]\n")
        return 2
    from tiphys_extender.gates.process import run_extender  # noqa: PLC0415

    return run_extender()


if __name__ == "__main__":
    sys.exit(main())

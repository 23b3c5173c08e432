"""`python -m tiphys_extender`: the service, configured by TIPHYS_EXTENDER_* variables."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run until SIGTERM; the exit code says why it ended."""
    # numpy's BLAS starts a thread per core with megabytes of buffers each; products of 500 x 26 gain nothing from them
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from tiphys_extender.server import run  # noqa: PLC0415 - numpy reads the variables when it is imported

    return run()


if __name__ == "__main__":
    sys.exit(main())

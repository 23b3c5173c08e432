"""Outlives the program that started a cluster, to end the cluster in order if that program dies."""

import signal
import sys
from pathlib import Path

from tiphys_testbed.cluster.runs import Run


def main(run_dir: Path) -> None:
    """Wait until the starter's end of the pipe closes, then end what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()  # returns when the starter closes it or dies
    if run_dir.exists():  # an orderly stop has removed it
        Run(run_dir).remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

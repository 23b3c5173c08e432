"""`python -m tiphys_cli.observability [--check] [--root DIR]`: write, or only compare, the generated files of a source tree."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from tiphys_cli.observability.generate import stale, write
from tiphys_models.base.errors import InvalidInput


def main(arguments: list[str] | None = None) -> int:
    """0 if all is as the code says, or has been written so."""
    parser = argparse.ArgumentParser(
        prog="python -m tiphys_cli.observability", description="Write dashboard, alerts, runbook and the chart's CRDs."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the source tree (default: the current directory)")
    options = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        changed = stale(options.root) if options.check else write(options.root)
    except InvalidInput as error:
        console.print(str(error))
        return 2
    for path in changed:
        console.print(f"{'differs' if options.check else 'wrote'} {path}")
    if options.check and changed:
        console.print("run `python -m tiphys_cli.observability` and commit the result")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

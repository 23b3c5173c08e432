"""All benchmarks: those of the simulators, and those that other distributions bring, such as the test bed's, which start processes."""

from __future__ import annotations

from tiphys_cli.bench.commands import bench_app
from tiphys_cli.brought import absent, brought

__all__ = ["bench_app"]

PROCESSES = ("extender", "scheduler", "live-placement", "binder", "versions")
"""What the test bed brings; named here, so that somebody without it is told where it is."""

_found = brought("tiphys.bench")
for _app in _found.values():
    bench_app.registered_commands.extend(_app.registered_commands)
for _name in PROCESSES if not _found else ():
    bench_app.command(_name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, hidden=True)(
        absent(f"bench {_name}")
    )

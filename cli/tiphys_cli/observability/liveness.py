"""Alerts and runbook of what holds an extender or a binder up from inside: loops that stand still, objects that were left out."""

from __future__ import annotations

from tiphys_cli.observability.rules import Alert, Entry


def _left_out(service: str) -> str:
    return f'increase(tiphys_{service}_watch_errors_total{{reason="bad-object"}}[15m])'


def alerts() -> list[Alert]:
    """Of both services."""
    return [
        Alert(
            "TiphysExtenderLoopLate",
            "warning",
            "5m",
            "max by (loop) (tiphys_extender_loop_age_seconds or tiphys_binder_loop_age_seconds) > 300",
            "A loop of an extender or a binder does nothing any more",
            "Loop {{ $labels.loop }} has done nothing for {{ $value | humanizeDuration }}.",
        ),
        Alert(
            "TiphysExtenderObjectLeftOut",
            "info",
            "0m",
            f"sum by (kind) ({_left_out('extender')} or {_left_out('binder')}) > 0",
            "An object of the cluster cannot be read and is left out",
            "Some of the {{ $labels.kind }} could not be read in the last 15 minutes; everything else goes on.",
        ),
    ]


ENTRIES: dict[str, Entry] = {
    "TiphysExtenderLoopLate": Entry(
        "Each loop of the process (the tick, each watch, readings, models, the binder's calls and streams) says when it has done a round "
        "of its work. This one has not for five minutes: it hangs, or it trips over something again and again.",
        "`ticker`: reservations do not expire; the process is not ready, and is restarted after two minutes. `watch-…`: decisions use an "
        "old picture of that kind. `readings`: policies that read nodes fall back. `models`: new weights are not taken. `calls`, "
        "`streams…`: leases do not end.",
        (
            "`tiphys_extender_loop_failures_total` (`tiphys_binder_…`) by loop: does it fail again and again? The log then says "
            "`a loop failed, it starts again`, with the trace.",
            "`/readyz` on the status port and `lateLoops` in `/v1/state` on the explain port name every late loop.",
        ),
        (
            "`kubectl -n tiphys-system rollout restart deploy/tiphys-scheduler` (`deploy/tiphys-binder`); if it stands still again, "
            "report the trace: nothing in a cluster should be able to do this.",
        ),
    ),
    "TiphysExtenderObjectLeftOut": Entry(
        "An object that the API server holds made a parser trip. It is counted, named in the log once for each of its versions "
        "(`object left out`, with kind, namespace and name), and looked at again when it changes.",
        "A pod that cannot be read counts as no load; a node, a policy, a plan or a model keeps the last state that could be read. "
        "Nothing else is touched.",
        ("`kubectl -n tiphys-system logs deploy/tiphys-scheduler -c extender | grep 'object left out'`",),
        ("Correct or delete the object; whoever made it may be trying what a strange object does.",),
    ),
}

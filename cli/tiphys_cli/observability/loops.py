"""Alerts on what keeps the operator's loops from their work, with their sections of the runbook."""

from __future__ import annotations

from tiphys_cli.observability.rules import Alert, Entry


def alerts() -> list[Alert]:
    """All of them."""
    return [
        Alert(
            "TiphysOperatorLoopLate",
            "warning",
            "5m",
            "max by (loop) (tiphys_operator_loop_age_seconds) > 300",
            "A loop of the leading operator does nothing",
            "Loop {{ $labels.loop }} has done nothing for {{ $value | humanizeDuration }}; what it keeps true grows old.",
        ),
        Alert(
            "TiphysScalingWindowsLate",
            "warning",
            "10m",
            "max(tiphys_operator_windows_overdue) > 0",
            "ScalingPolicies have no windows",
            "{{ $value }} ScalingPolicies have had no good window for more than two of their intervals: their workloads stay as they are.",
        ),
        Alert(
            "TiphysOperatorObjectErrors",
            "warning",
            "5m",
            "sum by (kind) (increase(tiphys_operator_object_errors_total[15m])) > 0",
            "The operator leaves objects out that it cannot take",
            "{{ $value | humanize }} times in 15 minutes an object of kind {{ $labels.kind }} made a step fail; all others go on.",
        ),
        Alert(
            "TiphysOperatorWatchRestarts",
            "warning",
            "0m",
            "sum by (watch) (increase(tiphys_operator_watch_restarts_total[30m])) > 2",
            "A watch of the operator ends again and again",
            "{{ $labels.watch }} ended {{ $value | humanize }} times in half an hour by a mistake and was started again.",
        ),
    ]


ENTRIES: dict[str, Entry] = {
    "TiphysOperatorLoopLate": Entry(
        "Every loop and watch of the leader says when it last did its work; this one has not for five minutes. A watch hears from the API "
        "server every minute even when nothing happens, and every other loop turns at least once a minute.",
        "What the loop keeps true grows old: statuses, plans, sizes of workloads. Nothing is changed on old data: what is there stays.",
        (
            "`/readyz` of the operator's pod names the loops that are late.",
            "A `watch-…`: does the API server answer, may the ServiceAccount list and watch the kind (`TiphysOperatorPermissionMissing`)?",
            "`reconcile`, `scaling`, `selection`, `binding`: the operator's log; CPU throttling of its pod "
            "(`tiphys_operator_loop_lag_seconds`)",
        ),
        (
            "Liveness restarts a process whose own loops stand still; otherwise `kubectl -n tiphys-system rollout restart "
            "deploy/tiphys-operator`.",
        ),
    ),
    "TiphysScalingWindowsLate": Entry(
        "A window that ended well is more than an interval late, whether it failed, waits for its turn, or was never begun.",
        "The workloads of these policies stay as they are, also under load.",
        (
            "`tiphys_operator_window_overdue_seconds`: how late the latest is; `tiphys_operator_scaling_errors_total` by reason: why "
            "windows fail",
            "`kubectl get scalingpolicies -A`: Ready=False with reason `InternalError` names an object that makes windows fail.",
            "Many policies late by little: more windows than the API server and Prometheus answer in time; failed ones come back more and "
            "more seldom, up to their interval or a minute.",
        ),
        (
            "Restore what does not answer. Give policies longer intervals if there are more than can be measured.",
            "Until then scale by hand: a policy leaves what others set.",
        ),
    ),
    "TiphysOperatorObjectErrors": Entry(
        "Something in an object, or in what it names, raises an error that nobody foresaw. The step on that object is given up; "
        "every other object is served as before, and the object is looked at again when it changes or when its turn comes.",
        "Only what hangs on that object: a policy of ours shows `InternalError` in its status; a pod or node is not counted anew.",
        (
            "The log's line `object left out` names kind, namespace and name, and the error with the place in the code, once for each "
            "version.",
            "`kubectl get` the object with `-o yaml` and look for unusual quantities, times, null lists, or a status that others wrote.",
        ),
        (
            "Correct or delete the object. A status can be emptied: it is written anew.",
            "Report it with the object's YAML: it should be refused or read, not tripped over.",
        ),
    ),
    "TiphysOperatorWatchRestarts": Entry(
        "A watch of the operator ended by an error that should not be possible, and was started again with a new list.",
        "What the watch shows is a few seconds old each time. After eight ends without a list in between the process ends and "
        "starts again.",
        ("The log's line `a watch ended that never should` has the error and the place in the code.",),
        ("Something between operator and API server changes answers (a proxy, an aggregated API)? Otherwise report the line.",),
    ),
}

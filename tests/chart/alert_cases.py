"""For every alert: series on which it fires, with what it then says, and series on which it must not."""

from dataclasses import dataclass, field

Series = dict[str, str]
"""Selector → values in promtool's notation, one a minute: `0+60x30` is a counter that grows by one a second."""

UP = {"job": "tiphys-extender-status", "instance": "10.0.0.1:8080"}
_AT = 'job="tiphys-extender-status",instance="10.0.0.1:8080"'
_OTHER = 'job="tiphys-extender-status",instance="10.0.0.2:8080"'
_BINDER = 'job="tiphys-binder-status",instance="10.0.0.5:8080"'
_OP = 'job="tiphys-operator",instance="10.0.0.3:8080"'
_OP2 = 'job="tiphys-operator",instance="10.0.0.4:8080"'
_SCORE = 'scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",profile="tiphys",status="Success"}'
_OK = f'tiphys_extender_requests_total{{{_AT},code="200"}}'


@dataclass(frozen=True, slots=True)
class Case:
    """One alert."""

    fires: Series
    at: str
    """When it must fire; it must also be silent on `quiet` then."""
    description: str
    """What the alert says."""
    quiet: Series
    labels: dict[str, str] = field(default_factory=dict)
    """Labels beside alertname and severity."""


def _latency(slow: int, minutes: int) -> Series:
    """100 answers a minute, `slow` of them beyond the budget."""
    return {
        f'tiphys_extender_request_duration_seconds_bucket{{{_AT},le="0.02"}}': f"0+{100 - slow}x{minutes}",
        f"tiphys_extender_request_duration_seconds_count{{{_AT}}}": f"0+100x{minutes}",
    }


def _stranded(attempts: str | None, node: str = "") -> Series:
    series = {
        'kube_pod_scheduler{namespace="a",pod="p",name="tiphys"}': "1x60",
        f'kube_pod_info{{namespace="a",pod="p",node="{node}"}}': "1x60",
        'kube_pod_status_phase{namespace="a",pod="p",phase="Pending"}': "1x60",
        'kube_pod_scheduler{namespace="a",pod="q",name="default-scheduler"}': "1x60",
        'kube_pod_info{namespace="a",pod="q",node=""}': "1x60",
        'kube_pod_status_phase{namespace="a",pod="q",phase="Pending"}': "1x60",
    }
    return series | ({'scheduler_schedule_attempts_total{profile="tiphys",result="unschedulable"}': attempts} if attempts else {})


CASES: dict[str, Case] = {
    "TiphysPodsStranded": Case(
        _stranded(None),
        "15m",
        "1 pods name scheduler tiphys, have no node, and it has tried none for 10 minutes. They stay Pending until it is back.",
        _stranded("0+1x60"),
    ),
    "TiphysExtenderCoverageLow": Case(
        {_SCORE: "0+100x60", _OK: "0+50x60"},
        "20m",
        "Only 50% of the scheduler's Score calls got an answer; the default plugins alone decide for the rest.",
        {_SCORE: "0+100x60", _OK: "0+99x60"},
    ),
    "TiphysExtenderAbsent": Case(
        {},
        "15m",
        "No extender has delivered metrics for 10 minutes: it is down, or Prometheus does not find it.",
        {f"tiphys_extender_enabled{{{_AT}}}": "1x60"},
    ),
    "TiphysDisabled": Case(
        {f"tiphys_extender_enabled{{{_AT}}}": "0x500"},
        "7h",
        "Every answer is neutral since more than 6 hours. Turn Tiphys on again, or uninstall it.",
        {f"tiphys_extender_enabled{{{_AT}}}": "0x300 1x200"},
    ),
    "TiphysExtenderLatencyBurnFast": Case(
        _latency(50, 120),
        "1h10m",
        "More than the allowed 1 % of answers take longer than the 20 ms budget: 50% of them.",
        _latency(1, 120),
    ),
    "TiphysExtenderLatencyBurnSlow": Case(
        _latency(4, 1600),
        "26h",
        "More than the allowed 1 % of answers take longer than the 20 ms budget: 4% of them over a day.",
        _latency(2, 1600),
    ),
    "TiphysExtenderFallbackActive": Case(
        {
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="model-missing"}}': "0+20x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="fallback"}}': "0+20x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="scored"}}': "0+80x60",
        },
        "20m",
        "20% of answers are by the fallback, reason model-missing.",
        {
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="model-missing"}}': "0+2x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="fallback"}}': "0+2x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="scored"}}': "0+98x60",
        },
        {"reason": "model-missing"},
    ),
    "TiphysExtenderNeutralByTrouble": Case(
        {
            f'tiphys_extender_neutral_answers_total{{{_AT},reason="deadline"}}': "0+10x60",
            f'tiphys_extender_neutral_answers_total{{{_AT},reason="shadow"}}': "0+90x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="neutral"}}': "0+100x60",
        },
        "20m",
        "10% of answers are neutral because something is wrong.",
        {
            f'tiphys_extender_neutral_answers_total{{{_AT},reason="deadline"}}': "0x60",
            f'tiphys_extender_neutral_answers_total{{{_AT},reason="shadow"}}': "0+100x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="neutral"}}': "0+100x60",
        },
    ),
    "TiphysExtenderNotSynced": Case(
        {f'tiphys_extender_cache_synced{{{_AT},kind="pods"}}': "0x60", f'tiphys_extender_cache_synced{{{_AT},kind="nodes"}}': "1x60"},
        "10m",
        "The extender knows no whole list of pods: its answers are neutral.",
        {f'tiphys_extender_cache_synced{{{_AT},kind="pods"}}': "0 0 1x60"},
        {"kind": "pods"},
    ),
    "TiphysExtenderWatchSilent": Case(
        {f'tiphys_extender_last_event_timestamp_seconds{{{_AT},kind="pods"}}': "60x60"},
        "21m",
        "Nothing about pods for 20m 0s, not even a bookmark: decisions use an old picture.",
        {f'tiphys_extender_last_event_timestamp_seconds{{{_AT},kind="pods"}}': "60+60x60"},
        {"kind": "pods"},
    ),
    "TiphysExtenderCertificateExpiring": Case(
        {f"tiphys_extender_certificate_expiry_timestamp_seconds{{{_AT}}}": "864000x120"},
        "2h",
        "It ends in 9d 22h 0m 0s. After that the scheduler refuses every answer, silently.",
        {  # one without TLS, one with a year left
            f"tiphys_extender_certificate_expiry_timestamp_seconds{{{_AT}}}": "0x120",
            f"tiphys_extender_certificate_expiry_timestamp_seconds{{{_OTHER}}}": "31536000x120",
        },
    ),
    "TiphysExtenderDecisionLogDropping": Case(
        {f"tiphys_extender_decision_log_dropped_total{{{_AT}}}": "0+1x60"},
        "30m",
        "15 decisions in 15 minutes are only in memory: a restart loses them.",
        {f"tiphys_extender_decision_log_dropped_total{{{_AT}}}": "7x60"},
        UP,
    ),
    "TiphysReadingsStale": Case(
        {f"tiphys_extender_readings_timestamp_seconds{{{_AT}}}": "60x60"},
        "11m",
        "The last readings were taken 10m 0s ago: older than the default guardrail of policies.",
        {  # one that takes readings, one for which they are off
            f"tiphys_extender_readings_timestamp_seconds{{{_AT}}}": "0+60x60",
            f"tiphys_extender_readings_timestamp_seconds{{{_OTHER}}}": "0x60",
        },
        UP,
    ),
    "TiphysReadingsCoverageLow": Case(
        {
            f"tiphys_extender_readings_coverage_ratio{{{_AT}}}": "0.25x60",
            f"tiphys_extender_readings_timestamp_seconds{{{_AT}}}": "60+60x60",
        },
        "20m",
        "Only 25% of nodes have readings: policies that need them answer by their fallback.",
        {
            f"tiphys_extender_readings_coverage_ratio{{{_AT}}}": "0x60",
            f"tiphys_extender_readings_timestamp_seconds{{{_AT}}}": "0x60",
            f"tiphys_extender_readings_coverage_ratio{{{_OTHER}}}": "0.9x60",
            f"tiphys_extender_readings_timestamp_seconds{{{_OTHER}}}": "60+60x60",
        },
        UP,
    ),
    "TiphysModelLoadFailed": Case(
        {f'tiphys_extender_model_load_failures_total{{{_AT},reason="DigestMismatch"}}': "0x10 1x20"},
        "15m",
        "Artifacts were refused, reason DigestMismatch. The last good model, or the fallback, goes on.",
        {f'tiphys_extender_model_load_failures_total{{{_AT},reason="DigestMismatch"}}': "3x60"},
        {"reason": "DigestMismatch"},
    ),
    "TiphysInvalidPolicies": Case(
        {f"tiphys_extender_invalid_policies{{{_AT}}}": "2x60"},
        "30m",
        "2 policy objects are invalid and have no effect.",
        {f"tiphys_extender_invalid_policies{{{_AT}}}": "0x60"},
    ),
    "TiphysOperatorNoLeader": Case(
        {f"tiphys_operator_leader{{{_OP}}}": "0x60", f"tiphys_operator_leader{{{_OP2}}}": "0x60"},
        "10m",
        "Nobody reconciles SchedulingPolicies. Placement goes on by their specs; status and counters stand still.",
        {f"tiphys_operator_leader{{{_OP}}}": "0x60", f"tiphys_operator_leader{{{_OP2}}}": "1x60"},
    ),
    "TiphysOperatorTwoLeaders": Case(
        {f"tiphys_operator_leader{{{_OP}}}": "1x60", f"tiphys_operator_leader{{{_OP2}}}": "1x60"},
        "5m",
        "2 operators lead at once; writes of one may undo the other's.",
        {f"tiphys_operator_leader{{{_OP}}}": "1x3 0x60", f"tiphys_operator_leader{{{_OP2}}}": "0x3 1x60"},
    ),
    "TiphysOperatorReconcileStalled": Case(
        {
            f"tiphys_operator_leader{{{_OP}}}": "1x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{_OP}}}": "60x60",
            # A standby that led long ago must not hide the leader, nor stand for it.
            f"tiphys_operator_leader{{{_OP2}}}": "0x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{_OP2}}}": "60+60x60",
        },
        "16m",
        "The last successful reconcile was 15m 0s ago.",
        {
            f"tiphys_operator_leader{{{_OP}}}": "1x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{_OP}}}": "0+60x60",
            f"tiphys_operator_leader{{{_OP2}}}": "0x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{_OP2}}}": "0x60",
        },
    ),
    "TiphysOperatorPermissionMissing": Case(
        {f'tiphys_operator_permission_missing{{{_OP},verb="list",resource="pods"}}': "1x60"},
        "20m",
        "The operator may not list pods; what needs it is off.",
        {f'tiphys_operator_permission_missing{{{_OP},verb="list",resource="pods"}}': "1x5 0x60"},
        {"verb": "list", "resource": "pods"},
    ),
    "TiphysOperatorDecisionPullFailing": Case(
        {f"tiphys_operator_decision_pull_errors_total{{{_OP}}}": "0+2x60"},
        "40m",
        "30 failed reads in 15 minutes: decision counters in status stand still.",
        {f"tiphys_operator_decision_pull_errors_total{{{_OP}}}": "0x20 3x40"},
        {"job": "tiphys-operator", "instance": "10.0.0.3:8080"},
    ),
    "TiphysOperatorDecisionsLost": Case(
        {f"tiphys_operator_decisions_lost_total{{{_OP}}}": "0+1x120"},
        "90m",
        "60 decisions in an hour were overwritten before the operator read them: counters in status are too low.",
        {f"tiphys_operator_decisions_lost_total{{{_OP}}}": "9x120"},
        {"job": "tiphys-operator", "instance": "10.0.0.3:8080"},
    ),
    "TiphysSelectionFailing": Case(
        {f'tiphys_operator_selection_errors_total{{{_OP},reason="api-error"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for api-error; the active candidates stay, plans expire.",
        {f'tiphys_operator_selection_errors_total{{{_OP},reason="api-error"}}': "0x20 3x40"},
        {"reason": "api-error"},
    ),
    "TiphysSelectionStuck": Case(
        {f"tiphys_operator_selection_overdue_seconds{{{_OP}}}": "-5 55+60x60"},
        "11m",
        "An interval has been due for 10m 55s; nothing is chosen, plans expire.",
        {f"tiphys_operator_selection_overdue_seconds{{{_OP}}}": "-5 90 -5x60"},
    ),
    "TiphysSelectorUnavailable": Case(
        {f"tiphys_operator_selection_failing{{{_OP}}}": "2x60", f"tiphys_operator_selection_failing{{{_OP2}}}": "0x60"},
        "20m",
        "2 policies with select choose nothing; their condition Selecting says why.",
        {f"tiphys_operator_selection_failing{{{_OP}}}": "0 1x5 0x60"},
    ),
    "TiphysSelectorHoldsFallback": Case(
        {
            f'tiphys_operator_selection_intervals_total{{{_OP},reason="Fallback"}}': "0+4x120",
            f'tiphys_operator_selection_intervals_total{{{_OP},reason="BestPredicted"}}': "0+1x120",
            f'tiphys_operator_selection_intervals_total{{{_OP},reason="NothingToPlace"}}': "0+50x120",
        },
        "90m",
        "80% of the last hour's choices were the selector's own fallback, not the best predicted.",
        {
            f'tiphys_operator_selection_intervals_total{{{_OP},reason="Fallback"}}': "0+1x120",
            f'tiphys_operator_selection_intervals_total{{{_OP},reason="WithinMargin"}}': "0+4x120",
        },
    ),
    "TiphysPlansMissing": Case(
        {f'tiphys_extender_fallback_answers_total{{{_AT},reason="plan-expired"}}': "0+60x60"},
        "20m",
        "1 pods a second are placed by spec.fallback, reason plan-expired.",
        {
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="plan-expired"}}': "0x10 5x60",
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="plan-exhausted"}}': "0+60x60",
        },
        {"reason": "plan-expired"},
    ),
    "TiphysPlansNotFollowed": Case(
        {
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="plan-exhausted"}}': "0+3x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="fallback"}}': "0+3x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="scored"}}': "0+3x60",
        },
        "40m",
        "50% of answers were the fallback's because nothing was chosen, or the plan was missing, old or used up.",
        {
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="plan-exhausted"}}': "0+1x60",
            f'tiphys_extender_fallback_answers_total{{{_AT},reason="model-missing"}}': "0+50x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="fallback"}}': "0+51x60",
            f'tiphys_extender_answers_total{{{_AT},outcome="scored"}}': "0+49x60",
        },
    ),
    "TiphysPredictionsOff": Case(
        {
            f"tiphys_operator_selection_learned_total{{{_OP}}}": "0+1x600",
            f"tiphys_operator_selection_predicted_cost_total{{{_OP}}}": "0+1x600",
            f"tiphys_operator_selection_measured_cost_total{{{_OP}}}": "0+4x600",
        },
        "480m",
        "Over six hours measured and predicted cost of the same decisions differ by more than three times.",
        {
            f"tiphys_operator_selection_learned_total{{{_OP}}}": "0+1x600",
            f"tiphys_operator_selection_predicted_cost_total{{{_OP}}}": "0+1x600",
            f"tiphys_operator_selection_measured_cost_total{{{_OP}}}": "0+2x600",
        },
    ),
    "TiphysTwoDoors": Case(
        {f"tiphys_binder_pool_nodes_of_both_doors{{{_BINDER}}}": "2x60"},
        "20m",
        "2 nodes of the binder's pool hold pods that our scheduler placed; neither sees what the other has reserved.",
        {f"tiphys_binder_pool_nodes_of_both_doors{{{_BINDER}}}": "2x5 0x60"},
    ),
    "TiphysBinderLeasesRunOut": Case(
        {
            f"tiphys_binder_leases_expired_total{{{_BINDER}}}": "0+1x60",
            f'tiphys_binder_answers_total{{{_BINDER},outcome="scored"}}': "0+4x60",
            f'tiphys_binder_answers_total{{{_BINDER},outcome="neutral"}}': "0+100x60",
        },
        "40m",
        "25% of placements ended by their lease: until then they counted on their nodes, perhaps for nothing; after it running calls may "
        "count no longer.",
        {
            f"tiphys_binder_leases_expired_total{{{_BINDER}}}": "0+1x60",
            f'tiphys_binder_answers_total{{{_BINDER},outcome="scored"}}': "0+100x60",
        },
    ),
    "TiphysScalingHeld": Case(
        {f'tiphys_operator_scaling_holds_total{{{_OP},reason="SamplesStale"}}': "0+2x60"},
        "30m",
        "20 windows in 10 minutes without a decision, reason SamplesStale: what is there stays.",
        {f'tiphys_operator_scaling_holds_total{{{_OP},reason="SamplesStale"}}': "0x20 5x40"},
        {"reason": "SamplesStale"},
    ),
    "TiphysScalingObjectiveMissed": Case(
        {
            f"tiphys_operator_scaling_requests_total{{{_OP}}}": "0+100x60",
            f"tiphys_operator_scaling_good_requests_total{{{_OP}}}": "0+75x60",
        },
        "40m",
        "25% of requests took longer than their objective over 15 minutes.",
        {
            f"tiphys_operator_scaling_requests_total{{{_OP}}}": "0+100x60",
            f"tiphys_operator_scaling_good_requests_total{{{_OP}}}": "0+95x60",
        },
    ),
    "TiphysScalingMasked": Case(
        {f'tiphys_operator_scaling_masks_total{{{_OP},reason="Quota"}}': "0+2x60"},
        "40m",
        "30 windows in 15 minutes in which a move was not possible, reason Quota.",
        {
            f'tiphys_operator_scaling_masks_total{{{_OP},reason="Quota"}}': "0x20 2x40",
            f'tiphys_operator_scaling_masks_total{{{_OP},reason="ObjectiveMissed"}}': "0+4x60",
        },
        {"reason": "Quota"},
    ),
    "TiphysScalingConflict": Case(
        {f'tiphys_operator_scaling_conflicts{{{_OP},reason="OwnedByHorizontalPodAutoscaler"}}': "1x60"},
        "40m",
        "1 ScalingPolicies only recommend, reason OwnedByHorizontalPodAutoscaler.",
        {f'tiphys_operator_scaling_conflicts{{{_OP},reason="OwnedByHorizontalPodAutoscaler"}}': "1x5 0x60"},
        {"reason": "OwnedByHorizontalPodAutoscaler"},
    ),
    "TiphysScalingFailing": Case(
        {f'tiphys_operator_scaling_errors_total{{{_OP},reason="api-error"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for api-error; what is there stays.",
        {f'tiphys_operator_scaling_errors_total{{{_OP},reason="api-error"}}': "0x20 3x40"},
        {"reason": "api-error"},
    ),
    "TiphysSiteDown": Case(
        {f'tiphys_operator_binding_site_up{{{_OP},site="shop/far"}}': "0x60"},
        "10m",
        "shop/far has missed its probes for two minutes: no stream is bound there.",
        {f'tiphys_operator_binding_site_up{{{_OP},site="shop/far"}}': "0x5 1x60"},
        {"site": "shop/far"},
    ),
    "TiphysStreamsRejected": Case(
        {
            f'tiphys_binder_streams_total{{{_BINDER},result="bound",policy="score"}}': "0+60x60",
            f'tiphys_binder_streams_total{{{_BINDER},result="no-capacity",policy="score"}}': "0+20x60",
        },
        "40m",
        "25% of streams were rejected over 15 minutes because every offer that would do was full.",
        {
            f'tiphys_binder_streams_total{{{_BINDER},result="bound",policy="score"}}': "0+60x60",
            f'tiphys_binder_streams_total{{{_BINDER},result="no-capacity",policy="score"}}': "0+5x60",
        },
    ),
    "TiphysStreamsFail": Case(
        {
            f'tiphys_binder_stream_queries_total{{{_BINDER},outcome="served",policy="score"}}': "0+60x60",
            f'tiphys_binder_stream_queries_total{{{_BINDER},outcome="late",policy="score"}}': "0+15x60",
            f'tiphys_binder_stream_queries_total{{{_BINDER},outcome="refused",policy="score"}}': "0+5x60",
        },
        "40m",
        "25% of reported queries came late or were refused over 15 minutes.",
        {
            f'tiphys_binder_stream_queries_total{{{_BINDER},outcome="served",policy="score"}}': "0+60x60",
            f'tiphys_binder_stream_queries_total{{{_BINDER},outcome="late",policy="score"}}': "0+3x60",
        },
    ),
    "TiphysStreamFallback": Case(
        {f'tiphys_binder_stream_fallback{{{_BINDER},reason="weights-missing"}}': "1x60"},
        "20m",
        "The policy that a StreamPolicy names cannot bind, reason weights-missing; its fallback does.",
        {f'tiphys_binder_stream_fallback{{{_BINDER},reason="weights-missing"}}': "1x5 0x60"},
        {"reason": "weights-missing"},
    ),
    "TiphysBinderSilent": Case(
        {f'tiphys_operator_binding_policies{{{_OP},mode="Active",ready="Unknown"}}': "1x60"},
        "20m",
        "1 StreamPolicies in mode Active have no active binder that the operator hears of.",
        {
            f'tiphys_operator_binding_policies{{{_OP},mode="Active",ready="True"}}': "1x60",
            f'tiphys_operator_binding_policies{{{_OP},mode="Off",ready="Unknown"}}': "1x60",
        },
    ),
    "TiphysBindingFailing": Case(
        {f'tiphys_operator_binding_errors_total{{{_OP},reason="summary-failed"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for summary-failed.",
        {f'tiphys_operator_binding_errors_total{{{_OP},reason="summary-failed"}}': "0x20 3x40"},
        {"reason": "summary-failed"},
    ),
    "TiphysScalingRolledBack": Case(
        {f"tiphys_operator_scaling_rolled_back{{{_OP}}}": "2x30"},
        "10m",
        "2 ScalingPolicies have agents whose reward was worse than the rule's would have been.",
        {f"tiphys_operator_scaling_rolled_back{{{_OP}}}": "1x3 0x30"},
        {},
    ),
}

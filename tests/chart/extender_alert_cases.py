"""For every alert on scheduler, extender and binder: series on which it fires, with what it then says, and series on which it must not."""

from tests.chart.alert_case import AT, BINDER, OP, OTHER, Case, Series

UP = {"job": "tiphys-extender-status", "instance": "10.0.0.1:8080"}
_SCORE = 'scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",profile="tiphys",status="Success"}'
_OK = f'tiphys_extender_requests_total{{{AT},code="200"}}'


def _latency(slow: int, minutes: int) -> Series:
    """100 answers a minute, `slow` of them beyond the budget."""
    return {
        f'tiphys_extender_request_duration_seconds_bucket{{{AT},le="0.02"}}': f"0+{100 - slow}x{minutes}",
        f"tiphys_extender_request_duration_seconds_count{{{AT}}}": f"0+100x{minutes}",
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


EXTENDER_CASES: dict[str, Case] = {
    "TiphysPodHeldTooLong": Case(
        {f"tiphys_extender_oldest_gated_seconds{{{AT}}}": "0+20x10", f"tiphys_extender_gate_bound_seconds{{{AT}}}": "10x10"},
        "2m",
        "A pod has carried the scheduling gate 30s longer than the bound; somebody should have let it go.",
        {
            f"tiphys_extender_oldest_gated_seconds{{{AT}}}": "14x60",
            f"tiphys_extender_gate_bound_seconds{{{AT}}}": "10x60",
            f"tiphys_operator_oldest_gated_seconds{{{OP}}}": "14x60",
            f"tiphys_operator_gate_bound_seconds{{{OP}}}": "10x60",
        },
    ),
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
        {f"tiphys_extender_enabled{{{AT}}}": "1x60"},
    ),
    "TiphysDisabled": Case(
        {f"tiphys_extender_enabled{{{AT}}}": "0x500"},
        "7h",
        "Every answer is neutral since more than 6 hours. Turn Tiphys on again, or uninstall it.",
        {f"tiphys_extender_enabled{{{AT}}}": "0x300 1x200"},
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
            f'tiphys_extender_fallback_answers_total{{{AT},reason="model-missing"}}': "0+20x60",
            f'tiphys_extender_answers_total{{{AT},outcome="fallback"}}': "0+20x60",
            f'tiphys_extender_answers_total{{{AT},outcome="scored"}}': "0+80x60",
        },
        "20m",
        "20% of answers are by the fallback, reason model-missing.",
        {
            f'tiphys_extender_fallback_answers_total{{{AT},reason="model-missing"}}': "0+2x60",
            f'tiphys_extender_answers_total{{{AT},outcome="fallback"}}': "0+2x60",
            f'tiphys_extender_answers_total{{{AT},outcome="scored"}}': "0+98x60",
        },
        {"reason": "model-missing"},
    ),
    "TiphysExtenderNeutralByTrouble": Case(
        {
            f'tiphys_extender_neutral_answers_total{{{AT},reason="deadline"}}': "0+10x60",
            f'tiphys_extender_neutral_answers_total{{{AT},reason="shadow"}}': "0+90x60",
            f'tiphys_extender_answers_total{{{AT},outcome="neutral"}}': "0+100x60",
        },
        "20m",
        "10% of answers are neutral because something is wrong.",
        {
            f'tiphys_extender_neutral_answers_total{{{AT},reason="deadline"}}': "0x60",
            f'tiphys_extender_neutral_answers_total{{{AT},reason="shadow"}}': "0+100x60",
            f'tiphys_extender_answers_total{{{AT},outcome="neutral"}}': "0+100x60",
        },
    ),
    "TiphysExtenderNotSynced": Case(
        {f'tiphys_extender_cache_synced{{{AT},kind="pods"}}': "0x60", f'tiphys_extender_cache_synced{{{AT},kind="nodes"}}': "1x60"},
        "10m",
        "The extender knows no whole list of pods: its answers are neutral.",
        {f'tiphys_extender_cache_synced{{{AT},kind="pods"}}': "0 0 1x60"},
        {"kind": "pods"},
    ),
    "TiphysExtenderWatchSilent": Case(
        {f'tiphys_extender_last_event_timestamp_seconds{{{AT},kind="pods"}}': "60x60"},
        "21m",
        "Nothing about pods for 20m 0s, not even a bookmark: decisions use an old picture.",
        {f'tiphys_extender_last_event_timestamp_seconds{{{AT},kind="pods"}}': "60+60x60"},
        {"kind": "pods"},
    ),
    "TiphysExtenderLoopLate": Case(
        {
            f'tiphys_extender_loop_age_seconds{{{AT},loop="ticker"}}': "0+60x60",
            f'tiphys_extender_loop_age_seconds{{{AT},loop="watch-pods"}}': "20x60",
        },
        "15m",
        "Loop ticker has done nothing for 15m 0s.",
        {f'tiphys_binder_loop_age_seconds{{{BINDER},loop="streams"}}': "0 400 0 400 0 400 0x60"},
        {"loop": "ticker"},
    ),
    "TiphysExtenderObjectLeftOut": Case(
        {f'tiphys_binder_watch_errors_total{{{BINDER},kind="pods",reason="bad-object"}}': "0+1x60"},
        "20m",
        "Some of the pods could not be read in the last 15 minutes; everything else goes on.",
        {
            f'tiphys_extender_watch_errors_total{{{AT},kind="pods",reason="bad-object"}}': "3x60",
            f'tiphys_extender_watch_errors_total{{{AT},kind="pods",reason="gone"}}': "0+1x60",
        },
        {"kind": "pods"},
    ),
    "TiphysExtenderCertificateExpiring": Case(
        {f"tiphys_extender_certificate_expiry_timestamp_seconds{{{AT}}}": "864000x120"},
        "2h",
        "It ends in 9d 22h 0m 0s. After that the scheduler refuses every answer, silently.",
        {  # one without TLS, one with a year left
            f"tiphys_extender_certificate_expiry_timestamp_seconds{{{AT}}}": "0x120",
            f"tiphys_extender_certificate_expiry_timestamp_seconds{{{OTHER}}}": "31536000x120",
        },
    ),
    "TiphysListenerCertificateExpiring": Case(
        {
            f"tiphys_operator_status_certificate_expiry_timestamp_seconds{{{AT}}}": "31536000x120",
            f"tiphys_binder_status_certificate_expiry_timestamp_seconds{{{AT}}}": "864000x120",
        },
        "2h",
        "It ends in 9d 22h 0m 0s. After that metrics, the operator's pulls and calls to the binder fail.",
        {  # one without TLS, others with a year left
            f"tiphys_extender_status_certificate_expiry_timestamp_seconds{{{AT}}}": "0x120",
            f"tiphys_binder_certificate_expiry_timestamp_seconds{{{AT}}}": "31536000x120",
            f"tiphys_operator_status_certificate_expiry_timestamp_seconds{{{OTHER}}}": "31536000x120",
        },
    ),
    "TiphysClientCertificateExpired": Case(
        {f'tiphys_extender_tls_handshake_failures_total{{{AT},reason="expired"}}': "0+1x60"},
        "30m",
        "15 handshakes in 15 minutes were refused: the scheduler, or a caller of the binder, gets no answers.",
        {
            f'tiphys_extender_tls_handshake_failures_total{{{AT},reason="expired"}}': "3x60",
            f'tiphys_binder_tls_handshake_failures_total{{{AT},reason="untrusted"}}': "0+1x60",
        },
        UP | {"reason": "expired"},
    ),
    "TiphysExtenderDecisionLogDropping": Case(
        {f"tiphys_extender_decision_log_dropped_total{{{AT}}}": "0+1x60"},
        "30m",
        "15 decisions in 15 minutes are only in memory: a restart loses them.",
        {f"tiphys_extender_decision_log_dropped_total{{{AT}}}": "7x60"},
        UP,
    ),
    "TiphysReadingsStale": Case(
        {f"tiphys_extender_readings_timestamp_seconds{{{AT}}}": "60x60"},
        "11m",
        "The last readings were taken 10m 0s ago: older than the default guardrail of policies.",
        {  # one that takes readings, one for which they are off
            f"tiphys_extender_readings_timestamp_seconds{{{AT}}}": "0+60x60",
            f"tiphys_extender_readings_timestamp_seconds{{{OTHER}}}": "0x60",
        },
        UP,
    ),
    "TiphysReadingsCoverageLow": Case(
        {
            f"tiphys_extender_readings_coverage_ratio{{{AT}}}": "0.25x60",
            f"tiphys_extender_readings_timestamp_seconds{{{AT}}}": "60+60x60",
        },
        "20m",
        "Only 25% of nodes have readings: policies that need them answer by their fallback.",
        {
            f"tiphys_extender_readings_coverage_ratio{{{AT}}}": "0x60",
            f"tiphys_extender_readings_timestamp_seconds{{{AT}}}": "0x60",
            f"tiphys_extender_readings_coverage_ratio{{{OTHER}}}": "0.9x60",
            f"tiphys_extender_readings_timestamp_seconds{{{OTHER}}}": "60+60x60",
        },
        UP,
    ),
    "TiphysModelLoadFailed": Case(
        {f'tiphys_extender_model_load_failures_total{{{AT},reason="DigestMismatch"}}': "0x10 1x20"},
        "15m",
        "Artifacts were refused, reason DigestMismatch. The last good model, or the fallback, goes on.",
        {f'tiphys_extender_model_load_failures_total{{{AT},reason="DigestMismatch"}}': "3x60"},
        {"reason": "DigestMismatch"},
    ),
    "TiphysInvalidPolicies": Case(
        {f"tiphys_extender_invalid_policies{{{AT}}}": "2x60"},
        "30m",
        "2 policy objects are invalid and have no effect.",
        {f"tiphys_extender_invalid_policies{{{AT}}}": "0x60"},
    ),
    "TiphysPlansMissing": Case(
        {f'tiphys_extender_fallback_answers_total{{{AT},reason="plan-expired"}}': "0+60x60"},
        "20m",
        "1 pods a second are placed by spec.fallback, reason plan-expired.",
        {
            f'tiphys_extender_fallback_answers_total{{{AT},reason="plan-expired"}}': "0x10 5x60",
            f'tiphys_extender_fallback_answers_total{{{AT},reason="plan-exhausted"}}': "0+60x60",
        },
        {"reason": "plan-expired"},
    ),
    "TiphysPlansNotFollowed": Case(
        {
            f'tiphys_extender_fallback_answers_total{{{AT},reason="plan-exhausted"}}': "0+3x60",
            f'tiphys_extender_answers_total{{{AT},outcome="fallback"}}': "0+3x60",
            f'tiphys_extender_answers_total{{{AT},outcome="scored"}}': "0+3x60",
        },
        "40m",
        "50% of answers were the fallback's because nothing was chosen, or the plan was missing, old or used up.",
        {
            f'tiphys_extender_fallback_answers_total{{{AT},reason="plan-exhausted"}}': "0+1x60",
            f'tiphys_extender_fallback_answers_total{{{AT},reason="model-missing"}}': "0+50x60",
            f'tiphys_extender_answers_total{{{AT},outcome="fallback"}}': "0+51x60",
            f'tiphys_extender_answers_total{{{AT},outcome="scored"}}': "0+49x60",
        },
    ),
    "TiphysTwoDoors": Case(
        {f"tiphys_binder_pool_nodes_of_both_doors{{{BINDER}}}": "2x60"},
        "20m",
        "2 nodes of the binder's pool hold pods that our scheduler placed; neither sees what the other has reserved.",
        {f"tiphys_binder_pool_nodes_of_both_doors{{{BINDER}}}": "2x5 0x60"},
    ),
    "TiphysBinderLeasesRunOut": Case(
        {
            f"tiphys_binder_leases_expired_total{{{BINDER}}}": "0+1x60",
            f'tiphys_binder_answers_total{{{BINDER},outcome="scored"}}': "0+4x60",
            f'tiphys_binder_answers_total{{{BINDER},outcome="neutral"}}': "0+100x60",
        },
        "40m",
        "25% of placements ended by their lease: until then they counted on their nodes, perhaps for nothing; after it running calls may "
        "count no longer.",
        {
            f"tiphys_binder_leases_expired_total{{{BINDER}}}": "0+1x60",
            f'tiphys_binder_answers_total{{{BINDER},outcome="scored"}}': "0+100x60",
        },
    ),
    "TiphysBinderTenantRefused": Case(
        {f'tiphys_binder_bad_requests_total{{{BINDER},reason="too-many-requests"}}': "0+20x60"},
        "40m",
        "300 requests were refused in 15 minutes for too-many-requests: the binder's log names the tenant.",
        {
            f'tiphys_binder_bad_requests_total{{{BINDER},reason="too-many-requests"}}': "0+5x60",
            f'tiphys_binder_bad_requests_total{{{BINDER},reason="not-json"}}': "0+100x60",
        },
        {"reason": "too-many-requests"},
    ),
    "TiphysStreamsRejected": Case(
        {
            f'tiphys_binder_streams_total{{{BINDER},result="bound",policy="score"}}': "0+60x60",
            f'tiphys_binder_streams_total{{{BINDER},result="no-capacity",policy="score"}}': "0+20x60",
        },
        "40m",
        "25% of streams were rejected over 15 minutes because every offer that would do was full.",
        {
            f'tiphys_binder_streams_total{{{BINDER},result="bound",policy="score"}}': "0+60x60",
            f'tiphys_binder_streams_total{{{BINDER},result="no-capacity",policy="score"}}': "0+5x60",
        },
    ),
    "TiphysStreamsFail": Case(
        {
            f'tiphys_binder_stream_queries_total{{{BINDER},outcome="served",policy="score"}}': "0+60x60",
            f'tiphys_binder_stream_queries_total{{{BINDER},outcome="late",policy="score"}}': "0+15x60",
            f'tiphys_binder_stream_queries_total{{{BINDER},outcome="refused",policy="score"}}': "0+5x60",
        },
        "40m",
        "25% of reported queries came late or were refused over 15 minutes.",
        {
            f'tiphys_binder_stream_queries_total{{{BINDER},outcome="served",policy="score"}}': "0+60x60",
            f'tiphys_binder_stream_queries_total{{{BINDER},outcome="late",policy="score"}}': "0+3x60",
        },
    ),
    "TiphysStreamFallback": Case(
        {f'tiphys_binder_stream_fallback{{{BINDER},reason="weights-missing"}}': "1x60"},
        "20m",
        "The policy that a StreamPolicy names cannot bind, reason weights-missing; its fallback does.",
        {f'tiphys_binder_stream_fallback{{{BINDER},reason="weights-missing"}}': "1x5 0x60"},
        {"reason": "weights-missing"},
    ),
}

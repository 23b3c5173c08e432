"""Recording rules and alerts. What each alert means and what to do stands in `runbooks`."""

from __future__ import annotations

from typing import Any

from tiphys_cli.observability import binding, liveness, loops, scaling
from tiphys_cli.observability.queries import (
    LATENCY_OBJECTIVE,
    SCHEDULER,
    answers,
    rate,
    score_calls,
    scored,
    slow_ratio,
    trouble_ratio,
)
from tiphys_cli.observability.rules import Alert

_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d")


def recording_rules() -> list[dict[str, str]]:
    """Ratios that alerts and dashboard read; names are level:metric:operations."""
    # `or vector(0)`: an extender that is gone has no series at all, and covers nothing.
    rules = {
        "tiphys:extender_coverage:ratio_rate5m": f"({answers()} or vector(0)) / {score_calls()}",
        "tiphys:extender_scored:ratio_rate5m": f"({scored()} or vector(0)) / {score_calls()}",
    }
    rules |= {f"tiphys:extender_slow_answers:ratio_rate{window}": slow_ratio(window) for window in _WINDOWS}
    return [{"record": name, "expr": expr} for name, expr in rules.items()]


def alerts() -> list[Alert]:
    """All alerts, the scheduler's first."""
    return [
        *_scheduling(),
        *_extender(),
        *_inputs(),
        *_selection(),
        *scaling.alerts(),
        *_operator(),
        *loops.alerts(),
        *_binder(),
        *binding.alerts(),
        *liveness.alerts(),
    ]


def rule_file() -> dict[str, Any]:
    """The whole file, which is also the spec of a PrometheusRule."""
    return {
        "groups": [
            {"name": "tiphys.rules", "rules": recording_rules()},
            {"name": "tiphys.alerts", "rules": [alert.rule() for alert in alerts()]},
        ]
    }


def _burn(factor: float, long: str, short: str) -> str:
    """The error budget burns `factor` times too fast, over a long window and still (Site Reliability Workbook, chapter 5)."""
    limit = f"{factor * (1 - LATENCY_OBJECTIVE):.4g}"
    name = "tiphys:extender_slow_answers:ratio_rate"
    return f"{name}{long} > {limit} and {name}{short} > {limit}"


def _scheduling() -> list[Alert]:
    attempts = f'sum(rate(scheduler_schedule_attempts_total{{profile="{SCHEDULER}"}}[10m]))'
    # A pod nobody ever tried has no PodScheduled condition, hence no kube_pod_status_scheduled: only its missing node shows.
    waiting = (
        f'kube_pod_scheduler{{name="{SCHEDULER}"}} and on (namespace, pod) kube_pod_info{{node=""}} '
        'and on (namespace, pod) (kube_pod_status_phase{phase="Pending"} == 1)'
    )
    return [
        Alert(
            "TiphysPodsStranded",
            "critical",
            "10m",
            # Even an unschedulable pod is tried again every five minutes (kube-scheduler, flushUnschedulablePodsLeftover).
            f"count({waiting}) > 0 unless on () ({attempts} > 0)",
            "Pods wait for a scheduler that is not at work",
            f"{{{{ $value }}}} pods name scheduler {SCHEDULER}, have no node, and it has tried none for 10 minutes. They stay Pending "
            f"until it is back.",
        ),
        Alert(
            "TiphysExtenderCoverageLow",
            "warning",
            "10m",
            "tiphys:extender_coverage:ratio_rate5m < 0.95",
            "The scheduler scores pods without Tiphys",
            "Only {{ $value | humanizePercentage }} of the scheduler's Score calls got an answer; the default plugins alone decide for "
            "the rest.",
        ),
        Alert(
            "TiphysExtenderAbsent",
            "warning",
            "10m",
            "absent(tiphys_extender_enabled)",
            "No extender is scraped",
            "No extender has delivered metrics for 10 minutes: it is down, or Prometheus does not find it.",
        ),
        Alert(
            "TiphysDisabled",
            "info",
            "6h",
            "min(tiphys_extender_enabled) == 0",
            "The kill switch has been on for hours",
            "Every answer is neutral since more than 6 hours. Turn Tiphys on again, or uninstall it.",
        ),
    ]


def _extender() -> list[Alert]:
    slow = "More than the allowed 1 % of answers take longer than the 20 ms budget"
    return [
        Alert(
            "TiphysExtenderLatencyBurnFast",
            "critical",
            "2m",
            f"({_burn(14.4, '1h', '5m')}) or ({_burn(6, '6h', '30m')})",
            "Answers are late, the error budget goes in hours",
            f"{slow}: {{{{ $value | humanizePercentage }}}} of them.",
        ),
        Alert(
            "TiphysExtenderLatencyBurnSlow",
            "warning",
            "1h",
            _burn(3, "1d", "2h"),
            "Answers are late, the error budget goes in days",
            f"{slow}: {{{{ $value | humanizePercentage }}}} of them over a day.",
        ),
        Alert(
            "TiphysExtenderFallbackActive",
            "warning",
            "10m",
            f"{rate('tiphys_extender_fallback_answers_total', by='reason')} / ignoring (reason) group_left () "
            f"{rate('tiphys_extender_answers_total')} > 0.05",
            "A fallback rule answers instead of the policy",
            "{{ $value | humanizePercentage }} of answers are by the fallback, reason {{ $labels.reason }}.",
        ),
        Alert(
            "TiphysExtenderNeutralByTrouble",
            "warning",
            "10m",
            f"{trouble_ratio()} > 0.05",
            "Answers make no difference between nodes although they should",
            "{{ $value | humanizePercentage }} of answers are neutral because something is wrong.",
        ),
        Alert(
            "TiphysExtenderNotSynced",
            "warning",
            "5m",
            "min by (kind) (tiphys_extender_cache_synced) == 0",
            "An extender has not listed everything it watches",
            "The extender knows no whole list of {{ $labels.kind }}: its answers are neutral.",
        ),
        Alert(
            "TiphysExtenderWatchSilent",
            "warning",
            "5m",
            'time() - min by (kind) (tiphys_extender_last_event_timestamp_seconds{kind=~"nodes|pods|policies"} > 0) > 600',
            "A watch brings nothing any more",
            "Nothing about {{ $labels.kind }} for {{ $value | humanizeDuration }}, not even a bookmark: decisions use an old picture.",
        ),
        Alert(
            "TiphysExtenderCertificateExpiring",
            "warning",
            "1h",
            "min(tiphys_extender_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400",
            "The extender's certificate ends soon",
            "It ends in {{ $value | humanizeDuration }}. After that the scheduler refuses every answer, silently.",
        ),
        Alert(
            "TiphysListenerCertificateExpiring",
            "warning",
            "1h",
            "(min(tiphys_extender_status_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400) "
            "or (min(tiphys_operator_status_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400) "
            "or (min(tiphys_binder_status_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400) "
            "or (min(tiphys_binder_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400)",
            "A certificate of a status listener, or of the binder, ends soon",
            "It ends in {{ $value | humanizeDuration }}. After that metrics, the operator's pulls and calls to the binder fail.",
        ),
        Alert(
            "TiphysClientCertificateExpired",
            "warning",
            "5m",
            'increase(tiphys_extender_tls_handshake_failures_total{reason="expired"}[15m]) > 0 '
            'or increase(tiphys_binder_tls_handshake_failures_total{reason="expired"}[15m]) > 0',
            "Somebody asks with a certificate that has expired",
            "{{ $value | humanize }} handshakes in 15 minutes were refused: the scheduler, or a caller of the binder, gets no answers.",
        ),
        Alert(
            "TiphysExtenderDecisionLogDropping",
            "info",
            "5m",
            "increase(tiphys_extender_decision_log_dropped_total[15m]) > 0",
            "Decisions are not written to disk",
            "{{ $value | humanize }} decisions in 15 minutes are only in memory: a restart loses them.",
        ),
    ]


def _inputs() -> list[Alert]:
    return [
        Alert(
            "TiphysReadingsStale",
            "warning",
            "5m",
            # Zero: readings are off, or there never were any; policies that need them then show as fallback.
            "time() - (tiphys_extender_readings_timestamp_seconds > 0) > 60",
            "Node readings are old",
            "The last readings were taken {{ $value | humanizeDuration }} ago: older than the default guardrail of policies.",
        ),
        Alert(
            "TiphysReadingsCoverageLow",
            "warning",
            "10m",
            "tiphys_extender_readings_coverage_ratio < 0.5 and on (job, instance) tiphys_extender_readings_timestamp_seconds > 0",
            "Most nodes have no fresh readings",
            "Only {{ $value | humanizePercentage }} of nodes have readings: policies that need them answer by their fallback.",
        ),
        Alert(
            "TiphysModelLoadFailed",
            "warning",
            "0m",
            "sum by (reason) (increase(tiphys_extender_model_load_failures_total[15m])) > 0",
            "A model was refused",
            "Artifacts were refused, reason {{ $labels.reason }}. The last good model, or the fallback, goes on.",
        ),
        Alert(
            "TiphysInvalidPolicies",
            "warning",
            "15m",
            "max(tiphys_extender_invalid_policies) > 0",
            "Some SchedulingPolicies cannot be obeyed",
            "{{ $value }} policy objects are invalid and have no effect.",
        ),
    ]


def _selection() -> list[Alert]:
    chosen = 'increase(tiphys_extender_fallback_answers_total{reason=~"not-chosen|plan-missing|plan-expired|plan-exhausted"}[15m])'
    kept = 'increase(tiphys_operator_selection_intervals_total{reason="Fallback"}[1h])'
    judged = 'increase(tiphys_operator_selection_intervals_total{reason!~"Frozen|NothingToPlace|NoUsableNode|First"}[1h])'
    learned = "increase(tiphys_operator_selection_learned_total[6h])"
    predicted, measured = (f"sum(increase(tiphys_operator_selection_{what}_cost_total[6h]))" for what in ("predicted", "measured"))
    return [
        Alert(
            "TiphysSelectionFailing",
            "warning",
            "10m",
            "sum by (reason) (increase(tiphys_operator_selection_errors_total[10m])) > 3",
            "Intervals of policies with select fail",
            "{{ $value | humanize }} failures in 10 minutes for {{ $labels.reason }}; the active candidates stay, plans expire.",
        ),
        Alert(
            "TiphysSelectionStuck",
            "warning",
            "5m",
            "max(tiphys_operator_selection_overdue_seconds) > 60",
            "Intervals of policies with select do not begin or do not end",
            "An interval has been due for {{ $value | humanizeDuration }}; nothing is chosen, plans expire.",
        ),
        Alert(
            "TiphysSelectorUnavailable",
            "warning",
            "10m",
            "max(tiphys_operator_selection_failing) > 0",
            "A selector or planner is refused",
            "{{ $value }} policies with select choose nothing; their condition Selecting says why.",
        ),
        Alert(
            "TiphysSelectorHoldsFallback",
            "info",
            "15m",
            f"sum({kept}) / sum({judged}) > 0.5",
            "Selectors do not trust their own predictions",
            "{{ $value | humanizePercentage }} of the last hour's choices were the selector's own fallback, not the best predicted.",
        ),
        Alert(
            "TiphysPlansMissing",
            "warning",
            "10m",
            'sum by (reason) (rate(tiphys_extender_fallback_answers_total{reason=~"plan-missing|plan-expired"}[5m])) > 0',
            "Extenders have no plan to obey",
            "{{ $value | humanize }} pods a second are placed by spec.fallback, reason {{ $labels.reason }}.",
        ),
        Alert(
            "TiphysPlansNotFollowed",
            "info",
            "15m",
            f"sum({chosen}) / sum(increase(tiphys_extender_answers_total[15m])) > 0.25",
            "Fallbacks answer for policies with select",
            "{{ $value | humanizePercentage }} of answers were the fallback's because nothing was chosen, or the plan was missing, old or "
            "used up.",
        ),
        Alert(
            "TiphysPredictionsOff",
            "info",
            "1h",
            f"sum({learned}) > 50 and ({measured} > 3 * {predicted} or {predicted} > 3 * {measured})",
            "Selectors predict costs that are not measured",
            "Over six hours measured and predicted cost of the same decisions differ by more than three times.",
        ),
    ]


def _operator() -> list[Alert]:
    return [
        Alert(
            "TiphysOperatorNoLeader",
            "warning",
            "5m",
            "sum(tiphys_operator_leader) == 0 or absent(tiphys_operator_leader)",
            "No operator leads",
            "Nobody reconciles SchedulingPolicies. Placement goes on by their specs; status and counters stand still.",
        ),
        Alert(
            "TiphysOperatorTwoLeaders",
            "critical",
            "2m",
            "sum(tiphys_operator_leader) > 1",
            "More than one operator believes to lead",
            "{{ $value }} operators lead at once; writes of one may undo the other's.",
        ),
        Alert(
            "TiphysOperatorOtherRelease",
            "warning",
            "5m",
            "max by (job) (tiphys_operator_other_release_active) == 1",
            "Another release of Tiphys acts in this cluster",
            "The operator of {{ $labels.job }} stands by: another release holds the claim on this cluster.",
        ),
        Alert(
            "TiphysScalingIntentNotOurs",
            "warning",
            "0m",
            'sum(increase(tiphys_operator_scaling_intents_total{result="not-ours"}[15m])) > 0',
            "Somebody else writes intents into statuses of ScalingPolicies",
            "{{ $value | humanize }} intents in 15 minutes had a signature that is not ours; they were not obeyed.",
        ),
        Alert(
            "TiphysOperatorReconcileStalled",
            "warning",
            "5m",
            "time() - max(tiphys_operator_last_reconcile_timestamp_seconds and on (job, instance) tiphys_operator_leader == 1) > 300",
            "The leading operator does not reconcile",
            "The last successful reconcile was {{ $value | humanizeDuration }} ago.",
        ),
        Alert(
            "TiphysOperatorPermissionMissing",
            "warning",
            "10m",
            "max by (verb, resource) (tiphys_operator_permission_missing) == 1",
            "RBAC denies the operator something it needs",
            "The operator may not {{ $labels.verb }} {{ $labels.resource }}; what needs it is off.",
        ),
        Alert(
            "TiphysOperatorDecisionPullFailing",
            "info",
            "15m",
            "increase(tiphys_operator_decision_pull_errors_total[15m]) > 5",
            "The operator cannot read the decision log",
            "{{ $value | humanize }} failed reads in 15 minutes: decision counters in status stand still.",
        ),
        Alert(
            "TiphysOperatorDecisionsLost",
            "info",
            "0m",
            "increase(tiphys_operator_decisions_lost_total[1h]) > 0",
            "Decisions were dropped before they were read",
            "{{ $value | humanize }} decisions in an hour were overwritten before the operator read them: counters in status are too low.",
        ),
    ]


def _binder() -> list[Alert]:
    reserved = 'sum(increase(tiphys_binder_answers_total{outcome!="neutral"}[15m]))'
    return [
        Alert(
            "TiphysTwoDoors",
            "warning",
            "10m",
            "max(tiphys_binder_pool_nodes_of_both_doors) > 0",
            "Pods and calls are placed on the same nodes",
            "{{ $value }} nodes of the binder's pool hold pods that our scheduler placed; neither sees what the other has reserved.",
        ),
        Alert(
            "TiphysBinderLeasesRunOut",
            "info",
            "15m",
            f"sum(increase(tiphys_binder_leases_expired_total[15m])) / {reserved} > 0.1",
            "Calls are neither finished nor renewed",
            "{{ $value | humanizePercentage }} of placements ended by their lease: until then they counted on their nodes, perhaps for "
            "nothing; after it running calls may count no longer.",
        ),
        Alert(
            "TiphysBinderTenantRefused",
            "warning",
            "15m",
            'sum by (reason) (increase(tiphys_binder_bad_requests_total{reason=~"too-(many|much)-.+"}[15m])) > 100',
            "A tenant of the binder keeps reaching a limit of its own",
            "{{ $value | humanize }} requests were refused in 15 minutes for {{ $labels.reason }}: the binder's log names the tenant.",
        ),
    ]

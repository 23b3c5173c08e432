"""The dashboard of placement."""

from __future__ import annotations

from typing import Any

from tiphys_cli.observability.panels import Panel, dashboard, job_variable
from tiphys_cli.observability.queries import BUDGET_S, LATENCY_OBJECTIVE, answers, rate, score_calls, scored, trouble_ratio

_W = "$__rate_interval"
_JOB = 'job=~"$job"'
_OPERATOR = 'job=~"$operator_job"'


def placement() -> dict[str, Any]:
    """Decisions, coverage, latency, spread, inputs, selection and operator."""
    return dashboard(
        "Placement",
        "What the extender answers, how fast, on what data, and whether the scheduler listens.",
        ["tiphys", "kubernetes", "scheduler"],
        [
            job_variable("job", "Extender job", "tiphys_extender_requests_total"),
            job_variable("operator_job", "Operator job", "tiphys_operator_leader"),
        ],
        [
            ("Overview", _overview()),
            ("Decisions", _decisions()),
            ("Placement", _placement()),
            ("Inputs", _inputs()),
            ("Selection", _selection()),
            ("Operator", _operator()),
        ],
    )


def _overview() -> list[Panel]:
    return [
        Panel(
            "Coverage",
            "Answers of the extender ÷ Score calls of the scheduler, over 5 minutes. Under 1 the default plugins decide alone for the "
            "rest.",
            "percentunit",
            (("tiphys:extender_coverage:ratio_rate5m", "answered"),),
            kind="stat",
            width=4,
            thresholds=(("yellow", 0.95), ("green", 0.99)),
            bad_below=True,
        ),
        Panel(
            "Scored",
            "Answers by the chosen policy ÷ Score calls of the scheduler, over 5 minutes. 0 in Shadow mode: every answer is neutral.",
            "percentunit",
            (("tiphys:extender_scored:ratio_rate5m", "scored"),),
            kind="stat",
            width=4,
        ),
        Panel(
            "Inside the budget",
            f"Share of answers within {BUDGET_S * 1000:g} ms, over an hour; the objective is {LATENCY_OBJECTIVE:.0%}.",
            "percentunit",
            (("1 - tiphys:extender_slow_answers:ratio_rate1h", "inside"),),
            kind="stat",
            width=4,
            thresholds=(("green", LATENCY_OBJECTIVE),),
            bad_below=True,
        ),
        Panel(
            "Trouble",
            "Share of answers that are neutral because something went wrong: not synced, no known node, deadline, bad scores, internal "
            "error.",
            "percentunit",
            ((trouble_ratio(), "trouble"),),
            kind="stat",
            width=4,
            thresholds=(("yellow", 0.01), ("red", 0.05)),
        ),
        Panel(
            "Enabled",
            "1, or 0 while the kill switch is on and every answer is neutral.",
            "short",
            ((f"min(tiphys_extender_enabled{{{_JOB}}})", "enabled"),),
            kind="stat",
            width=4,
            thresholds=(("green", 1),),
            bad_below=True,
        ),
        Panel(
            "Leaders",
            "Operators that hold the Lease: 1.",
            "short",
            ((f"sum(tiphys_operator_leader{{{_OPERATOR}}})", "leaders"),),
            kind="stat",
            width=4,
            thresholds=(("green", 1), ("red", 2)),
            bad_below=True,
        ),
    ]


def _decisions() -> list[Panel]:
    seconds = "tiphys_extender_request_duration_seconds_bucket"
    by_edge = rate(seconds, _W, _JOB, "le")
    return [
        Panel(
            "Answers by outcome",
            "scored: by the chosen policy. fallback: by its fallback rule. neutral: no difference between nodes, the default plugins "
            "decide.",
            "reqps",
            ((rate("tiphys_extender_answers_total", _W, _JOB, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Fallback answers by reason",
            "Why the fallback rule answered instead of the chosen policy.",
            "reqps",
            ((rate("tiphys_extender_fallback_answers_total", _W, _JOB, "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Neutral answers by reason",
            "shadow, canary, mode-off, no-policy, other-scheduler and disabled are wanted; the others are trouble.",
            "reqps",
            ((rate("tiphys_extender_neutral_answers_total", _W, _JOB, "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Coverage over time",
            "Answers, and answers by the chosen policy, ÷ the scheduler's Score calls.",
            "percentunit",
            ((f"{answers(_W, _JOB)} / {score_calls(_W)}", "answered"), (f"{scored(_W, _JOB)} / {score_calls(_W)}", "scored")),
        ),
        Panel(
            "Latency",
            f"Time from body received to answer handed over; the budget is {BUDGET_S * 1000:g} ms.",
            "s",
            ((f"histogram_quantile(0.5, {by_edge})", "p50"), (f"histogram_quantile(0.99, {by_edge})", "p99")),
            thresholds=(("red", BUDGET_S),),
        ),
        Panel(
            "Requests by code",
            "400 and 413 are refused requests: the scheduler then goes on without us.",
            "reqps",
            ((rate("tiphys_extender_requests_total", _W, _JOB, "code"), "{{code}}"),),
            stacked=True,
        ),
        Panel(
            "Answers by policy",
            "Scored and fallback answers by the policy that judged.",
            "reqps",
            ((rate("tiphys_extender_policy_answers_total", _W, _JOB, "policy"), "{{policy}}"),),
            stacked=True,
        ),
        Panel(
            "First choice against the node bound",
            "same: the pod went where the answer's best node was. In Shadow it says how often Tiphys would have chosen otherwise.",
            "reqps",
            ((rate("tiphys_extender_choices_total", _W, _JOB, "result, mode"), "{{mode}} {{result}}"),),
            stacked=True,
        ),
        Panel(
            "Event loop",
            "Longest delay of the extender's event loop; at the stall limit the process ends itself.",
            "s",
            ((f"max by (instance) (tiphys_extender_loop_lag_seconds{{{_JOB}}})", "{{instance}}"),),
        ),
    ]


def _placement() -> list[Panel]:
    candidates = rate("tiphys_extender_candidates_bucket", _W, _JOB, "le")
    deviation = rate("tiphys_extender_score_stddev_bucket", _W, _JOB, "le")
    return [
        Panel(
            "Candidates",
            "Nodes in a request. The scheduler sends a sample: Tiphys chooses among these.",
            "short",
            ((f"histogram_quantile(0.5, {candidates})", "p50"), (f"histogram_quantile(0.99, {candidates})", "p99")),
        ),
        Panel(
            "Spread of scores",
            "Standard deviation of the raw scores of one answer. Near 0 the policy sees no difference between nodes.",
            "short",
            ((f"histogram_quantile(0.5, {deviation})", "p50"), (f"histogram_quantile(0.1, {deviation})", "p10")),
        ),
        Panel(
            "Busiest node",
            "The most chosen node's share of the last 1,000 scored decisions. High on many alike nodes: herding.",
            "percentunit",
            ((f"max by (instance) (tiphys_extender_busiest_node_share{{{_JOB}}})", "{{instance}}"),),
            maximum=1,
        ),
        Panel(
            "Reservations",
            "Decided pods not yet seen bound, and those whose binding was never seen.",
            "short",
            (
                (f"sum(tiphys_extender_reservations{{{_JOB}}})", "held"),
                (f"sum(increase(tiphys_extender_reservations_expired_total{{{_JOB}}}[{_W}]))", "expired"),
            ),
        ),
        Panel(
            "Unknown nodes",
            "Candidates a second that no watch has shown yet; they get a neutral score.",
            "reqps",
            ((rate("tiphys_extender_unknown_nodes_total", _W, _JOB), "unknown"),),
        ),
        Panel(
            "Policies by mode",
            "Valid SchedulingPolicies by mode, and those that cannot be obeyed.",
            "short",
            (
                (f"max by (mode) (tiphys_extender_routes{{{_JOB}}})", "{{mode}}"),
                (f"max(tiphys_extender_invalid_policies{{{_JOB}}})", "invalid"),
            ),
        ),
    ]


def _inputs() -> list[Panel]:
    return [
        Panel(
            "Age of node readings",
            "Time since readings were last taken from Prometheus. Nothing is shown while readings are off.",
            "s",
            ((f"time() - (tiphys_extender_readings_timestamp_seconds{{{_JOB}}} > 0)", "{{instance}}"),),
            thresholds=(("red", 60),),
        ),
        Panel(
            "Nodes with readings",
            "Share of known nodes with fresh readings.",
            "percentunit",
            ((f"min by (instance) (tiphys_extender_readings_coverage_ratio{{{_JOB}}})", "{{instance}}"),),
            maximum=1,
        ),
        Panel(
            "Readings refused",
            "Failed reads, and samples that are no plausible number.",
            "reqps",
            (
                (rate("tiphys_extender_readings_errors_total", _W, _JOB, "reason"), "read: {{reason}}"),
                (rate("tiphys_extender_invalid_readings_total", _W, _JOB, "reason"), "sample: {{reason}}"),
            ),
        ),
        Panel(
            "Synced",
            "1 once a whole list has been read. While one kind is 0, answers are neutral.",
            "short",
            ((f"min by (kind) (tiphys_extender_cache_synced{{{_JOB}}})", "{{kind}}"),),
        ),
        Panel(
            "Watches",
            "Failed lists and watches, by kind and reason.",
            "reqps",
            ((rate("tiphys_extender_watch_errors_total", _W, _JOB, "kind, reason"), "{{kind}} {{reason}}"),),
        ),
        Panel(
            "Models",
            "Models that serve, with the digest of their weights.",
            "short",
            ((f"max by (model, policy, sha256) (tiphys_extender_model_info{{{_JOB}}})", "{{model}}"),),
            kind="table",
        ),
        Panel(
            "Models refused",
            "Artifacts that failed a check; the last good one goes on.",
            "short",
            ((f"sum by (reason) (increase(tiphys_extender_model_load_failures_total{{{_JOB}}}[{_W}]))", "{{reason}}"),),
        ),
        Panel(
            "Certificate",
            "Time until the extender's certificate ends. Nothing is shown on loopback.",
            "s",
            ((f"(tiphys_extender_certificate_expiry_timestamp_seconds{{{_JOB}}} > 0) - time()", "{{instance}}"),),
        ),
        Panel(
            "Decision log",
            "Decisions a second that could not be written to disk.",
            "reqps",
            ((rate("tiphys_extender_decision_log_dropped_total", _W, _JOB), "dropped"),),
        ),
    ]


def _selection() -> list[Panel]:
    pods = rate("tiphys_operator_selection_pods_total", _W, _OPERATOR)
    return [
        Panel(
            "Selected policy",
            "SchedulingPolicies with `select`, by the candidate that is active.",
            "short",
            ((f"max by (candidate) (tiphys_operator_selection_active{{{_OPERATOR}}}) > 0", "{{candidate}}"),),
            stacked=True,
        ),
        Panel(
            "Predicted and measured cost",
            "Weighted cost of decisions whose pods have all ended: what was predicted when they were made, and what was measured.",
            "short",
            (
                (rate("tiphys_operator_selection_predicted_cost_total", _W, _OPERATOR), "predicted"),
                (rate("tiphys_operator_selection_measured_cost_total", _W, _OPERATOR), "measured"),
            ),
        ),
        Panel(
            "Intervals",
            "Intervals a second by why they chose what they chose, and switches.",
            "reqps",
            (
                (rate("tiphys_operator_selection_intervals_total", _W, _OPERATOR, "reason"), "{{reason}}"),
                (rate("tiphys_operator_selection_switches_total", _W, _OPERATOR), "switches"),
            ),
        ),
        Panel(
            "Bill",
            "Share of the prices of nodes in use that is charged to decisions. Money is saved only where idle nodes are removed.",
            "currencyUSD",
            ((f"3600 * {rate('tiphys_operator_selection_usd_total', _W, _OPERATOR)}", "an hour"),),
        ),
        Panel(
            "Energy",
            "Power of the nodes in use, by their power curves, charged to decisions.",
            "watt",
            ((rate("tiphys_operator_selection_joules_total", _W, _OPERATOR), "power"),),
        ),
        Panel(
            "Late pods",
            "Share of ended pods that took longer than `slaFactor` times what their function usually runs.",
            "percentunit",
            ((f"{rate('tiphys_operator_selection_late_pods_total', _W, _OPERATOR)} / {pods}", "late"),),
            maximum=1,
        ),
        Panel(
            "Overdue interval",
            "How long ago the most urgent interval should have begun or ended. Below 0: it is not due yet.",
            "s",
            ((f"max(tiphys_operator_selection_overdue_seconds{{{_OPERATOR}}})", "overdue"),),
        ),
        Panel(
            "Policies that choose nothing",
            "Policies with `select` whose last interval came to nothing; their condition Selecting says why.",
            "short",
            ((f"max(tiphys_operator_selection_failing{{{_OPERATOR}}})", "failing"),),
        ),
        Panel(
            "Intervals that failed",
            "By reason; the active candidate stays meanwhile.",
            "reqps",
            ((rate("tiphys_operator_selection_errors_total", _W, _OPERATOR, "reason"), "{{reason}}"),),
        ),
    ]


def _operator() -> list[Panel]:
    seconds = rate("tiphys_operator_reconcile_duration_seconds_bucket", _W, _OPERATOR, "le")
    return [
        Panel(
            "Reconciles",
            "Reconciles a second by result, and errors by reason.",
            "reqps",
            (
                (rate("tiphys_operator_reconciles_total", _W, _OPERATOR, "result"), "{{result}}"),
                (rate("tiphys_operator_errors_total", _W, _OPERATOR, "reason"), "error: {{reason}}"),
            ),
        ),
        Panel(
            "Duration of a reconcile",
            "Time for one pass over all policies.",
            "s",
            ((f"histogram_quantile(0.5, {seconds})", "p50"), (f"histogram_quantile(0.99, {seconds})", "p99")),
        ),
        Panel(
            "Since the last reconcile",
            "Time since the leader last finished one.",
            "s",
            ((f"time() - max(tiphys_operator_last_reconcile_timestamp_seconds{{{_OPERATOR}}} > 0)", "age"),),
            thresholds=(("red", 300),),
        ),
        Panel(
            "Leader",
            "Which operator leads.",
            "short",
            ((f"tiphys_operator_leader{{{_OPERATOR}}}", "{{instance}}"),),
        ),
        Panel(
            "Policies by state",
            "SchedulingPolicies by mode and condition Ready.",
            "short",
            ((f"max by (mode, ready) (tiphys_operator_policies{{{_OPERATOR}}}) > 0", "{{mode}} Ready={{ready}}"),),
            stacked=True,
        ),
        Panel(
            "Decisions read",
            "Failed reads of decision logs, and decisions overwritten before they were read.",
            "reqps",
            (
                (rate("tiphys_operator_decision_pull_errors_total", _W, _OPERATOR), "failed reads"),
                (rate("tiphys_operator_decisions_lost_total", _W, _OPERATOR), "lost"),
            ),
        ),
    ]

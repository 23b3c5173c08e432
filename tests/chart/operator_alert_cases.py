"""For every alert on the operator: series on which it fires, with what it then says, and series on which it must not."""

from tests.chart.alert_case import OP, OP2, Case

OPERATOR_CASES: dict[str, Case] = {
    "TiphysOperatorNoLeader": Case(
        {f"tiphys_operator_leader{{{OP}}}": "0x60", f"tiphys_operator_leader{{{OP2}}}": "0x60"},
        "10m",
        "Nobody reconciles SchedulingPolicies. Placement goes on by their specs; status and counters stand still.",
        {f"tiphys_operator_leader{{{OP}}}": "0x60", f"tiphys_operator_leader{{{OP2}}}": "1x60"},
    ),
    "TiphysGatesOpenedByTheOperator": Case(
        {f"tiphys_operator_gates_opened_total{{{OP}}}": "0x5 0+10x60"},
        "8m",
        "In 15 minutes the operator let 20 pods go that the extender should have let go before.",
        {f"tiphys_operator_gates_opened_total{{{OP}}}": "30x60"},
    ),
    "TiphysOperatorTwoLeaders": Case(
        {f"tiphys_operator_leader{{{OP}}}": "1x60", f"tiphys_operator_leader{{{OP2}}}": "1x60"},
        "5m",
        "2 operators lead at once; writes of one may undo the other's.",
        {f"tiphys_operator_leader{{{OP}}}": "1x3 0x60", f"tiphys_operator_leader{{{OP2}}}": "0x3 1x60"},
    ),
    "TiphysOperatorOtherRelease": Case(
        {f"tiphys_operator_other_release_active{{{OP}}}": "1x60", f"tiphys_operator_other_release_active{{{OP2}}}": "0x60"},
        "10m",
        "The operator of tiphys-operator stands by: another release holds the claim on this cluster.",
        {f"tiphys_operator_other_release_active{{{OP}}}": "1x3 0x60"},
        {"job": "tiphys-operator"},
    ),
    "TiphysScalingIntentNotOurs": Case(
        {f'tiphys_operator_scaling_intents_total{{{OP},result="not-ours"}}': "0 0+1x60"},
        "20m",
        "15 intents in 15 minutes had a signature that is not ours; they were not obeyed.",
        {
            f'tiphys_operator_scaling_intents_total{{{OP},result="not-ours"}}': "3x60",
            f'tiphys_operator_scaling_intents_total{{{OP},result="unsigned"}}': "0+1x60",
        },
    ),
    "TiphysOperatorReconcileStalled": Case(
        {
            f"tiphys_operator_leader{{{OP}}}": "1x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{OP}}}": "60x60",
            # A standby that led long ago must not hide the leader, nor stand for it.
            f"tiphys_operator_leader{{{OP2}}}": "0x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{OP2}}}": "60+60x60",
        },
        "16m",
        "The last successful reconcile was 15m 0s ago.",
        {
            f"tiphys_operator_leader{{{OP}}}": "1x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{OP}}}": "0+60x60",
            f"tiphys_operator_leader{{{OP2}}}": "0x60",
            f"tiphys_operator_last_reconcile_timestamp_seconds{{{OP2}}}": "0x60",
        },
    ),
    "TiphysOperatorPermissionMissing": Case(
        {f'tiphys_operator_permission_missing{{{OP},verb="list",resource="pods"}}': "1x60"},
        "20m",
        "The operator may not list pods; what needs it is off.",
        {f'tiphys_operator_permission_missing{{{OP},verb="list",resource="pods"}}': "1x5 0x60"},
        {"verb": "list", "resource": "pods"},
    ),
    "TiphysOperatorDecisionPullFailing": Case(
        {f"tiphys_operator_decision_pull_errors_total{{{OP}}}": "0+2x60"},
        "40m",
        "30 failed reads in 15 minutes: decision counters in status stand still.",
        {f"tiphys_operator_decision_pull_errors_total{{{OP}}}": "0x20 3x40"},
        {"job": "tiphys-operator", "instance": "10.0.0.3:8080"},
    ),
    "TiphysOperatorDecisionsLost": Case(
        {f"tiphys_operator_decisions_lost_total{{{OP}}}": "0+1x120"},
        "90m",
        "60 decisions in an hour were overwritten before the operator read them: counters in status are too low.",
        {f"tiphys_operator_decisions_lost_total{{{OP}}}": "9x120"},
        {"job": "tiphys-operator", "instance": "10.0.0.3:8080"},
    ),
    "TiphysOperatorLoopLate": Case(
        {
            f'tiphys_operator_loop_age_seconds{{{OP},loop="scaling"}}': "0+60x60",
            f'tiphys_operator_loop_age_seconds{{{OP},loop="binding"}}': "5x60",
        },
        "12m",
        "Loop scaling has done nothing for 12m 0s; what it keeps true grows old.",
        {f'tiphys_operator_loop_age_seconds{{{OP},loop="scaling"}}': "0+60x6 5x60"},
        {"loop": "scaling"},
    ),
    "TiphysScalingWindowsLate": Case(
        {f"tiphys_operator_windows_overdue{{{OP}}}": "3x60", f"tiphys_operator_windows_overdue{{{OP2}}}": "0x60"},
        "15m",
        "3 ScalingPolicies have had no good window for more than two of their intervals: their workloads stay as they are.",
        {f"tiphys_operator_windows_overdue{{{OP}}}": "3x4 0x60"},
    ),
    "TiphysOperatorObjectErrors": Case(
        {
            f'tiphys_operator_object_errors_total{{{OP},kind="Pod"}}': "0+2x60",
            f'tiphys_operator_object_errors_total{{{OP},kind="Node"}}': "7x60",
        },
        "40m",
        "30 times in 15 minutes an object of kind Pod made a step fail; all others go on.",
        {f'tiphys_operator_object_errors_total{{{OP},kind="Pod"}}': "0x5 9x60"},
        {"kind": "Pod"},
    ),
    "TiphysOperatorWatchRestarts": Case(
        {f'tiphys_operator_watch_restarts_total{{{OP},watch="watch-scaling-pods"}}': "0+1x60"},
        "40m",
        "watch-scaling-pods ended 30 times in half an hour by a mistake and was started again.",
        {f'tiphys_operator_watch_restarts_total{{{OP},watch="watch-scaling-pods"}}': "0x5 1x60"},
        {"watch": "watch-scaling-pods"},
    ),
    "TiphysSelectionFailing": Case(
        {f'tiphys_operator_selection_errors_total{{{OP},reason="api-error"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for api-error; the active candidates stay, plans expire.",
        {f'tiphys_operator_selection_errors_total{{{OP},reason="api-error"}}': "0x20 3x40"},
        {"reason": "api-error"},
    ),
    "TiphysSelectionStuck": Case(
        {f"tiphys_operator_selection_overdue_seconds{{{OP}}}": "-5 55+60x60"},
        "11m",
        "An interval has been due for 10m 55s; nothing is chosen, plans expire.",
        {f"tiphys_operator_selection_overdue_seconds{{{OP}}}": "-5 90 -5x60"},
    ),
    "TiphysSelectorUnavailable": Case(
        {f"tiphys_operator_selection_failing{{{OP}}}": "2x60", f"tiphys_operator_selection_failing{{{OP2}}}": "0x60"},
        "20m",
        "2 policies with select choose nothing; their condition Selecting says why.",
        {f"tiphys_operator_selection_failing{{{OP}}}": "0 1x5 0x60"},
    ),
    "TiphysSelectorHoldsFallback": Case(
        {
            f'tiphys_operator_selection_intervals_total{{{OP},reason="Fallback"}}': "0+4x120",
            f'tiphys_operator_selection_intervals_total{{{OP},reason="BestPredicted"}}': "0+1x120",
            f'tiphys_operator_selection_intervals_total{{{OP},reason="NothingToPlace"}}': "0+50x120",
        },
        "90m",
        "80% of the last hour's choices were the selector's own fallback, not the best predicted.",
        {
            f'tiphys_operator_selection_intervals_total{{{OP},reason="Fallback"}}': "0+1x120",
            f'tiphys_operator_selection_intervals_total{{{OP},reason="WithinMargin"}}': "0+4x120",
        },
    ),
    "TiphysPredictionsOff": Case(
        {
            f"tiphys_operator_selection_learned_total{{{OP}}}": "0+1x600",
            f"tiphys_operator_selection_predicted_cost_total{{{OP}}}": "0+1x600",
            f"tiphys_operator_selection_measured_cost_total{{{OP}}}": "0+4x600",
        },
        "480m",
        "Over six hours measured and predicted cost of the same decisions differ by more than three times.",
        {
            f"tiphys_operator_selection_learned_total{{{OP}}}": "0+1x600",
            f"tiphys_operator_selection_predicted_cost_total{{{OP}}}": "0+1x600",
            f"tiphys_operator_selection_measured_cost_total{{{OP}}}": "0+2x600",
        },
    ),
    "TiphysScalingHeld": Case(
        {f'tiphys_operator_scaling_holds_total{{{OP},reason="SamplesStale"}}': "0+2x60"},
        "30m",
        "20 windows in 10 minutes without a decision, reason SamplesStale: what is there stays.",
        {f'tiphys_operator_scaling_holds_total{{{OP},reason="SamplesStale"}}': "0x20 5x40"},
        {"reason": "SamplesStale"},
    ),
    "TiphysScalingObjectiveMissed": Case(
        {
            f"tiphys_operator_scaling_requests_total{{{OP}}}": "0+100x60",
            f"tiphys_operator_scaling_good_requests_total{{{OP}}}": "0+75x60",
        },
        "40m",
        "25% of requests took longer than their objective over 15 minutes.",
        {
            f"tiphys_operator_scaling_requests_total{{{OP}}}": "0+100x60",
            f"tiphys_operator_scaling_good_requests_total{{{OP}}}": "0+95x60",
        },
    ),
    "TiphysScalingMasked": Case(
        {f'tiphys_operator_scaling_masks_total{{{OP},reason="Quota"}}': "0+2x60"},
        "40m",
        "30 windows in 15 minutes in which a move was not possible, reason Quota.",
        {
            f'tiphys_operator_scaling_masks_total{{{OP},reason="Quota"}}': "0x20 2x40",
            f'tiphys_operator_scaling_masks_total{{{OP},reason="ObjectiveMissed"}}': "0+4x60",
        },
        {"reason": "Quota"},
    ),
    "TiphysScalingConflict": Case(
        {f'tiphys_operator_scaling_conflicts{{{OP},reason="OwnedByHorizontalPodAutoscaler"}}': "1x60"},
        "40m",
        "1 ScalingPolicies only recommend, reason OwnedByHorizontalPodAutoscaler.",
        {f'tiphys_operator_scaling_conflicts{{{OP},reason="OwnedByHorizontalPodAutoscaler"}}': "1x5 0x60"},
        {"reason": "OwnedByHorizontalPodAutoscaler"},
    ),
    "TiphysScalingFailing": Case(
        {f'tiphys_operator_scaling_errors_total{{{OP},reason="api-error"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for api-error; what is there stays.",
        {f'tiphys_operator_scaling_errors_total{{{OP},reason="api-error"}}': "0x20 3x40"},
        {"reason": "api-error"},
    ),
    "TiphysSiteDown": Case(
        {f'tiphys_operator_binding_site_up{{{OP},site="shop/far"}}': "0x60"},
        "10m",
        "shop/far has missed its probes for two minutes: no stream is bound there.",
        {f'tiphys_operator_binding_site_up{{{OP},site="shop/far"}}': "0x5 1x60"},
        {"site": "shop/far"},
    ),
    "TiphysBinderSilent": Case(
        {f'tiphys_operator_binding_policies{{{OP},mode="Canary",ready="Unknown"}}': "1x60"},
        "20m",
        "1 StreamPolicies have no active binder that the operator hears of.",
        {
            f'tiphys_operator_binding_policies{{{OP},mode="Active",ready="True"}}': "1x60",
            f'tiphys_operator_binding_policies{{{OP},mode="Off",ready="Unknown"}}': "1x60",
        },
    ),
    "TiphysBindingFailing": Case(
        {f'tiphys_operator_binding_errors_total{{{OP},reason="summary-failed"}}': "0+1x60"},
        "30m",
        "10 failures in 10 minutes for summary-failed.",
        {f'tiphys_operator_binding_errors_total{{{OP},reason="summary-failed"}}': "0x20 3x40"},
        {"reason": "summary-failed"},
    ),
    "TiphysScalingPartlyMeasured": Case(
        {f"tiphys_operator_scaling_partial{{{OP}}}": "2x30"},
        "20m",
        "Windows of 2 ScalingPolicies are incomplete: nothing of theirs shrinks until that is mended.",
        {f"tiphys_operator_scaling_partial{{{OP}}}": "2x10 0x1 2x10"},
        {},
    ),
    "TiphysScalingRolledBack": Case(
        {f"tiphys_operator_scaling_rolled_back{{{OP}}}": "2x30"},
        "10m",
        "2 ScalingPolicies have agents whose reward was worse than the rule's would have been.",
        {f"tiphys_operator_scaling_rolled_back{{{OP}}}": "1x3 0x30"},
        {},
    ),
}

"""Dashboard, alerts and runbook of scaling. Series are sums over policies: what one workload does stands in its status."""

from __future__ import annotations

from typing import Any

from tiphys_cli.observability.panels import Panel, dashboard, job_variable
from tiphys_cli.observability.queries import rate
from tiphys_cli.observability.rules import Alert, Entry

_P = "tiphys_operator_scaling"
_W = "$__rate_interval"
_OPERATOR = 'job=~"$operator_job"'
_ROOM = "Quota|LimitRange|NodeCapacity|PodsNotCreated|PodsUnschedulable|RefusedByServer"


def scaling() -> dict[str, Any]:
    """Objective, sizes, decisions, and what keeps them from being carried out."""
    return dashboard(
        "Scaling",
        "Latency against its objective, replicas and CPU, what agents want and what is done, and why not.",
        ["tiphys", "kubernetes", "autoscaling"],
        [job_variable("operator_job", "Operator job", "tiphys_operator_leader")],
        [("Objective", _objective()), ("Size", _size()), ("Decisions", _decisions()), ("Learning", _learning())],
    )


def _objective() -> list[Panel]:
    good = f"{rate(f'{_P}_good_requests_total', _W, _OPERATOR)} / {rate(f'{_P}_requests_total', _W, _OPERATOR)}"
    return [
        Panel(
            "Latency against the objective",
            "The highest latency percentile of any policy's last window, as a multiple of its objective: above 1 it is missed.",
            "short",
            ((f"max({_P}_latency_ratio{{{_OPERATOR}}})", "highest"),),
            thresholds=(("red", 1),),
        ),
        Panel("Requests within the objective", "Share of all requests in measured windows.", "percentunit", ((good, "good"),), maximum=1),
        Panel(
            "Windows",
            "Windows a second by whether they kept the objective; empty ones had no request and say nothing.",
            "reqps",
            ((rate(f"{_P}_windows_total", _W, _OPERATOR, "verdict"), "{{verdict}}"),),
            stacked=True,
        ),
    ]


def _size() -> list[Panel]:
    return [
        Panel(
            "Replicas",
            "Pods of all policies together: what is there, what agents want, and what limits and masks leave of it.",
            "short",
            ((f"max by (size) ({_P}_replicas{{{_OPERATOR}}})", "{{size}}"),),
        ),
        Panel(
            "CPU limit",
            "Limits of all their pods together, in cores.",
            "short",
            ((f"max by (size) ({_P}_cpu_cores{{{_OPERATOR}}})", "{{size}}"),),
        ),
        Panel(
            "Steps",
            "Changes carried out a second, and resizes of single pods by their result.",
            "reqps",
            (
                (rate(f"{_P}_steps_total", _W, _OPERATOR, "dimension, direction"), "{{dimension}} {{direction}}"),
                (rate(f"{_P}_resizes_total", _W, _OPERATOR, "result"), "resizes {{result}}"),
            ),
        ),
    ]


def _decisions() -> list[Panel]:
    return [
        Panel(
            "Decisions by fate",
            "Recommended ones change nothing; Held ones had no data; Intended ones were about to be carried out.",
            "reqps",
            ((rate(f"{_P}_decisions_total", _W, _OPERATOR, "phase"), "{{phase}}"),),
            stacked=True,
        ),
        Panel(
            "Limits",
            "Decisions a second by the clamp that had the last word, replicas and CPU apart.",
            "reqps",
            ((rate(f"{_P}_limits_total", _W, _OPERATOR, "dimension, reason"), "{{dimension}} {{reason}}"),),
        ),
        Panel(
            "Masks",
            "Moves a second that were not possible, by reason.",
            "reqps",
            ((rate(f"{_P}_masks_total", _W, _OPERATOR, "reason"), "{{reason}}"),),
        ),
        Panel(
            "Windows without a decision",
            "Windows a second in which nothing could be decided, by what was missing: what is there stays.",
            "reqps",
            ((rate(f"{_P}_holds_total", _W, _OPERATOR, "reason"), "{{reason}}"),),
        ),
        Panel(
            "Jumps between windows",
            "Jumps seen a second before their window was over: CPU was raised, or something kept it from that.",
            "reqps",
            ((rate(f"{_P}_raises_total", _W, _OPERATOR, "result"), "{{result}}"),),
        ),
        Panel(
            "Conflicts",
            "Policies that only recommend because somebody else scales their workload.",
            "short",
            ((f"max by (reason) ({_P}_conflicts{{{_OPERATOR}}}) > 0", "{{reason}}"),),
        ),
        Panel(
            "Policies",
            "ScalingPolicies by mode and condition Ready.",
            "short",
            ((f"max by (mode, ready) ({_P}_policies{{{_OPERATOR}}}) > 0", "{{mode}} ready={{ready}}"),),
            stacked=True,
        ),
        Panel(
            "Failures",
            "Windows that failed and watches that broke, a second, by reason.",
            "reqps",
            ((rate(f"{_P}_errors_total", _W, _OPERATOR, "reason"), "{{reason}}"),),
        ),
    ]


def _learning() -> list[Panel]:
    return [
        Panel(
            "The rule instead of an agent",
            "Policies whose agent's reward was worse than the rule's would have been: the rule decides.",
            "short",
            ((f"max({_P}_rolled_back{{{_OPERATOR}}})", "rolled back"),),
            thresholds=(("orange", 1),),
        ),
        Panel(
            "Transitions",
            "Decisions a second that the trainer can learn from, and those whose window was not measured.",
            "reqps",
            ((rate(f"{_P}_transitions_total", _W, _OPERATOR, "result"), "{{result}}"),),
        ),
        Panel(
            "Rollbacks",
            "How often a second the rule took over.",
            "reqps",
            ((rate(f"{_P}_rollbacks_total", _W, _OPERATOR), "rollbacks"),),
        ),
    ]


def alerts() -> list[Alert]:
    """Of scaling."""
    good, requests = (f"sum(increase({_P}_{what}_total[15m]))" for what in ("good_requests", "requests"))
    return [
        Alert(
            "TiphysScalingHeld",
            "warning",
            "10m",
            f"sum by (reason) (increase({_P}_holds_total[10m])) > 10",
            "Workloads are not scaled for want of data",
            "{{ $value | humanize }} windows in 10 minutes without a decision, reason {{ $labels.reason }}: what is there stays.",
        ),
        Alert(
            "TiphysScalingPartlyMeasured",
            "warning",
            "15m",
            f"max({_P}_partial) > 0",
            "Workloads do not shrink because only a part of them is measured",
            "Windows of {{ $value }} ScalingPolicies are incomplete: nothing of theirs shrinks until that is mended.",
        ),
        Alert(
            "TiphysScalingObjectiveMissed",
            "warning",
            "15m",
            f"1 - {good} / {requests} > 0.1",
            "Scaled workloads miss their latency objectives",
            "{{ $value | humanizePercentage }} of requests took longer than their objective over 15 minutes.",
        ),
        Alert(
            "TiphysScalingMasked",
            "warning",
            "15m",
            f'sum by (reason) (increase({_P}_masks_total{{reason=~"{_ROOM}"}}[15m])) > 5',
            "Workloads cannot grow",
            "{{ $value | humanize }} windows in 15 minutes in which a move was not possible, reason {{ $labels.reason }}.",
        ),
        Alert(
            "TiphysScalingConflict",
            "info",
            "30m",
            f"max by (reason) ({_P}_conflicts) > 0",
            "Somebody else scales a workload of ours",
            "{{ $value }} ScalingPolicies only recommend, reason {{ $labels.reason }}.",
        ),
        Alert(
            "TiphysScalingFailing",
            "warning",
            "10m",
            f"sum by (reason) (increase({_P}_errors_total[10m])) > 3",
            "Windows of ScalingPolicies fail",
            "{{ $value | humanize }} failures in 10 minutes for {{ $labels.reason }}; what is there stays.",
        ),
        Alert(
            "TiphysScalingRolledBack",
            "info",
            "5m",
            f"max({_P}_rolled_back) > 0",
            "The rule scales instead of a learned agent",
            "{{ $value }} ScalingPolicies have agents whose reward was worse than the rule's would have been.",
        ),
    ]


ENTRIES: dict[str, Entry] = {
    "TiphysScalingHeld": Entry(
        "Most windows of some ScalingPolicy end without a decision: Prometheus does not answer, or has no fresh samples of its pods.",
        "Replicas and sizes stay as they are: nothing shrinks, but nothing grows with the load either.",
        (
            "`kubectl get scp -A -o wide`, then `kubectl describe scp NAME`: condition MetricsAvailable says what is missing.",
            "`SeriesMissing`, `NoBucketEdge`: do the histogram's name, labels and edges match `spec.objective`?",
            "`SamplesStale`: is the scrape interval at most half of `spec.intervalSeconds`?",
            "`PrometheusUnreachable`: `extender.prometheus.url` of the chart, and its NetworkPolicy.",
            "`AnswerTooLarge`: the policy's histogram has more series or samples than `operator.scaling.answers` allows: `matchers` can "
            "choose fewer, a recording rule can drop labels.",
        ),
        ("Scale by hand meanwhile: the policy takes the number as it finds it.",),
    ),
    "TiphysScalingPartlyMeasured": Entry(
        "For a quarter of an hour some windows have lacked something: a running pod or kubelet without samples, a source of series that "
        "fell silent, two scrapes of one pod that do not agree, or a warning of Prometheus, Thanos or Mimir about its own answer.",
        "Workloads grow, but do not shrink: they cost more than they need to.",
        (
            "`kubectl get scp -A`, then `kubectl describe scp NAME`: the message of MetricsAvailable names what is missing.",
            '`no samples of POD`: is it scraped? `up{namespace="NAMESPACE", pod="POD"}` in Prometheus, and its page of targets.',
            "`no CPU of POD`: is the kubelet of its node scraped?",
            "`told more than once`: two jobs scrape the pod, and what they tell differs.",
            "`Prometheus says`: a store or shard did not answer.",
        ),
        (
            "Mend the scrape. A pod that will never be scraped again can be deleted: what is expected falls with it.",
            "Two scrapes: `spec.objective.metrics.matchers: {job: ONE}` chooses one of them.",
        ),
    ),
    "TiphysScalingObjectiveMissed": Entry(
        "More than a tenth of the requests of all scaled workloads took longer than their objective.",
        "Users wait.",
        (
            "Dashboard *Tiphys / Scaling*, *Masks* and *Limits*: is growth wanted and not possible?",
            "`status.lastDecision` of the policies: `wanted`, `clamped` and `applied`, with reasons.",
            "Recommend mode and conflicts change nothing: `kubectl get scp -A`.",
            "Are requests slow for other reasons than CPU, such as a dependency? Then no size helps.",
        ),
        (
            "Raise `maxReplicas` or `maxCpuMilli`, or the quota, whichever is at its end.",
            "A higher `attainmentPercent` makes learned agents keep more headroom.",
        ),
    ),
    "TiphysScalingMasked": Entry(
        "An agent's moves have not been possible for a quarter of an hour: quota, LimitRange, node capacity, or admission says no.",
        "Workloads stay smaller than they should be. Refused moves are tried again after a minute, then after twice as long each time.",
        (
            "`kubectl describe scp NAME`: condition Limited and `status.lastDecision.masked`.",
            "`Quota`: `kubectl describe quota -n NAMESPACE`. `NodeCapacity`: `kubectl describe node`, *Allocated resources*.",
            "`PodsNotCreated`, `PodsUnschedulable`: `kubectl describe deployment` and its pods.",
        ),
        ("Give room: raise the quota, add nodes, or spread the pods so that their fullest node has room.",),
    ),
    "TiphysScalingConflict": Entry(
        "A HorizontalPodAutoscaler, VerticalPodAutoscaler, ScaledObject, another ScalingPolicy, or a person or GitOps tool sets what a "
        "ScalingPolicy would set.",
        "The policy only recommends: two who scale one workload would undo each other's steps.",
        ("`kubectl get scp -A -o wide`, column Conflict; the condition's message names the other one.",),
        (
            "Keep one: delete the other, or remove `spec.horizontal` or `spec.vertical` here, or set `mode: Recommend` and mean it.",
            "`Overridden`: let the GitOps tool ignore `spec.replicas`; our field manager is `tiphys-scaling`.",
        ),
    ),
    "TiphysScalingFailing": Entry(
        "Windows end with an error, an agent raises one, or a watch breaks again and again.",
        "What is there stays.",
        (
            "The operator's log names policy and error.",
            "`tiphys_operator_permission_missing`: is a right missing?",
            "`agent-failed`: condition Ready says `AgentUnavailable` with the error.",
        ),
        ("`spec.agent.kind: rule` needs no weights and no other package.",),
    ),
    "TiphysScalingRolledBack": Entry(
        "A learned agent's rolling reward was worse than what the calibrated rule would have got in the same windows.",
        "The rule decides for these policies; nothing else changes.",
        (
            "`kubectl get scp -A -o wide`, column Rolled-Back; the condition's message says by how much.",
            "Is the workload unlike those the agent was trained for: other start times, latency far from 0.4 s, a dependency that is slow?",
        ),
        (
            "`kubectl annotate scp NAME tiphys.io/retry-agent=$(date +%s) --overwrite` gives the same weights another chance.",
            "`spec.agent.learning: Collect` and `tiphys train scaling --from-transitions`: weights that learned from it begin anew.",
            "`spec.agent.kind: rule` makes it permanent.",
        ),
    ),
}

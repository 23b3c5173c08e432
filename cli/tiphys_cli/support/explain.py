"""`tiphys explain`: why a pod is where it is, from what the extender keeps and from what the pod itself shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiphys_cli.support.explain_held import OPENED, held_headline, held_lines
from tiphys_cli.support.explain_hints import hint_lines
from tiphys_models.api.reasons import FallbackReason, NeutralReason
from tiphys_models.base.facts import pod_facts

_NEUTRAL: Mapping[str, str] = {
    NeutralReason.NO_POLICY: "no SchedulingPolicy of its namespace matches it, or it is a system pod: create one, or change its selector",
    NeutralReason.MODE_OFF: "its SchedulingPolicy has mode Off: set mode Shadow, Canary or Active",
    NeutralReason.SHADOW: "its SchedulingPolicy has mode Shadow: the choice was only logged, the default plugins decided",
    NeutralReason.CANARY: "it is outside the canary's share of pods: raise canary.percent, or set mode Active",
    NeutralReason.NOT_SYNCED: "the extender had not yet read the cluster: only right after its start",
    NeutralReason.NO_KNOWN_NODE: "the extender knew none of the nodes offered: were they just added?",
    NeutralReason.DEADLINE: "the answer would have come too late: look at the latency panel, and at CPU limits of the extender",
    NeutralReason.BAD_SCORES: "policy and fallback gave something that is no number: look at the model",
    NeutralReason.INTERNAL_ERROR: "the extender failed on this pod: its log names the error",
    NeutralReason.DISABLED: 'the kill switch is on: set enabled to "true" in the ConfigMap tiphys-switch',
    NeutralReason.OTHER_SCHEDULER: "the pod names a scheduler that is not ours",
    NeutralReason.BAD_POD: "the extender could not read the pod it was sent",
    NeutralReason.TOO_MANY_NAMES: "more candidates were sent than the extender judges: lower percentageOfNodesToScore",
}
_FALLBACK: Mapping[str, str] = {
    FallbackReason.NOT_CHOSEN: "select has not chosen for this spec yet: is the operator there? See the condition Selecting",
    FallbackReason.PLAN_MISSING: "a planner is active and its PlacementPlan has not been seen: `kubectl get placementplans`",
    FallbackReason.PLAN_EXPIRED: "the plan is older than four intervals: is the operator there?",
    FallbackReason.PLAN_EXHAUSTED: "more pods of the function came than waited or were expected when the plan was made",
    FallbackReason.POLICY_UNKNOWN: "the extender has no policy of that name, or cannot use its package: see `tiphys policies` and its log",
    FallbackReason.MODEL_MISSING: "its model is not loaded: is NAME.json with NAME.safetensors mounted, and not refused?",
    FallbackReason.READINGS_MISSING: "more than half of the candidates had no fresh reading: see `tiphys doctor` and Prometheus",
    FallbackReason.PROFILES_MISSING: "no runtime reports tiphys_runtime_call_profile, which this model needs: see docs/concepts.md",
    FallbackReason.FUNCTION_WITHOUT_PROFILE: (
        "no runtime reports tiphys_runtime_call_profile of its function, which this model needs; it judges the functions that have one"
    ),
    FallbackReason.PROFILE_CONTRADICTED: (
        "the function's last eight runs took three times as long, or as short, as tiphys_runtime_call_profile says: correct the profile"
    ),
    FallbackReason.CPU_MISSING: (
        "nobody has seen how much processor time the function's calls take, or said what they are like: report its call profile, say "
        "coreSeconds when a call has finished, or have cAdvisor scraped: tiphys_extender_pod_cpu_unknown_total says what is missing"
    ),
    FallbackReason.OBJECTIVE_UNSUPPORTED: "the policy cannot judge by spec.objective: see the condition Ready of its SchedulingPolicy",
    FallbackReason.SCORES_NOT_FINITE: "the policy gave scores that are no numbers",
    FallbackReason.SCORES_CONSTANT: "the model makes no difference between different nodes: it is saturated or broken",
    FallbackReason.POLICY_ERROR: "the policy failed: the extender's log names the error",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say. `record` is the extender's own answer, empty if it was never asked."""

    namespace: str
    pod: str
    headline: str
    because: tuple[str, ...]
    """Full sentences, most important first."""
    node: str
    """Where the pod is; empty if not bound or not found."""
    extender: str
    """Which extender said so."""
    record: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object that --json prints."""
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "node": self.node,
            "headline": self.headline,
            "because": list(self.because),
            "extender": self.extender,
            "decision": dict(self.record),
        }


def explanation(
    namespace: str, name: str, pod: Mapping[str, Any] | None, record: Mapping[str, Any], extender: str, scheduler_name: str
) -> Explanation:
    """The explanation made from the pod as it is now (None if it is gone) and the extender's record of it."""
    node = ((pod or {}).get("spec") or {}).get("nodeName") or record.get("chosen") or ""
    if not record.get("asked"):
        if (held := record.get("held")) and not node:
            return Explanation(namespace, name, held_headline(name, held), tuple(held_lines(held)), node, extender, record)
        because = (*held_lines(held or {}), *never_asked(pod, scheduler_name), *hint_lines(pod))
        return Explanation(namespace, name, _unasked_headline(name, node, pod), because, node, extender)
    return Explanation(namespace, name, _headline(name, node, record), (*_because(node, record), *hint_lines(pod)), node, extender, record)


def never_asked(pod: Mapping[str, Any] | None, scheduler_name: str) -> list[str]:
    """What the pod itself shows about why nobody asked the extender."""
    if pod is None:
        return ["There is no such pod now, and the extender keeps no decision on one of that name: was it decided too long ago?"]
    facts, spec = pod_facts(pod), pod.get("spec") or {}
    because = []
    if facts.scheduler_name != scheduler_name:
        because.append(
            f"It names the scheduler {facts.scheduler_name!r}; Tiphys is asked about pods of {scheduler_name!r} only: set "
            f"spec.schedulerName in its workload, or label the namespace tiphys.io/route=enabled where the chart's routing is on."
        )
        return because
    if facts.from_daemon_set:
        because.append("It belongs to a DaemonSet, so only one node can take it, and the scheduler does not ask about a single candidate.")
    pinned = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname")
    if pinned:
        because.append(f"Its nodeSelector pins it to {pinned}: a single candidate, which the scheduler does not ask about.")
    unscheduled = next((c for c in (pod.get("status") or {}).get("conditions") or () if c.get("type") == "PodScheduled"), None)
    if not facts.node:
        if unscheduled is not None and unscheduled.get("status") == "False":
            because.append(
                f"No node can take it ({unscheduled.get('message') or unscheduled.get('reason')}): without candidates nobody is asked."
            )
        else:
            because.append(f"It still waits for the scheduler {scheduler_name!r}: does it run? See `tiphys doctor`.")
    elif unscheduled is None:
        because.append("It was bound to its node by somebody else than a scheduler (spec.nodeName was set).")
    elif not because:
        because.append(
            "The scheduler placed it without an answer from this extender: exactly one node could take it, or the extender did not run or "
            "answer then, or the decision is older than what is kept."
        )
    return because


def _unasked_headline(name: str, node: str, pod: Mapping[str, Any] | None) -> str:
    where = f"is on {node}" if node else "has no node" if pod is not None else "is not there"
    return f"pod {name} {where}; Tiphys was not asked about it"


def _headline(name: str, node: str, record: Mapping[str, Any]) -> str:
    where = f"is on {node}" if node else "is not bound yet"
    candidates, outcome = record.get("candidates"), record.get("outcome")
    if outcome == "neutral":
        return f"pod {name} {where}; Tiphys was asked and made no difference between {candidates} candidates"
    judge = f"the fallback {record.get('policyName')}" if outcome == "fallback" else record.get("policyName")
    return f"pod {name} {where}; {judge} ranked {candidates} candidates, best {record.get('would')}"


def _because(node: str, record: Mapping[str, Any]) -> list[str]:
    outcome, reason, would = record.get("outcome"), str(record.get("reason") or ""), record.get("would") or ""
    because = []
    if outcome == "neutral":
        because.append(f"{reason}: {_NEUTRAL.get(reason, 'see the documentation of this reason')}.")
        if reason == NeutralReason.SHADOW and would and node:
            verdict = "the node it got" if would == node else f"not {node}, the node it got"
            because.append(f"In Active mode {record.get('policyName')} would have put it on {would}, {verdict}.")
        return because
    because.append(f"SchedulingPolicy {record.get('policy')} (mode {record.get('mode')}) decides pods like this one.")
    if outcome == "fallback":
        because.append(f"{reason}: {_FALLBACK.get(reason, 'see the documentation of this reason')}.")
    if node and would == node:
        because.append(f"{would} got 10, the highest score, alone; the scheduler followed it.")
    elif node:
        because.append(
            f"{would} got 10, but the pod is on {node}: another scoring plugin outvoted the answer (weight below 121), the node was "
            f"turned down at the bind, or the answer came too late for the scheduler."
        )
    held = record.get("held")
    because += held_lines({"state": OPENED, **held} if held else {})
    if (wait := record.get("wait")) and not held:
        because.append(
            f"Waiting was expected to pay: a warm instance in {wait['seconds']:.2f} s, and the pod done {wait['saves']:.2f} s sooner. "
            f"kube-scheduler cannot be told to wait; a pod labelled tiphys.io/may-wait is held until then, where the chart's gates are on."
        )
    if (attempts := len(record.get("attempts") or ())) > 1:
        because.append(f"The scheduler asked {attempts} times: earlier attempts ended without a bind.")
    return because


def profile_line(function: str, profile: Mapping[str, float]) -> str:
    """What the runtime reports of the function, as policies that look at what is still to do read it."""
    warm_s, cold_s = profile["warm_seconds"], profile["cold_seconds"]
    return f"A call of {function} alone takes {warm_s:.3g} s warm and {cold_s:.3g} s cold, on up to {profile['parallelism']:g} cores."


def estimate_rows(estimate: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Seconds by node: each part, and their sum."""
    return [(node, *(f"{seconds:.3f} s" for seconds in (*parts.values(), sum(parts.values())))) for node, parts in estimate.items()]


def top_scores(record: Mapping[str, Any], count: int) -> Sequence[Mapping[str, Any]]:
    """The best candidates with level and raw score; all of them are in --json."""
    return list(record.get("scores") or record.get("top") or ())[:count]

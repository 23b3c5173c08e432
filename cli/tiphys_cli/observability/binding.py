"""Dashboard, alerts and runbook of binding. Sites are told apart, streams and tenants are not."""

from __future__ import annotations

from typing import Any

from tiphys_cli.observability.panels import Panel, dashboard, job_variable
from tiphys_cli.observability.queries import rate
from tiphys_cli.observability.rules import Alert, Entry

_B, _O = "tiphys_binder", "tiphys_operator_binding"
_W = "$__rate_interval"
_BINDER, _OPERATOR = 'job=~"$binder_job"', 'job=~"$operator_job"'
_FAILED = 'outcome=~"late|refused"'


def binding() -> dict[str, Any]:
    """What becomes of streams and their queries, how full and how far sites are, and who binds."""
    return dashboard(
        "Binding",
        "Streams and their queries by policy and site, use and delay of sites, latency of binds.",
        ["tiphys", "kubernetes", "inference"],
        [
            job_variable("binder_job", "Binder job", f"{_B}_open_streams"),
            job_variable("operator_job", "Operator job", "tiphys_operator_leader"),
        ],
        [("Streams", _streams()), ("Sites", _sites()), ("Who binds", _who())],
    )


def _share(counter: str, labels: str, by: str) -> str:
    """Share of a counter's increase with these labels, of all of it."""
    counted = f"{_B}_{counter}"
    return f"{rate(counted, _W, f'{labels},{_BINDER}', by)} / {rate(counted, _W, _BINDER, by)}"


def _streams() -> list[Panel]:
    bucket = rate(f"{_B}_bind_seconds_bucket", _W, _BINDER, "le")
    return [
        Panel(
            "Streams asked for",
            "Streams a second: bound, rejected for want of capacity, or not possible with any offer that is up.",
            "reqps",
            ((rate(f"{_B}_streams_total", _W, _BINDER, "result"), "{{result}}"),),
            stacked=True,
        ),
        Panel(
            "Queries in time by policy",
            "Share of reported queries that were served in time, by the policy that bound their stream.",
            "percentunit",
            (
                (
                    _share("stream_queries_total", 'outcome="served"', "policy"),
                    "{{policy}}",
                ),
            ),
            maximum=1,
        ),
        Panel(
            "Queries by outcome",
            "Queries a second as clients report them with their renewals; unknown are those of streams that ended without a word.",
            "reqps",
            (
                (rate(f"{_B}_stream_queries_total", _W, _BINDER, "outcome"), "{{outcome}}"),
                (rate(f"{_B}_stream_queries_unknown_total", _W, _BINDER), "unknown"),
            ),
            stacked=True,
        ),
        Panel(
            "Rejected streams by policy",
            "Share of streams that asked and found no capacity, by the policy that was active.",
            "percentunit",
            (
                (
                    _share("streams_total", 'result="no-capacity"', "policy"),
                    "{{policy}}",
                ),
            ),
            maximum=1,
        ),
        Panel("Open streams", "Streams with a lease.", "short", ((f"max by (instance) ({_B}_open_streams{{{_BINDER}}})", "{{instance}}"),)),
        Panel(
            "Latency of a bind",
            "From the request read to the answer made.",
            "s",
            ((f"histogram_quantile(0.5, {bucket})", "p50"), (f"histogram_quantile(0.99, {bucket})", "p99")),
            thresholds=(("red", 0.005),),
        ),
    ]


def _sites() -> list[Panel]:
    return [
        Panel(
            "Use by site",
            "Bound load as a share of the capacity of what is up at the site, as each access site's binder counts it.",
            "percentunit",
            ((f"max by (site) ({_B}_site_use_ratio{{{_BINDER}}})", "{{site}}"),),
            thresholds=(("red", 0.9),),
        ),
        Panel(
            "Failed queries by site",
            "Share of reported queries that came late or were refused.",
            "percentunit",
            (
                (
                    _share("site_queries_total", _FAILED, "site"),
                    "{{site}}",
                ),
            ),
            maximum=1,
        ),
        Panel(
            "Streams bound by site",
            "Streams a second that were bound to an offer of the site.",
            "reqps",
            ((rate(f"{_B}_site_streams_total", _W, _BINDER, "site"), "{{site}}"),),
            stacked=True,
        ),
        Panel(
            "Delay of sites",
            "One way from where the operator stands: mean, and mean with two deviations, with which constraints count.",
            "s",
            (
                (f"max by (site) ({_O}_site_delay_seconds{{{_OPERATOR}}})", "{{site}}"),
                (
                    f"max by (site) ({_O}_site_delay_seconds{{{_OPERATOR}}} + 2 * {_O}_site_delay_deviation_seconds{{{_OPERATOR}}})",
                    "{{site}} + 2 σ",
                ),
            ),
        ),
        Panel(
            "Sites that answer",
            "1: probes are answered; 0: two in a row were missed, and nothing is bound there.",
            "short",
            ((f"max by (site) ({_O}_site_up{{{_OPERATOR}}})", "{{site}}"),),
            maximum=1,
        ),
        Panel("Probes", "Probes of sites a second.", "reqps", ((rate(f"{_O}_probes_total", _W, _OPERATOR, "result"), "{{result}}"),)),
    ]


def _who() -> list[Panel]:
    return [
        Panel(
            "Stream policies",
            "StreamPolicies by mode and condition Ready.",
            "short",
            ((f"max by (mode, ready) ({_O}_policies{{{_OPERATOR}}}) > 0", "{{mode}} ready={{ready}}"),),
            stacked=True,
        ),
        Panel(
            "Variants",
            "ModelVariants by condition Ready.",
            "short",
            ((f"max by (ready) ({_O}_variants{{{_OPERATOR}}})", "ready={{ready}}"),),
            stacked=True,
        ),
        Panel(
            "Fallback, recovery",
            "1 while the fallback binds, by reason, and while leases of a former process may still be out.",
            "short",
            (
                (f"max by (reason) ({_B}_stream_fallback{{{_BINDER}}}) > 0", "fallback: {{reason}}"),
                (f"max({_B}_streams_recovering{{{_BINDER}}})", "recovering"),
            ),
        ),
    ]


def alerts() -> list[Alert]:
    """Of binding."""
    asked, full = (f"sum(increase({_B}_streams_total{labels}[15m]))" for labels in ("", '{result="no-capacity"}'))
    known, failed = (f"sum(increase({_B}_stream_queries_total{labels}[15m]))" for labels in ("", f"{{{_FAILED}}}"))
    return [
        Alert(
            "TiphysSiteDown",
            "warning",
            "2m",
            f"max by (site) ({_O}_site_up) == 0",
            "A site misses its probes",
            "{{ $labels.site }} has missed its probes for two minutes: no stream is bound there.",
        ),
        Alert(
            "TiphysStreamsRejected",
            "warning",
            "15m",
            f"{full} / {asked} > 0.2",
            "Streams find no capacity",
            "{{ $value | humanizePercentage }} of streams were rejected over 15 minutes because every offer that would do was full.",
        ),
        Alert(
            "TiphysStreamsFail",
            "warning",
            "15m",
            f"{failed} / {known} > 0.1",
            "Bound streams do not get what they were promised",
            "{{ $value | humanizePercentage }} of reported queries came late or were refused over 15 minutes.",
        ),
        Alert(
            "TiphysStreamFallback",
            "warning",
            "10m",
            f"max by (reason) ({_B}_stream_fallback) > 0",
            "The fallback binds streams",
            "The policy that a StreamPolicy names cannot bind, reason {{ $labels.reason }}; its fallback does.",
        ),
        Alert(
            "TiphysBinderSilent",
            "warning",
            "5m",
            f'max({_O}_policies{{mode="Active",ready="Unknown"}}) > 0',
            "No binder answers for an access site",
            "{{ $value }} StreamPolicies in mode Active have no active binder that the operator hears of.",
        ),
        Alert(
            "TiphysBindingFailing",
            "warning",
            "10m",
            f"sum by (reason) (increase({_O}_errors_total[10m])) > 3",
            "The operator cannot keep statuses of binding true",
            "{{ $value | humanize }} failures in 10 minutes for {{ $labels.reason }}.",
        ),
    ]


ENTRIES: dict[str, Entry] = {
    "TiphysSiteDown": Entry(
        "Two probes in a row had no answer in time, and none has been answered since.",
        "New streams go elsewhere. Streams that are bound there stay bound until they end: their clients see it first.",
        (
            "`kubectl describe isite NAME -n NAMESPACE`: the condition's message tells how the last probe ended.",
            "Is it the site, or the way to it? Other sites behind the same way are down, too, then.",
            "With `networkPolicy.enabled`: does `networkPolicy.sitesTo` let the operator out to it?",
            "Reason `ProbeRefused`: the operator does not probe such an address. `operator.probes.allow` names networks that it does.",
        ),
        ("One answered probe brings it back; nothing is to be done here.",),
    ),
    "TiphysStreamsRejected": Entry(
        "More than a fifth of the streams that asked got a 429: offers that would do for them are full.",
        "Those clients are not served.",
        (
            "Dashboard *Tiphys / Binding*, *Use by site*: is everything full, or only what is near or accurate enough?",
            "`GET /v1/bindings/{id}` of a rejected stream says which constraint refused each offer.",
            "`kubectl get mvar -A`: are variants not ready that should be?",
        ),
        (
            "Add replicas, or variants that are smaller or nearer.",
            "`policy: least-impedance` and `closest` give the best places away first: try `relative-load`.",
        ),
    ),
    "TiphysStreamsFail": Entry(
        "More than a tenth of the queries of bound streams came late or were refused, as clients say.",
        "Clients get less than they asked for, though they were bound.",
        (
            "*Failed queries by site*: one site, or all? If one: are `delayMs` and `capacityQps` of its variants what it really does?",
            "*Delay of sites*: has a way become longer than what is declared or was measured?",
            "*Use by site*: near the ceiling queues grow; is somebody else using these servers?",
        ),
        ("Lower `spec.ceiling` of the StreamPolicy.", "Profile the variant again and correct its ModelVariant."),
    ),
    "TiphysStreamFallback": Entry(
        "The weights of the policy or agent that a StreamPolicy names are missing or were refused.",
        "`spec.fallback` binds: streams are bound, only less well.",
        (
            "`kubectl describe stp NAME`: condition Ready, `DegradedToFallback`.",
            "`tiphys policies` lists what this release has weights for.",
        ),
        ("Mount the weights, or name a policy that needs none.",),
    ),
    "TiphysBinderSilent": Entry(
        "A StreamPolicy is Active, and no process says that it binds for its access site.",
        "If no binder runs, no new stream is bound there. If only the operator does not hear it, nothing is lost but the status.",
        (
            "Does a binder run with that access site, and is one of them `tiphys_binder_streams_active`?",
            "`operator.binding.binders`: is its status address there? The operator's log names addresses that do not answer.",
        ),
        ("Start a binder; leases that are out are booked again as their clients renew them.",),
    ),
    "TiphysBindingFailing": Entry(
        "Statuses cannot be written (`api-error`), kinds cannot be watched (`watch-failed`), or a binder's summary cannot be read "
        "(`summary-failed`).",
        "Binders go on with what stands in the statuses: a site that goes down meanwhile is not noticed.",
        (
            "The operator's log names object or address, and the error.",
            "`tiphys_operator_permission_missing`: is a right missing?",
            "`watch-failed`: are the CRDs of this release installed? `tiphys doctor` tells.",
        ),
        ("`operator.binding.enabled=false` if you do not bind streams.",),
    ),
}

"""`tiphys doctor`, the judging half: from facts about an installation to lines that say what is wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tiphys_cli.support.facts import ExtenderFact, Facts, Finding, Grade
from tiphys_cli.support.kinds import kind_findings, unlisted_findings

DECISIVE_WEIGHT = 121
MIN_KUBERNETES = (1, 33)
_SCRAPED_WITHIN_S = 300.0
_LEAST_COVERAGE = 0.9
_MOST_HTTP_TIMEOUT_S = 0.3
_LEAST_QPS = 200


def diagnose(facts: Facts) -> list[Finding]:
    """All findings, in the order in which one would mend them."""
    return [
        *_versions(facts),
        *_crd(facts),
        *_deployments(facts),
        *_scheduler_config(facts),
        *_leases(facts),
        *_releases(facts),
        *_rbac(facts),
        *_extenders(facts),
        *_switch(facts),
        *_policies(facts),
        *kind_findings(facts.objects),
        *unlisted_findings(facts.unlisted),
    ]


def _versions(facts: Facts) -> Iterator[Finding]:
    server = version_of(facts.server_version)
    if server is None:
        yield Finding("versions", "WARN", f"the API server calls itself {facts.server_version!r}", "compare the versions yourself")
        return
    if server < MIN_KUBERNETES:
        needed = ".".join(map(str, MIN_KUBERNETES))
        yield Finding("versions", "FAIL", f"Kubernetes {facts.server_version} is older than {needed}", "upgrade the cluster")
    scheduler = next((image for d in facts.deployments for name, image in d.images.items() if name == "kube-scheduler"), None)
    if scheduler is None:
        return
    ours = version_of(scheduler.rpartition(":")[2]) if "@" not in scheduler else None
    if ours is None:
        yield Finding(
            "versions", "WARN", f"the scheduler's image {scheduler} shows no version", "see that it is the API server's or one older"
        )
    elif ours > server or ours[0] != server[0] or server[1] - ours[1] > 1:
        yield Finding(
            "versions",
            "FAIL",
            f"kube-scheduler {'.'.join(map(str, ours))} with an API server {facts.server_version}: newer or more than one minor older",
            "set scheduler.image.tag to the cluster's version, or run helm upgrade after an upgrade of the cluster",
        )
    else:
        yield Finding("versions", "OK", f"API server {facts.server_version}, scheduler {'.'.join(map(str, ours))}")


def version_of(text: str) -> tuple[int, int] | None:
    """(1, 36) out of `v1.36.3-gke.100`."""
    match = re.match(r"^v?(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def _crd(facts: Facts) -> Iterator[Finding]:
    match facts.crd:
        case "current":
            yield Finding("crd", "OK", "the kinds are installed and are this release's")
        case "differs":
            advice = (
                "apply manifests/crds of this release: kubectl apply --server-side -f manifests/crds (Helm does not always upgrade CRDs)"
            )
            yield Finding("crd", "WARN", "the kinds are installed, a schema is another release's", advice)
        case _:
            advice = "kubectl apply --server-side -f manifests/crds, or set crds.enabled=true"
            yield Finding("crd", "FAIL", "a kind of tiphys.io is not installed", advice)


def _deployments(facts: Facts) -> Iterator[Finding]:
    for deployment in facts.deployments:
        counted = f"{deployment.name}: {deployment.ready} of {deployment.wanted} ready"
        if deployment.wanted == 0:
            yield Finding("deployments", "WARN", f"{deployment.name} is scaled to zero", "kubectl scale it to 1 or more")
        elif deployment.ready == 0:
            advice = (
                f"kubectl -n {facts.namespace} describe pods; kubectl -n {facts.namespace} logs deploy/{deployment.name} --all-containers"
            )
            yield Finding("deployments", "FAIL", counted, advice)
        else:
            yield Finding("deployments", "OK" if deployment.ready >= deployment.wanted else "WARN", counted)


def _scheduler_config(facts: Facts) -> Iterator[Finding]:
    config = facts.scheduler_config
    if config is None:
        advice = "is scheduler.enabled=false on purpose? Then check the configuration of the scheduler that you run by hand"
        yield Finding("scheduler-config", "WARN", "no ConfigMap with the scheduler's configuration", advice)
        return
    names = [profile.get("schedulerName", "default-scheduler") for profile in config.get("profiles") or ()]
    if facts.scheduler_name in names:
        yield Finding("scheduler-name", "OK", f"the scheduler serves {facts.scheduler_name!r}")
    else:
        advice = "set schedulerName of the chart to one name for scheduler and extender"
        yield Finding("scheduler-name", "FAIL", f"the scheduler serves {names}, the extender expects {facts.scheduler_name!r}", advice)
    disabled = [
        profile.get("schedulerName")
        for profile in config.get("profiles") or ()
        if any(p.get("name") == "*" for p in ((profile.get("plugins") or {}).get("score") or {}).get("disabled") or ())
    ]
    if disabled:
        advice = "leave the default Score plugins on: without them a failed call sends every pod to one node"
        yield Finding("score-plugins", "FAIL", f"profile {disabled[0]} disables the default Score plugins", advice)
    yield from _client(config)
    extenders = config.get("extenders") or []
    if not extenders:
        yield Finding("extender-wiring", "FAIL", "the scheduler's configuration names no extender", "run helm upgrade with this chart")
        return
    for extender in extenders:
        yield from _extender_entry(extender)


def _client(config: Mapping[str, Any]) -> Iterator[Finding]:
    qps = (config.get("clientConnection") or {}).get("qps") or 50
    if qps < _LEAST_QPS:
        advice = "set scheduler.qps to 1000 and scheduler.burst to 2000: a bind is a request"
        yield Finding("qps", "WARN", f"clientConnection.qps {qps:g} lets about {qps:g} pods a second through", advice)
    else:
        yield Finding("qps", "OK", f"clientConnection.qps {qps:g}")


def _extender_entry(extender: Mapping[str, Any]) -> Iterator[Finding]:
    url = str(extender.get("urlPrefix") or "")
    timeout_s = seconds_of(str(extender.get("httpTimeout") or "5s"))
    if timeout_s is None or timeout_s > _MOST_HTTP_TIMEOUT_S:
        advice = "set scheduler.httpTimeout to 200ms: a hung extender blocks the scheduler for this long for every pod"
        yield Finding("http-timeout", "FAIL", f"httpTimeout is {extender.get('httpTimeout') or '5s, the default'}", advice)
    else:
        yield Finding("http-timeout", "OK", f"httpTimeout {extender.get('httpTimeout')}")
    tls = extender.get("tlsConfig") or {}
    if url.startswith("https") or extender.get("enableHTTPS"):
        if tls.get("insecure") or not (tls.get("caFile") or tls.get("caData")):
            advice = "give tlsConfig.caFile: with enableHTTPS and no CA kube-scheduler trusts anybody, without a word"
            yield Finding("ca", "FAIL", f"{url} is called without checking its certificate", advice)
        else:
            yield Finding("ca", "OK", f"{url} is checked against a CA")
    elif re.match(r"^http://(127\.0\.0\.1|localhost|\[::1\])(:|/|$)", url):
        yield Finding("ca", "OK", f"{url} is loopback: no certificate is needed")
    else:
        advice = "call the extender on loopback, or use https with a CA: it is sent whole pods, environment included"
        yield Finding("ca", "FAIL", f"{url} is plain http over the network", advice)
    if not extender.get("ignorable"):
        yield Finding("ignorable", "WARN", "the extender is not ignorable", "set ignorable: true")
    if not extender.get("nodeCacheCapable"):
        advice = "set nodeCacheCapable: true: whole nodes are sent otherwise, which costs an order of magnitude"
        yield Finding("node-cache", "WARN", "nodeCacheCapable is off", advice)
    if extender.get("filterVerb"):
        yield Finding("filter-verb", "FAIL", "filterVerb is set, and Tiphys serves none: no pod finds a node", "remove filterVerb")
    weight = extender.get("weight") or 1
    if weight < DECISIVE_WEIGHT:
        yield Finding("weight", "OK", f"weight {weight}: advisory, the default plugins can outvote Tiphys ({DECISIVE_WEIGHT} is decisive)")


def seconds_of(text: str) -> float | None:
    """Seconds of a Go duration with one unit: `200ms`, `5s`, `1m`; None for anything else."""
    match = re.fullmatch(r"([0-9.]+)(ms|s|m|us|µs)", text)
    if match is None:
        return None
    return float(match.group(1)) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "us": 1e-6, "µs": 1e-6}[match.group(2)]


def _leases(facts: Facts) -> Iterator[Finding]:
    for name in facts.missing_leases:
        advice = f"is it running, and may it create Leases in {facts.namespace}? See the lines on RBAC and Deployments"
        yield Finding("leases", "FAIL", f"there is no Lease {name}: nobody leads", advice)
    for lease in facts.leases:
        if not lease.holder:
            yield Finding("leases", "FAIL", f"Lease {lease.name} is held by nobody", "see the pods' logs")
        elif lease.age_s > 2 * lease.duration_s:
            advice = "see the holder's log; a clock that differs by more than this between here and there looks the same"
            yield Finding("leases", "FAIL", f"Lease {lease.name} of {lease.holder} was last renewed {lease.age_s:.0f} s ago", advice)
        else:
            yield Finding("leases", "OK", f"Lease {lease.name} is held by {lease.holder}, renewed {max(lease.age_s, 0):.0f} s ago")


def _releases(facts: Facts) -> Iterator[Finding]:
    found = facts.releases
    if found.claim is not None and not found.claim:
        yield Finding("releases", "FAIL", "no release holds the claim on this cluster: no operator acts", "see the operator's log")
    elif found.claim is not None and not found.claim.startswith(found.ours):
        advice = "helm list -A; uninstall one of the two, this one takes over by itself when the other is gone"
        yield Finding("releases", "WARN", f"another release acts in this cluster, this one's operator stands by: {found.claim}", advice)
    for other in found.schedulers:
        advice = "uninstall one of the two, or give one another schedulerName"
        yield Finding("releases", "WARN", f"{other} runs a scheduler for pods that name {facts.scheduler_name}, too", advice)
    if not found.schedulers and (found.claim is None or (found.claim and found.claim.startswith(found.ours))):
        yield Finding("releases", "OK", "no other release acts in this cluster")


def _rbac(facts: Facts) -> Iterator[Finding]:
    denied = [a for a in facts.access if not a.allowed]
    for access in denied:
        advice = "run helm upgrade with the chart's own roles, or add the verb to yours"
        yield Finding("rbac", "FAIL", f"{access.account} may not {access.verb} {access.resource}", advice)
    if facts.access and not denied:
        yield Finding("rbac", "OK", f"the service accounts may do all {len(facts.access)} things they need")


def _extenders(facts: Facts) -> Iterator[Finding]:
    if not facts.extenders:
        yield Finding("extender", "WARN", "no running extender was found to ask", "see the line on Deployments")
    for extender in facts.extenders:
        if extender.problem:
            advice = "you may lack create on pods/portforward; or forward port 8081 yourself and give --extender-url"
            yield Finding("extender", "WARN", f"{extender.where} could not be asked: {extender.problem}", advice)
        elif not extender.state.get("ready"):
            yield Finding(
                "extender", "FAIL", f"{extender.where} is not ready: {extender.state.get('problem')}", "see its log and the RBAC lines"
            )
        else:
            state = extender.state
            counts = f"{state.get('nodes')} nodes, {state.get('pods')} pods, {len(state.get('routes') or ())} policies"
            yield Finding("extender", "OK", f"{extender.where} is ready: {counts}")
            yield from _coverage(extender)
            yield from _models(extender)
            yield from _scraped(extender)


def _scraped(extender: ExtenderFact) -> Iterator[Finding]:
    """Whether a Prometheus reads its metrics: alerts are silent about what nobody reads."""
    last_s, now_s = extender.state.get("lastScrape"), extender.state.get("now")
    if last_s is None or now_s is None:
        return  # an extender of before
    if now_s - max(float(last_s), float(extender.state.get("since") or 0.0)) <= _SCRAPED_WITHIN_S:
        if last_s:
            yield Finding("metrics", "OK", f"the metrics of {extender.where} are read")
        return
    said = f"since {(now_s - last_s) / 60:.0f} minutes" if last_s else "and nobody ever did"
    advice = (
        "networkPolicy.metricsFrom admits namespace monitoring.namespace only: set one of them to where your Prometheus is, "
        "and look at monitoring.serviceMonitor"
    )
    yield Finding("metrics", "WARN", f"nobody reads the metrics of {extender.where}, {said}: no alert can fire", advice)


def _coverage(extender: ExtenderFact) -> Iterator[Finding]:
    coverage = extender.state.get("coverage")
    needs = [r for r in extender.state.get("routes") or () if r.get("policyName") in ("faasrank", "static-rank")]
    if coverage is None or not needs:
        return
    if coverage < _LEAST_COVERAGE:
        advice = "is extender.prometheusUrl right, does node-exporter run everywhere, and do its series carry the node label?"
        yield Finding("readings", "FAIL" if coverage < 0.5 else "WARN", f"only {coverage:.0%} of nodes have fresh readings", advice)
    else:
        yield Finding("readings", "OK", f"{coverage:.0%} of nodes have fresh readings")


def _models(extender: ExtenderFact) -> Iterator[Finding]:
    serving = {(m.get("name"), mode): m for m in extender.state.get("models") or () for mode in m.get("modes") or ()}
    for model in extender.state.get("models") or ():
        if model.get("refused"):
            grade: Grade = "WARN" if any(name == model.get("name") for name, _ in serving) else "FAIL"
            yield Finding("models", grade, f"model {model.get('name')} was refused: {model.get('message')}", "publish a sound artifact")
    for route in extender.state.get("routes") or ():
        if not route.get("model") or route.get("mode") == "Off":
            continue
        model = serving.get((route["model"], route.get("mode")))
        if model is None:
            advice = f"tiphys model publish {route['model']}.json, or raise its stage; until then the fallback decides"
            yield Finding("models", "FAIL", f"{route.get('policy')} needs model {route['model']}, which does not serve its mode", advice)
        elif not model.get("windowMatches"):
            advice = "set extender.prometheus.scrapeWindowSeconds to a window of its card, or train it for this one"
            yield Finding("models", "WARN", f"model {route['model']} was not trained for this extender's scrape window", advice)


def _switch(facts: Facts) -> Iterator[Finding]:
    if facts.switch == "false":
        advice = 'set enabled to "true" there when the trouble is over'
        yield Finding("kill-switch", "WARN", "the kill switch is on: every answer is neutral", advice)
    else:
        yield Finding("kill-switch", "OK", "off" if facts.switch else "off (there is no ConfigMap for it)")


def _policies(facts: Facts) -> Iterator[Finding]:
    if not facts.policies and facts.crd != "missing":
        yield Finding("policies", "WARN", "there is no SchedulingPolicy: every answer is neutral", "apply one of manifests/samples")
    for policy in facts.policies:
        if policy.mode != "Off" and policy.ready == "False":
            yield Finding("policies", "WARN", f"{policy.key} is not Ready: {policy.reason}", policy.message)
        elif policy.ready == "Unknown":
            yield Finding("policies", "WARN", f"{policy.key} has no status", "is the operator running, and does it hold its Lease?")
        elif policy.routed == "False":
            advice = f"set spec.schedulerName: {facts.scheduler_name} in the workloads, or label the namespace tiphys.io/route=enabled"
            yield Finding("policies", "WARN", f"{policy.key} selects pods that name another scheduler", advice)
        else:
            yield Finding("policies", "OK", f"{policy.key}: mode {policy.mode}, {policy.reason}")
    if facts.pods_waiting:
        advice = "kubectl describe one of them; if the scheduler is gone, `tiphys unroute` says what to change"
        yield Finding("waiting-pods", "WARN", f"{facts.pods_waiting} pods that name {facts.scheduler_name!r} have no node", advice)

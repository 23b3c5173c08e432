"""Least rights: the chart's rules are exactly these, and nobody can widen them unnoticed."""

import re

import pytest

from tests.chart.rendering import MODES, HelmRefusedError, Manifest, render, render_mode, values_of, with_value
from tiphys_models.api import scaling_policy
from tiphys_models.api.resources import RESOURCES
from tiphys_models.api.scaling_policy import PAUSE_ANNOTATION, RETRY_ANNOTATION
from tiphys_operator.runtime.permissions import wanted as permissions

Right = tuple[str, str, str, tuple[str, ...]]
"""Group, resource, verb, names ("any" if empty)."""

FORBIDDEN_VERBS = {"*", "escalate", "bind", "impersonate", "deletecollection"}
READ = ("list", "watch")
CHANGE = ("create", "update", "patch", "delete")
KINDS = {resource.plural for resource in RESOURCES}
FOR_PEOPLE = {"tiphys-view", "tiphys-edit", "tiphys-admin"}
"""Aggregated into the cluster's own roles; no account of ours holds them."""


def rights(group: str, resource: str, verbs: tuple[str, ...], *names: str) -> set[Right]:
    return {(group, resource, verb, names) for verb in verbs}


def lease(name: str, verbs: tuple[str, ...]) -> set[Right]:
    return rights("coordination.k8s.io", "leases", ("create",)) | rights("coordination.k8s.io", "leases", verbs, name)


SCALING = rights("tiphys.io", "scalingpolicies", READ) | rights("tiphys.io", "scalingpolicies/status", ("patch",))
"""Of the operator, unless scaling is off."""
ACTS = (
    rights("apps", "deployments", ("get",))
    | rights("apps", "deployments/scale", ("patch",))
    | rights("apps", "statefulsets", ("get",))
    | rights("apps", "statefulsets/scale", ("patch",))
    | rights("", "pods/resize", ("patch",))
    | rights("", "resourcequotas", ("list",))
    | rights("autoscaling", "horizontalpodautoscalers", ("list",))
    | rights("autoscaling.k8s.io", "verticalpodautoscalers", ("list",))
    | rights("keda.sh", "scaledobjects", ("list",))
)
"""What it does to workloads: everywhere, or in the namespaces that are named."""
KNOWS = (
    rights("apps", "deployments", READ)
    | rights("apps", "statefulsets", READ)
    | rights("", "resourcequotas", ("watch",))
    | rights("autoscaling", "horizontalpodautoscalers", ("watch",))
    | rights("autoscaling.k8s.io", "verticalpodautoscalers", ("watch",))
    | rights("keda.sh", "scaledobjects", ("watch",))
)
"""What spares each window its questions: only where all namespaces may be scaled."""
OPENS = rights("", "pods", ("get", "patch"))
"""Of those who open gates, where pods may wait."""
BINDING = rights("discovery.k8s.io", "endpointslices", READ).union(
    *(
        rights("tiphys.io", kind, READ) | rights("tiphys.io", f"{kind}/status", ("patch",))
        for kind in ("inferencesites", "modelvariants", "streampolicies")
    )
)
"""Of the operator, unless binding is off."""

ALLOWED: dict[tuple[str, str], set[Right]] = {
    ("ClusterRole", "tiphys-extender"): (
        rights("", "nodes", READ)
        | rights("", "pods", READ)
        | rights("tiphys.io", "schedulingpolicies", READ)
        | rights("tiphys.io", "placementplans", READ)
    ),
    ("Role", "tiphys-extender"): (
        rights("", "configmaps", READ, "tiphys-switch") | rights("", "configmaps", ("get",)) | rights("tiphys.io", "learnedmodels", READ)
    ),
    ("ClusterRole", "tiphys-operator"): (
        rights("tiphys.io", "schedulingpolicies", READ)
        | rights("tiphys.io", "schedulingpolicies/status", ("patch",))
        | rights("tiphys.io", "learnedmodels", READ)
        | rights("tiphys.io", "learnedmodels/status", ("patch",))
        | rights("tiphys.io", "placementplans", ("create", "patch"))
        | rights("", "pods", READ)
        | rights("", "nodes", READ)
        | rights("", "events", ("create", "patch"))
    ),
    ("Role", "tiphys-operator"): (
        lease("tiphys-operator", ("get", "update"))
        | rights("", "configmaps", ("get",))
        | rights("", "configmaps", ("patch",), "tiphys-selection")
    ),
    ("Role", "tiphys-operator-claim"): rights("coordination.k8s.io", "leases", ("get", "create", "update"), "tiphys-operator"),
    ("Role", "tiphys-binder-calls"): rights("coordination.k8s.io", "leases", ("get", "create", "update"), "tiphys-binder-calls"),
    ("Role", "tiphys-binder-streams"): (
        lease("tiphys-streams-antenna-1", ("get", "update")).union(
            *(rights("tiphys.io", kind, READ) for kind in ("inferencesites", "modelvariants", "streampolicies"))
        )
    ),
    ("Role", "tiphys-operator-scaling"): ACTS,
    ("Role", "tiphys-scheduler"): lease("tiphys-scheduler", ("get", "update")),
    ("Role", "tiphys-trainer"): (
        rights("", "configmaps", ("create",))
        | rights("tiphys.io", "learnedmodels", ("create",))
        | rights("tiphys.io", "learnedmodels", ("patch",), "faasrank-trained")
    ),
    ("ClusterRole", "tiphys-view"): {("tiphys.io", kind, verb, ()) for kind in KINDS for verb in ("get", *READ)},
    ("ClusterRole", "tiphys-edit"): (
        {("tiphys.io", kind, verb, ()) for kind in KINDS - {"learnedmodels", "placementplans"} for verb in CHANGE}
        | rights("", "pods/resize", ("patch",))
    ),
    ("ClusterRole", "tiphys-admin"): (
        rights("tiphys.io", "learnedmodels", ("create", "update", "patch", "delete")) | rights("tiphys.io", "placementplans", ("delete",))
    ),
    ("ClusterRole", "tiphys-unroute"): (
        rights("admissionregistration.k8s.io", "mutatingadmissionpolicies", ("get", "delete"), "tiphys-routing", "tiphys-waiting")
        | rights("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", ("get", "delete"), "tiphys-routing", "tiphys-waiting")
        | rights("", "pods", ("list",))
        | {("apps", kind, "list", ()) for kind in ("deployments", "statefulsets", "daemonsets", "replicasets")}
        | {("batch", kind, "list", ()) for kind in ("jobs", "cronjobs")}
    ),
    ("ClusterRole", "tiphys-gates"): OPENS,
    ("ClusterRole", "tiphys-hints"): rights("", "pods", ("patch",)),
    ("ClusterRole", "tiphys-weights-check"): {
        ("tiphys.io", kind, "list", ()) for kind in ("schedulingpolicies", "scalingpolicies", "streampolicies", "learnedmodels")
    },
}

BINDINGS = {
    ("tiphys-extender", "ClusterRole", "tiphys-extender"),
    ("tiphys-extender", "Role", "tiphys-extender"),
    ("tiphys-binder", "ClusterRole", "tiphys-extender"),
    ("tiphys-binder", "Role", "tiphys-extender"),
    ("tiphys-binder-streams", "Role", "tiphys-binder-streams"),
    ("tiphys-binder-calls", "Role", "tiphys-binder-calls"),
    ("tiphys-operator", "ClusterRole", "tiphys-operator"),
    ("tiphys-operator", "Role", "tiphys-operator"),
    ("tiphys-operator-scaling", "Role", "tiphys-operator-scaling"),
    ("tiphys-operator-claim", "Role", "tiphys-operator-claim"),
    ("tiphys-operator-gates", "ClusterRole", "tiphys-gates"),
    ("tiphys-extender-gates", "ClusterRole", "tiphys-gates"),
    ("tiphys-operator-hints", "ClusterRole", "tiphys-hints"),
    ("tiphys-scheduler", "Role", "tiphys-scheduler"),
    ("tiphys-scheduler-kube-scheduler", "ClusterRole", "system:kube-scheduler"),
    ("tiphys-scheduler-volume-scheduler", "ClusterRole", "system:volume-scheduler"),
    ("tiphys-scheduler-authentication-reader", "Role", "extension-apiserver-authentication-reader"),
    ("tiphys-trainer", "Role", "tiphys-trainer"),
    ("tiphys-unroute", "ClusterRole", "tiphys-unroute"),
    ("tiphys-weights-check", "ClusterRole", "tiphys-weights-check"),
}


def granted(role: Manifest) -> set[Right]:
    return {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", rule.get("nonResourceURLs", []))
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("mode", MODES)
def test_roles_grant_exactly_what_the_list_allows(mode: str) -> None:
    rendered = render_mode(mode)
    for kind in ("Role", "ClusterRole"):
        for role in rendered.of(kind):
            name = role["metadata"]["name"]
            found, allowed = granted(role), ALLOWED[kind, name]
            if (name, mode) == ("tiphys-trainer", "trainer-scaling"):
                allowed = {(group, resource, verb, ("combined-trained",) if names else ()) for group, resource, verb, names in allowed}
            if (kind, name) == ("ClusterRole", "tiphys-operator"):
                allowed = allowed | (SCALING if mode != "no-scaling" else set()) | (BINDING if mode != "no-binding" else set())
                allowed = allowed | (ACTS | KNOWS if mode not in ("no-scaling", "scaling-namespaces") else set())
            if (name, mode) == ("tiphys-unroute", "gates"):
                allowed = allowed | OPENS
            assert found - allowed == set(), f"{kind} {name} grants more"
            assert allowed - found == set(), f"{kind} {name} grants less"


@pytest.mark.parametrize("mode", MODES)
def test_no_wildcard_no_secret_no_way_to_more_rights(mode: str) -> None:
    rendered = render_mode(mode)
    for role in [*rendered.of("Role"), *rendered.of("ClusterRole")]:
        for group, resource, verb, _ in granted(role):
            assert "*" not in group + resource, role["metadata"]["name"]
            assert verb not in FORBIDDEN_VERBS, role["metadata"]["name"]
            assert resource.partition("/")[0] != "secrets", role["metadata"]["name"]


@pytest.mark.parametrize("mode", MODES)
def test_bindings_are_of_known_roles_to_our_own_accounts(mode: str) -> None:
    rendered = render_mode(mode)
    accounts = {item["metadata"]["name"] for item in rendered.of("ServiceAccount")}
    for binding in [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]:
        name, role = binding["metadata"]["name"], binding["roleRef"]
        assert (name, role["kind"], role["name"]) in BINDINGS
        (subject,) = binding["subjects"]
        assert subject["kind"] == "ServiceAccount"
        assert subject["namespace"] == "tiphys-system"
        assert subject["name"] in accounts


def test_the_operator_finds_every_right_it_checks_at_start() -> None:
    rendered = render_mode("default")
    held = granted(rendered.one("ClusterRole", "tiphys-operator")) | granted(rendered.one("Role", "tiphys-operator"))
    held |= granted(render_mode("gates").one("ClusterRole", "tiphys-gates"))
    held |= granted(render_mode("hints").one("ClusterRole", "tiphys-hints"))
    for wanted in permissions("tiphys-system", "tiphys-operator", "tiphys-selection", gates=True, hints={""}):
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        names = (wanted.name,) if wanted.name else ()
        assert (wanted.group, resource, wanted.verb, names) in held, wanted.text


@pytest.mark.parametrize("part", ["scaling", "binding"])
def test_without_a_part_no_right_is_missed(part: str) -> None:
    rendered = render_mode(f"no-{part}")
    (setting,) = [
        e
        for e in rendered.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
        if e["name"] == f"TIPHYS_OPERATOR_{part.upper()}"
    ]
    assert setting["value"] == "false"
    held = granted(rendered.one("ClusterRole", "tiphys-operator")) | granted(rendered.one("Role", "tiphys-operator"))
    on = {"scaling": part != "scaling", "binding": part != "binding"}
    for wanted in permissions("tiphys-system", "tiphys-operator", "tiphys-selection", scaling=on["scaling"], binding=on["binding"]):
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        assert (wanted.group, resource, wanted.verb, (wanted.name,) if wanted.name else ()) in held, wanted.text


def test_an_operator_that_probes_is_told_from_where_and_let_out() -> None:
    rendered = render_mode("binding")
    env = {
        e["name"]: e.get("value") for e in rendered.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TIPHYS_OPERATOR_ACCESS_SITE"] == "antenna-1"
    assert env["TIPHYS_OPERATOR_BINDER_URL"] == "http://binder.antenna-2.example:8080"
    probes = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 8080, "protocol": "TCP"}]}
    assert probes in rendered.one("NetworkPolicy", "tiphys-operator")["spec"]["egress"]
    assert probes not in rendered.one("NetworkPolicy", "tiphys-scheduler")["spec"]["egress"]


def test_what_is_probed_can_be_held_to_networks_and_the_way_out_with_it() -> None:
    free, held = render_mode("binder"), render_mode("binding")
    env = [
        {e["name"]: e.get("value") for e in one.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]}
        for one in (free, held)
    ]
    names = ("ALLOW", "CIDRS", "SITES", "RATE", "INTERVAL_S")
    assert [env[0][f"TIPHYS_OPERATOR_PROBE_{name}"] for name in names] == ["", "", "100", "50", "1"]
    assert [env[1][f"TIPHYS_OPERATOR_PROBE_{name}"] for name in names] == ["127.0.0.2/32,fd00::/8", "10.0.0.0/8", "20", "10", "2"]
    sites = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    api = {"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}], "ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443, 8443)]}
    egress = held.one("NetworkPolicy", "tiphys-operator")["spec"]["egress"]
    assert [rule in egress for rule in (sites, api)] == [True, True]
    assert [rule for rule in egress if "to" not in rule] == [{"ports": [{"port": 53, "protocol": p} for p in ("UDP", "TCP")]}]
    assert sites not in held.one("NetworkPolicy", "tiphys-scheduler")["spec"]["egress"]
    assert {"ports": api["ports"]} in free.one("NetworkPolicy", "tiphys-operator")["spec"]["egress"]


def test_an_operator_that_asks_queue_proxies_is_let_out_to_them_and_to_nothing_else() -> None:
    knative = {"enabled": True, "intervalSeconds": 2}
    plain, asking = render({}), render({"operator": {"knative": knative}})
    revisions = {"matchExpressions": [{"key": "serving.knative.dev/revision", "operator": "Exists"}]}
    way = {"to": [{"namespaceSelector": {}, "podSelector": revisions}], "ports": [{"port": 9090, "protocol": "TCP"}]}
    egress = [one.one("NetworkPolicy", "tiphys-operator")["spec"]["egress"] for one in (plain, asking)]
    assert [rule for rule in egress[1] if rule not in egress[0]] == [way]
    assert way not in asking.one("NetworkPolicy", "tiphys-scheduler")["spec"]["egress"]
    env = {
        e["name"]: e.get("value") for e in asking.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert (env["TIPHYS_OPERATOR_KNATIVE"], env["TIPHYS_OPERATOR_KNATIVE_INTERVAL_S"]) == ("true", "2")
    assert granted(asking.one("ClusterRole", "tiphys-operator")) == granted(plain.one("ClusterRole", "tiphys-operator")), "no new right"


def test_a_binder_gets_out_to_the_others_that_it_is_told_to_ask() -> None:
    others = {"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}], "ports": [{"port": 8080, "protocol": "TCP"}]}
    values = with_value(values_of("binder"), ("networkPolicy", "sitesTo"), [others])
    assert others in render(values).one("NetworkPolicy", "tiphys-binder")["spec"]["egress"]
    alone = with_value(values, ("binder", "streams", "otherBinders"), [])
    assert others not in render(alone).one("NetworkPolicy", "tiphys-binder")["spec"]["egress"]


@pytest.mark.parametrize(("mode", "asked"), [("binder", "http://tiphys-binder-status.tiphys-system.svc:8080"), ("binder-insecure", "")])
def test_the_operator_asks_the_charts_own_binder_if_that_binds_streams(mode: str, asked: str) -> None:
    env = {
        e["name"]: e.get("value")
        for e in render_mode(mode).one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TIPHYS_OPERATOR_BINDER_URL"] == asked


def test_the_claim_of_all_releases_is_one_lease_in_one_place_and_nothing_else_there() -> None:
    rendered = render_mode("default")
    role = rendered.one("Role", "tiphys-operator-claim")
    assert role["metadata"]["namespace"] == "kube-system"
    held = granted(role)
    for wanted in set(permissions("n", "l", "s", claim=("kube-system", "tiphys-operator"))) - set(permissions("n", "l", "s")):
        assert (wanted.group, wanted.resource, wanted.verb, (wanted.name,)) in held, wanted.text
    env = {
        e["name"]: e.get("value") for e in rendered.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TIPHYS_OPERATOR_CLAIM_NAMESPACE"] == "kube-system"
    without = render({"operator": {"lease": {"claimNamespace": ""}}})
    assert [item for item in without.objects if item["metadata"]["name"] == "tiphys-operator-claim"] == []


@pytest.mark.parametrize("mode", MODES)
def test_nobody_but_the_scheduler_has_the_schedulers_rights(mode: str) -> None:
    rendered = render_mode(mode)
    bound = [*rendered.of("ClusterRoleBinding"), *rendered.of("RoleBinding")]
    reader = {b["subjects"][0]["name"] for b in bound if b["metadata"]["name"] == "tiphys-extender"}
    assert reader == {"tiphys-extender"}, "beside the scheduler as in pods of its own, the extender is itself"
    of_the_scheduler = {b["roleRef"]["name"] for b in bound if b["subjects"][0]["name"] == "tiphys-scheduler"}
    expected = {"tiphys-scheduler", "system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}
    assert of_the_scheduler in (expected, set())
    for binding in bound:
        if binding["roleRef"]["name"].startswith("system:"):
            assert [subject["name"] for subject in binding["subjects"]] == ["tiphys-scheduler"]


def test_roles_for_people_are_aggregated_and_bound_to_nobody() -> None:
    rendered = render_mode("default")
    for name in FOR_PEOPLE:
        role = rendered.one("ClusterRole", name)
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{name.removeprefix('tiphys-')}"] == "true"
        assert not [resource for _, resource, _, _ in granted(role) if resource.endswith("/status")], "statuses are the operator's"
    bound = {b["roleRef"]["name"] for b in [*rendered.of("ClusterRoleBinding"), *rendered.of("RoleBinding")]}
    assert not bound & FOR_PEOPLE


def test_editors_may_resize_pods_unless_told_otherwise() -> None:
    edit = render({"roles": {"resizePods": False}}).one("ClusterRole", "tiphys-edit")
    assert "pods/resize" not in {resource for _, resource, _, _ in granted(edit)}
    assert {item["metadata"]["name"] for item in render({"roles": {"aggregate": False}}).of("ClusterRole")}.isdisjoint(FOR_PEOPLE)


def test_where_namespaces_are_named_the_operator_has_rights_on_workloads_in_no_others() -> None:
    rendered = render_mode("scaling-namespaces")
    assert not granted(rendered.one("ClusterRole", "tiphys-operator")) & (ACTS | KNOWS)
    assert {role["metadata"]["namespace"] for role in rendered.of("Role") if granted(role) & ACTS} == {"shop", "bank"}
    env = {
        e["name"]: e.get("value") for e in rendered.one("Deployment", "tiphys-operator")["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TIPHYS_OPERATOR_SCALING_NAMESPACES"] == "shop,bank"
    assert env["TIPHYS_OPERATOR_SCALING_EXCLUDED_NAMESPACES"] == "vault"


@pytest.mark.parametrize("name", ["kube-system", "tiphys-system"])
def test_the_cluster_itself_and_the_release_cannot_be_named_for_scaling(name: str) -> None:
    with pytest.raises(HelmRefusedError, match=f"must not hold {name}"):
        render({"operator": {"scaling": {"namespaces": ["shop", name]}}})


def test_policies_of_admission_are_on_by_default_and_deny() -> None:
    def names(values: Manifest) -> set[str]:
        rendered = render(values)
        for binding in rendered.of("ValidatingAdmissionPolicyBinding"):
            policy = rendered.one("ValidatingAdmissionPolicy", binding["spec"]["policyName"])
            assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Fail", ["Deny"])
        return {item["metadata"]["name"] for item in rendered.of("ValidatingAdmissionPolicy")}

    assert names({}) == {"tiphys-scaling-authors"}
    assert names({"trainer": {"enabled": True}}) == {"tiphys-scaling-authors", "tiphys-trainer-models", "tiphys-trainer-configmaps"}
    assert names({"trainer": {"enabled": True}, "admission": {"scalingAuthors": False, "trainer": False}}) == set()
    assert names({"operator": {"scaling": {"enabled": False}}}) == set()
    assert names({"gates": {"enabled": True}}) == {"tiphys-scaling-authors", "tiphys-gate-openers"}


def test_an_expression_of_the_authors_policy_asks_at_most_twice() -> None:
    """A third check exceeds the API server's budget, which denies everybody at run time and is not seen when the policy is applied."""
    spec = render({}).one("ValidatingAdmissionPolicy", "tiphys-scaling-authors")["spec"]
    asked = [validation["expression"].count(".check(") for validation in spec["validations"]]
    assert max(asked) == 2
    assert sum(asked) <= 28


def test_the_authors_policy_knows_every_annotation_that_acts() -> None:
    spec = render({}).one("ValidatingAdmissionPolicy", "tiphys-scaling-authors")["spec"]
    (changes,) = [condition["expression"] for condition in spec["matchConditions"] if condition["name"] == "changes"]
    assert set(re.findall(r"'(tiphys\.io/[a-z-]+)'", changes)) == {PAUSE_ANNOTATION, RETRY_ANNOTATION}
    acting = {value for name, value in vars(scaling_policy).items() if name.endswith("_ANNOTATION")}
    assert acting == {PAUSE_ANNOTATION, RETRY_ANNOTATION}, "a new one belongs into the policy"

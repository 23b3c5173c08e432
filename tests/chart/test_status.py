"""Status listeners: who may reach them, over what, with which tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import Manifest, Render, render, render_mode

SCRAPED = ("tiphys-operator", "tiphys-scheduler", "tiphys-binder")
BINDER = {"binder": {"enabled": True, "tenants": {"existingSecret": "t"}, "tls": {"insecure": True}}}


def readers(rendered: Render, name: str, port: int) -> list[Manifest]:
    """Peers that may reach a port of a pod and are named by their namespace."""
    rules = rendered.one("NetworkPolicy", name)["spec"]["ingress"]
    return [
        peer for rule in rules if {"port": port, "protocol": "TCP"} in rule["ports"] for peer in rule["from"] if "podSelector" not in peer
    ]


def monitoring(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


@pytest.mark.parametrize("name", SCRAPED)
def test_only_the_monitoring_namespace_reads_metrics_unless_told_otherwise(name: str) -> None:
    assert readers(render(BINDER), name, 8080) == [monitoring("monitoring")]
    elsewhere = render(BINDER | {"monitoring": {"namespace": "observability"}})
    assert readers(elsewhere, name, 8080) == [monitoring("observability")]
    assert readers(render(BINDER | {"monitoring": {"namespace": ""}}), name, 8080) == []


@pytest.mark.parametrize("peers", [[{"namespaceSelector": {}}], [{"podSelector": {}, "namespaceSelector": {}}], []])
def test_what_a_user_has_set_stays(peers: list[Any]) -> None:
    rules = render({"networkPolicy": {"metricsFrom": peers}}).one("NetworkPolicy", "tiphys-scheduler")["spec"]["ingress"]
    scrapers = [rule["from"] for rule in rules if {"port": 10259, "protocol": "TCP"} in rule["ports"]]
    assert scrapers == ([peers] if peers else [])


def environment(rendered: Render, pod: str, container: str) -> dict[str, str]:
    (found,) = [c for c in rendered.pod_specs()[pod]["containers"] if c["name"] == container]
    return {entry["name"]: entry.get("value", "") for entry in found["env"]}


def mounted_keys(rendered: Render, pod: str, volume: str) -> set[str]:
    (found,) = [v for v in rendered.pod_specs()[pod]["volumes"] if v["name"] == volume]
    return {item["key"] for item in found["secret"]["items"]}


PURPOSES = {
    "tiphys-operator": {"decisions", "transitions"},
    "tiphys-scheduler": {"decisions"},
    "tiphys-binder": {"decisions", "loads"},
}


@pytest.mark.parametrize(("pod", "purposes"), PURPOSES.items(), ids=PURPOSES)
def test_a_pod_holds_the_tokens_of_its_own_purposes_only(pod: str, purposes: set[str]) -> None:
    rendered = render_mode("status-tls")
    assert mounted_keys(rendered, pod, "token") == purposes
    container = {"tiphys-scheduler": "extender"}.get(pod, pod.removeprefix("tiphys-"))
    given = {name: value for name, value in environment(rendered, pod, container).items() if name.endswith("TOKEN_FILE")}
    assert set(given.values()) == {f"/run/tiphys/token/{purpose}" for purpose in purposes}
    assert all(name.endswith(f"_{value.rpartition('/')[2].upper()}_TOKEN_FILE") for name, value in given.items())


def test_the_trainer_holds_the_token_of_transitions_only() -> None:
    rendered = render_mode("status-tls")
    (trainer,) = [name for name in rendered.pod_specs() if "trainer" in name]
    assert mounted_keys(rendered, trainer, "token") == {"transitions"}
    (container,) = rendered.pod_specs()[trainer]["containers"]
    assert "--token-file=/run/tiphys/token/transitions" in container["command"]
    assert "--ca-file=/run/tiphys/status-ca/ca.crt" in container["command"]
    assert "--from-transitions=https://tiphys-operator.tiphys-system.svc:8080" in container["command"]


def test_separate_tokens_are_made_each_by_itself_and_one_for_all_stays_the_default() -> None:
    alone = render().one("Secret", "tiphys-token")["data"]
    assert alone.keys() == {"token"}
    made = render({"token": {"separate": True}}).one("Secret", "tiphys-token")["data"]
    assert made.keys() == {"token", "decisions", "loads", "transitions"}
    assert len(set(made.values())) == 4


def test_with_a_certificate_everybody_speaks_https_to_status_listeners() -> None:
    rendered = render_mode("status-tls")
    operator = environment(rendered, "tiphys-operator", "operator")
    assert operator["TIPHYS_OPERATOR_EXTENDER_URL"] == (
        "https://tiphys-extender-status.tiphys-system.svc:8080,https://tiphys-binder-status.tiphys-system.svc:8080"
    )
    assert operator["TIPHYS_OPERATOR_BINDER_URL"] == "https://tiphys-binder-status.tiphys-system.svc:8080"
    for pod, spec in rendered.pod_specs().items():
        for container in spec["containers"]:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["scheme"] == "HTTPS", (pod, container["name"])
    names = {}
    for monitor in rendered.of("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        if endpoint["port"] == "status":
            assert endpoint["scheme"] == "https"
            assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "tiphys-status-ca", "key": "ca.crt"}
            names[monitor["metadata"]["name"]] = endpoint["tlsConfig"]["serverName"]
    services = {item["metadata"]["name"] for item in rendered.of("Service")}
    assert names.keys() == {"tiphys-operator", "tiphys-extender", "tiphys-binder"}
    assert {name.partition(".")[0] for name in names.values()} <= services


def test_without_a_certificate_nothing_of_it_is_mounted_and_the_notes_say_so() -> None:
    rendered = render(BINDER)
    for spec in rendered.pod_specs().values():
        assert not [volume for volume in spec.get("volumes", []) if volume["name"].startswith("status-")]


def test_an_own_authority_may_lie_in_the_secret_of_the_certificate() -> None:
    rendered = render({"status": {"tls": {"secretName": "s"}}})
    (volume,) = [v for v in rendered.pod_specs()["tiphys-operator"]["volumes"] if v["name"] == "status-ca"]
    assert volume["secret"] == {"secretName": "s", "items": [{"key": "ca.crt", "path": "ca.crt"}]}

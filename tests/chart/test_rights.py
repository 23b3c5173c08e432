"""Whose credentials each container holds: derived from the rendered pods, compared with the written list."""

from typing import Any

import pytest
import yaml

from tests.chart.rendering import MODES, ROOT, Manifest, Render, render, render_mode

LIST = ROOT / "tests" / "chart" / "rights.yaml"
USUAL_PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"


def written() -> dict[str, Any]:
    """The list: for each container its account and Secrets, for each account what it may do."""
    found: dict[str, Any] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return found


def accounts_of(rendered: Render, spec: Manifest, container: Manifest) -> set[str]:
    """Accounts of the API server for which a container finds a token: mounted for the whole pod, projected, or in a Secret."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    token_secrets = {
        item["metadata"]["name"]: item["metadata"]["annotations"]["kubernetes.io/service-account.name"]
        for item in rendered.of("Secret")
        if item["type"] == "kubernetes.io/service-account-token"
    }
    found = {spec["serviceAccountName"]} if spec["automountServiceAccountToken"] else set()
    for mount in container.get("volumeMounts", []):
        volume = volumes[mount["name"]]
        if any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", [])):
            found.add(spec["serviceAccountName"])
        if (name := volume.get("secret", {}).get("secretName")) in token_secrets:
            found.add(token_secrets[name])
    return found


def secrets_of(spec: Manifest, container: Manifest) -> set[str]:
    """Secrets that a container can read as files or environment; pods of ours project none."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    mounted = {volumes[mount["name"]].get("secret", {}).get("secretName", "") for mount in container.get("volumeMounts", [])}
    referenced = {entry.get("valueFrom", {}).get("secretKeyRef", {}).get("name", "") for entry in container.get("env", [])} | {
        source.get("secretRef", {}).get("name", "") for source in container.get("envFrom", [])
    }
    return (mounted | referenced) - {""}


@pytest.mark.parametrize("mode", MODES)
def test_each_container_holds_the_one_account_of_the_list_and_no_other(mode: str) -> None:
    rendered = render_mode(mode)
    seen = 0
    for spec in rendered.pod_specs().values():
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert accounts_of(rendered, spec, container) == {written()["containers"][container["name"]]["account"]}, container["name"]
            seen += 1
    assert seen > 2


def test_each_container_reads_the_secrets_of_the_list_and_no_other() -> None:
    for mode in ("default", "mtls-service", "binder", "trainer", "trainer-scaling"):
        rendered = render_mode(mode)
        for spec in rendered.pod_specs().values():
            for container in spec["containers"]:
                allowed = set(written()["containers"][container["name"]]["secrets"])
                found = secrets_of(spec, container)
                assert found <= allowed, f"{container['name']} in mode {mode} reads {found - allowed}"


def test_the_list_names_every_container_of_the_chart_and_no_other() -> None:
    there = {c["name"] for mode in MODES for spec in render_mode(mode).pod_specs().values() for c in spec["containers"]}
    assert there == set(written()["containers"])
    assert {entry["account"] for entry in written()["containers"].values()} == set(written()["accounts"])


def test_kube_scheduler_finds_an_expiring_token_where_it_looks_and_the_extender_does_not() -> None:
    spec = render().pod_specs()["tiphys-scheduler"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    places = {c["name"]: {m["mountPath"]: m["name"] for m in c["volumeMounts"]} for c in spec["containers"]}
    sources = volumes[places["kube-scheduler"][USUAL_PLACE]]["projected"]["sources"]
    token, authority, namespace = (
        source[kind] for source, kind in zip(sources, ("serviceAccountToken", "configMap", "downwardAPI"), strict=True)
    )
    assert (token["path"], token["expirationSeconds"]) == ("token", 3600)
    assert (authority["name"], authority["items"]) == ("kube-root-ca.crt", [{"key": "ca.crt", "path": "ca.crt"}])
    assert namespace["items"][0]["path"] == "namespace"
    assert USUAL_PLACE not in places["extender"]
    told = {e["name"]: e.get("value") for c in spec["containers"] if c["name"] == "extender" for e in c["env"]}
    assert told["TIPHYS_EXTENDER_ACCOUNT_DIR"] in places["extender"]


def test_another_generation_makes_another_token_of_the_extender() -> None:
    """One of the same name and account would be the same token: see SECURITY.md."""
    rendered = render({"extender": {"accountTokenGeneration": 7}})
    secret = rendered.one("Secret", "tiphys-extender-account-7")
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "tiphys-extender"}
    assert "data" not in secret, "the cluster fills it, an upgrade leaves it"
    (volume,) = [v for v in rendered.pod_specs()["tiphys-scheduler"]["volumes"] if v["name"] == "extender-account"]
    assert volume["secret"]["secretName"] == "tiphys-extender-account-7"

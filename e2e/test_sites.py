"""The operator on the real API server probes real HTTP servers that stand on loopback addresses of their own, and counts real EndpointSlices."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.binding_corpus import VARIANT

from e2e.conftest import wait_until
from e2e.operators import StartOperator, operators
from e2e.policies import GROUP_PATH, condition, install_crd
from tiphys_cli.kube.api import ApiClient
from tiphys_testbed.cluster.base import Cluster

DEADLINE_S = 60.0
ONE_WAY_MS = {"127.0.0.2": 2.0, "127.0.0.3": 20.0}


class Site:
    """A server that answers after the time there and back; it can be taken away."""

    def __init__(self, address: str, one_way_ms: float) -> None:
        self._gone = gone = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if gone.is_set():
                    self.close_connection = True
                    return
                time.sleep(2 * one_way_ms / 1000)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing: tests read the output."""

        self.address = address
        self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{address}:{self._server.server_address[1]}/healthz"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """No connection is taken any more, and those that stand end without an answer."""
        self._gone.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def sites() -> Iterator[dict[str, Site]]:
    made = {f"site-{n}": Site(address, delay_ms) for n, (address, delay_ms) in enumerate(ONE_WAY_MS.items())}
    yield made
    for site in made.values():
        site.close()


@pytest.fixture
def start(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[StartOperator]:
    install_crd(cluster)
    with operators(cluster, f"{namespace}-release", tmp_path) as run:
        yield run


def path_of(namespace: str, plural: str, name: str = "") -> str:
    return f"{GROUP_PATH}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def create(api: ApiClient, namespace: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    obj = {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    api.create(path_of(namespace, f"{kind.lower()}s"), obj)


def test_a_site_at_an_address_that_is_not_probed_says_which_rule_it_breaks(
    api: ApiClient, namespace: str, start: StartOperator, sites: dict[str, Site]
) -> None:
    asked = {
        "site-0": {"url": sites["site-0"].url},
        "metadata": {"url": "http://169.254.169.254/latest"},
        "far": {"host": "198.51.100.1", "port": 443},
    }
    for name, probe in asked.items():
        create(api, namespace, "InferenceSite", name, {"layer": "antenna", "probe": probe})
    start(PROBE_ALLOW="", PROBE_CIDRS="192.0.2.0/24")

    def found(name: str) -> dict[str, Any]:
        return condition(api.get(path_of(namespace, "inferencesites", name)), "Reachable")

    wait_until(lambda: all(found(name).get("reason") == "ProbeRefused" for name in asked), DEADLINE_S, "all three are refused")
    for name, rule in (("site-0", "loopback"), ("metadata", "metadata"), ("far", "outside-cidrs")):
        assert (found(name)["status"], f"({rule})" in found(name)["message"]) == ("False", True)


def test_sites_are_measured_and_one_that_misses_two_probes_is_down(
    api: ApiClient, namespace: str, start: StartOperator, sites: dict[str, Site]
) -> None:
    for name, site in sites.items():
        probe = {"url": site.url, "intervalSeconds": 2, "timeoutSeconds": 2}
        create(api, namespace, "InferenceSite", name, {"layer": "antenna", "access": True, "probe": probe})
        create(api, namespace, "ModelVariant", f"at-{name}", VARIANT | {"site": name, "endpoint": {"url": site.url}})
    operator = start(ACCESS_SITE="site-0")

    def status(plural: str, name: str) -> dict[str, Any]:
        return api.get(path_of(namespace, plural, name))

    def measured() -> bool:
        return all(status("inferencesites", name).get("status", {}).get("delays") for name in sites)

    wait_until(measured, DEADLINE_S, "both sites measured")
    for name, site in sites.items():
        found = status("inferencesites", name)
        (delay,) = found["status"]["delays"]
        assert delay["from"] == "site-0"
        assert delay["meanMs"] >= ONE_WAY_MS[site.address], "a busy machine only adds to it"
        assert condition(found, "Reachable")["reason"] == "Probed"

    sites["site-1"].close()

    def down() -> bool:
        gone, left = status("modelvariants", "at-site-1"), status("modelvariants", "at-site-0")
        return condition(gone, "Ready").get("reason") == "SiteUnreachable" and condition(left, "Ready").get("status") == "True"

    wait_until(down, DEADLINE_S, "the variant of the site that went away is not ready, the other is")
    assert condition(status("inferencesites", "site-1"), "Reachable")["reason"] == "ProbesMissed"
    wait_until(
        lambda: operator.metric(f'tiphys_operator_binding_site_up{{site="{namespace}/site-1"}}') == 0.0, DEADLINE_S, "the metric says so"
    )


def test_replicas_are_the_ready_endpoints_of_a_service(api: ApiClient, namespace: str, start: StartOperator) -> None:
    create(api, namespace, "InferenceSite", "here", {"layer": "cloud", "delays": [{"from": "here", "meanMs": 1}]})
    create(api, namespace, "ModelVariant", "yolo", VARIANT | {"site": "here", "endpoint": {"service": {"name": "yolo", "port": 80}}})
    start()

    def reason() -> str:
        return str(condition(api.get(path_of(namespace, "modelvariants", "yolo")), "Ready").get("reason"))

    wait_until(lambda: reason() == "NoReadyEndpoint", DEADLINE_S, "no endpoint")
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    endpoints = [{"addresses": [f"10.0.0.{n}"], "conditions": {"ready": n < 3}} for n in (1, 2, 3)]
    metadata = {"name": "yolo-1", "labels": {"kubernetes.io/service-name": "yolo"}}
    ports = [{"name": "http", "port": 8000}]
    body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4"}
    api.create(slices, body | {"endpoints": endpoints, "ports": ports})
    wait_until(lambda: reason() == "EndpointsReady", DEADLINE_S, "two endpoints")
    found = api.get(path_of(namespace, "modelvariants", "yolo"))["status"]
    assert (found["replicas"], found["endpoints"]) == (2, ["10.0.0.1:8000", "10.0.0.2:8000"])


def test_a_policy_of_nobody_says_what_is_missing(api: ApiClient, namespace: str, start: StartOperator) -> None:
    spec = {"accessSite": "here", "mode": "Active"}
    api.create(
        path_of(namespace, "streampolicies"),
        {"apiVersion": "tiphys.io/v1alpha1", "kind": "StreamPolicy", "metadata": {"name": "streams"}, "spec": spec},
    )
    start()

    def reason() -> str:
        return str(condition(api.get(path_of(namespace, "streampolicies", "streams")), "Ready").get("reason"))

    wait_until(lambda: reason() == "AccessSiteNotFound", DEADLINE_S, "no site")
    create(api, namespace, "InferenceSite", "here", {"layer": "antenna", "access": True})
    wait_until(lambda: reason() == "BinderUnreachable", DEADLINE_S, "no binder")

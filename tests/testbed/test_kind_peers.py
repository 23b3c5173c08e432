"""Peers of scaling on kind, as far as they need no cluster: what of upstream's manifests is changed, and what is waited for."""

import copy
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.kube.kubeconfig import Credentials
from tiphys_testbed.kind import autoscalers, peers

UPSTREAM: list[dict[str, Any]] = [
    {"kind": "Service", "metadata": {"name": "metrics-server"}, "spec": {"ports": [{"port": 443}]}},
    {
        "kind": "Deployment",
        "metadata": {"name": "metrics-server"},
        "spec": {
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": {"k8s-app": "metrics-server"}},
                "spec": {
                    "serviceAccountName": "metrics-server",
                    "containers": [
                        {"name": "metrics-server", "image": "upstream:v1", "args": ["--cert-dir=/tmp", "--metric-resolution=15s"]},
                        {"name": "sidecar", "image": "other:v1"},
                    ],
                },
            },
        },
    },
]
RECOMMENDED = {"containerName": "main", "target": {"cpu": "63m", "memory": "250Mi"}, "lowerBound": {"cpu": "11m"}}


def test_only_images_and_flags_of_upstreams_manifests_are_changed() -> None:
    before = copy.deepcopy(UPSTREAM)
    service, deployment = peers.adapted(UPSTREAM, {"metrics-server": {"metric-resolution": "10s", "kubelet-insecure-tls": "true"}})
    assert before == UPSTREAM
    assert service == before[0]
    expected = copy.deepcopy(before[1])
    container = expected["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["--cert-dir=/tmp", "--metric-resolution=10s", "--kubelet-insecure-tls=true"]
    container["image"] = peers.image("metrics-server")
    assert deployment == expected


def test_a_flag_replaces_the_one_of_its_name_and_no_other() -> None:
    given = ["--v=4", "--vmodule=x=1", "--reload-cert", "--stderrthreshold=info"]
    assert peers.with_flags(given, {"v": "1", "reload-cert": "false"}) == [
        "--vmodule=x=1",
        "--stderrthreshold=info",
        "--v=1",
        "--reload-cert=false",
    ]


def test_metrics_server_is_not_given_what_it_refuses() -> None:
    resolution, timeout = (
        int(peers.METRICS_SERVER_FLAGS[name].removesuffix("s")) for name in ("metric-resolution", "kubelet-request-timeout")
    )
    assert resolution >= 10
    assert timeout < 0.9 * resolution


def test_the_api_server_accepts_the_webhooks_certificate_under_the_name_of_its_service(tmp_path: Path) -> None:
    secret = peers.webhook_certificates()
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == ("vpa-tls-certs", "kube-system")
    for name, text in secret["stringData"].items():
        (tmp_path / name).write_text(text)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "serverCert.pem", tmp_path / "serverKey.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "caCert.pem"))
    to_client, to_server = (ssl.MemoryBIO(), ssl.MemoryBIO())
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server, server_hostname="vpa-webhook.kube-system.svc")
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()


def test_both_autoscalers_ask_for_the_same_deployment_within_their_bounds() -> None:
    hpa = autoscalers.horizontal_pod_autoscaler("peer", "web", replicas=(1, 4))
    vpa = autoscalers.vertical_pod_autoscaler("peer", "web", cpu=("50m", "500m"), mode="InPlace")
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert (hpa["spec"]["scaleTargetRef"], vpa["spec"]["targetRef"]) == (web, web)
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (1, 4)
    assert hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert vpa["spec"]["updatePolicy"] == {"updateMode": "InPlace"}
    (policy,) = vpa["spec"]["resourcePolicy"]["containerPolicies"]
    assert (policy["minAllowed"], policy["maxAllowed"]) == ({"cpu": "50m"}, {"cpu": "500m"})
    assert policy["controlledResources"] == ["cpu"], "memory is nobody's to change in a comparison of CPU"


def test_a_recommendation_is_read_and_its_absence_too() -> None:
    assert autoscalers.recommended_cpu({"status": {"recommendation": {"containerRecommendations": [RECOMMENDED]}}}) == {"main": "63m"}
    for status in (None, {}, {"recommendation": None}, {"recommendation": {"containerRecommendations": [{"containerName": "main"}]}}):
        assert autoscalers.recommended_cpu({"status": status}) == {}


@contextmanager
def api_server(*answers: tuple[int, dict[str, Any]]) -> Iterator[ApiClient]:
    """An API server that gives these answers one after the other, the last one for ever."""
    left = list(answers)

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with ApiClient(Credentials(f"http://127.0.0.1:{server.server_port}", None)) as api:
            yield api
        server.shutdown()


NOT_FOUND = (404, {"reason": "NotFound", "message": "the server could not find the requested resource"})


def test_a_recommendation_is_waited_for_while_the_api_is_not_served_yet() -> None:
    there = {"status": {"recommendation": {"containerRecommendations": [RECOMMENDED]}}}
    with api_server(NOT_FOUND, (200, {}), (200, there)) as api:
        assert peers.wait_for_recommendation(api, "shop", "web", deadline_s=30.0) == {"main": "63m"}


def test_a_wait_that_ends_says_for_what_and_what_was_answered() -> None:
    message = "not within 0 s: VPA recommends for shop/web: 404 NotFound.*could not find"
    with api_server(NOT_FOUND) as api, pytest.raises(ClusterError, match=message):
        peers.wait_for_recommendation(api, "shop", "web", deadline_s=0.0)

"""Sites on loopback addresses of their own with real HTTP model servers, their objects, and binders of their access sites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.conftest import wait_until
from e2e.policies import GROUP_PATH, install_crd
from tiphys_testbed.bench.service import Extender, ExtenderOptions, fetch
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.plane.model_server import ModelServer, model_server

ACCESS = "edge"
TOKEN, STATUS_TOKEN = "the-token-of-the-platform", "the-token-of-the-status-pages"
DEADLINE_S = 60.0

# site: address, layer, one way in ms, accuracy, service in ms, replicas, queries a second that are given away at most.
# Profiled at half of what they can do, so that a machine that does other things as well makes no queue.
WORLD: dict[str, tuple[str, str, float, float, float, int, float]] = {
    "edge": ("127.0.0.2", "antenna", 5.0, 25.0, 20.0, 1, 20.0),
    "dc": ("127.0.0.3", "dc", 150.0, 25.0, 20.0, 4, 100.0),
    "cloud": ("127.0.0.4", "cloud", 160.0, 95.0, 40.0, 1, 20.0),
}
CAPACITY = {f"{site}/at-{site}": WORLD[site][-1] for site in WORLD}
CEILING = 0.9


@dataclass(frozen=True, slots=True)
class Place:
    """Where a binder will listen: others must know before it starts."""

    name: str
    access: str
    ports: tuple[int, int, int]

    @classmethod
    def of(cls, name: str, access: str = ACCESS) -> Place:
        """On ports that are free now."""
        port, status_port, explain_port = free_ports(3)
        return cls(name, access, (port, status_port, explain_port))

    @property
    def status_url(self) -> str:
        """What other binders are told."""
        return f"http://127.0.0.1:{self.ports[1]}"


def path_of(namespace: str, plural: str, name: str = "") -> str:
    """Of objects of that kind, or of one."""
    return f"{GROUP_PATH}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


class World:
    """Model servers, their objects, and binders of the access sites."""

    def __init__(self, cluster: LocalCluster, namespace: str, directory: Path) -> None:
        self.cluster, self.namespace, self.directory = cluster, namespace, directory
        self.servers: dict[str, ModelServer] = {}
        self._stack = ExitStack()

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """One object."""
        plural = "streampolicies" if kind == "StreamPolicy" else f"{kind.lower()}s"
        body = {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.cluster.api.create(path_of(self.namespace, plural), body)

    def build(self, *, access: tuple[str, ...] = (ACCESS,), probed: bool = False, declared: bool = True) -> None:
        """Servers, sites and variants; as far from every access site. `declared`: that is said in the sites' spec."""
        for site, (address, layer, way_ms, accuracy, service_ms, replicas, capacity_qps) in WORLD.items():
            server = self._stack.enter_context(model_server(address, way_ms, service_ms, replicas))
            self.servers[site] = server
            probe = {"probe": {"url": f"{server.url}/healthz", "intervalSeconds": 2, "timeoutSeconds": 2}} if probed else {}
            delays = {"delays": [{"from": origin, "meanMs": way_ms, "sigmaMs": 0.5} for origin in access]} if declared else {}
            self.create("InferenceSite", site, {"layer": layer, "access": site in access, **delays, **probe})
            variant = {"task": "detect", "model": "m", "site": site, "accuracy": accuracy, "delayMs": service_ms}
            self.create(
                "ModelVariant", f"at-{site}", variant | {"capacityQps": capacity_qps, "profiledKb": 40, "endpoint": {"url": server.url}}
            )

    def policy(self, access: str = ACCESS, **spec: Any) -> None:
        """The StreamPolicy `streams` of the access site; those of others are named after their sites."""
        name = "streams" if access == ACCESS else f"streams-{access}"
        self.create("StreamPolicy", name, {"accessSite": access, "mode": "Active", "leaseSeconds": 10, **spec})

    def binder(self, name: str = "binder", place: Place | None = None, others: tuple[Place, ...] = ()) -> Extender:
        """Started, and ready."""
        place = place or Place.of(name)
        files = {
            "TENANTS_FILE": {"tenants": [{"name": "platform", "token": TOKEN, "namespaces": [self.namespace]}]},
            "LEASE_KEYS_FILE": {"keys": [{"id": "one", "secret": "s" * 40}]},
        }
        environment = {"TIPHYS_BINDER_ACCESS_SITE": place.access, "TIPHYS_BINDER_OTHER_BINDERS": ",".join(o.status_url for o in others)}
        for variable, content in files.items():
            path = self.directory / f"{variable.lower()}.json"
            path.write_text(json.dumps(content))
            environment[f"TIPHYS_BINDER_{variable}"] = str(path)
        token = self.directory / "status-token"
        token.write_text(STATUS_TOKEN)
        options = ExtenderOptions(
            name=place.name,
            arguments=("binder",),
            kubeconfig=self.cluster.kubeconfig,
            own_namespace=self.namespace,
            settings={"TOKEN_FILE": str(token)},
        )
        table = self.cluster.processes
        process = Extender.start(ProcessTable(table.run_dir, {**table.environment, **environment}), options, place.ports)
        self._stack.callback(process.stop)
        process.wait_ready()
        return process

    def close(self) -> None:
        """Everything ends."""
        self._stack.close()


@contextmanager
def stream_world(cluster: LocalCluster, namespace: str, directory: Path) -> Iterator[World]:
    """For one test."""
    install_crd(cluster)
    made = World(cluster, namespace, directory)
    try:
        yield made
    finally:
        made.close()


def page(binder: Extender, name: str) -> dict[str, Any]:
    """One of a binder's status pages."""
    status, body = fetch(f"{binder.status_url}/v1/bindings/{name}", 5.0, {"Authorization": f"Bearer {STATUS_TOKEN}"})
    assert status == 200, body
    return json.loads(body)  # type: ignore[no-any-return]


def loads(*binders: Extender) -> dict[str, float]:
    """Bound by all of them, by offer."""
    found = [page(binder, "loads")["loads"] for binder in binders]
    return {offer: sum(load.get(offer, 0.0) for load in found) for offer in CAPACITY}


def until_active(binder: Extender, **wanted: Any) -> None:
    """Until its summary says so."""
    expected = {"active": True} | wanted
    wait_until(lambda: expected.items() <= page(binder, "summary").items(), DEADLINE_S, f"the binder says {expected}")

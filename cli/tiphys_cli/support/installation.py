"""Where Tiphys is installed in a cluster: found by the chart's labels, so that nobody has to name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiphys_cli.kube.api import ApiClient
from tiphys_models.base.errors import InvalidInput

_PART_OF = "app.kubernetes.io/part-of=tiphys"
_COMPONENT = "app.kubernetes.io/component"
EXPLAIN_PORT = 8081
STATUS_PORT = 8080


@dataclass(frozen=True, slots=True)
class Installation:
    """One release of the chart."""

    namespace: str
    fullname: str
    """What the names of its objects begin with; `tiphys` by default."""
    deployments: tuple[dict[str, Any], ...]

    def name(self, part: str) -> str:
        """`tiphys-scheduler` and the like."""
        return f"{self.fullname}-{part}"

    def deployment(self, component: str) -> dict[str, Any] | None:
        """The Deployment of a component: operator, scheduler, extender."""
        return next((d for d in self.deployments if _component(d) == component), None)

    @property
    def extender_component(self) -> str:
        """Which pods hold the extender: the scheduler's own, unless it is a Service."""
        return "scheduler" if self.deployment("extender") is None else "extender"


def find_installation(api: ApiClient, namespace: str = "") -> Installation | None:
    """The release of the cluster or of a namespace; None without any; InvalidInput if there are several to choose from."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments" if namespace else "/apis/apps/v1/deployments"
    found = list(api.items(path, labelSelector=_PART_OF))
    if not found:
        return None
    places = sorted({d["metadata"]["namespace"] for d in found})
    if len(places) > 1:
        raise InvalidInput(f"Tiphys is installed in several namespaces ({', '.join(places)}): choose with --tiphys-namespace")
    operator = next((d for d in found if _component(d) == "operator"), found[0])
    fullname = operator["metadata"]["name"].removesuffix(f"-{_component(operator)}")
    return Installation(places[0], fullname, tuple(found))


def extender_pods(api: ApiClient, installation: Installation) -> list[str]:
    """Names of running pods that hold an extender."""
    return pods_of(api, installation, installation.extender_component)


def pods_of(api: ApiClient, installation: Installation, component: str) -> list[str]:
    """Names of running pods of a component."""
    selector = f"{_PART_OF},{_COMPONENT}={component}"
    pods = api.items(f"/api/v1/namespaces/{installation.namespace}/pods", labelSelector=selector)
    return [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]


def other_schedulers(api: ApiClient, installation: Installation) -> list[dict[str, Any]]:
    """Deployments of the scheduler of other releases, anywhere in the cluster."""
    found = api.items("/apis/apps/v1/deployments", labelSelector=f"{_PART_OF},{_COMPONENT}=scheduler")
    own = (installation.namespace, installation.name("scheduler"))
    return [d for d in found if (d["metadata"]["namespace"], d["metadata"]["name"]) != own]


def _component(deployment: dict[str, Any]) -> str:
    return str((deployment["metadata"].get("labels") or {}).get(_COMPONENT, ""))

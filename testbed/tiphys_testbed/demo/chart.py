"""What the demo takes from the Helm chart: custom resources, roles and the scheduler's configuration, as a user would get them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import tiphys_cli
from tiphys_cli.kube.errors import ClusterError

RELEASE = "tiphys"
NAMESPACE = "tiphys-system"
SCHEDULER_CONFIG = "tiphys-scheduler-config"
_RENDER_DEADLINE_S = 60.0
_HOOK = "helm.sh/hook"
# Pods, Services and the like are left out: the demo runs the same programs as plain processes, under the same accounts.
_KINDS = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
)

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RenderedChart:
    """The rendered chart, as far as the demo uses it."""

    documents: tuple[Document, ...]
    scheduler_config: str
    """The KubeSchedulerConfiguration of our second scheduler."""

    def manifest(self) -> str:
        """Everything to apply, custom resource definitions first."""
        return yaml.safe_dump_all(self.documents, sort_keys=False)


def find_chart(chosen: Path | None = None) -> Path:
    """The chart's directory: the one given, that of the source tree we run from, or that of the working directory."""
    source_tree = Path(tiphys_cli.__file__).resolve().parents[2]
    candidates = [chosen] if chosen is not None else [source_tree / "helm" / "tiphys", Path.cwd() / "helm" / "tiphys"]
    for candidate in candidates:
        if (candidate / "Chart.yaml").is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise ClusterError(f"no Helm chart in {looked}; run the demo from a clone of the repository, or name one with --chart")


def render_chart(helm: Path, chart: Path, kubernetes_version: str, values: Sequence[str] = ()) -> RenderedChart:
    """`helm template`, for the version of the cluster at hand, with further values as `name=value`."""
    command = [
        str(helm),
        "template",
        RELEASE,
        str(chart),
        f"--namespace={NAMESPACE}",
        f"--kube-version={kubernetes_version}",
        "--include-crds",
        "--set=scheduler.weight=decisive",
        *(f"--set={value}" for value in values),
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_RENDER_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"helm template did not end within {_RENDER_DEADLINE_S:.0f} s") from None
    if answer.returncode != 0:
        raise ClusterError(f"helm template {chart} failed: {answer.stderr.strip()}")
    return select(yaml.safe_load_all(answer.stdout))


def select(documents: Iterable[Document | None]) -> RenderedChart:
    """What of a rendered chart the demo applies."""
    kept = [
        document
        for document in documents
        if document and document.get("kind") in _KINDS and _HOOK not in (document["metadata"].get("annotations") or {})
    ]
    if not any(document["kind"] == "CustomResourceDefinition" for document in kept):
        raise ClusterError("the chart renders no CustomResourceDefinition; is crds.enabled false, or its files/crds empty?")
    kept.sort(key=lambda document: _KINDS.index(document["kind"]))
    return RenderedChart(tuple(kept), _scheduler_config(kept))


def _scheduler_config(documents: Sequence[Document]) -> str:
    for document in documents:
        if document["kind"] == "ConfigMap" and document["metadata"]["name"] == SCHEDULER_CONFIG:
            for text in (document.get("data") or {}).values():
                if "KubeSchedulerConfiguration" in text:
                    return str(text)
    raise ClusterError(f"the chart has no KubeSchedulerConfiguration in ConfigMap {SCHEDULER_CONFIG}")

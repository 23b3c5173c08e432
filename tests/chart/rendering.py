"""The chart as Helm renders it, parsed."""

import copy
import functools
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tiphys_testbed.tools.toolbox import Toolbox

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "tiphys"
MODES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "tiphys-system"
KUBE_VERSION = "1.36.3"
HELM_DEADLINE_S = 30.0

Manifest = dict[str, Any]


class HelmRefusedError(Exception):
    """Helm did not render; the message is what a user reads."""


@dataclass(frozen=True, slots=True)
class Render:
    """One render: the objects in Helm's order."""

    text: str
    objects: tuple[Manifest, ...]

    def of(self, kind: str) -> list[Manifest]:
        """All objects of a kind."""
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind: str, name: str) -> Manifest:
        """The object of that kind and name; it must be there once."""
        found = [item for item in self.of(kind) if item["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} named {name}; there are {[item['metadata']['name'] for item in self.of(kind)]}"
        return found[0]

    def pod_specs(self) -> dict[str, Manifest]:
        """Pod specs by the name of what makes the pods."""
        kinds = ("Deployment", "Job", "CronJob")
        makers = {item["metadata"]["name"]: item["spec"] for item in self.objects if item["kind"] in kinds}
        return {name: spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"] for name, spec in makers.items()}


@functools.cache
def helm(name: str = "helm") -> Path:
    """Helm 4, or `helm3`."""
    return Toolbox().path(name)


def run_helm(*arguments: str, stdin: str | None = None, program: str = "helm") -> subprocess.CompletedProcess[str]:
    """Run Helm with nothing of the user's own configuration."""
    return subprocess.run(
        [str(helm(program)), *arguments],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=HELM_DEADLINE_S,
        check=False,
        env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    )


def values_of(mode: str) -> Manifest:
    """The values of one `ci/*-values.yaml`."""
    return yaml.safe_load((CHART / "ci" / f"{mode}-values.yaml").read_text(encoding="utf-8")) or {}


def render_text(values: Mapping[str, Any], *flags: str, kube_version: str = KUBE_VERSION, program: str = "helm") -> str:
    """What `helm template` prints; hooks are part of it."""
    answer = run_helm(
        *("template", "tiphys", str(CHART), "--namespace", NAMESPACE, "--values", "-", "--kube-version", kube_version, *flags),
        stdin=json.dumps(values),
        program=program,
    )
    if answer.returncode != 0:
        raise HelmRefusedError(answer.stderr.strip())
    return answer.stdout


def render(values: Mapping[str, Any] | None = None, *flags: str, kube_version: str = KUBE_VERSION, program: str = "helm") -> Render:
    """Render with these values over the chart's defaults."""
    text = render_text(values or {}, *flags, kube_version=kube_version, program=program)
    return Render(text, tuple(item for item in yaml.load_all(text, Loader=_Strict) if item))


@functools.cache
def render_mode(mode: str) -> Render:
    """Render with one `ci/*-values.yaml`. Shared: treat as read-only."""
    return render(values_of(mode))


def with_value(values: Mapping[str, Any], path: tuple[str, ...], value: object) -> Manifest:
    """A copy of the values with one of them replaced."""
    changed = copy.deepcopy(dict(values))
    place = changed
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    return changed


class _Strict(yaml.SafeLoader):
    """YAML that refuses a key given twice, as the API server's strict validation does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key given twice: {', '.join(map(str, twice))}", node.start_mark)
        return super().construct_mapping(node, deep)

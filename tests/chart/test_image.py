"""The Dockerfile without a builder: what it copies exists and is sent, stages resolve, services stay small and unprivileged."""

import fnmatch
import re

import pytest
import yaml

from tests.chart.rendering import ROOT

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n", " ", "\n".join(line for line in TEXT.splitlines() if not line.startswith("#"))).splitlines()
    if line.strip()
]
SERVICES = ("operator", "extender")


def stages() -> dict[str, tuple[str, list[tuple[str, ...]]]]:
    """Stage name → what it starts from, and its instructions."""
    found: dict[str, tuple[str, list[tuple[str, ...]]]] = {}
    name = ""
    for instruction in INSTRUCTIONS:
        if instruction[0] == "FROM":
            base, _, name = instruction[1].partition(" AS ")
            found[name] = (base, [])
        elif name:
            found[name][1].append(instruction)
    return found


def lineage(name: str) -> list[tuple[str, ...]]:
    """All instructions of a stage, those it inherits first."""
    base, own = stages()[name]
    return [*(lineage(base) if base in stages() else []), *own]


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a path into the build; the last match wins."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            if fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/"):
                sent = line.startswith("!")
    return sent


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    for verb, rest in INSTRUCTIONS:
        if verb == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert is_sent(source), source
    assert not is_sent("e2e")
    assert not is_sent(".git")


def test_stages_name_only_stages_before_them() -> None:
    seen = {"${PYTHON}"}
    for name, (base, instructions) in stages().items():
        assert base in seen, name
        for verb, rest in instructions:
            source = re.match(r"--from=(\S+)", rest)
            if verb == "COPY" and source:
                assert source[1] in seen, name
        seen.add(name)
    assert {*SERVICES, "trainer"} <= seen


@pytest.mark.parametrize("name", [*SERVICES, "trainer"])
def test_images_run_unprivileged_and_hold_the_locked_wheels_only(name: str) -> None:
    users = [rest for verb, rest in lineage(name) if verb == "USER"]
    assert users[-1] == "65532:65532"
    assert ("HEALTHCHECK", "NONE") in lineage(name)
    (source,) = [rest for verb, rest in stages()[name][1] if verb == "COPY"]
    assert source == f"--from={name}-environment /opt/tiphys /opt/tiphys"
    installs = [
        part for verb, rest in lineage(f"{name}-environment") if verb == "RUN" for part in rest.split("&&") if "pip install" in part
    ]
    assert all("--require-hashes" in part or "--no-deps /wheels" in part for part in installs)
    assert len(installs) == 2


@pytest.mark.parametrize("name", SERVICES)
def test_services_carry_no_torch_and_not_each_others_framework(name: str) -> None:
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8"), re.MULTILINE))
    absent = {"torch", "kubernetes", "kopf" if name == "extender" else "fastapi"}
    assert not pinned & absent


def test_images_start_what_the_chart_expects() -> None:
    for name in SERVICES:
        (command,) = [rest for verb, rest in stages()[name][1] if verb == "CMD"]
        assert yaml.safe_load(command) == ["python", "-m", f"tiphys_{name}"]


def test_the_trainer_starts_what_is_installed_there() -> None:
    (command,) = [rest for verb, rest in stages()["trainer"][1] if verb == "CMD"]
    assert yaml.safe_load(command)[:2] == ["tiphys", "train"]
    assert re.search(r"^torch==", (ROOT / "requirements" / "train.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_kind_cluster_has_nodes_to_choose_from() -> None:
    config = yaml.safe_load((ROOT / "manifests" / "kind.yaml").read_text(encoding="utf-8"))
    assert config["apiVersion"] == "kind.x-k8s.io/v1alpha4"
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker", "worker"]

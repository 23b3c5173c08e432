"""What builds and releases, without running it: actions and images by digest, least permissions, nothing of a stranger in a shell."""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import render

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
PERMISSIONS: dict[tuple[str, str], dict[str, str]] = {
    ("ci", "test"): {},
    ("ci", "kind"): {},
    ("release", "test"): {"contents": "read"},
    ("release", "image"): {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
    ("release", "chart"): {"contents": "read", "packages": "write", "id-token": "write"},
}
"""Of each job, beside those of its workflow."""
DIGEST = "sha256:" + "ab" * 32


def pinned(text: str, component: str, digest: str) -> str:
    """What `.github/pin_image.py` makes of the chart's values; it belongs to no package."""
    found = runpy.run_path(str(ROOT / ".github" / "pin_image.py"))
    return str(found["pinned"](text, component, digest))


def parsed(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path.stem, name, job) for path in WORKFLOWS for name, job in parsed(path)["jobs"].items()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_named_by_its_commit_with_the_version_beside_it(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if re.search(r"\buses\s*:", line)]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_one_action_is_one_commit_everywhere() -> None:
    named = {match for path in WORKFLOWS for match in re.findall(r"uses: (\S+)@(\w+) # (\S+)", path.read_text(encoding="utf-8"))}
    assert len({action for action, _, _ in named}) == len(named)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_starts_with_no_rights_that_write_and_for_nobodys_fork(path: Path) -> None:
    workflow = parsed(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    events = workflow[True]  # YAML reads `on` as true
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(events)


def test_jobs_have_the_rights_of_the_list_a_deadline_and_leave_no_credentials_behind() -> None:
    assert {(workflow, name) for workflow, name, _ in jobs()} == set(PERMISSIONS)
    for workflow, name, job in jobs():
        assert job.get("permissions", {}) == PERMISSIONS[workflow, name], f"{workflow} {name}"
        assert job["timeout-minutes"] <= 90
        assert job["runs-on"] == "ubuntu-24.04", "a moving image is another machine every month"
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_shells_get_values_by_environment_and_never_by_substitution() -> None:
    for workflow, name, job in jobs():
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), f"{workflow} {name}: {step}"


def test_an_image_is_scanned_described_and_signed_by_digest_before_it_has_a_name() -> None:
    job = parsed(ROOT / ".github" / "workflows" / "release.yaml")["jobs"]["image"]
    assert set(job["strategy"]["matrix"]["name"]) == {"operator", "extender", "trainer"}
    steps = job["steps"]
    order = [step.get("uses", "").partition("@")[0] or step["name"] for step in steps]
    wanted = [
        "docker/build-push-action",
        "aquasecurity/trivy-action",
        "anchore/sbom-action",
        "actions/attest-build-provenance",
        "sign, then name",
    ]
    assert [entry for entry in order if entry in wanted] == wanted
    build, scan = (next(s for s in steps if s.get("uses", "").startswith(action)) for action in wanted[:2])
    assert "push-by-digest=true" in build["with"]["outputs"]
    assert "tags" not in build["with"]
    assert (build["with"]["provenance"], build["with"]["sbom"]) == ("mode=max", True)
    assert scan["with"]["exit-code"] == "1"
    assert scan["with"]["image-ref"].endswith("@${{ steps.build.outputs.digest }}")
    commands = steps[-1]["run"].splitlines()
    assert [line.split()[:2] for line in commands] == [["cosign", "sign"], ["cosign", "attest"], ["docker", "buildx"]]
    assert all('"$IMAGE@$DIGEST"' in line for line in commands)


def test_the_chart_of_a_release_names_images_by_digest() -> None:
    text = (ROOT / "helm" / "tiphys" / "values.yaml").read_text(encoding="utf-8")
    digests = {name: f"sha256:{number * 64}" for name, number in (("operator", "1"), ("extender", "2"), ("trainer", "3"))}
    for name, digest in digests.items():
        text = pinned(text, name, digest)
    values = yaml.safe_load(text)
    for name, digest in digests.items():
        assert values[name]["image"]["digest"] == digest
    assert values["scheduler"]["image"]["digest"] == "", "the cluster's own version decides which scheduler"
    rendered = render({**values, "trainer": {**values["trainer"], "enabled": True}})
    images = {c["name"]: c["image"] for spec in rendered.pod_specs().values() for c in spec["containers"]}
    for name, digest in digests.items():
        assert images[name] == f"ghcr.io/tiphys-io/tiphys-{name}@{digest}"
    with pytest.raises(SystemExit, match="no empty"):
        pinned(text, "operator", DIGEST)
    with pytest.raises(SystemExit, match="no digest"):
        pinned(text, "operator", "latest")


def test_base_images_and_the_program_that_locks_are_pinned() -> None:
    bases = re.findall(r"^ARG \w+=(\S+)$|^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    outside = {argument or base for argument, base in bases if "/" in (argument or base)}
    assert len(outside) == 1
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in outside)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*)$", makefile, re.MULTILINE)
    assert len(installs) >= 5
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert re.match(r"uv==\d+\.\d+\.\d+ \\\n", (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8"))


def wheel(directory: Path, content: str) -> Path:
    path = directory / "harmless-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("harmless.py", content)
        archive.writestr("harmless-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n")
        archive.writestr("harmless-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("harmless-1.0.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("swapped", [False, True])
def test_a_wheel_whose_bytes_are_not_those_that_were_locked_is_not_installed(tmp_path: Path, swapped: bool) -> None:
    """With the options of the Makefile and the Dockerfile."""
    digest = hashlib.sha256(wheel(tmp_path, "good = True").read_bytes()).hexdigest()
    if swapped:
        wheel(tmp_path, "good = False")
    (tmp_path / "requirements.txt").write_text(f"harmless==1.0 --hash=sha256:{digest}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "installed")]
    answer = subprocess.run(
        [*command, "--disable-pip-version-check", "--require-hashes", "-r", str(tmp_path / "requirements.txt")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (answer.returncode != 0) is swapped, answer.stderr
    assert (tmp_path / "installed" / "harmless.py").exists() is not swapped
    if swapped:
        assert "DO NOT MATCH" in answer.stderr

"""What docs/your-own-policy.md says, done to the letter: its package is built, installed, listed, checked, benchmarked and served."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
from tests.builders import policy_object
from tests.extender.harness import arguments
from tests.extender.test_process import Process, started_as

from tiphys_models.placement.snapshot import Snapshot, write_snapshot

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "your-own-policy.md"
SHORT = 40
"""Lines that a decider may take, its imports included."""
BROUGHT = {
    "acme-roomiest": "placement-policy",
    "acme-spread": "planner",
    "acme-thrifty": "selector",
    "acme-peak": "scaling-agent",
    "acme-accurate": "stream-policy",
}
GIB = 2**30
NODES = {"small": 4, "large": 64, "medium": 16}
BROKEN = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "acme-broken"
version = "0.1"
[project.entry-points."tiphys.placement_policies"]
acme-broken = "acme_broken:Policy"
hashing = "acme_broken:Policy"
"""

pytestmark = pytest.mark.timeout(600)


def files() -> dict[str, str]:
    """Every block of the document that names a file."""
    blocks = re.findall(r"```(?:toml|python)\n# file: (\S+)\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Tiphys, the document's package, and one that cannot be imported; nothing comes from the network."""
    directory = tmp_path_factory.mktemp("own-policy")
    venv.create(directory / "venv", with_pip=True)
    made = directory / "venv" / "bin" / "python"
    (site,) = (directory / "venv" / "lib").glob("python3.*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "tiphys-of-this-run.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    for name, text in files().items():
        path = directory / "acme-deciders" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    broken = directory / "acme-broken"
    (broken / "acme_broken").mkdir(parents=True)
    (broken / "pyproject.toml").write_text(BROKEN, encoding="utf-8")
    (broken / "acme_broken" / "__init__.py").write_text("raise OSError('no such accelerator')\n", encoding="utf-8")
    for package in ("acme-deciders", "acme-broken"):
        run(made, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", str(directory / package))
    return made


def run(python: Path, *given: str, status: int = 0) -> str:
    done = subprocess.run([python, *given], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def listed(python: Path) -> dict[str, dict[str, Any]]:
    return {f"{row['origin']}/{row['name']}": row for row in json.loads(run(python, "-m", "tiphys_cli", "policies", "--json"))}


def test_every_decider_of_the_tutorial_is_short() -> None:
    written = files()
    assert len(written) == 7
    assert {name: len(text.splitlines()) for name, text in written.items() if len(text.splitlines()) >= SHORT} == {}


def test_what_is_installed_is_listed_with_its_origin_and_what_is_broken_says_why(python: Path) -> None:
    rows = listed(python)
    for name, kind in BROUGHT.items():
        row = rows[f"acme-deciders 1.0.0/{name}"]
        assert (row["decider"], row["problem"]) == (kind, "")
        assert row["summary"]
    assert "no such accelerator" in rows["acme-broken 0.1/acme-broken"]["problem"]
    assert "is one of ours" in rows["acme-broken/hashing"]["problem"]
    assert rows["tiphys/hashing"]["problem"] == ""


@pytest.mark.parametrize("name", BROUGHT)
def test_every_decider_of_the_tutorial_passes_the_conformance_suite(python: Path, name: str) -> None:
    found = json.loads(run(python, "-m", "tiphys_cli", "policies", "--check", name, "--json"))
    assert (found["kind"], [c for c in found["checks"] if not c["holds"]]) == (BROUGHT[name], [])


def test_the_tutorials_own_test_passes(python: Path) -> None:
    code = files()["tests/test_roomiest.py"] + "\ntest_it_keeps_what_every_decider_must()\n"
    run(python, "-c", code)


def snapshot(directory: Path, **spec: Any) -> Path:
    """Nodes with little, much and some memory, and one SchedulingPolicy."""
    nodes = [
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "status": {"allocatable": {"cpu": "4", "memory": f"{gib}Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for name, gib in NODES.items()
    ]
    path = directory / "snapshot.json"
    readings = {name: [1.0] * 21 for name in NODES}
    write_snapshot(Snapshot(time.time(), nodes, [], [policy_object(**spec)], readings), path)  # type: ignore[arg-type]
    return path


def ask(extender: Process, uid: str) -> list[dict[str, Any]]:
    status, answer = extender.call("prioritize", "POST", "/prioritize", json.dumps(arguments([*NODES], uid=uid)).encode())
    assert status == 200
    found: list[dict[str, Any]] = json.loads(answer)
    return found


def decided(extender: Process) -> dict[str, Any]:
    _, body = extender.call("status", "GET", "/v1/decisions", Authorization="Bearer t")
    found: dict[str, Any] = json.loads(body)["items"][-1]
    return found


@pytest.mark.parametrize("mode", ["Shadow", "Active"])
def test_a_real_extender_asks_it_and_records_its_name_and_digest(python: Path, tmp_path: Path, mode: str) -> None:
    (tmp_path / "token").write_text("t")
    settings = {"SNAPSHOT": snapshot(tmp_path, mode=mode, policy="acme-roomiest"), "TOKEN_FILE": tmp_path / "token"}
    with started_as(tmp_path, (), "prioritize", settings, str(python)) as extender:
        answer = ask(extender, "u1")
        record = decided(extender)
        assert (record["policyName"], len(record["modelDigest"]), record["would"]) == ("acme-roomiest", 64, "large")
        scores = {entry["Host"]: entry["Score"] for entry in answer}
        if mode == "Shadow":
            assert (record["outcome"], record["reason"], len(set(scores.values()))) == ("neutral", "shadow", 1)
        else:
            assert record["outcome"] == "scored"
            assert max(scores, key=scores.__getitem__) == "large"
        _, body = extender.call("status", "GET", "/v1/models", Authorization="Bearer t")
        served = json.loads(body)["policies"]
        assert "acme-roomiest" in served
        assert "acme-broken" not in served
        _, metrics = extender.call("status", "GET", "/metrics")
        assert 'tiphys_extender_unusable_deciders{kind="placement-policy"} 2.0' in metrics.decode()


def test_a_policy_whose_package_is_broken_is_answered_by_the_fallback(python: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    settings = {"SNAPSHOT": snapshot(tmp_path, mode="Active", policy="acme-broken"), "TOKEN_FILE": tmp_path / "token"}
    with started_as(tmp_path, (), "prioritize", settings, str(python)) as extender:
        ask(extender, "u1")
        record = decided(extender)
        assert (record["outcome"], record["reason"], record["policyName"]) == ("fallback", "policy-unknown", "warm-first")


@pytest.mark.parametrize(
    ("bench", "option", "ours", "theirs"),
    [("scaling", "--agents", "rule", "acme-peak"), ("selection", "--policies", "cost-lean", "acme-spread")],
)
def test_a_benchmark_plays_it_beside_ours(python: Path, bench: str, option: str, ours: str, theirs: str) -> None:
    """Where simulators are compiled, foreign policies are asked by the second one: see `test_simulator_foreign` and `_interpreted`."""
    said = run(python, "-m", "tiphys_cli", "bench", bench, "--quick", "--seeds", "0", option, f"{ours},{theirs}", "--json")
    rows = json.loads(said)["rows"]
    assert {ours, theirs} <= {row.get("policy") or row.get("agent") for row in rows}


def test_a_benchmark_without_it_says_who_there_is(python: Path) -> None:
    done = subprocess.run(
        [python, "-m", "tiphys_cli", "bench", "scaling", "--quick", "--agents", "acme-pique"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 2
    assert "acme-peak" in done.stderr

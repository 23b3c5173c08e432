"""What Go makes of our answers: a client with kube-scheduler's own types and decoder, thousands of generated requests."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiphys_models.placement.snapshot import Snapshot, write_snapshot
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.bench.workload import Cell, policy_object, snapshot_of, write_inputs
from tiphys_testbed.cluster.nodes import fleet
from tiphys_testbed.tools.golang import build_environment, find_go, install_go
from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.progress import Progress
from tiphys_testbed.tools.toolbox import cache_directory

COUNT = int(os.environ.get("TIPHYS_CONTRACT_REQUESTS", "100000"))
NODES = 1000
LEAST_GO = (1, 26, 0)
BUILD_DEADLINE_S = 900.0
SOURCE = Path(__file__).parent / "go"


@pytest.fixture(scope="module")
def client() -> Path:
    """The compiled client, built once for each state of its sources."""
    files = sorted([*SOURCE.glob("*.go"), SOURCE / "go.mod", SOURCE / "go.sum"])
    go = install_go(find_go(LEAST_GO, cache_directory()), Progress())
    key = hashlib.sha256(b"".join(file.read_bytes() for file in files) + go.version.encode()).hexdigest()[:16]
    target = cache_directory() / "bin" / f"contract-client-{key}" / "contract-client"
    target.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(target.parent / ".lock", lambda: None):
        if not target.exists():
            source = target.parent / "src"
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir()
            for file in files:
                shutil.copy(file, source)
            staged = target.with_suffix(".new")
            command = [str(go.executable), "build", "-trimpath", "-buildvcs=false", "-o", str(staged), "."]
            subprocess.run(command, cwd=source, env=build_environment(source), check=True, timeout=BUILD_DEADLINE_S)
            staged.rename(target)
    return target


@pytest.fixture(scope="module")
def extender() -> Iterator[Extender]:
    """An extender on a snapshot with policies in every mode."""
    with scratch("contract") as table:
        cell = Cell(tuple(fleet(NODES, pool="node", bare=True)), 2000, seed=5)
        made = snapshot_of(cell)
        _, models, _ = write_inputs(cell, table.run_dir)
        policies = [_policy("active", "Active"), _policy("shadow", "Shadow"), _policy("rules", "Active", "static-rank")]
        policies.append(_policy("canary", "Canary"))
        policies[-1]["spec"]["canary"] = {"percent": 50}
        snapshot = table.run_dir / "modes.json"
        write_snapshot(Snapshot(made.taken_at_s, made.nodes, made.pods, policies, made.readings, made.idle), snapshot)
        started = Extender.start(table, ExtenderOptions(snapshot=snapshot, models_dir=models))
        started.wait_ready()
        yield started


def _policy(namespace: str, mode: str, policy: str = "faasrank") -> dict[str, Any]:
    made = policy_object(mode, policy, namespace)
    made["metadata"] |= {"name": namespace, "uid": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return made


@pytest.mark.timeout(BUILD_DEADLINE_S + 900)
def test_go_rejects_none_of_our_answers(client: Path, extender: Extender) -> None:
    command = [str(client), "-url", extender.url, "-count", str(COUNT), "-known-nodes", str(NODES), "-deadline", "14m"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=860, check=False)
    lines = run.stdout.splitlines()
    assert lines, f"the client ended with {run.returncode} and said nothing: {run.stderr[-2000:]}"
    report = json.loads(lines[-1])
    assert report["problems"] == []
    assert report["rejected"] == 0
    assert report["requests"] == COUNT
    # both kinds of answer were tried, in bulk, on connections that were kept
    assert report["ranked"] > COUNT * 0.2
    assert report["neutral"] > COUNT * 0.1
    assert report["calls_on_kept_connections"] > COUNT * 0.9
    metrics = extender.metrics()
    assert metrics.total("tiphys_extender_policy_answers_total", policy="faasrank") > COUNT * 0.1
    assert metrics.total("tiphys_extender_answers_total") >= report["ranked"] + report["neutral"]
    assert metrics.total("tiphys_extender_neutral_answers_total", reason="internal-error") == 0

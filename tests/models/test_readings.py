from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import policy_object, view
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.facts import node_facts, pod_facts
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.gauges import ReadingTableBuilder, Sample, parse_vector
from tiphys_models.placement.schema import COLUMN, FEATURES, NODE_READINGS
from tiphys_models.placement.snapshot import Snapshot, read_snapshot, readings_of, write_snapshot
from tiphys_models.placement.state import PlacementState

PROFILE = FunctionProfile(2.34, 4.45, 18.72, 23.2, 8.0)


def test_every_node_reading_has_a_query_and_every_own_feature_has_none() -> None:
    for feature in FEATURES:
        if feature.kind == "own":
            with pytest.raises(ValueError, match="not measured"):
                feature.promql(60, "node")
        else:
            query = feature.promql(60, "node")
            assert "by (node)" in query
            assert ("[60s]" in query) == (feature.kind == "rate")


@pytest.mark.parametrize(("value", "reason"), [(math.nan, "not-finite"), (math.inf, "not-finite"), (-1.0, "negative"), (1e30, "too-large")])
def test_what_cannot_be_true_is_refused_by_name_and_stays_missing(value: float, reason: str) -> None:
    builder = ReadingTableBuilder()
    builder.add("cpu_user", [Sample(("n0",), value, 1.0), Sample(("n1",), 2.0, 1.0)])
    table = builder.build()
    assert table.rejected == {("cpu_user", reason): 1}
    assert table.names == ("n1",)


def test_two_series_of_one_node_are_refused_not_summed() -> None:
    builder = ReadingTableBuilder()
    builder.add("cpu_user", [Sample(("n0",), 1.0, 1.0), Sample(("n0",), 5.0, 1.0), Sample(("",), 5.0, 1.0)])
    table = builder.build()
    assert table.values[0, COLUMN["cpu_user"]] == 1.0
    assert table.rejected == {("cpu_user", "duplicate-series"): 1, ("cpu_user", "no-node-label"): 1}


def test_a_rate_slightly_below_zero_is_zero_and_time_is_that_of_the_oldest_sample() -> None:
    builder = ReadingTableBuilder()
    builder.add("cpu_iowait", [Sample(("n0",), -1e-6, 7.0)])
    builder.add("cpu_user", [Sample(("n0",), 1.0, 5.0)])
    table = builder.build()
    assert table.values[0, COLUMN["cpu_iowait"]] == 0
    assert table.read_at_s.tolist() == [5.0]
    assert np.isnan(table.values[0, COLUMN["memory_free"]])


@pytest.mark.parametrize(
    "answer",
    [{}, {"status": "error", "data": {"resultType": "vector", "result": []}}, {"status": "success", "data": {"resultType": "matrix", "result": []}},
     {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}],
)  # fmt: skip
def test_anything_but_an_instant_vector_is_an_error(answer: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError, IndexError)):
        parse_vector(answer, ("node",))


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.floats()), max_size=20))
def test_no_sample_ever_gives_a_negative_or_infinite_reading(samples: list[tuple[str, float]]) -> None:
    builder = ReadingTableBuilder()
    builder.add("net_recv", [Sample((node,), value, 1.0) for node, value in samples])
    values = builder.build().values
    assert not np.isinf(values).any()
    assert not (values < 0).any()


def example() -> Snapshot:
    node = {
        "metadata": {"name": "n0", "labels": {"secret-label": "x", "node.kubernetes.io/instance-type": "B2s"}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}],
                   "images": [{"names": ["docker.io/library/f:latest"], "sizeBytes": 1}]},
    }  # fmt: skip
    pod = {
        "metadata": {"uid": "u", "namespace": "a", "name": "p", "labels": {"tiphys.io/function": "f"}, "annotations": {"token": "s3cret"}},
        "spec": {
            "nodeName": "n0",
            "containers": [{"name": "c", "image": "f", "env": [{"name": "PASSWORD", "value": "s3cret"}],
                            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip
    readings = {"n0": [1.5, None] + [0.0] * (len(NODE_READINGS) - 2)}
    return Snapshot(100.0, [node], [pod], [policy_object("p", "a", mode="Active")], readings, {"a/f": {"n0": 2.0}}, {"a/f": PROFILE})


def test_a_snapshot_survives_the_file_and_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_snapshot(example(), path)
    assert b"s3cret" not in path.read_bytes()
    assert b"secret-label" not in path.read_bytes()
    kept = read_snapshot(path)
    filled = PlacementState()
    filled.put_node(node_facts(kept.nodes[0]))
    filled.put_pod(pod_facts(kept.pods[0]), 200.0)
    values = np.array([[np.nan if v is None else v for v in kept.readings["n0"]]], np.float32)
    filled.put_readings(["n0"], values, np.array([200.0]))
    assert kept.profiles == {"a/f": PROFILE}
    assert (kept.idle, kept.taken_at_s, kept.policies[0]["spec"]) == ({"a/f": {"n0": 2.0}}, 100.0, {"mode": "Active"})
    seen = view(filled)
    assert (seen.inflight[0], seen.available_memory_bytes[0], seen.node_readings[0, 0]) == (1, 3 * 2**30, 1.5)
    assert np.isnan(seen.node_readings[0, 1])


def test_a_reading_table_becomes_snapshot_rows_with_nulls() -> None:
    builder = ReadingTableBuilder()
    builder.add("cpu_user", [Sample(("n0",), 2.0, 1.0)])
    assert readings_of(builder.build()) == {"n0": [2.0] + [None] * (len(NODE_READINGS) - 1)}


HEADER = b'{"format": "tiphys-snapshot/1", "feature_schema": "faasrank-26/1", "taken_at_s": 1}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1 is not JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no format"),
        (b'{"format": "tiphys-snapshot/1"}', "holds readings"),
        (b'{"format": "tiphys-snapshot/1", "feature_schema": "faasrank-26/1"}', "when it was taken"),
        (HEADER + b'{"node": {}}\n{', "line 3 is not JSON"),
        (HEADER + b'{"secret": {}}\n', "line 2: expected one of"),
        (HEADER + b'{"readings": {"node": "n", "values": [1]}}\n', "has not 21"),
        (HEADER + b'{"profile": {"function": "f", "warm_seconds": 1}}\n', "has not warm_seconds"),
    ],
)
def test_a_broken_snapshot_says_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read_snapshot(path)
    with pytest.raises(InvalidInput, match="cannot read"):
        read_snapshot(tmp_path / "absent.json")

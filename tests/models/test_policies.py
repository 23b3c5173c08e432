from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import GIB, MIB, node, pod, read, request, state, view
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.encoder import encode
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.registry import REGISTRY, PolicyName, entries, is_learned, make_policy
from tiphys_models.placement.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst, probe_of, probe_steps
from tiphys_models.placement.schema import COLUMN, FEATURES, NODE_READINGS
from tiphys_models.placement.untrained import write_untrained


def best(policy: object, filled: object, wanted: object = None) -> str:
    seen = view(filled, wanted)  # type: ignore[arg-type]
    scores = policy.score(seen, filled.memory())  # type: ignore[attr-defined]
    return filled.nodes.names[seen.rows[int(np.argmax(scores))]]  # type: ignore[attr-defined,no-any-return]


def test_hashing_probes_as_openwhisk_does() -> None:
    assert probe_steps(10) == (1, 3, 7)
    order = np.argsort(probe_of(np.arange(10), 10, 13))
    assert order.tolist() == [3, 6, 9, 2, 5, 8, 1, 4, 7, 0]


@given(st.integers(1, 60), st.integers(0, 2**63))
def test_every_probe_walk_visits_every_node_once(nodes: int, function_hash: int) -> None:
    assert sorted(probe_of(np.arange(nodes), nodes, function_hash).tolist()) == list(range(nodes))


def test_hashing_skips_full_nodes_and_takes_any_when_all_are_full() -> None:
    filled = state(5)
    home = best(Hashing(), filled)
    filled.bound(pod("big", node=home, memory_bytes=16 * GIB), 0)
    assert best(Hashing(), filled) != home
    huge = request(memory_bytes=64 * GIB)
    assert len(set(Hashing().score(view(filled, huge), filled.memory()))) == 1


def test_round_robin_goes_on_after_the_newest_placement() -> None:
    filled = state(4)
    chosen = []
    for index in range(6):
        name = best(RoundRobin(), filled, request(f"u{index}"))
        chosen.append(name)
        filled.decided(request(f"u{index}"), name, float(index))
    assert chosen == ["n0", "n1", "n2", "n3", "n0", "n1"]


def test_least_connections_counts_reservations() -> None:
    filled = state(2)
    filled.decided(request("a"), "n0", 0)
    assert best(LeastConnections(), filled) == "n1"


def test_greedy_fills_the_first_node_before_the_next() -> None:
    filled = state(3, memory_bytes=GIB)
    chosen = []
    for index in range(6):
        name = best(Greedy(), filled, request(f"u{index}", memory_bytes=512 * MIB))
        chosen.append(name)
        filled.decided(request(f"u{index}", memory_bytes=512 * MIB), name, 0)
    assert chosen == ["n0", "n0", "n1", "n1", "n2", "n2"]
    filled.finished("u2")
    filled.finished("u3")
    filled.decided(request("x", memory_bytes=GIB), "n1", 0)
    assert best(Greedy(), filled, request("y", memory_bytes=GIB)) == "n1"  # all full: fewest pods


def test_static_rank_prefers_idle_memory_and_slots() -> None:
    filled = state(3)
    read(filled, cpu_idle={"n0": 1, "n1": 8, "n2": 1})
    assert best(StaticRank(), filled) == "n1"
    filled.bound(pod("big", node="n1", memory_bytes=15 * GIB), 0)
    assert best(StaticRank(), filled) != "n1"


def test_static_rank_takes_a_missing_term_as_one_half() -> None:
    filled = state(3)
    scores = StaticRank().score(view(filled), filled.memory())
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 1


def test_warm_first_takes_an_idle_instance_then_the_image_then_the_fewest_per_core() -> None:
    filled = state(0)
    filled.put_node(node("n0", cpu_milli=2000))
    filled.put_node(node("n1", cpu_milli=8000))
    filled.put_node(node("n2", images=("docker.io/library/f:latest",)))
    filled.put_node(node("n3"))
    wanted = request(images=("docker.io/library/f:latest",))
    for uid, name in (("a", "n0"), ("b", "n1"), ("c", "n1"), ("d", "n2"), ("f", "n2"), ("e", "n3")):
        filled.bound(pod(uid, node=name), 0)
    assert best(WarmFirst(), filled, wanted) == "n2"
    filled.put_idle({"default/f": {"n0": 1}}, 1.0)
    assert best(WarmFirst(), filled, wanted) == "n0"
    filled.decided(request("next", images=wanted.images), "n0", 2.0)  # takes the instance
    assert best(WarmFirst(), filled, wanted) == "n2"
    assert best(WarmFirst(), filled, request()) == "n3"  # nothing warm for it: one pod on eight cores


def test_warm_first_prefers_the_larger_of_two_empty_nodes() -> None:
    filled = state(0)
    filled.put_node(node("n0", cpu_milli=2000))
    filled.put_node(node("n1", cpu_milli=8000))
    assert best(WarmFirst(), filled, request()) == "n1"
    for uid in ("a", "b", "c"):
        filled.bound(pod(uid, node="n1"), 0)
    filled.bound(pod("d", node="n1"), 0)  # five of eight cores with this one, against one of two
    assert best(WarmFirst(), filled, request()) == "n0"


@pytest.fixture
def faasrank(tmp_path: object) -> FaaSRank:
    return FaaSRank(write_untrained(tmp_path, "faasrank", np.random.default_rng(1)))  # type: ignore[arg-type]


def test_faasrank_has_the_papers_1409_parameters_a_network(faasrank: FaaSRank) -> None:
    assert faasrank.network.parameters == 1409


def test_faasrank_scores_any_number_of_nodes_and_each_by_itself(faasrank: FaaSRank) -> None:
    filled = state(50)
    read(filled, cpu_load_avg={f"n{i}": float(i) for i in range(50)})
    seen = view(filled)
    scores = faasrank.score(seen, filled.memory())
    shuffled = np.random.default_rng(2).permutation(50)
    again = faasrank.score(filled.view(request(), seen.rows[shuffled]), filled.memory())
    np.testing.assert_allclose(again, scores[shuffled], rtol=1e-5)
    alone = faasrank.score(filled.view(request(), seen.rows[:1]), filled.memory())
    np.testing.assert_allclose(alone, scores[:1], rtol=1e-5)


def test_faasrank_knows_nothing_of_a_node_without_readings(faasrank: FaaSRank) -> None:
    filled = state(3)
    read(filled)
    filled.put_node(node("n9"))
    scores = faasrank.score(view(filled), filled.memory())
    assert np.isnan(scores).tolist() == [False, False, False, True]


def test_the_encoder_keeps_the_papers_order_and_leaves_missing_missing() -> None:
    assert [f.name for f in FEATURES][:3] == ["cpu_user", "cpu_nice", "cpu_kernel"]
    assert (len(FEATURES), len(NODE_READINGS)) == (26, 21)
    filled = state(1)
    filled.bound(pod("a", node="n0"), 0)
    row = encode(view(filled, request(memory_bytes=MIB)))[0]
    assert row[COLUMN["inflight"]] == 1
    assert row[COLUMN["requested_memory"]] == MIB
    assert row[COLUMN["avail_memory"]] == 16 * GIB - 256 * MIB
    assert np.isnan(row[COLUMN["warm"]])
    assert np.isnan(row[COLUMN["init_time"]])
    assert np.isnan(row[:21]).all()


def test_the_registry_makes_every_rule_and_asks_for_a_model_where_one_is_needed() -> None:
    for entry in entries():
        assert REGISTRY.summary(entry)
        if is_learned(entry.name):
            with pytest.raises(ArtifactRefused, match="Missing"):
                make_policy(entry.name)
        else:
            assert make_policy(entry.name).name == entry.name
    assert [str(n) for n in PolicyName if is_learned(n)] == ["faasrank", "estimator-network"]


@pytest.mark.parametrize("name", [n for n in PolicyName if not is_learned(n)])
def test_a_row_wise_policy_judges_a_row_alike_whoever_else_is_a_candidate(name: PolicyName) -> None:
    policy = make_policy(name)
    filled = state(9)
    read(filled, cpu_load_avg={f"n{i}": float(i % 4) for i in range(9)})
    counts = Counter({f"n{i}": i % 3 for i in range(9)})
    for index, name_of in enumerate(counts.elements()):
        filled.bound(pod(f"p{index}", node=name_of), 0)
    seen = view(filled)
    whole = policy.score(seen, filled.memory())
    part = policy.score(filled.view(request(), seen.rows[2:5]), filled.memory())
    if policy.row_wise:
        np.testing.assert_allclose(part, whole[2:5])
    assert np.isfinite(whole).all()

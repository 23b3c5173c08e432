"""Kept scores, glimpses and shares: what the extender asks of the placement state besides views."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.builders import node, pod, read, request, state
from tiphys_models.artifacts.untrained import write_untrained
from tiphys_models.features.encoder import encode
from tiphys_models.placement.scores import ScoreCache
from tiphys_models.policies.faasrank import FaaSRank
from tiphys_models.policies.rules import LeastConnections


def test_a_row_judged_again_for_everybody_is_what_each_would_have_found(tmp_path: Path) -> None:
    filled = state(6)
    read(filled, cpu_load_avg={f"n{i}": 0.5 * i for i in range(6)})
    filled.put_idle({"default/f": {"n1": 2}, "default/g": {"n2": 1}}, 1.0)
    policy = FaaSRank(write_untrained(tmp_path, "m", np.random.default_rng(3)))
    cache = ScoreCache()
    wanted = [request(function=f"default/{name}", memory_bytes=size) for name in "fgh" for size in (2**27, 2**30)]
    rows = filled.nodes.rows([f"n{i}" for i in range(6)])
    for one in wanted:
        cache.score(policy, filled, one, rows)
    for index, name in enumerate(("n1", "n4", "n1")):
        filled.decided(request(f"new-{index}", function="default/f"), name, 2.0)
        row = filled.nodes.row_of[name]
        cache.refresh(filled, row)
        for one in wanted:
            entry = cache._entry(policy, filled, one)
            assert (entry.versions[rows] == filled.nodes.version[rows]).all()
            fresh = policy.score(filled.view(one, rows), filled.memory())
            np.testing.assert_allclose(cache.score(policy, filled, one, rows), fresh, rtol=1e-5, atol=1e-6)


def test_refreshing_without_a_learned_policy_does_nothing() -> None:
    filled = state(2)
    cache = ScoreCache()
    cache.refresh(filled, 0)
    rows = filled.nodes.rows(["n0", "n1"])
    cache.score(LeastConnections(), filled, request(), rows)
    filled.decided(request("x"), "n0", 1.0)
    cache.refresh(filled, int(rows[0]))
    assert cache.score(LeastConnections(), filled, request(), rows).tolist() == [-1.0, 0.0]


def test_a_glimpse_is_what_the_encoder_would_have_shown_at_that_moment() -> None:
    filled = state(3)
    read(filled, net_recv={"n1": 7.0})
    filled.put_idle({"default/f": {"n0": 2}}, 1.0)
    wanted = request()
    rows = filled.nodes.rows(["n1", "n0"])
    seen, expected = filled.glimpse(wanted, rows), encode(filled.view(wanted, rows))
    filled.decided(wanted, "n0", 2.0)
    read(filled)
    np.testing.assert_array_equal(seen.features(), expected)
    assert not np.array_equal(encode(filled.view(wanted, rows)), expected, equal_nan=True)


def test_a_confirmed_reservation_makes_no_score_stale_and_a_wrong_one_does() -> None:
    filled = state(3)
    for uid in ("right", "wrong"):
        filled.decided(request(uid), "n1", 1.0)
    before = filled.nodes.version.copy()
    filled.bound(pod("right", node="n1"), 2.0)
    assert filled.reservations == 1
    assert (filled.nodes.version == before).all()
    assert filled.expire(1e6) == 1  # the bound one does not lapse
    filled.decided(request("wrong"), "n1", 1.0)
    before = filled.nodes.version.copy()
    filled.bound(pod("wrong", node="n2"), 2.0)
    changed = np.flatnonzero(filled.nodes.version != before)
    assert set(changed.tolist()) == {filled.nodes.row_of["n1"], filled.nodes.row_of["n2"]}
    assert filled.nodes.inflight[filled.nodes.rows(["n1", "n2"])].tolist() == [1.0, 1.0]


def test_the_share_of_a_function_on_a_node_follows_every_event() -> None:
    filled = state(3)

    def crowded(percent: int, function: str = "default/f") -> set[str]:
        return {filled.nodes.names[row] for row in filled.crowded(function, percent)}

    assert crowded(1) == set()
    for index, name in enumerate(("n0", "n0", "n0", "n1")):
        filled.bound(pod(f"p{index}", node=name), 0.0)
    assert crowded(50) == {"n0"}
    assert crowded(75) == set()
    assert crowded(20) == {"n0", "n1"}
    assert crowded(50, "default/g") == set()
    filled.decided(request("r"), "n1", 0.0)
    assert crowded(39) == {"n0", "n1"}
    filled.finished("p0")
    filled.finished("p1")
    assert crowded(50) == {"n1"}
    filled.put_node(node("n3"))
    filled.drop_node("n1")
    assert crowded(20) == {"n0"}

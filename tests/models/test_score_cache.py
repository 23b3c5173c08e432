"""Kept scores, glimpses and shares: what the extender asks of the placement state besides views."""

from __future__ import annotations

import numpy as np

from tests.builders import node, pod, read, request, state
from tiphys_models.placement.encoder import encode


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

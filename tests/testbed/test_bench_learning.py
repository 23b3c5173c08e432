"""What learning costs: both states see the same pods, and only one of them learns."""

from __future__ import annotations

from tiphys_testbed.bench.learning import LearningPlan, _Stage, run

PLAN = LearningPlan(nodes=40, names=10, decisions=30, rounds=2)


def test_a_deaf_state_places_pods_and_learns_nothing_of_them() -> None:
    hearing, deaf = _Stage(PLAN, deaf=False), _Stage(PLAN, deaf=True)
    for stage in (hearing, deaf):
        stage.play(700)  # seven seconds: pods that run for five have ended
        assert abs(stage.state.pods - 500) <= 2
    believed = hearing.state.beliefs.learned.believed()
    assert len(hearing.state.beliefs.books) > 0
    assert len(deaf.state.beliefs.books) == 0
    assert not deaf.state.beliefs.learned.rows.any()
    assert (believed[:50] != deaf.state.beliefs.learned.believed()[:50]).any()


def test_rounds_are_paired_and_the_claim_is_their_difference() -> None:
    result = run(PLAN, lambda _: None)
    assert [(row["round"], row["learning"]) for row in result.rows] == [(0, "off"), (0, "on"), (1, "on"), (1, "off")]
    shares = {name: [row["core_share"] for row in result.rows if row["learning"] == name] for name in ("on", "off")}
    difference = (sum(shares["on"]) - sum(shares["off"])) / 2
    assert result.claims[0].value is not None
    assert abs(result.claims[0].value - difference) < 1e-4
    assert all(row["us_per_decision"] > 0 for row in result.rows)

"""An interval: what waits is planned, what ended is charged to who decided it, margin and limit hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import policy_object
from tests.operator.selection.small import START_S, Live, node, policy
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.routing import route_of
from tiphys_models.cloud.hosts import B2S, power_w
from tiphys_models.selectors.protocol import Choice
from tiphys_operator.selection.chooser import Chooser, hold
from tiphys_operator.selection.memory import load
from tiphys_operator.selection.prices import PriceTable

ONLY_COST = {"cost": 1, "energy": 0, "response": 0, "sla": 0}
ONLY_ENERGY = {"cost": 0, "energy": 1, "response": 0, "sla": 0}


def test_the_plan_names_a_slot_for_every_waiting_pod() -> None:
    live = Live()
    live.create(3)
    plan = live.interval().plan
    assert plan is not None
    (function,) = plan.functions
    assert function.function == "default/f"
    # the three pods, and the arrivals that the same again in the next interval would be
    assert sum(n.slots for n in function.nodes) >= 3
    assert (plan.policy_uid, plan.policy_generation, plan.planner) == ("policy-uid", 3, live.memory.active)


def test_pods_already_there_take_slots_of_their_own() -> None:
    live = Live(node("only"))
    live.create(1, "old", cores=0.1)
    live.bind("only")
    live.create(1, "new", cores=0.1)
    plan = live.interval().plan
    assert plan is not None
    (line,) = plan.functions[0].nodes
    expected = 1  # another one like the new pod; the old one ran before anybody looked
    assert (line.node, line.slots) == ("only", 1 + 1 + expected)


def test_plans_leave_out_nodes_that_pods_must_not_use() -> None:
    live = Live(node("tainted", usable=False), node("wrong", pool="a"), node("right", pool="b"))
    live.create(2, node_selector=(("pool", "b"),))
    plan = live.interval().plan
    assert plan is not None
    assert {n.node for f in plan.functions for n in f.nodes} == {"right"}


def test_a_plan_never_requests_more_cores_than_a_node_has() -> None:
    live = Live(*(node(f"b2s-{i}") for i in range(8)), weights=ONLY_COST)
    live.create(6, cores=1.5)
    plan = live.interval().plan
    assert plan is not None
    assert all(n.slots == 1 for n in plan.functions[0].nodes)


def test_cost_is_charged_to_the_decision_in_force_and_learned_when_its_pods_have_ended() -> None:
    live = Live()
    live.create(2)
    live.interval()
    decided = live.memory.active
    live.bind("b2s-0")
    assert live.interval().learned == ()
    account = live.memory.accounts[1]
    assert (account.pods, account.candidate) == (2, decided)
    assert account.usd == pytest.approx(10 * B2S.usd_per_hour / 3600, rel=1e-6)
    live.end()
    ((promised, measured),) = live.interval().learned
    assert promised is not None
    assert measured > 0
    status = live.memory.status
    assert (status.measured_interval, status.learned) == (1, 1)


def test_a_pod_that_came_and_went_between_two_looks_is_charged_once() -> None:
    live = Live()
    live.create(1, "long")
    live.interval()
    live.bind("b2s-0", "long")
    live.now_s += 3.0
    live.create(2, "short")
    live.bind("b2s-0", "short")
    live.now_s += 4.0
    live.end("short")
    spent = live.interval(3.0).spent
    assert (spent.ended, live.memory.accounts[1].pods) == (2, 3)
    assert live.memory.profiles["default/f"].run_s == pytest.approx(4.0)
    assert live.interval().spent.ended == 0
    assert live.memory.profiles["default/f"].runs == 2


def test_energy_follows_the_measured_use_of_a_node_where_there_is_one() -> None:
    joules = []
    for busy in ({}, {"b2s-0": 2.0}):
        live = Live()
        live.create(1)
        live.interval()
        live.bind("b2s-0")
        live.busy_cores = busy
        state = live.interval().state
        joules.append(live.memory.accounts[1].joules)
        assert state.utilisation.max() == (1.0 if busy else 0.25)
    assert joules == pytest.approx([10 * power_w(B2S.power_w, 0.25), 10 * B2S.power_w[-1]])


def test_other_pods_of_a_node_pay_their_share() -> None:
    live = Live()
    live.create(1, "mine", cores=0.5)
    live.interval()
    live.create(1, "theirs", cores=1.5, namespace="other")
    live.bind("b2s-0")
    live.interval()
    assert live.memory.accounts[1].usd == pytest.approx(10 * B2S.usd_per_hour / 3600 / 4, rel=1e-6)


@pytest.mark.parametrize(
    "select", [{}, {"by": "metanet", "among": ["arima-aco", "graf", "cost-lean", "one-per-host"]}, {"among": ["arima-aco", "lstm-aco"]}]
)
def test_a_restart_goes_on_as_if_nothing_had_happened(select: dict[str, Any]) -> None:
    """Killed after the checkpoint was written: the next leader's choices, books and online state are those of one that lived on."""
    lived, killed = Live(**select), Live(**select)
    for live in (lived, killed):
        live.create(3)
        live.interval()
        live.bind("b2s-0")
        live.create(2, "q")
        live.interval()
        live.end("p")
        live.interval()
    killed.memory = load(killed.memory.dump())
    killed.chooser = Chooser(killed.spec, killed.memory.learned)
    for live in (lived, killed):
        live.bind("b2s-1", "q")
        live.interval()
        live.end("q")
        live.create(4, "r")
        live.interval()
    assert killed.memory.dump() == lived.memory.dump()
    assert killed.memory.status.learned == lived.memory.status.learned > 0


def test_forecasters_look_back_over_a_restart() -> None:
    live = Live()
    for turn in range(3):
        live.create(1, f"t{turn}", cores=1.0)
        live.bind("b2s-0")
        before = live.interval().state.history
    live.memory = load(live.memory.dump())
    after = live.interval().state.history
    at = sorted(live.nodes).index("b2s-0")
    assert before[:, at].tolist() == [0.5, 1.0, 1.0]  # the last row is the interval that has just ended, as forecasters learned it
    assert after[:3].tolist() == before.tolist()


def test_planners_start_from_the_plan_before() -> None:
    live = Live()
    live.create(3)
    plan, state = live.interval().plan, live.interval().state
    assert plan is not None
    hosts = sorted(live.nodes)
    assert {hosts[i] for i in state.previous_host.tolist()} == {n.node for f in plan.functions for n in f.nodes}
    assert len(state.previous_application) == sum(n.slots for n in plan.functions[0].nodes)
    gone = live.memory.placed[0][1]
    del live.nodes[gone]
    assert gone not in {sorted(live.nodes)[i] for i in live.interval().state.previous_host.tolist()}


def test_pods_that_another_policy_decides_are_left_to_it() -> None:
    live = Live()
    rival = policy_object("rival", policy="hashing", selector={"matchLabels": {"app": "x"}})
    live.others = [route_of(rival)]
    live.create(2, "theirs", labels={"app": "x"})
    live.create(1, "mine")
    result = live.interval()
    assert set(live.memory.tracked) == {"mine-0"}
    assert result.plan is not None
    assert sum(n.slots for n in result.plan.functions[0].nodes) == 2  # one waits, one more is expected


def test_another_load_makes_another_candidate_the_best() -> None:
    """A small node is cheapest for one pod; several at once draw less together on a large one. The choice follows the load and comes back."""
    live = Live(
        *(node(f"b2s-{i}") for i in range(12)), node("b8ms-0", "B8ms"), among=["cost-lean", "energy-lean"],
        weights={"cost": 1, "energy": 1, "response": 0, "sla": 0},
    )  # fmt: skip
    seen = []
    for turn, count in enumerate((1, 6, 1)):
        live.pods.clear()
        live.create(count, f"w{turn}", cores=0.4)
        live.interval(600.0)  # long enough for the arrivals before to be forgotten
        seen.append(live.memory.active)
    assert seen == ["cost-lean", "energy-lean", "cost-lean"]
    status = live.memory.status
    assert (status.switches, len(live.memory.switches_at_s)) == (2, 2)
    assert status.last_switch is not None
    assert (status.last_switch.former, status.last_switch.to, status.last_switch.reason) == ("energy-lean", "cost-lean", "BestPredicted")
    assert {c.candidate for c in status.predicted_cost} == {"cost-lean", "energy-lean"}


def test_nothing_to_place_changes_nothing() -> None:
    live = Live()
    first = live.interval()
    assert (first.reason, live.memory.active) == (ChoiceReason.FIRST, "cost-lean")
    again = live.interval()
    assert (again.reason, again.switched, live.memory.accounts) == (ChoiceReason.NOTHING_TO_PLACE, False, {})


def test_without_a_usable_node_the_candidate_stays_and_its_plan_is_empty() -> None:
    live = Live()
    live.create(2)
    live.interval()
    active = live.memory.active
    live.bind("b2s-0")
    live.nodes = {name: replace(one, usable=False) for name, one in live.nodes.items()}
    live.create(1, "late")
    result = live.interval()
    assert (result.reason, live.memory.active) == (ChoiceReason.NO_USABLE_NODE, active)
    assert result.plan is not None
    assert result.plan.functions == []
    assert live.memory.accounts[1].usd > 0  # what runs on cordoned nodes is still paid
    live.nodes = {name: replace(one, usable=True) for name, one in live.nodes.items()}
    back = live.interval().plan
    assert back is not None
    assert back.functions


def test_a_cluster_without_nodes_is_looked_at_all_the_same() -> None:
    live = Live()
    live.nodes.clear()
    live.create(2)
    assert live.interval().reason == ChoiceReason.FIRST
    assert live.interval().reason == ChoiceReason.NO_USABLE_NODE


def test_a_node_that_goes_takes_its_pods_from_the_books_and_leaves_the_plan() -> None:
    live = Live(weights=ONLY_COST)
    live.create(2)
    plan = live.interval().plan
    assert plan is not None
    gone = plan.functions[0].nodes[0].node
    live.bind(gone)
    del live.nodes[gone]
    live.pods.clear()
    live.create(2, "again")
    after = live.interval().plan
    assert after is not None
    assert gone not in {n.node for f in after.functions for n in f.nodes}
    assert set(live.memory.tracked) == {"again-0", "again-1"}


def test_a_candidate_that_is_taken_off_the_list_gives_way_and_what_it_decided_is_still_settled() -> None:
    live = Live(among=["cost-lean", "one-per-host"], weights=ONLY_COST)
    live.create(2)
    live.interval()
    former = live.memory.active
    live.bind("b2s-0")
    live.interval()
    rest = sorted({"cost-lean", "one-per-host", "energy-lean"} - {former})
    live.route, live.spec = policy(among=rest, maxSwitchesPerHour=0, marginPercent=100)
    live.chooser = Chooser(live.spec)
    live.create(2, "q")
    result = live.interval()
    assert result.switched
    assert live.memory.active in rest
    live.end()
    live.interval()
    assert (live.memory.status.measured_candidate, live.memory.status.measured_interval) == (former, 1)


def test_frozen_policies_keep_their_candidate_and_learn_nothing() -> None:
    live = Live(weights=ONLY_COST)
    live.create(2)
    live.interval()
    active = live.memory.active
    live.route, live.spec = policy(freeze=True, weights=ONLY_ENERGY)
    live.chooser = Chooser(live.spec)
    live.bind("b2s-0")
    live.end()
    live.create(2, "q")
    frozen = live.interval()
    assert (frozen.reason, live.memory.active, frozen.learned) == (ChoiceReason.FROZEN, active, ())


def test_shadow_decisions_are_measured_on_nobody() -> None:
    live = Live(mode="Shadow")
    live.create(2)
    live.interval()
    live.bind("b2s-0")
    live.end()
    live.interval()
    assert live.interval().learned == ()


def test_a_placement_policy_is_a_candidate_without_a_plan() -> None:
    live = Live(among=["least-connections", "greedy"])
    live.create(2)
    result = live.interval()
    assert live.memory.active in ("least-connections", "greedy")
    assert result.plan is None
    assert live.memory.status.plan == ""


def test_deleted_pods_leave_the_books() -> None:
    live = Live()
    live.create(2)
    live.interval()
    live.pods.clear()
    live.interval()
    assert live.memory.tracked == {}


def test_due_times_follow_what_a_function_usually_runs() -> None:
    live = Live(slaFactor=2)
    for turn in range(3):
        live.create(1, f"t{turn}")
        live.interval()
        live.bind("b2s-0", f"t{turn}")
        live.now_s += 4.0
        live.end()
    live.interval(6.0)
    live.create(1, "last")
    live.interval()
    assert live.memory.tracked["last-0"].due_s == pytest.approx(2 * 4.0 + 1.0)


CHOICE = Choice("b", "BestPredicted", {"a": 10.0, "b": 9.0})


@pytest.mark.parametrize(
    ("active", "margin", "per_hour", "wanted"),
    [
        ("", 50, 0, ("b", ChoiceReason.BEST_PREDICTED)),
        ("a", 5, 1, ("b", ChoiceReason.BEST_PREDICTED)),
        ("a", 10, 1, ("a", ChoiceReason.WITHIN_MARGIN)),
        ("a", 5, 0, ("a", ChoiceReason.SWITCH_LIMIT)),
        ("gone", 50, 0, ("b", ChoiceReason.BEST_PREDICTED)),
    ],
)
def test_margin_and_limit_hold_the_active_candidate(active: str, margin: int, per_hour: int, wanted: tuple[str, ChoiceReason]) -> None:
    held = hold(CHOICE, active, ("a", "b"), margin, per_hour, [], START_S)
    assert (held.candidate, held.reason) == wanted


@pytest.mark.parametrize("reason", [ChoiceReason.FALLBACK, ChoiceReason.EXPLORING])
def test_a_selector_that_distrusts_itself_or_explores_is_not_held_by_its_own_predictions(reason: ChoiceReason) -> None:
    dear = Choice("b", reason, {"a": 9.0, "b": 10.0})
    assert hold(dear, "a", ("a", "b"), 5, 1, [], START_S).candidate == "b"
    assert hold(dear, "a", ("a", "b"), 5, 0, [], START_S).reason == ChoiceReason.SWITCH_LIMIT


def test_switches_of_more_than_an_hour_ago_do_not_count() -> None:
    assert hold(CHOICE, "a", ("a", "b"), 0, 1, [START_S - 3601], START_S).candidate == "b"
    assert hold(CHOICE, "a", ("a", "b"), 0, 1, [START_S - 3599], START_S).candidate == "a"


def test_a_checkpoint_nobody_can_read_is_a_beginning() -> None:
    assert load("{").interval == 0
    chooser = Chooser(policy()[1], "not base64")
    assert chooser.online_state()


def test_an_instance_type_without_a_price_is_still_a_host() -> None:
    live = Live(replace(node("odd"), instance_type="m7.huge"))
    live.create(1)
    assert live.interval().plan is not None


@pytest.mark.parametrize("by", ["metanet", "dqn"])
def test_learned_selectors_serve_nodes_of_any_type(by: str) -> None:
    """What they read of a state names no type; plans, previews and bills use cores, price and power curve of whatever there is."""
    among = ["cost-lean", "gobi", "one-per-host"]
    live = Live(*(node(f"m-{i}", "m7") for i in range(3)), node("g-0", "c9"), by=by, among=among)
    live.create(3, cores=0.4)
    plan = live.interval().plan
    assert plan is not None
    assert live.memory.active in among
    assert {c.candidate for c in live.memory.status.predicted_cost} == set(among)
    assert sum(n.slots for f in plan.functions for n in f.nodes) >= 3


def test_metanet_predicts_with_the_prices_of_the_nodes_that_are_there() -> None:
    costs = []
    for usd in (0.1, 1.0):
        live = Live(node("m-0", "m7"), by="metanet", among=["cost-lean", "one-per-host"], weights=ONLY_COST)
        live.prices = PriceTable({"m7": (usd, None)})
        live.create(2)
        live.interval()
        costs.append({c.candidate: c.cost for c in live.memory.status.predicted_cost}["cost-lean"])
    assert costs[1] > 3 * costs[0]


@pytest.mark.parametrize("by", ["metanet", "dqn", "ucb"])
def test_every_selector_chooses_from_a_live_cluster_and_survives_a_restart(by: str) -> None:
    live = Live(by=by, among=["cost-lean", "one-per-host", "energy-lean"])
    for turn in range(4):
        live.create(2, f"t{turn}")
        live.interval()
        live.bind("b2s-0")
        live.now_s += 5.0
        live.end()
    assert live.memory.status.learned > 0
    again = Chooser(live.spec, live.memory.learned)
    assert again.online_state() == live.memory.learned
    assert len(live.memory.learned) < 900_000

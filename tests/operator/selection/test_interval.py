"""An interval: what waits is planned, what ended is charged to who decided it, and a restart goes on with both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import policy_object
from tests.operator.selection.small import ONLY_COST, Live, node, policy
from tiphys_models.api.routing import route_of
from tiphys_models.selection.cloud.hosts import B2S, power_w
from tiphys_operator.selection.chooser import Chooser
from tiphys_operator.selection.memory import load


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


def test_shadow_decisions_are_measured_on_nobody() -> None:
    live = Live(policy_mode="Shadow")
    live.create(2)
    live.interval()
    live.bind("b2s-0")
    live.end()
    live.interval()
    assert live.interval().learned == ()


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


def test_a_checkpoint_nobody_can_read_is_a_beginning() -> None:
    assert load("{").interval == 0
    chooser = Chooser(policy()[1], "not base64")
    assert chooser.online_state()


def test_an_instance_type_without_a_price_is_still_a_host() -> None:
    live = Live(replace(node("odd"), instance_type="m7.huge"))
    live.create(1)
    assert live.interval().plan is not None

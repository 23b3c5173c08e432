from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from tests.selection.learned import network, surrogate, with_output
from tests.selection.small import state, tasks
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.base.network import Adam, AdamRates
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.hosts import make_fleet
from tiphys_models.selection.cloud.preview import preview
from tiphys_models.selection.cloud.score import DEFAULT, Divisors, Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.registry import HEURISTICS, make_planners
from tiphys_models.selection.selectors.checkpoint import MAX_BYTES, pack, unpack
from tiphys_models.selection.selectors.dqn import DQN
from tiphys_models.selection.selectors.encoding import GENERAL_NAMES
from tiphys_models.selection.selectors.guard import ENOUGH, PAUSE, Guard
from tiphys_models.selection.selectors.hold import SwitchRules, hold
from tiphys_models.selection.selectors.metanet import MetaNet
from tiphys_models.selection.selectors.metanet_paper import INPUTS, MetaNetPaper
from tiphys_models.selection.selectors.phi import Since
from tiphys_models.selection.selectors.protocol import Scored, Selector, take
from tiphys_models.selection.selectors.surrogate import UNITS, Surrogate, components, prices

REGIME = Divisors(cost_usd=0.48, energy_kwh=0.59, response_s=8.7, sla_violation=0.245, tasks=3167)
"""Of about the size of the regime workload's, and fixed: what a correction overcomes depends on prices, which are measured anew."""
FLEET = make_fleet()
NOW = state([(0, 0), (2, 1)], fleet=FLEET)
WAITING = tasks(0, 1, 4)


def metanet(model: Surrogate | None = None, weights: Weights = DEFAULT, **options: object) -> MetaNet:
    return MetaNet(model or surrogate(), weights, REGIME, make_planners(HEURISTICS), **options)  # type: ignore[arg-type]


def paper() -> MetaNetPaper:
    return MetaNetPaper(HEURISTICS, network((INPUTS, 64, 64, 3)), np.full(3, 1e-3), np.zeros((0, INPUTS + 2), np.float32), 5)


def dqn() -> DQN:
    return DQN(HEURISTICS, network((len(GENERAL_NAMES) + 4, 64, 64, 3)), DEFAULT, REGIME, 5)


MAKERS: dict[str, Callable[[], Selector]] = {"metanet": metanet, "metanet-paper": paper, "dqn": dqn}


def play(selector: Selector, first: int, last: int) -> list[str]:
    """Decisions over changing states; each is scored three decisions later, and what it cost depends on who decided."""
    chosen = []
    for decision in range(first, last):
        now = state([(decision % 7, h) for h in range(decision % 5)], fleet=FLEET, used_core_s=1.0 + decision % 3)
        now = replace(now, time_s=10.0 * decision)
        chosen.append(take(selector, decision, now, tasks(*range(1 + decision % 4)), HEURISTICS).candidate)
        if decision - 3 >= 0:
            rng = np.random.default_rng(decision)
            outcome = Outcome(2e-4 * rng.uniform(0.5, 2), 2000.0, 12.0 * rng.uniform(0.5, 2), 0.2, 2.0)
            selector.learn(Scored(decision - 3, outcome, float(components(outcome) @ prices(DEFAULT, REGIME))))
    return chosen


def test_any_weights_serve_without_training_anew() -> None:
    """The same model: whoever counts money alone packs, whoever counts watts alone takes large hosts, and so on."""
    found = [
        metanet(weights=w).choose(0, NOW, WAITING, HEURISTICS).candidate
        for w in (Weights(1, 0, 0, 0), Weights(0, 1, 0, 0), Weights(0, 0, 1, 0))
    ]
    assert found == list(HEURISTICS)


def test_only_what_is_offered_is_chosen_and_unknown_candidates_are_left_alone() -> None:
    cost_only = Weights(1, 0, 0, 0)
    assert metanet(weights=cost_only).choose(0, NOW, WAITING, ("energy-lean", "one-per-host")).candidate == "one-per-host"
    choice = metanet().choose(0, NOW, WAITING, ("mine", "yours"))
    assert (choice.candidate, choice.reason) == ("mine", "Fallback")


def test_what_the_networks_disagree_about_stays_with_the_fallback() -> None:
    cost_only = Weights(1, 0, 0, 0)
    free = metanet(fallback="one-per-host", weights=cost_only).choose(0, NOW, WAITING, HEURISTICS)
    assert (free.candidate, free.reason) == ("cost-lean", "BestPredicted")
    sure, unsure = surrogate(margin=1.0), with_output(surrogate(), "cost-lean", 0, np.array([5.0, 0.0, 0.0, 0.0]))
    split = replace(
        sure, networks=(*sure.networks, *with_output(surrogate(), "cost-lean", 0, np.array([-5.0, 0, 0, 0])).networks, *unsure.networks)
    )
    held = metanet(split, fallback="one-per-host", weights=cost_only).choose(0, NOW, WAITING, HEURISTICS)
    assert (held.candidate, held.reason) == ("one-per-host", "WithinMargin")
    assert held.predicted == pytest.approx(free.predicted)
    assert metanet(sure, fallback="one-per-host", weights=cost_only).choose(0, NOW, WAITING, HEURISTICS).candidate == "cost-lean"


def test_plans_that_were_only_looked_at_are_charged() -> None:
    choice = metanet(weights=Weights(1, 0, 0, 0)).choose(0, NOW, WAITING, HEURISTICS)
    assert choice.candidate == "cost-lean"
    assert choice.thinking_s == pytest.approx(scheduling_s("energy-lean", 3) + scheduling_s("one-per-host", 3)) != 0


def test_what_is_held_is_learned_from_as_executed() -> None:
    selector = metanet(weights=Weights(1, 0, 0, 0))
    choice = selector.choose(1, NOW, WAITING, HEURISTICS)
    held = hold(choice, "one-per-host", HEURISTICS, SwitchRules(0, 0), [], NOW.time_s)
    assert (choice.candidate, held.candidate, held.reason) == ("cost-lean", "one-per-host", "SwitchLimit")
    selector.commit(1, choice, held.candidate)
    selector.learn(Scored(1, Outcome(1.0, 1.0, 1.0, 1.0, 3.0), 1.0))
    assert selector.online_state()["counts"].tolist() == [0, 0, 1]


@dataclass(frozen=True)
class Always:
    """Everything to one host."""

    name: str
    host: int

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        return Plan(np.full(len(tasks), self.host))


def energy_lean_share(frozen: bool) -> tuple[float, float]:
    """Of the first 20 and the last 260 decisions of a model that believes energy-lean, on a dear host, to be (nearly) free."""
    planners = {name: Always(name, host) for name, host in zip(HEURISTICS, (10, 80, 20), strict=True)}
    free = np.array([-3.0, 0.0, 0.0, 0.0])
    model = with_output(with_output(surrogate(), "energy-lean", 0, free), "energy-lean", 1, free)
    selector = MetaNet(model, Weights(0.7, 0.1, 0.1, 0.1), REGIME, planners, fallback="cost-lean", frozen=frozen)
    true = {name: preview(NOW, WAITING, planner.assign(NOW, WAITING, 0), 0.0025) for name, planner in planners.items()}
    names = []
    for decision in range(1000):
        names.append(take(selector, decision, NOW, WAITING, HEURISTICS).candidate)
        selector.learn(Scored(decision, true[names[-1]], 0.0))
    return names[:20].count("energy-lean") / 20, names[-260:].count("energy-lean") / 260


def test_a_belief_that_is_wrong_is_corrected_online() -> None:
    assert energy_lean_share(frozen=False) == (1.0, 0.0)


def test_a_frozen_model_that_breaks_its_promises_is_held_at_its_fallback() -> None:
    early, late = energy_lean_share(frozen=True)
    assert early == 1.0
    assert late <= 1.3 * ENOUGH / (ENOUGH + PAUSE)


def test_the_guard_trusts_promises_that_are_kept() -> None:
    guard = Guard()
    rng = np.random.default_rng(0)
    for _ in range(500):
        guard.scored(True, 1.0, float(rng.normal(0.5, 2.0)))
        guard.scored(False, 0.0, float(rng.normal(0.5, 2.0)))  # what misses everywhere is nobody's fault
    assert guard.sums[5] == 0
    for _ in range(500):
        guard.scored(True, 1.0, float(rng.normal(3.5, 2.0)))
        guard.scored(False, 0.0, 0.5)
        if guard.holds:
            break
    assert guard.sums[5] == PAUSE
    for _ in range(PAUSE):
        guard.decided()
    assert not guard.holds


@pytest.mark.parametrize("name", MAKERS)
def test_online_learning_survives_a_restart(name: str) -> None:
    first, second = MAKERS[name](), MAKERS[name]()
    play(first, 0, 40)
    second.restore(unpack(pack(first.online_state())))
    again = {key: array.tolist() for key, array in second.online_state().items()}
    assert again == {key: array.tolist() for key, array in first.online_state().items()}
    fresh = MAKERS[name]().online_state()
    assert any(array.shape != fresh[key].shape or (array != fresh[key]).any() for key, array in first.online_state().items())
    play(second, 40, 60)  # and goes on


def test_a_restarted_metanet_chooses_as_one_that_was_never_stopped() -> None:
    whole, stopped, resumed = metanet(), metanet(), metanet()
    expected = play(whole, 0, 60)
    assert len(set(expected)) > 1
    before = play(stopped, 0, 30)
    resumed.restore(unpack(pack(stopped.online_state())))
    assert before + play(resumed, 30, 60) == expected
    assert resumed.online_state()["drift"].tolist() == whole.online_state()["drift"].tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_checkpoints_of_another_model_are_refused(name: str) -> None:
    arrays = MAKERS[name]().online_state()
    key = next(iter(arrays))
    for wrong in ({}, {**arrays, "more": np.zeros(2)}, {**arrays, key: np.zeros((2, 2, 2, 2))}):
        with pytest.raises(ArtifactRefused, match="CheckpointInvalid"):
            MAKERS[name]().restore(wrong)


@pytest.mark.parametrize("text", ["?", "aGVsbG8=", pack({"drift": np.array([np.nan])}), pack({"drift": np.array([1])})])
def test_broken_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(ArtifactRefused, match="CheckpointInvalid"):
        unpack(text)


def test_checkpoints_fit_into_a_config_map() -> None:
    for name, make in MAKERS.items():
        selector = make()
        play(selector, 0, 130)
        assert len(pack(selector.online_state())) < MAX_BYTES, name
    with pytest.raises(ArtifactRefused, match="TooLarge"):
        pack({"a": np.zeros(MAX_BYTES)})
    with pytest.raises(ArtifactRefused, match="TooLarge"):
        unpack("a" * (MAX_BYTES + 4))


def test_decisions_before_a_restart_without_checkpoint_teach_nothing() -> None:
    for make in MAKERS.values():
        selector = make()
        before = {key: array.tolist() for key, array in selector.online_state().items()}
        selector.learn(Scored(99, Outcome(1, 1, 1, 1, 1), 1.0))
        assert {key: array.tolist() for key, array in selector.online_state().items()} == before


def test_the_papers_label_is_cost_over_completions() -> None:
    then = state([(0, 0), (1, 1)], fleet=FLEET)
    since = Since.at(then, WAITING, scheduling_s=2.0)
    used = np.zeros((3, 100))
    used[1:, 0], used[2, 60] = 0.4, 0.2  # B2s twice, B4ms once, in the two intervals since
    now = replace(state([(0, 0)], fleet=FLEET), time_s=then.time_s + 20, history=used)
    left = tasks(0, age_s=20.0)  # still waiting; with one running, three of five have ended
    usd = (2 * 0.0472 + 0.166) * 10 / 3600 + 2.0 * 1.5 * 1.6e-5
    assert since.phi(now, left) == pytest.approx(usd / 3)
    nobody = replace(state([(0, 0), (1, 1), (0, 2), (1, 3), (4, 4)], fleet=FLEET), time_s=then.time_s + 20, history=used)
    assert since.phi(nobody, tasks()) == pytest.approx(usd)


def test_the_papers_network_learns_the_executed_policy_only() -> None:
    selector = paper()
    chosen = play(selector, 0, 120)
    taken = set(selector.online_state()["memory"][:, 0].astype(int))
    assert {HEURISTICS[i] for i in taken} == set(chosen[-97:-1])


def test_dqn_prefers_what_was_rewarded() -> None:
    selector = dqn()
    costs = {"cost-lean": 3.0, "energy-lean": 0.2, "one-per-host": 3.0}
    unit = float((prices(DEFAULT, REGIME) * UNITS).sum())
    names = []
    for decision in range(500):
        names.append(take(selector, decision, NOW, WAITING, HEURISTICS).candidate)
        selector.learn(Scored(decision, Outcome(), costs[names[-1]] * unit))
    assert names[-150:].count("energy-lean") > 120


def test_networks_of_one_seed_are_equal_and_steps_go_downhill() -> None:
    net, rows = network((5, 8, 3)), np.random.default_rng(1).normal(size=(16, 5))
    wanted = np.random.default_rng(2).normal(size=(16, 3))
    optimiser, losses = Adam(net, AdamRates(lr=0.01)), []
    for _ in range(200):
        found = net.activations(rows)
        losses.append(float(((found[-1] - wanted) ** 2).mean()))
        optimiser.step(net.gradient(found, 2 * (found[-1] - wanted) / wanted.size))
    assert losses[-1] < 0.2 * losses[0]
    assert sum(b > a for a, b in pairwise(losses)) < 60

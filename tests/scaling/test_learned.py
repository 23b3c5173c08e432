from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.states import state
from tests.scaling.test_recurrence import jumps
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.base.network import Network
from tiphys_models.scaling.encoding import NAMES, WIDTH, encode
from tiphys_models.scaling.learned import LearnedAgent, load_agent, moves_of
from tiphys_models.scaling.moves import Moves
from tiphys_models.scaling.protocol import decide
from tiphys_models.scaling.recurrence import recurrence
from tiphys_models.scaling.registry import entries, make_agent
from tiphys_models.scaling.rules import Rule, RuleSetting
from tiphys_models.scaling.seen import seen_of

PLAIN = {"headroom": 1.0, "last": 1.0, "rise": 0.0, "keep": 1.0}
COMBINED, VERTICAL = moves_of("combined", PLAIN), moves_of("dqn-vertical")


def preferring(moves: Moves, action: int, by: float = 1.0, margin: float = 0.0) -> LearnedAgent:
    """A network that likes one action, whatever it sees."""
    bias = np.zeros(len(moves.actions) + 1)
    bias[1 + action] = by
    return LearnedAgent("mine", moves, Network([(np.zeros((moves.width, len(bias))), bias)]), True, 1.0, margin)


def test_the_stay_action_gives_the_size_of_the_rule() -> None:
    seen = state(100.0, 240.0, 300.0)
    rule = decide(Rule(RuleSetting(headroom=1.0, last=1, rise=0.0, keep=1)), seen)
    same = decide(preferring(COMBINED, COMBINED.stay), seen)
    assert (same.replicas, same.cpu_m) == (rule.replicas, rule.cpu_m)
    assert same.reason == "BestValue"
    assert set(same.values) < set(COMBINED.actions)  # nothing recurs: that action has no value


def test_multiples_peaks_and_expectations_size_what_they_say() -> None:
    calm = state(120.0, 120.0)
    double = COMBINED.actions.index("rule x 2")
    assert decide(preferring(COMBINED, double), calm).cpu_m == 400
    after_a_peak = state(600.0, 120.0, 120.0, replicas=2)
    peak = COMBINED.actions.index("peak x 0.6")
    held = decide(preferring(COMBINED, peak), after_a_peak)
    assert held.replicas * held.cpu_m == pytest.approx(0.6 * 600 / 0.6, abs=2)
    rates = jumps(24.0, 5.0, 5 + 3 * 24)
    before_the_jump, saving = (
        decide(preferring(COMBINED, COMBINED.actions.index(name)), state(*rates, replicas=3)) for name in ("expected", "expected x 0.95")
    )
    assert before_the_jump.action == "expected"
    assert before_the_jump.replicas * before_the_jump.cpu_m > 3 * rates[-1] / 0.6
    assert saving.replicas * saving.cpu_m == pytest.approx(0.95 * before_the_jump.replicas * before_the_jump.cpu_m, rel=0.03)


def test_what_is_promised_lets_pods_go_at_the_end_of_a_jump() -> None:
    keeping = moves_of("combined", PLAIN | {"keep": 4.0})
    in_its_last_window = jumps(24.0, 5.0, 5 + 3 * 24 + 6, length=5.8)
    rule, promised = (
        decide(preferring(keeping, action), state(*in_its_last_window, replicas=3))
        for action in (keeping.stay, keeping.actions.index("expected"))
    )
    assert rule.replicas > 1
    assert promised.replicas == 1
    assert promised.cpu_m < rule.cpu_m * rule.replicas / 3


def test_pods_that_start_carry_nothing_yet() -> None:
    rule = decide(Rule(RuleSetting(headroom=1.0, last=1, rise=0.0, keep=1)), state(360.0))
    agent = preferring(COMBINED, COMBINED.stay)
    starting, started = decide(agent, state(360.0)), decide(agent, state(360.0, replicas=2))
    assert rule.replicas == starting.replicas == started.replicas == 2
    assert (starting.cpu_m, started.cpu_m, rule.cpu_m) == (600, 300, 300)
    assert decide(agent, state(360.0, replicas=2, ready=0)).cpu_m == 300


def test_nobody_gives_up_while_requests_are_late_or_wait() -> None:
    for moves in (COMBINED, VERTICAL):
        for newest in ({"late": 0.4}, {"in_flight": 900.0}):
            look = moves.look(seen_of([state(120.0, 120.0, newest=newest)]))
            assert not moves.possible(look)[0, : moves.stay].any()
            assert moves.possible(look)[0, moves.stay]
        assert moves.possible(moves.look(seen_of([state(120.0, 120.0)])))[0, : moves.stay].all()
    overwhelmed = decide(preferring(VERTICAL, 0), state(250.0, 250.0, cpu_m=60, newest={"late": 0.9}))
    assert overwhelmed.cpu_m >= 1.3 * 60
    at_the_top = decide(preferring(VERTICAL, VERTICAL.stay), state(500.0, 500.0, cpu_m=640, newest={"late": 0.9}))
    assert at_the_top.cpu_m == 640


def test_the_gate_keeps_the_rule_below_its_margin() -> None:
    action = COMBINED.actions.index("rule x 2")
    small = decide(preferring(COMBINED, action, by=0.1, margin=0.2), state(120.0, 120.0))
    assert (small.reason, small.cpu_m, small.action) == ("KeptRule", 200, "")
    assert decide(preferring(COMBINED, action, by=0.3, margin=0.2), state(120.0, 120.0)).reason == "BestValue"


@pytest.mark.parametrize("cpu_m", [50, 70, 100, 300, 630])
def test_a_step_of_the_limit_is_at_least_one_step_of_size(cpu_m: int) -> None:
    found = [decide(preferring(VERTICAL, k), state(30.0, 30.0, cpu_m=cpu_m)).cpu_m for k in range(len(VERTICAL.actions))]
    assert found[VERTICAL.stay] == cpu_m
    assert max(found[: VERTICAL.stay]) <= cpu_m - 10
    assert min(found[VERTICAL.stay + 1 :]) >= cpu_m + 10
    assert found == sorted(found)


def test_three_services_move_together() -> None:
    moves = moves_of("dqn-horizontal-3")
    assert len(moves.actions) == 27
    agent = LearnedAgent("mine", moves, Network([(np.zeros((15, 27)), np.arange(27.0))]), False, 1.0)
    answers = agent.answer(seen_of([state(100.0, replicas=r) for r in (1, 2, 3)]))
    assert answers.replicas.tolist() == [2, 3, 4]
    assert moves.actions[moves.stay] == "+0/+0/+0"


@given(
    rates=st.lists(st.floats(0, 3000), min_size=1, max_size=40), late=st.one_of(st.none(), st.floats(0, 1)),
    p90=st.one_of(st.none(), st.floats(0.001, 30)), waiting=st.one_of(st.none(), st.floats(0, 1e5)), ready=st.integers(0, 4),
)  # fmt: skip
def test_inputs_are_finite_and_bounded_whatever_is_missing(
    rates: list[float], late: float | None, p90: float | None, waiting: float | None, ready: int
) -> None:
    seen = seen_of([state(*rates, replicas=4, ready=ready, newest={"late": late, "p90_s": p90, "in_flight": waiting})])
    inputs = encode(seen, recurrence(seen), np.array([3.0]))
    assert inputs.shape == (1, WIDTH) == (1, len(NAMES))
    assert np.isfinite(inputs).all()
    assert np.abs(inputs).max() <= 4


def test_a_service_ten_times_as_large_looks_the_same() -> None:
    small, large = (
        state(*(f * r for r in (30.0, 45.0, 60.0)), cpu_m=f * 60, newest={"in_flight": 0.0, "used_cpu_m": f * 90}) for f in (1, 10)
    )
    first, second = (encode(seen_of([s]), recurrence(seen_of([s])), np.ones(1)) for s in (small, large))
    same = [i for i, name in enumerate(NAMES) if name != "limit over largest"]
    np.testing.assert_allclose(first[0, same], second[0, same], atol=1e-9)


def test_artifacts_are_checked_before_they_decide(tmp_path: Path) -> None:
    moves = moves_of("q-table")
    arrays = Network([(np.eye(5)[:, :3], np.zeros(3))]).arrays()
    said = {"hidden": (), "dueling": False, "prices": ((4.0, 0.9),)}
    write_tensors(tmp_path, "mine", "q-table", moves.schema, arrays, **said)
    agent = load_agent(tmp_path / "mine.json")
    assert agent.digest == sha256((tmp_path / "mine.safetensors").read_bytes()).hexdigest()
    assert decide(agent, state(400.0, replicas=1)).values.keys() == {"-1", "0", "+1"}
    write_tensors(tmp_path, "other", "combined", moves.schema, arrays, **said, rule=PLAIN)
    with pytest.raises(ArtifactRefused, match="SchemaMismatch"):
        load_agent(tmp_path / "other.json")
    for name, policy, more in (("stranger", "magic", {}), ("unruly", "combined", {"rule": {"height": 1.0}})):
        write_tensors(tmp_path, name, policy, moves.schema, arrays, **{**said, **more})
        with pytest.raises(ArtifactRefused, match="CardInvalid"):
            load_agent(tmp_path / f"{name}.json")
    with pytest.raises(ArtifactRefused, match="Missing"):
        load_agent(tmp_path / "nowhere.json")
    (tmp_path / "mine.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ArtifactRefused, match="DigestMismatch"):
        load_agent(tmp_path / "mine.json")


@pytest.mark.parametrize("hidden", [(1_025,), (1_024, 1_024, 8), (8,) * 6, (10**9,)])
def test_an_agent_whose_network_would_delay_windows_is_refused_before_its_weights_are_read(tmp_path: Path, hidden: tuple[int, ...]) -> None:
    moves = moves_of("q-table")
    arrays = Network([(np.eye(5)[:, :3], np.zeros(3))]).arrays()
    write_tensors(tmp_path, "mine", "q-table", moves.schema, arrays, hidden=hidden, dueling=False, prices=((4.0, 0.9),))
    with pytest.raises(ArtifactRefused, match="TooMuchWork"):
        load_agent(tmp_path / "mine.json")


@pytest.mark.parametrize("name", [e.name for e in entries() if e.learned])
def test_shipped_agents_serve_one_and_many_alike(name: str) -> None:
    agent = make_agent(name, 0.95)
    states = [state(*(base * m for m in (1, 1, 3, 3, 1)), replicas=2, cpu_m=300) for base in (50.0, 150.0, 260.0)]
    together = agent.answer(seen_of(states))
    for i, one in enumerate(states):
        found = decide(agent, one)
        assert (found.replicas, found.cpu_m) == (int(together.replicas[i]), int(together.cpu_m[i]))
        assert found.values


@pytest.mark.skipif("combined" not in {e.name for e in entries()}, reason="combined has no weights here")
def test_a_dearer_attainment_never_has_a_lower_price() -> None:
    prices = []
    for wanted in (0.5, 0.9, 0.95, 0.99):
        agent = make_agent("combined", wanted)
        assert isinstance(agent, LearnedAgent)
        prices.append(agent.price)
    assert prices == sorted(prices)

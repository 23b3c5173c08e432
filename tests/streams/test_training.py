"""What needs torch: networks equal their numpy twins, and what there is to learn is learned."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")
pytest.importorskip("torch")

import torch

from tiphys_cli.app import app
from tiphys_models.streams.agent import ACTIONS, FEATURES, agent_of
from tiphys_models.streams.kernels import WEIGHTS
from tiphys_models.streams.paper import HISTORY, SHAPES, WIDTH, PaperAgent, WindowHistory, load_paper
from tiphys_models.streams.sim.choosers import agent_actions
from tiphys_models.streams.sim.episode import Action, QueryFractions, StreamEpisode
from tiphys_models.streams.sim.kernel import EdgeCloud, Streams
from tiphys_models.streams.sim.search import Course
from tiphys_models.streams.sim.workloads import NAMES
from tiphys_models.streams.train import dqn
from tiphys_models.streams.train.agents import NEVER, card_of, chosen_margin, lower_bound, regress
from tiphys_models.streams.train.clones import Lessons, gather
from tiphys_models.streams.train.dqn import Memory, PaperPreset, epsilon_of, train_paper
from tiphys_models.streams.train.net import ConvQ
from tiphys_models.streams.train.presets import Preset


def test_the_paper_s_network_is_served_as_it_was_trained() -> None:
    net = ConvQ(3)
    arrays = net.arrays()
    assert {name: a.shape for name, a in arrays.items()} == dict(SHAPES)
    history = np.random.default_rng(0).normal(size=(WIDTH, HISTORY)).astype(np.float32)
    with torch.no_grad():
        expected = net(torch.as_tensor(history[None]))[0].numpy()
    assert PaperAgent(arrays).values(history) == pytest.approx(expected, abs=1e-5)


def test_one_seed_trains_one_network() -> None:
    short = PaperPreset(episodes=1, batch=16)
    first, again = train_paper(short, 0, lambda _: None), train_paper(short, 0, lambda _: None)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["dense.1.bias"], ConvQ(0).arrays()["dense.1.bias"])


def test_sampled_states_are_those_that_the_agent_saw_whatever_was_overwritten() -> None:
    rng, memory = np.random.default_rng(0), Memory(20)
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for length in (1, 1, 30, 3, 12, 1, 1, 1, 9):
        history, window = WindowHistory(), rng.integers(0, 9, WIDTH).astype(np.float64)
        memory.begin(window)
        state = history.push(window)
        for step in range(length):
            following = history.push(window := rng.integers(0, 9, WIDTH).astype(np.float64))
            memory.push(len(seen), 0.5, window, ended=step == length - 1)
            seen.append((state, following))
            state = following
            kept = np.arange(len(memory.steps))
            wanted = [np.array(each) for each in zip(*(seen[n] for n in memory.steps["taken"][kept]), strict=True)]
            assert all(np.array_equal(a, b) for a, b in zip(memory.states(kept), wanted, strict=True))
    assert sorted(memory.steps["taken"]) == list(range(len(seen) - 20, len(seen)))


def test_a_full_memory_of_the_shortest_episodes_keeps_all_their_windows() -> None:
    memory = Memory(5)
    for number in range(40):
        memory.begin(np.full(WIDTH, 2.0 * number))
        memory.push(number, 0.0, np.full(WIDTH, 2.0 * number + 1), ended=True)
    state, following = memory.states(np.arange(5))
    assert sorted(state[:, 0, -1]) == [70, 72, 74, 76, 78]
    assert (following[:, 0, -2] == state[:, 0, -1]).all()
    assert not state[:, :, :-1].any()


def test_chance_decides_less_and_less_and_never_nothing() -> None:
    preset = PaperPreset(episodes=10, epsilon_end=0.1, decay_share=0.5)
    assert [epsilon_of(preset, number) for number in (0, 1, 4, 5, 9)] == pytest.approx([1.0, 0.82, 0.28, 0.1, 0.1])


@pytest.mark.parametrize(("least_success", "windows"), [(1.1, 3), (0.0, 3 * 4)])
def test_an_episode_ends_after_a_window_with_too_little_success(
    least_success: float, windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[float] = []

    class Short(StreamEpisode):
        def __init__(self, world: EdgeCloud, streams: Streams) -> None:
            super().__init__(world, streams, horizon_s=20.0)

        def window(self, action: Action, length_s: float = 5.0) -> QueryFractions:
            played.append(self.now_s)
            return super().window(action, length_s)

    monkeypatch.setattr(dqn, "Episode", Short)
    train_paper(PaperPreset(episodes=3, least_success=least_success), 0, lambda _: None)
    assert len(played) == windows


def test_advantages_that_follow_from_what_is_seen_are_learned() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(3000, FEATURES))
    advantages = np.zeros((3000, len(ACTIONS)))
    advantages[:, 3] = np.sign(features[:, 5])
    network, mean, scale = regress(Lessons(features, advantages), Preset("aset", epochs=10), 0, lambda _: None)
    arrays = {"weights": np.zeros(WEIGHTS), "table": np.zeros(len(NAMES)), "mean": mean, "scale": scale}
    arrays |= {f"net.{i}.{part}": a for i, layer in enumerate(network) for part, a in zip(("weight", "bias"), layer, strict=True)}
    agent = agent_of("aset", card_of("aset", 2, 0.4), arrays)
    tried = rng.normal(size=(200, FEATURES))
    chosen = np.array([agent.choose(row) for row in tried])
    assert ((chosen == 3) == (tried[:, 5] > 0)).mean() > 0.8


def test_labels_compare_actions_on_the_same_future() -> None:
    preset = Preset("aset", episodes=1, labelled=3, horizon=2)
    actions = agent_actions(np.ones(WEIGHTS), [0] * len(NAMES))
    lessons = gather(Course(lambdas=(20.0,)), preset, actions, 2, np.random.default_rng(0))
    assert lessons.advantages.shape == (3, len(ACTIONS))
    assert not lessons.advantages[:, 2].any()  # the base over itself
    assert lessons.advantages[:, 0] == pytest.approx(lessons.advantages[:, -1])  # a table of `closest` is `closest`


def test_switching_is_taken_only_where_it_certainly_gains() -> None:
    fixed = {NEVER: (0.80, 0.0)}
    lucky = np.array([0.02, -0.01, 0.02, -0.01])  # gains in the mean, as much by chance as not
    assert lucky.mean() > 0 > lower_bound(lucky)
    assert chosen_margin(fixed | {0.0: (0.805, lower_bound(lucky))}) == NEVER
    assert chosen_margin(fixed | {0.0: (0.81, 0.001), 0.1: (0.82, 0.004), 0.2: (0.83, -0.001)}) == 0.1


def test_the_paper_s_agent_is_trained_and_written_by_the_command(tmp_path: Path) -> None:
    arguments = ["train", "binding", "--preset", "aset-paper", "--episodes", "1", "--seeds", "0", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    card = tmp_path / "seeds" / "aset-paper-0.json"
    assert load_paper(card).arrays.keys() == SHAPES.keys()
    assert json.loads(card.read_text())["training"]["episodes"] == 1
    assert not (tmp_path / "aset-paper.json").exists()  # a comparator: no seed is chosen


@pytest.mark.parametrize(("preset", "message"), [("magic", "no preset is called 'magic'"), ("aset", "--episodes is for aset-paper only")])
def test_bad_inputs_of_training_end_with_one_clear_line(preset: str, message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "binding", "--preset", preset, "--episodes", "1", "--out", str(tmp_path)])
    assert (result.exit_code, message in result.stderr) == (2, True)

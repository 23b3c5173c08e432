from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tiphys_models.lab.dqn import Batch, follow, loss, wanted  # noqa: E402


def batch(**changed: object) -> Batch:
    plain = {"inputs": torch.zeros(2, 1), "action": torch.tensor([0, 1]), "reward": torch.tensor([1.0, 2.0]), "after": torch.zeros(2, 1)}
    return Batch(**{**plain, **changed})


TARGET = torch.tensor([[10.0, 20.0, 30.0], [10.0, 20.0, 30.0]])
ONLINE = torch.tensor([[5.0, 9.0, 0.0], [0.0, 1.0, 7.0]])


def test_by_the_double_rule_the_network_takes_the_action_and_the_target_says_what_it_is_worth() -> None:
    assert wanted(batch(), lambda _: TARGET, 0.5, lambda _: ONLINE).tolist() == [1 + 10, 2 + 15]
    assert wanted(batch(), lambda _: TARGET, 0.5).tolist() == [1 + 15, 2 + 15]


def test_actions_that_there_are_not_are_never_taken_and_nothing_follows_an_end() -> None:
    possible = torch.tensor([[True, False, True], [True, True, False]])
    assert wanted(batch(possible=possible), lambda _: TARGET, 0.5, lambda _: ONLINE).tolist() == [1 + 5, 2 + 10]
    going_on = torch.tensor([1.0, 0.0])
    assert wanted(batch(going_on=going_on), lambda _: TARGET, 0.5, lambda _: ONLINE).tolist() == [1 + 10, 2]


def test_the_loss_is_of_the_actions_taken() -> None:
    assert float(loss(TARGET, batch(), torch.tensor([10.0, 21.0]))) == pytest.approx(0.25)  # (0 + 1/2) / 2


def test_a_target_follows_by_its_share() -> None:
    target, online = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    before, there = float(target.bias.detach()), float(online.bias.detach())
    follow(target, online, 0.25)
    assert float(target.bias.detach()) == pytest.approx(before + 0.25 * (there - before))

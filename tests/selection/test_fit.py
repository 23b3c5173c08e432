from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from tiphys_models.lab.fit import Fitted, fit
from tiphys_models.selection.train.surrogate_nets import HostNetwork


def fitted() -> tuple[HostNetwork, Fitted]:
    generator = torch.Generator().manual_seed(4)
    x = torch.rand(600, 3, generator=generator)
    y = (x[:, :1] * 2 - x[:, 1:2]).repeat(1, 2)
    network = HostNetwork((3, 8, 8, 8, 2), generator)
    told: list[str] = []

    def loss(rows: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return ((network(rows) - answers) ** 2).mean()

    found = fit(network, (x, y), loss, generator, told.append, epochs=40, rate=2e-2, batch=64)
    assert len(told) == 40
    with torch.no_grad():
        assert float(loss(x, y)) < 0.2 * float(y.var())
    return network, found


def test_a_network_learns_and_the_same_seed_learns_the_same() -> None:
    (first, one), (second, two) = fitted(), fitted()
    assert one == two
    assert all((a == b).all() for a, b in zip(first.arrays().values(), second.arrays().values(), strict=True))

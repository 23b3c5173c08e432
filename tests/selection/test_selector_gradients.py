"""Gradients and optimiser of our own, against autograd."""

from __future__ import annotations

import numpy as np
import pytest

from tests.selection.learned import network
from tiphys_models.base.network import Adam, Network
from tiphys_models.selection.selectors.dqn import target_slope
from tiphys_models.selection.selectors.drift import PRIOR, Drift
from tiphys_models.selection.selectors.metanet_paper import INPUTS, estimate_slope
from tiphys_models.selection.selectors.surrogate import UNITS

torch = pytest.importorskip("torch")
from tiphys_models.lab.nets import Trunk  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def optimisers_imported() -> None:
    """The first optimiser of a process imports for seconds, outside of any test's time limit."""
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).step()


RNG = np.random.default_rng(3)


def twins(widths: tuple[int, ...]) -> tuple[Network, Trunk]:
    mine = network(widths, seed=4)
    other = Trunk(widths, 0).double()
    other.load_layers(mine.layers)
    return mine, other


def compare(mine: Network, other: Trunk, rows: np.ndarray, slope: np.ndarray) -> None:
    found = mine.gradient(mine.activations(rows), slope)
    wanted = [p.grad.numpy() for p in other.parameters()]
    for (weight, bias), w, b in zip(found, wanted[::2], wanted[1::2], strict=True):
        np.testing.assert_allclose(weight, w.T, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(bias, b, rtol=1e-9, atol=1e-14)
    assert any(np.abs(weight).max() > 0 for weight, _ in found)


def test_the_forward_pass_equals_that_of_torch() -> None:
    mine, other = twins((7, 16, 16, 3))
    rows = RNG.normal(size=(9, 7))
    np.testing.assert_allclose(mine(rows), other(torch.as_tensor(rows)).detach().numpy(), rtol=1e-12)
    for (w, b), (v, c) in zip(mine.layers, other.layers(), strict=True):
        assert (w == v).all()
        assert (b == c).all()


def test_the_gradient_of_the_papers_loss_equals_that_of_torch() -> None:
    mine, other = twins((INPUTS, 64, 64, 4))
    rows, taken = RNG.normal(size=(32, INPUTS)), RNG.integers(4, size=32)
    phi, phi_max = RNG.uniform(1e-4, 2e-3, 32), RNG.uniform(1e-3, 3e-3, 4)
    y = torch.sigmoid(other(torch.as_tensor(rows)))[torch.arange(32), torch.as_tensor(taken)]
    error = (y * torch.as_tensor(phi_max[taken]) - torch.as_tensor(phi)) / phi_max.mean()
    (error**2).mean().backward()
    compare(mine, other, rows, estimate_slope(mine(rows), taken.astype(float), phi, phi_max))


def test_the_gradient_of_the_q_loss_equals_that_of_torch() -> None:
    mine, other = twins((10, 64, 64, 4))
    rows, taken, wanted = RNG.normal(size=(32, 10)), RNG.integers(4, size=32), RNG.normal(0, 3, 32)
    q = other(torch.as_tensor(rows))[torch.arange(32), torch.as_tensor(taken)]
    torch.nn.functional.huber_loss(q, torch.as_tensor(wanted)).backward()
    compare(mine, other, rows, target_slope(mine(rows), taken.astype(float), wanted))


def test_one_step_of_a_correction() -> None:
    drift, hidden = Drift(3, 6), RNG.normal(size=6)
    drift.weights[:] = RNG.normal(0, 0.1, drift.weights.shape)
    missed = np.array([2e-4, 1500.0, -8.0, 0.5])
    weights = torch.tensor(drift.weights[1], requires_grad=True)
    (0.5 * ((weights @ torch.as_tensor(hidden) - torch.as_tensor(missed / UNITS / 2.0)) ** 2).sum()).backward()
    wanted = drift.weights.copy()
    wanted[1] -= weights.grad.numpy() / (hidden @ hidden) / PRIOR
    drift.step(1, hidden, missed, tasks=2.0)
    np.testing.assert_allclose(drift.weights, wanted, rtol=1e-12)


def test_adam_updates_equal_those_of_torch() -> None:
    mine, other = twins((5, 8, 2))
    optimiser, reference = Adam(mine), torch.optim.Adam(other.parameters(), lr=1e-3)
    for seed in range(5):
        rows = np.random.default_rng(seed).normal(size=(6, 5))
        reference.zero_grad()
        (other(torch.as_tensor(rows)) ** 2).sum().backward()
        reference.step()
        found = mine.activations(rows)
        optimiser.step(mine.gradient(found, 2 * found[-1]))
    for (w, b), (v, c) in zip(mine.layers, other.layers(), strict=True):
        np.testing.assert_allclose(w, v, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(b, c, rtol=1e-6, atol=1e-9)

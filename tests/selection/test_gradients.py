"""What serves without torch computes what torch trained: outputs and gradients of the input."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.planners import gobi, gosh, graf, semi_direct
from tiphys_models.selection.planners.board import HOST_INPUTS, TASK_INPUTS, Board
from tiphys_models.selection.planners.descent import hessian_scale
from tiphys_models.selection.planners.graph import ROUNDS
from tiphys_models.selection.planners.layers import natural_network
from tiphys_models.selection.planners.layers import natural_sigmoid as served_sigmoid
from tiphys_models.selection.train.surrogate_nets import GraphNetwork, HostNetwork, NaturalNetwork, natural_sigmoid

WIDTH = len(HOST_INPUTS) + len(TASK_INPUTS)
WORTH = np.array([0.7, 0.4])


def served(network: torch.nn.Module) -> dict[str, FloatArray]:
    return {name: array.astype(np.float64) for name, array in network.arrays().items()}


def board() -> Board:
    rng = np.random.default_rng(3)
    return Board(
        np.arange(6), rng.normal(size=(6, len(HOST_INPUTS))), rng.uniform(0.5, 2, (4, len(TASK_INPUTS))), np.ones((4, 6), np.bool_)
    )


def decision() -> FloatArray:
    return np.random.default_rng(4).dirichlet(np.ones(6), 4)


def inputs(b: Board, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.from_numpy(b.host_inputs), x.T @ torch.from_numpy(b.task_inputs)], dim=1)


def natural(widths: tuple[int, ...]) -> NaturalNetwork:
    network: NaturalNetwork = NaturalNetwork(widths, torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        for spread in network.weight_spread:
            spread.add_(2.0)  # variances that matter
    return network


def exact(network: torch.nn.Module) -> torch.nn.Module:
    """float64 weights that float32 can hold: what is stored is what torch computes with."""
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(p.float().double())
    return network


def test_gobi_value_and_gradient() -> None:
    network = exact(HostNetwork((WIDTH, *gobi.HIDDEN, 2), torch.Generator().manual_seed(0)).double())
    b, x = board(), torch.from_numpy(decision()).requires_grad_()
    value = (network(inputs(b, x)) @ torch.from_numpy(WORTH)).sum()
    value.backward()
    mine, gradient = gobi.surrogate(b, served(network), WORTH)(decision())
    assert mine == pytest.approx(value.item(), rel=1e-9)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_graf_value_and_gradient() -> None:
    network = exact(GraphNetwork(graf.shapes(), ROUNDS, torch.Generator().manual_seed(0)).double())
    b, p = board(), torch.from_numpy(decision()).requires_grad_()
    host, task = network(p, torch.from_numpy(b.host_inputs), torch.from_numpy(b.task_inputs))
    value = host[:, 0].sum() * WORTH[0] + (host[:, 1].sum() + task.sum()) * WORTH[1]
    value.backward()
    mine, gradient = graf.surrogate(b, served(network), WORTH)(decision())
    assert mine == pytest.approx(value.item(), rel=1e-9)
    np.testing.assert_allclose(gradient, p.grad.numpy(), rtol=1e-8, atol=1e-11)


def gosh_value(network: NaturalNetwork, b: Board, x: torch.Tensor) -> torch.Tensor:
    m, v = network(inputs(b, x))
    return m.sum() + gosh.KAPPA * v.sum().sqrt()


def test_gosh_value_gradient_and_hessian() -> None:
    network = natural((WIDTH, *gosh.HIDDEN, 1))
    b, x = board(), torch.from_numpy(decision()).requires_grad_()
    value = gosh_value(network, b, x)
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    mine = gosh.surrogate(b, served(network), gosh.KAPPA)
    assert mine(decision())[0] == pytest.approx(value.item(), rel=1e-5)  # variances are stored as float32
    np.testing.assert_allclose(mine(decision())[1], gradient.detach().numpy(), rtol=1e-4, atol=1e-6)

    signs = np.random.default_rng(9).choice((-1.0, 1.0), x.shape)
    (curvature,) = torch.autograd.grad((gradient * torch.from_numpy(signs)).sum(), x)
    scale = hessian_scale(mine, np.random.default_rng(9))(decision(), mine(decision())[1], np.zeros(x.shape))
    np.testing.assert_allclose(scale, np.abs(curvature.numpy()), rtol=2e-3, atol=1e-3)


def test_semi_direct_forecast() -> None:
    network = natural((semi_direct.INPUTS, *semi_direct.HIDDEN, 1))
    x = np.random.default_rng(0).uniform(0, 1, (20, semi_direct.INPUTS))
    mean, variance = (part.detach().numpy() for part in natural_sigmoid(*network(torch.from_numpy(x))))
    (m, v), _ = natural_network(x, served(network), len(semi_direct.HIDDEN) + 1)
    found = served_sigmoid(m, v)
    np.testing.assert_allclose(found[0], mean, rtol=1e-5)
    np.testing.assert_allclose(found[1], variance, rtol=1e-3, atol=1e-7)

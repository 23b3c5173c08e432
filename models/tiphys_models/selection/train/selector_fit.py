"""Fits in torch: the surrogate on counterfactual differences, the paper's on its own label, Q by fitted iteration."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.network import Network
from tiphys_models.lab.dqn import Batch, loss, wanted
from tiphys_models.lab.fit import Best, descend, fit_sampled
from tiphys_models.lab.nets import Trunk
from tiphys_models.selection.selectors import dqn, metanet_paper
from tiphys_models.selection.selectors.surrogate import COMPONENTS, HIDDEN, UNITS, Surrogate
from tiphys_models.selection.train.moments import Moments

BATCH = 256
_LEVEL = 0.1
"""Weight of what all candidates share, against differences between them: only those choose."""


def fit_surrogate(
    moments: Moments, candidates: tuple[str, ...], previewed: tuple[str, ...], seed: int, epochs: int, members: int,
    usual: Moments | None = None,
) -> Surrogate:  # fmt: skip
    """Marginal costs from labelled rows, attributed ones from executed rows; squared errors a task, in units of a task.

    `usual`: the rows that the fallback is chosen by; all, if not given.
    """
    per_task = moments.tasks[:, None, None]
    raw = np.concatenate([moments.features, (moments.previews / per_task / UNITS).reshape(len(moments), -1)], axis=1)
    mean, scale = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-3)
    typical = np.nanmean((usual or moments).marginals, axis=0)
    blank = Surrogate(candidates, previewed, 0.0, (), mean, scale, typical)
    x = np.array([blank.inputs(f, p, n) for f, p, n in zip(moments.features, moments.previews, moments.tasks, strict=True)])
    base = np.array([blank.base(p) for p in moments.previews])
    marginal = (moments.marginals - base) / per_task / UNITS
    rows, taken = np.arange(len(moments)), moments.taken.astype(np.int64)
    attributed = (moments.attributed - base[rows, taken]) / per_task[:, 0] / UNITS
    labelled = ~np.isnan(marginal[:, 0, 0])
    tensors = [torch.as_tensor(np.nan_to_num(a), dtype=torch.float32) for a in (x, marginal, attributed, labelled)]
    tensors.append(torch.as_tensor(taken))

    def loss(net: Trunk, batch: list[Tensor]) -> Tensor:
        inputs, wanted, executed, has, k = batch
        found = net(inputs).reshape(len(inputs), len(candidates), 2, COMPONENTS)
        error = (found[:, :, 0] - wanted) * has[:, None, None]
        level = error.mean(dim=1, keepdim=True)
        own = found[torch.arange(len(k)), k, 1] - executed
        # squares, not absolute values: what is wanted is the mean of rare violations, never their median
        return ((error - level) ** 2).mean() + _LEVEL * (level**2).mean() + _LEVEL * (own**2).mean()

    networks = []
    for member in range(members):  # each on rows drawn anew: where they disagree, there was too little to learn from
        own = np.random.default_rng((seed, member)).integers(len(moments), size=len(moments))
        net = Trunk((x.shape[1], HIDDEN, HIDDEN, len(candidates) * 2 * COMPONENTS), 100 * seed + member)
        fit_sampled(net, [t[torch.as_tensor(own)] for t in tensors], partial(loss, net), seed, epochs=epochs, batch=BATCH)
        networks.append(Network(net.layers()))
    return Surrogate(candidates, previewed, 0.0, tuple(networks), mean, scale, typical)


def fit_paper(rows: FloatArray, policies: int, seed: int, epochs: int) -> tuple[Network, FloatArray]:
    """The published fit: Adam 1e-3, batch 32, the epoch that is best on a held-out tenth; rows are (policy, phi, inputs)."""
    phi_max = np.array([rows[rows[:, 0] == k, 1].max(initial=1e-9) for k in range(policies)])
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    held, own = rows[order[: len(rows) // 10]], rows[order[len(rows) // 10 :]]
    net = Trunk((metanet_paper.INPUTS, metanet_paper.HIDDEN, metanet_paper.HIDDEN, policies), seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    best = Best(net)
    for epoch in range(epochs):
        shuffled = own[rng.permutation(len(own))]
        for at in range(0, len(own), metanet_paper.BATCH):
            descend(optimiser, paper_loss(net, shuffled[at : at + metanet_paper.BATCH], phi_max))
        with torch.no_grad():
            best.offer(float(paper_loss(net, held, phi_max)), epoch)
    best.restore()
    return Network(net.layers()), phi_max


def paper_loss(net: Trunk, rows: FloatArray, phi_max: FloatArray) -> Tensor:
    """Squared error of the de-normalised estimate of the executed policy, in units of the mean largest cost."""
    largest = torch.as_tensor(phi_max / phi_max.mean(), dtype=torch.float32)
    phi = torch.as_tensor(rows[:, 1] / phi_max.mean(), dtype=torch.float32)
    k = torch.as_tensor(rows[:, 0].astype(np.int64))
    y = torch.sigmoid(net(torch.as_tensor(rows[:, 2:], dtype=torch.float32)))
    return ((y[torch.arange(len(k)), k] * largest[k] - phi) ** 2).mean()


def fit_q(episodes: list[Moments], policies: int, seed: int, epochs: int) -> Network:
    """Executed decisions as transitions; each batch under weights of its own, so that they are an input like any other."""
    x, following, reward, taken = (
        np.concatenate(parts)
        for parts in zip(*((m.features[:-1], m.features[1:], -m.attributed[:-1] / UNITS, m.taken[:-1]) for m in episodes), strict=True)
    )
    net = Trunk((x.shape[1] + COMPONENTS, dqn.HIDDEN, dqn.HIDDEN, policies), seed)
    target = Trunk((x.shape[1] + COMPONENTS, dqn.HIDDEN, dqn.HIDDEN, policies), seed)
    rng = np.random.default_rng(seed)
    tensors = [torch.as_tensor(a, dtype=torch.float32) for a in (x, following, reward)]
    tensors.append(torch.as_tensor(taken.astype(np.int64)))
    done = 0

    def loss_of(rows: list[Tensor]) -> Tensor:
        nonlocal done
        if done % dqn.SYNC == 0:
            target.load_state_dict(net.state_dict())
        done += 1
        inputs, after, components, k = rows
        weights = torch.as_tensor(rng.dirichlet(np.ones(COMPONENTS), len(k)), dtype=torch.float32)
        reward = (components * weights).sum(dim=1)
        batch = Batch(torch.cat([inputs, weights], dim=1), k, reward, torch.cat([after, weights], dim=1))
        return loss(net(batch.inputs), batch, wanted(batch, target, dqn.GAMMA))

    fit_sampled(net, tensors, loss_of, seed, epochs=epochs, batch=BATCH)
    return Network(net.layers())

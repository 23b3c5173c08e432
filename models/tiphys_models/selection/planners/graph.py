"""GRAF's graph network: host and task nodes, edges weighted by the decision, two rounds of messages, read out at the nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.planners.layers import Pull, leaky_relu

ROUNDS = 2


def graph_network(p: FloatArray, hosts: FloatArray, tasks: FloatArray, weights: Mapping[str, FloatArray]) -> tuple[FloatArray, Pull]:
    """(tasks x hosts decision, node inputs) -> [cost, latency] of the batch; the pull gives the gradient of the decision.

    Hosts tell what the decision adds to their bill and to the responses of what they already run, tasks tell their own responses.
    """
    w = weights
    h, _ = leaky_relu(hosts @ w["host_in"] + w["host_in_b"])
    t, _ = leaky_relu(tasks @ w["task_in"] + w["task_in_b"])
    tape = []
    for k in range(ROUNDS):
        t_before = t
        h, pull_h = leaky_relu(h @ w[f"hh{k}"] + (p.T @ t) @ w[f"ht{k}"] + w[f"h_b{k}"])
        t, pull_t = leaky_relu(t @ w[f"tt{k}"] + (p @ h) @ w[f"th{k}"] + w[f"t_b{k}"])
        tape.append((t_before, h, pull_h, pull_t))
    per_host, per_task = h @ w["host_out"], t @ w["task_out"]
    out = per_host.sum(axis=0) + np.array([0.0, per_task.sum()])

    def pull(d: FloatArray) -> FloatArray:
        dh = np.broadcast_to(w["host_out"] @ d, h.shape)
        dt = np.broadcast_to(w["task_out"][:, 0] * d[1], t.shape)
        dp = np.zeros_like(p)
        for k in reversed(range(ROUNDS)):
            t_before, h_k, pull_h, pull_t = tape[k]
            d_pre_t = pull_t(dt)
            to_h = d_pre_t @ w[f"th{k}"].T
            dp += to_h @ h_k.T
            dh = dh + p.T @ to_h
            d_pre_h = pull_h(dh)
            to_t = d_pre_h @ w[f"ht{k}"].T
            dp += t_before @ to_t.T
            dt = d_pre_t @ w[f"tt{k}"].T + p @ to_t
            dh = d_pre_h @ w[f"hh{k}"].T
        return dp

    return out, pull

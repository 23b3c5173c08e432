"""An agent's answer made into one that is allowed: whole replicas, sizes in steps, bounds, and no move that the mask forbids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.seen import ServiceHistory, seen_of
from tiphys_models.scaling.state import ScalingDecision, ScalingState


def in_steps(seen: ServiceHistory, cpu_m: FloatArray) -> FloatArray:
    """Rounded up to the next step, but never because of a rounding error."""
    return np.asarray(np.ceil(cpu_m / seen.step_cpu_m - 1e-6) * seen.step_cpu_m)


def allowed(seen: ServiceHistory, answers: Answers) -> Answers:
    """The nearest answer that keeps bounds and mask."""
    replicas = np.clip(answers.replicas, seen.min_replicas, seen.max_replicas)
    cpu_m = np.clip(in_steps(seen, answers.cpu_m), seen.min_cpu_m, seen.max_cpu_m)
    up, down, more, less = seen.movable.T
    replicas = np.where((replicas > seen.replicas) & ~up | (replicas < seen.replicas) & ~down, seen.replicas, replicas)
    cpu_m = np.where((cpu_m > seen.cpu_m) & ~more | (cpu_m < seen.cpu_m) & ~less, seen.cpu_m, cpu_m)
    return replace(answers, replicas=replicas, cpu_m=cpu_m)


def allowed_decision(state: ScalingState, decision: ScalingDecision) -> ScalingDecision:
    """The decision for one service made into one that is allowed."""
    one = Answers(np.array([decision.replicas], np.int64), np.array([decision.cpu_m], np.float64))
    kept = allowed(seen_of([state]), one)
    return replace(decision, replicas=int(kept.replicas[0]), cpu_m=int(kept.cpu_m[0]))

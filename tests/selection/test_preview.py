from __future__ import annotations

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.draft import objective
from tiphys_models.selection.cloud.preview import preview
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import Plan

NOW, WAITING = state([(0, 0), (2, 0), (3, 5)]), tasks(1, 2, 5)


@pytest.mark.parametrize("hosts", [[0, 0, 5], [1, 2, 3], [6, 6, 6], [0, 1, 7]])
def test_components_add_up_to_the_planners_objective(hosts: list[int]) -> None:
    """Two sums of the same outlooks, kept apart: one by component, one by weight."""
    plan = Plan(np.array(hosts))
    found = preview(NOW, WAITING, plan)
    reference = preview(state(), WAITING, Plan(np.array([0, 1, 2])))  # each alone on the cheapest kind
    for weights, ours, theirs in (
        (Weights(1, 0, 0, 0), found.usd, reference.usd),
        (Weights(0, 1, 0, 0), found.joules, reference.joules),
        (Weights(0, 0, 1, 0), found.response_s, reference.response_s),
        (Weights(0, 0, 0, 1), found.violations, 3.0),
    ):
        # latency of a few hundredths of a second is part of a preview and not of a draft
        assert ours / theirs == pytest.approx(objective(NOW, WAITING, plan, weights), rel=0.03, abs=0.02)


def test_scheduling_delays_and_is_billed() -> None:
    plan = Plan(np.array([1, 2, 3]))
    at_once, later = preview(NOW, WAITING, plan), preview(NOW, WAITING, plan, scheduling_s=2.0)
    assert later.response_s == pytest.approx(at_once.response_s + 6.0)
    assert later.usd >= at_once.usd + serverless_usd(2.0)


def test_a_sleeping_host_resumes_first() -> None:
    plan = Plan(np.array([1, 2, 3]))
    slow = preview(state([(0, 0)], resume_s=5.0), WAITING, plan).response_s
    assert slow == pytest.approx(preview(state([(0, 0)]), WAITING, plan).response_s + 15.0)


def test_tasks_left_waiting_are_dearer_than_alone() -> None:
    waits, alone = (preview(NOW, tasks(0), Plan(np.array([host]))) for host in (-1, 1))
    assert waits.usd == pytest.approx(alone.usd)
    assert waits.response_s == pytest.approx(alone.response_s + NOW.interval_s, abs=0.01)
    assert waits.violations >= alone.violations + 1
    assert preview(NOW, tasks(), Plan(np.empty(0, np.int64))).tasks == 0

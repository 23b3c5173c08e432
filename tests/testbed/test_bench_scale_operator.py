"""The parts of `tiphys bench scale` for the operator: what they make up, and what they hold it to."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tiphys_models.api.scaling_policy import LatencyMetrics, TargetRef, parse_scaling
from tiphys_operator.scaling.measured import Readings, Scope, measure
from tiphys_operator.scaling.series import parse_matrix
from tiphys_operator.scaling.sources import CPU_COUNTERS, source_of
from tiphys_testbed.bench.scale_operator import CHART_LIMIT_MIB, OperatorPlan, deployment, scaling_policy
from tiphys_testbed.bench.scale_requests import answer

NOW_S = 1_800_000_000.0
PODS = ("workload-00000-7d9c5b6f4d-000000", "workload-00000-7d9c5b6f4d-000001")


def test_the_limit_of_the_chart_is_the_one_that_claims_are_held_to() -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "helm/tiphys/values.yaml").read_text())
    match = re.fullmatch(r"(\d+)Mi", values["operator"]["resources"]["limits"]["memory"])
    assert match is not None
    assert float(match.group(1)) == CHART_LIMIT_MIB


def test_the_made_up_policies_are_valid_and_name_workloads_that_exist() -> None:
    plan = OperatorPlan.quickly()
    for number in range(plan.scaling_policies):
        policy = scaling_policy(number)
        spec = parse_scaling(policy)
        made = deployment(number, 2)
        assert (spec.target_ref.name, policy["metadata"]["namespace"]) == (made["metadata"]["name"], made["metadata"]["namespace"])
        assert number < plan.fleet.workloads


def test_the_made_up_load_is_measured_as_what_it_is() -> None:
    source = source_of(LatencyMetrics(), TargetRef(kind="Deployment", name="workload-00000"), "team-00")
    buckets, counters = (
        parse_matrix(answer(query, NOW_S, NOW_S - 600)) for query in (source.buckets(PODS, 45), source.cpu(PODS, "main", 45))
    )
    used, throttled, periods = (tuple(s for s in counters if s.labels["__name__"] == name) for name in CPU_COUNTERS)
    born = dict.fromkeys(PODS, NOW_S - 500)
    found = measure(Readings(tuple(buckets), (), used, throttled, periods), Scope(0.4, 0.95, 15.0, 1.0, "pod", born), 1)
    (window,) = found.windows
    assert (found.partial, window.late, round(window.arrived / 15)) == ((), 0.0, 40)
    assert round(window.used_cpu_m or 0) == 80

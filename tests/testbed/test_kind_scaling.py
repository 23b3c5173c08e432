"""What is pure of the comparison on real kubelets: the load, the objects, what pods had, rows and claims."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.base.quantity import cpu_milli
from tiphys_models.lab.report import Row
from tiphys_testbed.kind import peers
from tiphys_testbed.kind.cluster import KindCluster
from tiphys_testbed.kind.monitoring import NAMESPACE as MONITORING
from tiphys_testbed.kind.monitoring import SCRAPE_PORT
from tiphys_testbed.kind.scaling import results
from tiphys_testbed.kind.scaling.commands import prepare
from tiphys_testbed.kind.scaling.lanes import LANES, LaneStage, PlayedLane, missing
from tiphys_testbed.kind.scaling.objects import FIBONACCI, HOTEL, scaler, scaling_policy, service
from tiphys_testbed.kind.scaling.plan import OBJECTIVE, ComparisonPlan, LaneLoad, LimitSizes, Start, draw, start
from tiphys_testbed.kind.scaling.watching import PodsLook, grown_after_s, look, samples_of, use
from tiphys_testbed.workloads.load import Sent
from tiphys_testbed.workloads.metrics import EDGES_S

CPU_S = 0.0065
WORK = {"fibonacci": CPU_S}


def test_the_load_is_the_flash_shape_in_less_time_with_its_peak_at_the_machines_size() -> None:
    plan = ComparisonPlan(seed=0)
    load, again, other = draw(plan, WORK), draw(plan, WORK), draw(replace(plan, seed=1), WORK)
    assert np.array_equal(load.due_s, again.due_s)
    assert len(load.due_s) != len(other.due_s)
    assert load.peak_cores == pytest.approx(plan.peak_cores) == pytest.approx(0.4)
    assert 0 <= load.due_s[0] <= load.due_s[-1] <= plan.warm_up_s + plan.seconds
    assert load.jump_s is not None
    assert load.calm_s is not None
    # 1 to 4 min of the shape, three times as fast, and half of the two edges
    assert 60 / plan.haste - 4 <= load.calm_s - load.jump_s <= 240 / plan.haste + 4
    at = plan.warm_up_s + load.jump_s
    before, after = (np.sum((load.due_s >= begin) & (load.due_s < begin + 10)) for begin in (at - 20, at + 5))
    assert after > 2 * before
    rate_of_the_warm_up = np.sum(load.due_s < plan.warm_up_s) / plan.warm_up_s
    assert rate_of_the_warm_up == pytest.approx(load.rates[0], rel=0.2)


def test_a_load_that_never_jumps_says_so() -> None:
    load = draw(ComparisonPlan(shape="constant"), WORK)
    assert load.jump_s is None
    assert load.calm_s is None


def test_everybody_begins_with_as_much_more_than_the_first_rate_takes_and_the_peak_lane_than_the_peak() -> None:
    load, sizes = draw(ComparisonPlan(), WORK), LimitSizes()
    for lane in ("tiphys", "vpa", "hpa"):
        begin = start(lane, load, sizes)
        assert begin.pods * begin.cpu_m >= 1250 * load.base_cores
    assert start("tiphys", load, sizes) == start("vpa", load, sizes)
    assert start("hpa", load, sizes).cpu_m == sizes.hpa_pod_m
    peak = start("peak", load, sizes)
    assert peak.pods * peak.cpu_m >= 1250 * load.peak_cores
    assert peak.cpu_m <= sizes.most_m


def test_all_may_grow_to_more_than_the_peak_takes() -> None:
    plan, sizes = ComparisonPlan(), LimitSizes()
    hpa = scaler("hpa", "n", plan, "rule")
    assert hpa is not None
    room_m = [sizes.most_m, hpa[1]["spec"]["maxReplicas"] * sizes.hpa_pod_m]
    assert min(room_m) >= 1250 * plan.peak_cores


def test_the_policy_is_valid_and_its_objective_an_edge_of_the_services_histogram() -> None:
    plan = ComparisonPlan()
    spec = parse_scaling(scaling_policy(plan, "combined"))
    assert spec.objective.latency_milliseconds / 1000 in EDGES_S
    assert (spec.mode, spec.interval_seconds, spec.agent.kind) == ("Active", plan.window_s, "combined")
    assert spec.agent.request_cpu_microseconds is None
    assert spec.horizontal is not None
    assert spec.vertical is not None
    # down windows are as short for HPA as for ours
    hpa = scaler("hpa", "n", plan, "rule")
    assert hpa is not None
    ours = spec.horizontal.behavior.scale_down.stabilization_window_seconds
    assert ours == hpa[1]["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300 * plan.window_s / 15
    assert [lane for lane in LANES if scaler(lane, "n", plan, "rule") is None] == ["peak"]


def test_the_service_is_scraped_where_it_listens_and_its_request_is_its_limit() -> None:
    _, deployment, behind = service("image:1", Start(2, 130))
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    port = container["ports"][0]["containerPort"]
    assert template["metadata"]["annotations"] == {SCRAPE_PORT: str(port)}
    assert container["readinessProbe"]["httpGet"]["port"] == port == behind["spec"]["ports"][0]["port"]
    assert container["command"][-2:] == ["--port", str(port)]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert cpu_milli(container["resources"]["limits"]["cpu"]) == 130
    assert behind["spec"]["selector"] == template["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]


def test_a_service_runs_from_the_code_that_comes_with_it_as_images_hold_none(tmp_path: Path) -> None:
    code, deployment, _ = service("image:1", Start(2, 130))
    spec = deployment["spec"]["template"]["spec"]
    (volume,), (container,) = spec["volumes"], spec["containers"]
    assert volume["configMap"]["name"] == code["metadata"]["name"]
    for item in volume["configMap"]["items"]:
        path = tmp_path / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code["data"][item["key"]])
    (mount,), (variable,) = container["volumeMounts"], container["env"]
    assert (mount["name"], variable) == (volume["name"], {"name": "PYTHONPATH", "value": mount["mountPath"]})
    command = [sys.executable, *container["command"][1:3], "--help"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}, capture_output=True, timeout=30, check=True)
    assert b"fibonacci" in done.stdout


def test_every_service_of_hotel_app_is_sized_and_scaled_by_itself_and_finds_the_others() -> None:
    work = {"front": 0.002, "geo": 0.001, "profile": 0.001}
    plan, load = ComparisonPlan(), draw(ComparisonPlan(), work)
    assert load.peak_cores == pytest.approx(plan.peak_cores), "all together"
    begin = {name: start("peak", load, plan.sizes, share) for name, share in load.shares.items()}
    assert {name: each.cpu_m for name, each in begin.items()} == {"front": 250, "geo": 130, "profile": 130}
    for part in HOTEL.parts:
        _, deployment, behind = service("image:1", begin[part.name], part)
        assert deployment["spec"]["template"]["spec"]["containers"][0]["command"][3] == behind["metadata"]["name"] == part.name
        for lane in ("tiphys", "hpa", "vpa"):
            made = scaler(lane, "n", plan, "combined", part.name)
            assert made is not None
            spec = made[1]["spec"]
            assert (spec.get("targetRef") or spec["scaleTargetRef"])["name"] == part.name
    # what front is told by default
    assert {part.name for part in HOTEL.parts} >= {"geo", "profile"}


def test_a_workload_that_nobody_knows_is_refused() -> None:
    result = CliRunner().invoke(app, ["kind", "scaling", "--workload", "casino"])
    assert result.exit_code != 0
    assert "hotel-app" in result.stderr


def pod(name: str, wanted: str, given: str | None = None, phase: str = "Running", restarts: int = 0) -> dict[str, Any]:
    statuses = [] if given is None else [{"resources": {"limits": {"cpu": given}}, "restartCount": restarts}]
    containers = [{"resources": {"limits": {"cpu": wanted}}}]
    return {"metadata": {"name": name}, "spec": {"containers": containers}, "status": {"phase": phase, "containerStatuses": statuses}}


def test_a_pod_costs_the_larger_of_what_it_should_have_and_what_it_has() -> None:
    found = look([pod("a", "300m", "100m"), pod("b", "100m", "300m", restarts=2), pod("c", "50m", phase="Pending")], 7.0)
    assert found.limits_m == {"a": 300, "b": 300, "c": 50}
    assert found.restarts == 2
    assert look([pod("gone", "100m", "100m", phase="Succeeded")], 7.0).limits_m == {}


def test_use_is_summed_between_two_moments_and_every_look_holds_until_the_next() -> None:
    looks = [
        PodsLook(9.0, {"a": 9000}, 0),
        PodsLook(10.0, {"a": 100}, 0),
        PodsLook(11.0, {"a": 100}, 0),
        PodsLook(14.0, {"a": 300, "b": 100}, 1),
        PodsLook(20.0, {"a": 9000}, 0),
    ]
    found = use(looks, 10.0, 20.0)
    assert found.cpu_hours == pytest.approx((4 * 0.1 + 6 * 0.4) / 3600)
    assert found.pod_hours == pytest.approx((4 * 1 + 6 * 2) / 3600)
    assert found.cost == pytest.approx(found.cpu_hours + 0.05 * found.pod_hours)
    assert (found.switches, found.most_pods, found.restarts) == (1, 2, 1)
    with pytest.raises(ClusterError, match="nobody looked"):
        use(looks, 30.0, 40.0)


def test_more_cpu_in_place_is_told_apart_from_more_pods() -> None:
    more_pods = {"a": [(0.0, 0.1), (5.0, 0.1), (9.0, 0.1)], "b": [(7.0, 0.1), (9.0, 0.1)]}
    assert grown_after_s(more_pods, 5.0, in_place=False) == 2.0
    assert grown_after_s(more_pods, 5.0, in_place=True) is None
    in_place = {"a": [(4.0, 0.1), (6.0, 0.11), (8.0, 0.3)]}
    assert grown_after_s(in_place, 5.0, in_place=True) == grown_after_s(in_place, 5.0, in_place=False) == 3.0
    assert grown_after_s({"a": [(8.0, 0.3)]}, 5.0, in_place=True) is None, "it was not there before the jump"


def test_samples_are_read_by_pod() -> None:
    answer = {"data": {"result": [{"metric": {"pod": "a"}, "values": [[1.5, "0.1"], [2.5, "0.2"]]}]}}
    assert samples_of(answer) == {"a": [(1.5, 0.1), (2.5, 0.2)]}


def played(lane: str, late_from_s: float, late_to_s: float, plan: ComparisonPlan, load: LaneLoad) -> PlayedLane:
    due = load.due_s[load.due_s >= plan.warm_up_s] - plan.warm_up_s
    sent = [Sent(float(at), 2.0 if late_from_s <= at < late_to_s else 0.02, 0.0) for at in due]
    sent[-1] = replace(sent[-1], latency_s=math.inf)
    looks = [PodsLook(1000.0 + at, {"a": 100}, 0) for at in range(plan.seconds)]
    assert load.jump_s is not None
    granted = {"a": [(1000.0, 0.1), (1000.0 + load.jump_s + 3.0, 0.3)]}
    return PlayedLane(lane, 1000.0, sent, looks, granted, {"fibonacci": Start(1, 100)})


def test_a_row_counts_windows_by_arrival_and_says_how_long_the_jump_was_felt() -> None:
    plan = ComparisonPlan(seed=0)
    load = draw(plan, WORK)
    assert load.jump_s is not None
    found = results.row(played("tiphys", load.jump_s, load.jump_s + 8.0, plan, load), plan, load)
    assert found["windows"] == 60
    first, last = int(load.jump_s // 5), int((load.jump_s + 7.99) // 5)
    assert 60 - (last - first + 1) <= 60 * found["slo_attained"] <= 59
    assert found["never_served"] == pytest.approx(1 / found["requests"])
    assert found["in_place_s"] == pytest.approx(3.0)
    assert 3.0 <= found["p90_back_s"] <= 13.0
    assert found["cpu_hours"] == pytest.approx(0.1 * 300 / 3600)
    quiet = results.row(played("tiphys", -1.0, -1.0, plan, load), plan, load)
    assert (quiet["slo_attained"], quiet["p90_back_s"]) == (1.0, 0.0)
    assert load.calm_s is not None
    never = results.row(played("tiphys", load.jump_s, load.calm_s + 10, plan, load), plan, load)
    assert never["p90_back_s"] is None


def lane(name: str, attained: float, cost: float, **more: Any) -> Row:
    jump = {"in_place_s": 3.0, "p90_back_s": 6.0, "jump_lasts_s": 30.0, "restarts": 0}
    return {"lane": name, "seed": 0, "slo_attained": attained, "cost": cost} | jump | more


def verdicts(*rows: Row) -> dict[str, bool]:
    return {claim.id: claim.holds for claim in results.claims(rows, 5)}


def test_claims_compare_with_every_peer_that_was_played_and_with_no_other() -> None:
    assert verdicts(lane("tiphys", 0.97, 1.0), lane("peak", 1.0, 9.0)) == {
        "kind-in-place-cpu-up-s": True,
        "kind-p90-back-share-of-jump": True,
        "kind-restarts": True,
    }
    found = verdicts(lane("tiphys", 0.97, 1.0), lane("hpa", 0.9, 0.5), lane("vpa", 0.98, 1.1))
    assert found["kind-windows-ahead-of-hpa"]
    assert "kind-cost-of-hpa" not in found, "far below ours, less CPU is no merit"
    assert not found["kind-windows-ahead-of-vpa"]
    assert found["kind-cost-of-vpa"]
    assert not verdicts(lane("tiphys", 0.97, 1.0), lane("hpa", 0.96, 0.9))["kind-cost-of-hpa"]


def test_what_never_happened_holds_no_claim() -> None:
    found = verdicts(lane("tiphys", 0.97, 1.0, in_place_s=None, p90_back_s=None, restarts=1))
    assert not any(found.values())
    assert OBJECTIVE.target_s == 0.4


def test_a_row_as_text_has_a_dash_where_something_never_happened() -> None:
    plan = ComparisonPlan(seed=0)
    load = draw(plan, WORK)
    row = results.row(played("hpa", -1.0, -1.0, plan, load), plan, load) | {"in_place_s": None}
    text = dict(zip(results.COLUMNS, results.line(row), strict=True))
    assert text["in_place_s"] == "–"
    assert text["slo_attained"] == "100.0%"


def test_several_seeds_have_a_row_of_means_for_every_lane_and_one_seed_has_none() -> None:
    plan = ComparisonPlan(seed=0)
    load = draw(plan, WORK)
    one = results.row(played("hpa", -1.0, -1.0, plan, load), plan, load) | {"most_pods": 2, "p90_ms": 10.0, "p90_back_s": None}
    assert results.with_means([one]) == [one]
    two = one | {"seed": 1, "most_pods": 4, "p90_ms": 30.0, "p90_back_s": 5.0}
    other = one | {"lane": "vpa"}
    *rows, hpa, vpa = results.with_means([one, two, other])
    assert rows == [one, two, other]
    assert (hpa["lane"], hpa["seed"], hpa["p90_ms"], hpa["most_pods"], hpa["p90_back_s"]) == ("hpa", "all", 20.0, 4, None)
    assert (vpa["lane"], vpa["cost"]) == ("vpa", one["cost"])
    assert results.line(hpa)[:2] == ["hpa", "all"]


class Lacking(ApiClient):
    """A server without some of the paths."""

    def __init__(self, *absent: str) -> None:
        self._absent = absent

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        if any(part in path for part in self._absent):
            raise RequestRefused(404, "NotFound", path)
        return {}


def test_a_lane_whose_autoscaler_is_not_there_is_missing_with_the_reason() -> None:
    assert {name for name in LANES if missing(Lacking(), name)} == set()
    bare = Lacking("metrics.k8s.io", "autoscaling.k8s.io", "tiphys.io")
    assert {name for name in LANES if missing(bare, name)} == {"tiphys", "hpa", "vpa"}
    assert "metrics-server" in missing(Lacking("metrics.k8s.io"), "vpa"), "VPA reads it, too"


class Nodes(Lacking):
    """A cluster whose namespaces are a set."""

    def __init__(self, *absent: str, namespaces: set[str]) -> None:
        super().__init__(*absent)
        self.namespaces = namespaces

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4 and path.rpartition("/")[2] not in self.namespaces:
            raise RequestRefused(404, "NotFound", path)
        if path == "/api/v1/namespaces":
            return {"items": [{"metadata": {"name": name}} for name in self.namespaces]}
        return {"status": {"readyReplicas": 1}} if "/deployments/" in path else super().get(path, **query)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if body["metadata"]["name"] in self.namespaces:
            raise RequestRefused(409, "AlreadyExists", path)
        self.namespaces.add(body["metadata"]["name"])
        return {}

    def delete(self, path: str, **query: str | int) -> dict[str, Any]:
        self.namespaces.remove(path.rpartition("/")[2])
        return {}


class Cluster(KindCluster):
    """Takes every manifest."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def apply(self, manifest_text: str, namespace: str | None = None) -> str:
        return ""


def test_a_namespace_that_a_killed_run_left_is_taken_away_before_its_lane_is_played_again() -> None:
    api = Nodes(namespaces={"tiphys-scaling-hpa", "theirs"})
    with LaneStage(Cluster(api), "tiphys-scaling-hpa", "image:1", FIBONACCI, {"fibonacci": Start(1, 100)}):
        assert "tiphys-scaling-hpa" in api.namespaces
    assert api.namespaces == {"theirs"}


def test_an_autoscaler_that_came_only_half_is_named_and_taken_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(Nodes("autoscaling.k8s.io", namespaces={MONITORING}))
    removed: list[object] = []

    def half(_: object) -> None:
        raise ClusterError("no rollout")

    monkeypatch.setattr(peers, "install_vpa", half)
    monkeypatch.setattr(peers, "remove_vpa", removed.append)
    assert prepare(cluster, LANES) == {"vpa": "not installed: no rollout"}
    assert removed == [cluster]


def test_a_run_shorter_than_one_window_is_refused_before_anything_is_made() -> None:
    result = CliRunner().invoke(app, ["kind", "scaling", "--window", "60", "--seconds", "30"])
    assert result.exit_code != 0
    assert "less than one window" in result.stderr

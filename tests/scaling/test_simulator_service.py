from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.scaling.sim.clairvoyant import clairvoyant, smallest_sufficient_m
from tiphys_models.scaling.sim.episode import ServiceEpisode, play
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.frontier import cost_at
from tiphys_models.scaling.sim.load import Load, draw_load
from tiphys_models.scaling.sim.requests import RequestServices
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO, FIBONACCI, ServiceScenario
from tiphys_models.scaling.sim.shapes import SHAPES, LoadShape, make_shape, read_shape, rotated


def constant(rps: float, seconds: int = 300, *, requests: bool = False, seed: int = 1) -> Load:
    return draw_load(LoadShape(f"constant-{rps:g}", "train", seed, np.full(seconds, rps)), FIBONACCI, requests=requests)


class Fixed:
    """Always the same sizes."""

    name, actions = "fixed", ()

    def __init__(self, replicas: int, cpu_m: float) -> None:
        self._answers = Answers(np.array([replicas]), np.array([cpu_m]))

    def answer(self, seen: ServiceHistory) -> Answers:
        return self._answers


def latencies(load: Load, replicas: int, cpu_m: float, scenario: ServiceScenario = DEFAULT_SCENARIO) -> FloatArray:
    plant = RequestServices([load], scenario)
    for _ in range(load.windows(scenario) + 3):
        plant.advance(np.array([replicas]), np.array([cpu_m]))
    service = plant._services[0]
    return service.finish_s - service.arrival_s


def test_one_unthrottled_pod_is_an_m_m_1_queue() -> None:
    load = constant(190.0, 1200, requests=True)
    found = latencies(load, 1, 1000.0)
    served, arriving = 633 / FIBONACCI.cpu_ms, 190.0
    assert found.mean() == pytest.approx(1 / (served - arriving), rel=0.03)
    assert np.percentile(found, 90) == pytest.approx(np.log(10) / (served - arriving), rel=0.03)


def test_two_unthrottled_pods_are_an_m_m_2_queue() -> None:
    load = constant(500.0, 900, requests=True)
    served, arriving = 633 / FIBONACCI.cpu_ms, 500.0
    rho = arriving / (2 * served)
    assert latencies(load, 2, 1000.0).mean() == pytest.approx(1 / served / (1 - rho**2), rel=0.04)


@pytest.mark.parametrize(("cpu_m", "expected"), [(150.0, 90.0), (300.0, 180.0)])
def test_a_saturated_pod_serves_six_requests_in_ten_milliseconds_of_a_core(cpu_m: float, expected: float) -> None:
    plant = FluidServices([constant(400.0)], DEFAULT_SCENARIO)
    readings = [plant.advance(np.ones(1, np.int64), np.array([cpu_m])) for _ in range(2)]  # before anybody gives up
    assert readings[-1].completed[0] / 15 == pytest.approx(expected, rel=0.05)
    assert readings[-1].throttled[0] == pytest.approx(1.0)


@pytest.mark.parametrize("agent", ["rule", "hpa"])
def test_both_simulators_agree(agent: str) -> None:
    loads = [draw_load(make_shape(name, "validation", 7, 900), FIBONACCI, requests=True) for name in ("flash", "bursty", "diurnal")]
    exact, fluid = (play(make_agent(agent), loads, DEFAULT_SCENARIO, plant) for plant in (RequestServices, FluidServices))
    assert np.abs(exact.attained() - fluid.attained()).max() <= 0.02
    assert np.abs(exact.requests_attained() - fluid.requests_attained()).max() <= 0.02
    np.testing.assert_allclose(exact.cost(), fluid.cost(), rtol=0.015)


@pytest.mark.parametrize(("plant", "per_pod"), [(RequestServices, False), (RequestServices, True), (FluidServices, False)])
def test_no_request_is_lost_or_served_twice(plant: type, per_pod: bool) -> None:
    scenario = ServiceScenario("x", per_pod_queues=per_pod)
    load = draw_load(make_shape("flash", "train", 3, 600), FIBONACCI, requests=True)
    episode, completed = ServiceEpisode([load], scenario, plant([load], scenario)), 0.0
    sizes = np.random.default_rng(0).integers(1, 4, 100)
    while not episode.over:
        r = episode.advance()
        completed += float(r.completed[0])
        seen = episode.seen()
        assert seen is not None
        episode.apply(seen, Answers(sizes[episode.window : episode.window + 1], np.array([400.0])))
    assert completed + r.in_flight[0] == pytest.approx(float(load.counts.sum()), abs=1e-6)


def test_requests_that_time_out_are_late_and_never_served() -> None:
    records = play(Fixed(1, 100.0), [constant(300.0, requests=True)], DEFAULT_SCENARIO, RequestServices)
    assert records.attained()[0] == pytest.approx(0.05, abs=0.06)  # it begins with enough, for one window
    assert records.never_served()[0] > 0.5
    assert records.requests_attained()[0] < 0.1


def test_an_unmeasured_time_out_below_the_target_is_refused() -> None:
    with pytest.raises(ValueError, match="time-out below the target"):
        ServiceScenario("survivors", time_out_s=0.35)


def test_a_pod_serves_once_it_is_ready_and_is_paid_before() -> None:
    scenario = ServiceScenario("slow", start_s=(20.0, 20.0))
    records = play(Fixed(3, 640.0), [constant(900.0, 180)], scenario)
    at_once = play(Fixed(3, 640.0), [constant(900.0, 180)], ServiceScenario("fast", start_s=(0.0, 0.0)))
    assert records.cost()[0] == at_once.cost()[0]
    assert records.requests_attained()[0] <= at_once.requests_attained()[0]


def test_queues_of_their_own_help_nobody_who_already_waits() -> None:
    load = draw_load(make_shape("flash", "train", 5, 900), FIBONACCI, requests=True)
    central, own = (
        play(make_agent("rule"), [load], s, RequestServices) for s in (DEFAULT_SCENARIO, ServiceScenario("own", per_pod_queues=True))
    )
    assert own.attained()[0] < central.attained()[0]


def test_lag_hides_the_newest_reading() -> None:
    episode = ServiceEpisode([constant(200.0)], ServiceScenario("lag", lag_windows=1))
    first = episode.advance()
    assert episode.seen() is None
    episode.advance()
    seen = episode.seen()
    assert seen is not None
    assert seen.rates[0, -1] == first.arrived[0] / 15


def test_an_empty_window_is_kept_and_tells_nothing() -> None:
    episode = ServiceEpisode([constant(0.0, 60)], DEFAULT_SCENARIO)
    episode.advance()
    seen = episode.seen()
    assert seen is not None
    assert np.isnan(seen.late[0, -1])
    while not episode.over:
        episode.advance()
    assert episode.records().attained()[0] == 1.0


@pytest.mark.parametrize(("rps", "smallest_m"), [(40, 80), (80, 150), (150, 260), (250, 430)])
def test_the_smallest_sufficient_limit_is_that_of_the_calibration(rps: float, smallest_m: float) -> None:
    assert smallest_sufficient_m(constant(float(rps), 900), DEFAULT_SCENARIO) == pytest.approx(smallest_m, abs=10)


def test_nobody_is_cheaper_than_the_clairvoyant_at_full_attainment() -> None:
    load = draw_load(make_shape("diurnal", "train", 2, 900), FIBONACCI)
    bound = clairvoyant(load, DEFAULT_SCENARIO)
    assert bound.attained()[0] == 1.0
    assert (
        clairvoyant(load, DEFAULT_SCENARIO, 0.95).cost()[0] < bound.cost()[0] < play(make_agent("rule"), [load], DEFAULT_SCENARIO).cost()[0]
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_its_split_and_seed(name: str) -> None:
    first, again, other, test = (
        make_shape(name, split, seed).rps for split, seed in (("train", 1), ("train", 1), ("train", 2), ("test", 1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, test)
    assert len(first) == 3600
    assert first.min() > 50
    assert first.max() < 1300


def test_recurring_jumps_keep_their_period() -> None:
    rps = make_shape("recurring", "train", 4, 7200).rps
    ups = np.flatnonzero((rps[1:] > 400) & (rps[:-1] <= 400))
    assert len(ups) >= 10
    assert np.ptp(np.diff(ups)) <= 16


def test_files_are_read_as_written_and_rotated_by_seed(tmp_path: Path) -> None:
    plain, table = tmp_path / "mine.txt", tmp_path / "table.csv"
    plain.write_text("\n".join(str(100 + i) for i in range(90)) + "\n")
    table.write_text("time,rps\n0,100\n30,200\n119,50\n")
    shape, digest = read_shape(plain)
    assert shape.rps.tolist() == [100.0 + i for i in range(90)]
    assert len(digest) == 64
    bursty = tmp_path / "bursty.txt"
    bursty.write_text(plain.read_text())
    assert (shape.name, read_shape(bursty)[0].name) == ("mine", "bursty-file")
    assert read_shape(table)[0].rps[[0, 29, 30, 118, 119]].tolist() == [100, 100, 200, 200, 50]
    turned = rotated(shape, 3).rps
    assert sorted(turned.tolist()) == shape.rps.tolist()
    assert turned.tolist() != rotated(shape, 4).rps.tolist()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "1\nx\n", "line 2"),
        ("b.txt", "1\n2\n", "2 seconds"),
        ("c.txt", "-1\n" * 90, "from 0 to"),
        ("d.csv", "t,r\n1,2\n", "columns time,rps"),
        ("e.csv", "time,rps\n5,2\n1,2\n", "times must grow"),
    ],
)
def test_files_that_are_no_shape_say_why(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_shape(tmp_path / name)


def test_cost_is_compared_at_equal_attainment() -> None:
    attained, cost = np.array([0.9, 0.94, 0.92, 0.99]), np.array([1.0, 1.2, 1.5, 2.0])
    assert cost_at(attained, cost, 0.92) == pytest.approx(1.1)  # the dominated point does not count
    assert cost_at(attained, cost, 0.5) == 1.0
    assert cost_at(attained, cost, 0.995) == float("inf")

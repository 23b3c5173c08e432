from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.base.errors import InvalidInput
from tiphys_models.streams.sim.workloads import APPLICATIONS, make_streams, read_arrivals


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_arrival_times_come_as_seconds_or_as_dates(tmp_path: Path) -> None:
    plain = read_arrivals(write(tmp_path / "plain.txt", "10\n11.5\n\n12\n"))
    assert plain.times_s.tolist() == [0, 1.5, 2]
    dates = "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.9799600,1\n2023-11-16 18:17:05.9799600,2\n"
    dated = read_arrivals(write(tmp_path / "trace.csv", dates))
    assert dated.times_s.tolist() == [0, pytest.approx(2)]
    assert (dated.name, len(dated.sha256)) == ("trace", 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1\nsoon\n", "time 2: 'soon'"), ("1\n", "two different"), ("1\nnan\n", "not finite"), ("2\n2\n", "two different")],
)
def test_bad_arrival_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_arrivals(write(tmp_path / "bad.txt", text))


def test_a_file_keeps_its_bursts_and_gets_the_rate_of_poisson_arrivals(tmp_path: Path) -> None:
    # a burst of 50 within a second every 100 s, on average one every two seconds: 8 a second is 16 times as fast
    times = [100 * burst + i / 50 for burst in range(40) for i in range(50)]
    arrivals = read_arrivals(write(tmp_path / "bursts.txt", "\n".join(map(str, times))))
    found = make_streams("test", 0, 60.0, arrivals, horizon_s=200.0)
    assert len(found.start_s) == pytest.approx(8 * 200, rel=0.1)
    assert (np.diff(found.start_s) > 4).sum() == pytest.approx(200 * 16 / 100, abs=2)
    assert found.start_s.min() >= 0
    assert found.start_s.max() < 200
    again = make_streams("test", 0, 60.0, arrivals, horizon_s=200.0)
    assert np.array_equal(found.access, again.access)
    assert not np.array_equal(found.start_s[:20], make_streams("test", 1, 60.0, arrivals, horizon_s=200.0).start_s[:20])


def test_the_document_tells_applications_as_they_are_simulated() -> None:
    def told(low: float, high: float) -> str:
        return f"{low:g}" if low == high else f"{low:g}–{high:g}"

    text = (Path(__file__).parents[2] / "docs" / "binding.md").read_text()
    for a in APPLICATIONS:
        line = [a.name, told(*a.delay_ms), told(*a.rate_qps), told(*a.lasts_s), f"{a.accuracy:g}", f"{a.share:g}"]
        assert f"| {' | '.join(line)} |" in text

"""What was learned, on disk: replaced as a whole, read at the start, and never in anybody's way."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from tests.builders import node, pod
from tiphys_extender.placement.checkpoint_file import CheckpointFile
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.clock import ManualClock
from tiphys_models.placement.checkpoint import read
from tiphys_models.placement.state import PlacementState


class Kept:
    """A process with a state directory."""

    def __init__(self, directory: Path) -> None:
        self.state, self.metrics = PlacementState(), Metrics()
        self.state.put_node(node("n0"))
        self.file = CheckpointFile(directory, self.state, self.metrics, ManualClock())
        self.file.recall()

    def run_calls(self, function: str = "default/f", calls: int = 4) -> None:
        for i in range(calls):
            self.state.bound(pod(f"{function}-{i}", node="n0", function=function, scheduled_s=float(i)), float(i))
            self.state.ran(f"{function}-{i}", i + 1.0)

    def counted(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("tiphys_extender_checkpoints_total", {"outcome": outcome}) or 0.0

    def known(self, function: str = "default/f") -> bool:
        known = self.state.functions.get(function)
        return known is not None and self.state.beliefs.learned.is_known(known.index)


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_the_next_process_knows_what_this_one_has_learned(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    assert (first.counted("missing"), first.known()) == (1, False)
    first.run_calls()
    await first.file.save()
    assert first.counted("written") == 1
    assert first.metrics.registry.get_sample_value("tiphys_extender_checkpoint_bytes") == (tmp_path / "learned.json").stat().st_size
    second = Kept(tmp_path)
    assert (second.counted("read"), second.known()) == (1, True)
    assert names_in(tmp_path) == ["learned.json"]


async def test_a_process_that_has_seen_nothing_leaves_what_another_one_wrote(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    first.run_calls()
    await first.file.save()
    before = (tmp_path / "learned.json").read_bytes()
    blank = CheckpointFile(tmp_path, PlacementState(), Metrics(), ManualClock())
    await blank.save()
    assert (tmp_path / "learned.json").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 100])
def test_a_file_that_cannot_be_read_is_counted_and_learning_begins_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "learned.json").write_bytes(content)
    made = Kept(tmp_path)
    assert (made.counted("unreadable"), len(made.state.functions)) == (1, 0)
    assert [record.message for record in caplog.records] == ["cannot read what was learned, starting anew"]


async def test_one_poisoned_function_is_counted_and_the_others_are_kept(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    first.run_calls()
    first.run_calls("default/g")
    await first.file.save()
    found = orjson.loads((tmp_path / "learned.json").read_bytes())
    found["learned"]["functions"]["default/g"][0] = 1e308
    found["sha256"] = sha256(orjson.dumps(found["learned"], option=orjson.OPT_SORT_KEYS)).hexdigest()
    (tmp_path / "learned.json").write_bytes(orjson.dumps(found))
    second = Kept(tmp_path)
    assert (second.known(), second.known("default/g")) == (True, False)
    assert second.metrics.registry.get_sample_value("tiphys_extender_checkpoint_spoiled_entries_total") == 1


async def test_a_full_disk_is_counted_said_once_and_leaves_the_former_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Kept(tmp_path)
    made.run_calls()
    await made.file.save()
    before = (tmp_path / "learned.json").read_bytes()
    (tmp_path / "learned.json.new").mkdir()  # cannot be opened for writing, whoever runs this
    made.run_calls(calls=9)
    await made.file.save()
    await made.file.save()
    assert made.counted("failed") == 2
    assert [record.message for record in caplog.records if "keep" in record.message] == ["cannot keep what was learned"]
    assert (tmp_path / "learned.json").read_bytes() == before
    (tmp_path / "learned.json.new").rmdir()
    await made.file.save()
    assert len(read((tmp_path / "learned.json").read_bytes()).functions) == 1
    assert (tmp_path / "learned.json").read_bytes() != before

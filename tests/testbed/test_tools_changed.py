"""Programs that are built with pieces of their source changed: each piece is found exactly once, or nothing is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiphys_testbed.tools.changed import applied, change, replace_dependency
from tiphys_testbed.tools.programs import KARPENTER_MODEL_TIME, ToolError, cache_key, programs
from tiphys_testbed.tools.substitutions import Substitution, karpenter_timers

PIECE = Substitution("pkg/a.go", "10 * time.Second", "667 * time.Millisecond")


def test_a_piece_that_is_not_there_or_there_twice_is_an_error_that_names_it() -> None:
    assert applied(PIECE, "const p = 10 * time.Second\n") == "const p = 667 * time.Millisecond\n"
    for text in ("const p = 11 * time.Second\n", "a = 10 * time.Second\nb = 10 * time.Second\n"):
        with pytest.raises(ToolError, match=r"pkg/a\.go has '10"):
            applied(PIECE, text)


def test_the_copy_is_changed_and_the_module_is_not(tmp_path: Path) -> None:
    module, copy = tmp_path / "module", tmp_path / "copy"
    (module / "pkg").mkdir(parents=True)
    (module / "pkg" / "a.go").write_text("const p = 10 * time.Second\n")
    (module / "pkg" / "a.go").chmod(0o444)
    (module / "pkg").chmod(0o555)
    change([PIECE], module, copy)
    assert (copy / "pkg" / "a.go").read_text() == "const p = 667 * time.Millisecond\n"
    assert (module / "pkg" / "a.go").read_text() == "const p = 10 * time.Second\n"
    (module / "pkg").chmod(0o755)


def test_a_file_that_upstream_no_longer_has_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    with pytest.raises(ToolError, match=r"no pkg/a\.go"):
        change([PIECE], tmp_path / "module", tmp_path / "copy")


def test_the_replaced_dependency_keeps_its_required_version(tmp_path: Path) -> None:
    go_mod = tmp_path / "go.mod"
    go_mod.write_text("module x\n\nrequire example.com/y v1.2.3\n")
    replace_dependency(go_mod, "example.com/y", "../changed")
    assert go_mod.read_text().endswith("require example.com/y v1.2.3\n\nreplace example.com/y => ../changed\n")


def test_timers_are_divided_and_the_two_karpenters_are_two_programs() -> None:
    pieces = {piece.file.rpartition("/")[2]: piece.now for piece in karpenter_timers(15)}
    assert len(karpenter_timers(15)) == 5
    assert pieces["consolidation.go"] == "const commandValidationDelay = 1000 * time.Millisecond"
    assert "667*time.Millisecond" in pieces["statenode.go"]
    known = programs()
    keys = {cache_key(known[name], "go1.26.8", "linux/amd64") for name in ("karpenter-kwok", KARPENTER_MODEL_TIME)}
    assert len(keys) == 2
    assert all(known[name].on_demand for name in ("karpenter-kwok", KARPENTER_MODEL_TIME))

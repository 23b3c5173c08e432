"""The source of a program's Go module: manifests and definitions of upstream lie beside the code."""

import shutil
import tempfile
from pathlib import Path

from tiphys_testbed.tools.golang import downloaded, find_go, install_go
from tiphys_testbed.tools.toolbox import Toolbox


def module_source(toolbox: Toolbox, program: str) -> Path:
    """Where the module lies in Go's cache, downloaded if need be and checked against go.sum. Read only."""
    module = toolbox.program(program).module
    go = install_go(find_go(module.minimum_go, toolbox.cache_dir), toolbox.progress)
    with tempfile.TemporaryDirectory(prefix="tiphys-") as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module.path / name, Path(scratch) / name)
        return downloaded(go, Path(scratch), module.dependency)

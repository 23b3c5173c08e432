"""The source of a program's Go module: manifests and definitions of upstream lie beside the code."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from tiphys_testbed.tools.golang import build_environment, find_go, install_go
from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.toolbox import Toolbox

DOWNLOAD_DEADLINE_S = 120.0


def module_source(toolbox: Toolbox, program: str) -> Path:
    """Where the module lies in Go's cache, downloaded if need be and checked against go.sum. Read only."""
    module = toolbox.program(program).module
    go = install_go(find_go(module.minimum_go, toolbox.cache_dir), toolbox.progress)
    with tempfile.TemporaryDirectory(prefix="tiphys-") as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module.path / name, Path(scratch) / name)
        command = [str(go.executable), "mod", "download", "-json", module.dependency]
        try:
            answer = subprocess.run(
                command,
                cwd=scratch,
                env=build_environment(Path(scratch)),
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_DEADLINE_S,
                check=True,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"go mod download {module.dependency} did not end within {DOWNLOAD_DEADLINE_S:.0f} s") from None
        except subprocess.CalledProcessError as failed:
            raise ToolError(f"go mod download {module.dependency} failed: {failed.stderr.strip()}{failed.stdout[:500]}") from failed
    return Path(json.loads(answer.stdout)["Dir"])

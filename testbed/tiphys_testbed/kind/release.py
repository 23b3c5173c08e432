"""A kind cluster, or the user's own, on which the quick start has run: made for one piece of work, and ended after it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.existing import ExistingCluster
from tiphys_testbed.kind import images, packages
from tiphys_testbed.kind.cluster import KindCluster
from tiphys_testbed.kind.engines import EngineMissingError
from tiphys_testbed.kind.phases import Phases
from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.toolbox import Toolbox

QUICK_START = Path("manifests/kind-quickstart.sh")
QUICK_START_DEADLINE_S = 300.0


@contextmanager
def timed() -> Iterator[Phases]:
    """Phases, shown at the end however it ends; errors that can be named become one line."""
    phases = Phases()
    try:
        with reported_errors():
            yield phases
    finally:
        if phases.seconds:
            phases.show(make_console())


def with_release(phases: Phases, cluster: ExistingCluster | KindCluster, work: Callable[[dict[str, str]], None]) -> None:
    """Do the work on a cluster where the quick start has run; it gets the environment of a user there."""
    if isinstance(cluster, KindCluster):
        try:
            check(cluster)
        except EngineMissingError as missing:
            make_console().print(f"skipped: {missing}", markup=False)
            return
        with phases.phase("programs"):
            _ensure(cluster.toolbox)
        with phases.phase("images"):
            made = images.build(cluster.toolbox, Path())
        with phases.phase("cluster"):
            cluster.start()
    else:
        cluster.start()
    try:
        if isinstance(cluster, KindCluster):
            with phases.phase("load"):
                for image in made:
                    cluster.load_image(image.archive)
        environment = _environment(cluster)
        with phases.phase("install"):
            started = time.monotonic()
            subprocess.run(["bash", "-euo", "pipefail", str(QUICK_START)], env=environment, timeout=QUICK_START_DEADLINE_S, check=True)
            make_console().print(f"quick start: {time.monotonic() - started:.1f} s", markup=False)
        work(environment)
    except subprocess.CalledProcessError as failed:
        raise ClusterError(f"{QUICK_START} ended with {failed.returncode}") from failed
    finally:
        with phases.phase("delete"):
            cluster.stop()


def check(cluster: KindCluster) -> None:
    """Fail before anything was built if nodes cannot run here."""
    if cluster.engine.name == "podman" and (absent := packages.missing()):
        raise EngineMissingError(f"no Docker engine answers; for podman install: {' '.join(packages.install_command(absent))}")


def _ensure(toolbox: Toolbox) -> None:
    try:
        toolbox.ensure(["kind", "kubectl", "helm"])
    except ToolError as error:
        raise ClusterError(str(error)) from error


def _environment(cluster: KindCluster | ExistingCluster) -> dict[str, str]:
    """What the quick start finds on a user's machine: KUBECONFIG, and kubectl, helm and tiphys on PATH."""
    programs = [str(cluster.toolbox.path(program).parent) for program in ("kubectl", "helm")]
    path = os.pathsep.join([*programs, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "KUBECONFIG": str(cluster.kubeconfig.absolute()), "PATH": path}

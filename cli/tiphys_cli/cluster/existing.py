"""A cluster that somebody else runs, reached by a kubeconfig."""

import os
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tiphys_cli.cluster.base import KubeCluster
from tiphys_cli.cluster.errors import ClusterError
from tiphys_cli.tools.toolbox import Toolbox

READY_DEADLINE_S = 30.0


class ExistingCluster(KubeCluster):
    """Never started, stopped or deleted by us."""

    kind: Literal["existing"] = "existing"

    def __init__(self, kubeconfig: Path | None = None, toolbox: Toolbox | None = None) -> None:
        super().__init__(toolbox or Toolbox())
        self._kubeconfig = kubeconfig

    @property
    def kubeconfig(self) -> Path:
        """The given one, else the first of `$KUBECONFIG`, else `~/.kube/config`."""
        if self._kubeconfig is not None:
            return self._kubeconfig
        listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        return Path(listed[0]) if listed else Path.home() / ".kube" / "config"

    def start(self) -> Self:
        """Check that it answers and that we may do what Tiphys needs."""
        if not self.kubeconfig.exists():
            raise ClusterError(f"no kubeconfig at {self.kubeconfig}; set KUBECONFIG to that of the cluster to use")
        self.wait_ready(READY_DEADLINE_S)
        return self

    def stop(self) -> None:
        """Give back connections; the cluster stays as it is."""
        self.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

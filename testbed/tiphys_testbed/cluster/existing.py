"""A cluster that somebody else runs, reached by a kubeconfig."""

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.kube.kubeconfig import kubeconfig_path
from tiphys_testbed.cluster.base import KubeCluster
from tiphys_testbed.tools.toolbox import Toolbox

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
        return kubeconfig_path(self._kubeconfig)

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

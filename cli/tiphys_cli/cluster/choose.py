"""From a word to a cluster."""

from pathlib import Path

from tiphys_cli.cluster.base import Cluster, Kind
from tiphys_cli.cluster.existing import ExistingCluster
from tiphys_cli.cluster.kind import KindCluster, KindOptions
from tiphys_cli.cluster.local import LocalCluster
from tiphys_cli.cluster.options import LocalOptions


def make_cluster(kind: Kind, *, local: LocalOptions | None = None, kind_config: Path = Path("manifests/kind.yaml")) -> Cluster:
    """A cluster of that kind, not yet started. An existing one is used only when asked for by name: whatever
    KUBECONFIG points to may be somebody's production."""
    if kind == "local":
        return LocalCluster(local)
    if kind == "kind":
        return KindCluster(KindOptions(config=kind_config))
    return ExistingCluster()

"""From a word to a cluster."""

from tiphys_cli.cluster.base import Cluster, Kind
from tiphys_cli.cluster.existing import ExistingCluster
from tiphys_cli.cluster.kind.cluster import KindCluster, KindOptions
from tiphys_cli.cluster.local import LocalCluster
from tiphys_cli.cluster.options import LocalOptions


def make_cluster(kind: Kind, *, local: LocalOptions | None = None, kind_options: KindOptions | None = None) -> Cluster:
    """A cluster of that kind, not yet started. An existing one is used only when asked for by name: whatever
    KUBECONFIG points to may be somebody's production."""
    if kind == "local":
        return LocalCluster(local)
    if kind == "kind":
        return KindCluster(kind_options)
    return ExistingCluster()

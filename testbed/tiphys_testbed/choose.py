"""Makes the cluster that the name of its kind asks for."""

from tiphys_testbed.cluster.base import Cluster, Kind
from tiphys_testbed.cluster.existing import ExistingCluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.kind.cluster import KindCluster, KindOptions


def make_cluster(kind: Kind, *, local: LocalOptions | None = None, kind_options: KindOptions | None = None) -> Cluster:
    """A cluster of that kind, not yet started. An existing one is used only when asked for by name: whatever
    KUBECONFIG points to may be somebody's production."""
    if kind == "local":
        return LocalCluster(local)
    if kind == "kind":
        return KindCluster(kind_options)
    return ExistingCluster()

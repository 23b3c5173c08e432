"""One cluster for the session, a fresh namespace for each test.

`pytest e2e --cluster=local|existing|kind` (or `TIPHYS_E2E_CLUSTER`). `local` starts the real control plane with simulated
nodes, `existing` uses `KUBECONFIG`, `kind` makes containers. Tests that the chosen cluster cannot run are skipped, with
the reason.
"""

import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.choose import make_cluster
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import SimulatedNode, create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.kind.cluster import KindOptions
from tiphys_testbed.tools.programs import CONTROL_PLANE, DEFAULT_KUBERNETES
from tiphys_testbed.tools.toolbox import Toolbox

VERSIONS = (DEFAULT_KUBERNETES, "1.35")
KINDS = ("local", "existing", "kind")
PROGRAMS = {"local": (*CONTROL_PLANE, "etcd", "kwok", "prometheus"), "existing": ("kubectl",), "kind": ("kubectl",)}
TEST_TIMEOUT_S = 180
NODES = 12
SHOWN_CHARACTERS = 8000
"""Of each kind of object, when a test has failed."""
Condition = Callable[[], object]


def pytest_addoption(parser: pytest.Parser) -> None:
    default = os.environ.get("TIPHYS_E2E_CLUSTER", "local")
    parser.addoption("--cluster", choices=KINDS, default=default, help="which cluster the end-to-end tests use")
    parser.addoption("--kubernetes", choices=VERSIONS, default=DEFAULT_KUBERNETES, help="version of the cluster")
    parser.addoption("--attach", action="store_true", help="with --cluster=kind: use the cluster that runs, and leave it running")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = config.getoption("--cluster")
    unfit = {
        "needs_kubelet": kind == "local" and "the local cluster's nodes are simulated: use --cluster=kind or existing",
        "needs_kwok": kind != "local" and f"needs simulated nodes: use --cluster=local, not {kind}",
        "needs_kind": kind != "kind" and f"loads images onto nodes: needs --cluster=kind, not {kind}",
        "needs_local": kind != "local" and f"starts and stops parts of the control plane: needs --cluster=local, not {kind}",
    }
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
        for marker, reason in unfit.items():
            if reason and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
    # They use the installed release and take it away; tests of an operator of their own want the cluster to themselves.
    items.sort(key=lambda item: item.get_closest_marker("needs_kubelet") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing programs here: a cold build takes minutes and must not count as a test's time."""
    able = [item for item in session.items if item.get_closest_marker("skip") is None]
    wanted = [item for item in able if "cluster" in getattr(item, "fixturenames", ())]
    if session.config.option.collectonly or not wanted:
        return
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    named = {name for item in wanted for marker in item.iter_markers("programs") for name in marker.args}
    programs = [*PROGRAMS[session.config.getoption("--cluster")], *sorted(named)]
    with capture.global_and_fixture_disabled():
        Toolbox(kubernetes=session.config.getoption("--kubernetes")).ensure(programs)


RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}


@pytest.fixture
def home(api: ApiClient) -> Iterator[str]:
    """A namespace for a release, with the restricted profile enforced."""
    name = f"release-{uuid4().hex[:8]}"
    path = f"/api/v1/namespaces/{name}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    wait_until(lambda: exists(api, f"{path}/serviceaccounts/default"), 30, f"ServiceAccount in {name}")
    yield name
    api.delete(path)
    api.delete(f"{path}/pods", gracePeriodSeconds=0)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The session's cluster, started."""
    options = LocalOptions(name=f"e2e-{os.getpid()}", kubernetes=request.config.getoption("--kubernetes"))
    real = KindOptions(kubernetes=options.kubernetes, attach=request.config.getoption("--attach"))
    made = make_cluster(request.config.getoption("--cluster"), local=options, kind_options=real)
    try:
        made.start()
    except ClusterError as error:
        pytest.exit(f"no cluster, no end-to-end test: {error}", returncode=1)
    try:
        yield made
        if isinstance(made, LocalCluster) and request.session.testsfailed:
            shutil.copytree(made.options.run_dir / "logs", Path("out") / "e2e-logs", dirs_exist_ok=True)
    finally:
        made.stop()


@pytest.fixture(scope="session")
def local(cluster: Cluster) -> LocalCluster:
    """The session's cluster where its parts can be started and stopped; combine with the marker `needs_local`."""
    if not isinstance(cluster, LocalCluster):
        pytest.skip("needs --cluster=local")
    return cluster


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> ApiClient:
    """Requests as the administrator."""
    return cluster.api


@pytest.fixture(scope="session")
def simulated_nodes(local: LocalCluster) -> list[SimulatedNode]:
    """A dozen simulated nodes, Ready."""
    nodes = fleet(NODES)
    create_nodes(local.api, nodes)
    names = {node.name for node in nodes}
    wait_until(lambda: names <= ready_nodes(local.api), 60, "simulated nodes Ready")
    return nodes


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test alone; its pods are gone before the next test."""
    name = f"e2e-{uuid4().hex[:8]}"
    path = f"/api/v1/namespaces/{name}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    wait_until(lambda: exists(cluster.api, f"{path}/serviceaccounts/default"), 30, f"ServiceAccount in {name}")
    yield name
    cluster.api.delete(path)
    cluster.api.delete(f"{path}/pods", gracePeriodSeconds=0)
    wait_until(lambda: not cluster.api.items(f"{path}/pods"), 60, f"pods of {name} gone")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its namespace holds: the machine it failed on may be out of reach."""
    report = yield
    seen = getattr(item, "funcargs", {})
    if report.failed and report.when == "call" and {"cluster", "namespace"} <= seen.keys():
        for kind, form in (("nodes", "wide"), ("pods", "yaml"), ("events", "wide")):
            try:
                text = seen["cluster"].kubectl("get", kind, f"--namespace={seen['namespace']}", f"--output={form}")
            except ClusterError as error:
                text = str(error)
            report.sections.append((f"{kind} at the end of the test", text[-SHOWN_CHARACTERS:]))
    return report


def ready_nodes(api: ApiClient) -> set[str]:
    """Names of nodes that are Ready and carry no taint."""
    return {
        node["metadata"]["name"]
        for node in api.items("/api/v1/nodes")
        if not node["spec"].get("taints")
        and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())
    }


def exists(api: ApiClient, path: str) -> bool:
    """Whether an object is there."""
    try:
        api.get(path)
    except RequestRefused as error:
        if error.status == 404:
            return False
        raise
    return True


def wait_until(condition: Condition, deadline_s: float, what: str, poll_s: float = 0.1) -> None:
    """Wait until a condition holds; fail with its name at the deadline."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(poll_s)

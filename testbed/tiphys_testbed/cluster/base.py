"""What every cluster can do, wherever it runs."""

import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_cli.kube.kubeconfig import Credentials, read_kubeconfig, write_kubeconfig
from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.toolbox import Toolbox

KUBECTL_DEADLINE_S = 120.0
TOKEN_S = 12 * 3600
Kind = Literal["local", "existing", "kind"]


@runtime_checkable
class Cluster(Protocol):
    """A Kubernetes cluster that Tiphys can be tried on."""

    @property
    def kind(self) -> Kind:
        """The kind of cluster, which says where it runs."""

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of a cluster administrator."""

    @property
    def server(self) -> str:
        """Address of the API server."""

    @property
    def version(self) -> str:
        """What the API server says it is: `v1.36.3`."""

    @property
    def api(self) -> ApiClient:
        """Requests as the administrator."""

    def start(self) -> Self:
        """The cluster is created or connected to, and then usable."""

    def stop(self) -> None:
        """The opposite of `start`: what was created is deleted."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def wait_ready(self, deadline_s: float) -> None:
        """Wait until pods can be made in namespace `default`."""

    def apply(self, manifest_text: str, namespace: str | None = None) -> str:
        """`kubectl apply --server-side`; returns what kubectl prints."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns its standard output."""

    def kubeconfig_for(self, service_account: str, namespace: str) -> Path:
        """A kubeconfig with a bounded token of an existing ServiceAccount, to run a service under its own RBAC."""


class KubeCluster(ABC):
    """What follows from an administrator's kubeconfig alone."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self._api: ApiClient | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """A kubeconfig of a cluster administrator."""

    @property
    def server(self) -> str:
        """Address of the API server."""
        return read_kubeconfig(self.kubeconfig).server

    @property
    def version(self) -> str:
        """What the API server says it is."""
        return str(self.api.get("/version")["gitVersion"])

    @property
    def api(self) -> ApiClient:
        """Requests as the administrator."""
        if self._api is None:
            self._api = ApiClient.from_kubeconfig(self.kubeconfig)
        return self._api

    @property
    def scratch(self) -> Path:
        """A private directory for files that end with the cluster object."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="tiphys-cluster-")
        return Path(self._scratch.name)

    def close(self) -> None:
        """Give back connections and files."""
        if self._api is not None:
            self._api.close()
            self._api = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def wait_ready(self, deadline_s: float) -> None:
        """Wait for `/readyz` and for the ServiceAccount that pods of namespace `default` need."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                status, data = self.api.raw("GET", "/readyz")
                missing = data.decode(errors="replace") if status != 200 else ""
                if not missing:
                    self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
                    return
            except RequestRefused as error:
                missing = str(error)
            except ClusterError as error:
                missing = str(error)
            if time.monotonic() > end:
                raise ClusterError(f"{self.server} was not ready within {deadline_s:.0f} s: {missing[:500]}")
            time.sleep(0.05)

    def apply(self, manifest_text: str, namespace: str | None = None) -> str:
        """`kubectl apply --server-side`, taking over fields that others wrote."""
        scope = ("--namespace", namespace) if namespace else ()
        arguments = ("apply", "--server-side", "--force-conflicts", "--field-manager=tiphys", *scope, "-f", "-")
        return self.kubectl(*arguments, stdin=manifest_text)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator."""
        try:
            program = self.toolbox.path("kubectl")
        except ToolError as error:
            raise ClusterError(str(error)) from error
        command = [str(program), f"--kubeconfig={self.kubeconfig}", *arguments]
        try:
            answer = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=KUBECTL_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            what = " ".join(arguments)
            raise ClusterError(f"kubectl {what} did not end within {KUBECTL_DEADLINE_S:.0f} s") from None
        if answer.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {answer.stderr.strip()}")
        return answer.stdout

    def kubeconfig_for(self, service_account: str, namespace: str) -> Path:
        """Ask the API server for a token of the ServiceAccount (TokenRequest) and write a kubeconfig with it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        try:
            token = self.api.create(path, request)["status"]["token"]
        except RequestRefused as error:
            if error.status == 404:
                raise ClusterError(f"no ServiceAccount {namespace}/{service_account}; apply the manifests that make it first") from error
            raise
        admin = read_kubeconfig(self.kubeconfig)
        credentials = Credentials(admin.server, admin.ca_pem, token=token, insecure=admin.insecure)
        file = self._credentials_dir() / f"{namespace}-{service_account}.kubeconfig"
        return write_kubeconfig(file, credentials, service_account, namespace)

    def _credentials_dir(self) -> Path:
        return self.scratch

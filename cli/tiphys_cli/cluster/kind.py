"""A cluster of containers made by `kind`, for those who have Docker or podman."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tiphys_cli.cluster.base import KubeCluster
from tiphys_cli.cluster.errors import ClusterError
from tiphys_cli.tools.toolbox import Toolbox

CREATE_DEADLINE_S = 600.0
READY_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class KindOptions:
    """A kind cluster."""

    name: str = "tiphys"
    config: Path = Path("manifests/kind.yaml")
    keep: bool = False
    """Do not delete it at the end."""


class KindCluster(KubeCluster):
    """`kind create cluster --config manifests/kind.yaml`, deleted at the end."""

    kind: Literal["kind"] = "kind"

    def __init__(self, options: KindOptions | None = None, toolbox: Toolbox | None = None) -> None:
        super().__init__(toolbox or Toolbox())
        self.options = options or KindOptions()
        self._made = False

    @property
    def kubeconfig(self) -> Path:
        """Written by kind into a private directory; `~/.kube/config` is left alone."""
        return self.scratch / "kind.kubeconfig"

    def start(self) -> Self:
        """Create the cluster and wait until pods can be made."""
        program = shutil.which("kind")
        if program is None:
            raise ClusterError("`kind` is not on PATH; install it (https://kind.sigs.k8s.io) or use --cluster=local")
        if not any(shutil.which(engine) for engine in ("docker", "podman", "nerdctl")):
            raise ClusterError("kind needs Docker, podman or nerdctl on PATH; install one or use --cluster=local")
        if not self.options.config.exists():
            raise ClusterError(f"no kind configuration at {self.options.config}; run from the repository's root")
        command = [program, "create", "cluster", "--name", self.options.name, "--config", str(self.options.config)]
        with self.toolbox.progress.step(f"creating kind cluster {self.options.name}"):
            self._run([*command, "--kubeconfig", str(self.kubeconfig), "--wait", "120s"])
            self._made = True
        try:
            self.wait_ready(READY_DEADLINE_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Delete the cluster if we made it and it is not to be kept."""
        try:
            if self._made and not self.options.keep:
                self._run(["kind", "delete", "cluster", "--name", self.options.name])
        finally:
            self._made = False
            self.close()

    def load_image(self, image: str) -> None:
        """Put a local image onto every node."""
        self._run(["kind", "load", "docker-image", image, "--name", self.options.name])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self, command: list[str]) -> str:
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=CREATE_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{' '.join(command)} did not end within {CREATE_DEADLINE_S:.0f} s") from None
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(command)} failed; is the container engine running?\n{answer.stderr.strip()}")
        return answer.stdout

"""`kind create cluster`, deleted at the end, also after a crash."""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.base import KubeCluster
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.runs import Guardian, Run, claim, sweep
from tiphys_testbed.kind.engines import Engine, choose
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES, ToolError
from tiphys_testbed.tools.toolbox import Toolbox

CREATE_DEADLINE_S = 600.0
READY_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class KindOptions:
    """Options of a kind cluster."""

    name: str = "tiphys"
    config: Path = Path("manifests/kind.yaml")
    kubernetes: str = DEFAULT_KUBERNETES
    keep: bool = False
    """Do not delete it at the end."""
    attach: bool = False
    """Use the cluster of this name that runs already, and leave it running."""
    root: Path = field(default_factory=lambda: LocalOptions().root)

    @property
    def run_dir(self) -> Path:
        """Where the kubeconfig and podman's state lie."""
        return self.root / f"kind-{self.name}"


class KindCluster(KubeCluster):
    """A cluster after `manifests/kind.yaml`."""

    kind: Literal["kind"] = "kind"

    def __init__(self, options: KindOptions | None = None, toolbox: Toolbox | None = None, engine: Engine | None = None) -> None:
        self.options = options or KindOptions()
        super().__init__(toolbox or Toolbox(kubernetes=self.options.kubernetes))
        self._engine = engine
        self._run: Run | None = None
        self._guardian: Guardian | None = None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig in the run directory; `~/.kube/config` is left alone."""
        return self.options.run_dir / "kubeconfig"

    @property
    def engine(self) -> Engine:
        """What the nodes run on: chosen at the first look."""
        if self._engine is None:
            self._engine = choose()
        return self._engine

    def start(self) -> Self:
        """Create the cluster and wait until pods can be made on every node."""
        options, engine = self.options, self.engine
        if options.attach:
            engine.attach(Run(options.run_dir))
            self.wait_ready(READY_DEADLINE_S)
            return self
        if not options.config.exists():
            raise ClusterError(f"no kind configuration at {options.config}; run from the repository's root")
        options.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweep(options.root)
        self._run = claim(options.run_dir, keep=options.keep)
        try:
            if not options.keep:
                self._guardian = Guardian.start(self._run)
            engine.prepare(self.toolbox, self._run, options.name)
            with self.toolbox.progress.step(f"creating kind cluster {options.name} on {engine.name}"):
                self._create(engine)
        except BaseException:
            self.stop(always=True)
            raise
        return self

    def stop(self, *, always: bool = False) -> None:
        """Delete the cluster unless it is to be kept."""
        self.close()
        run, self._run = self._run, None
        if run is None or (self.options.keep and not always):
            return
        try:
            run.remove()
        finally:
            if self._guardian is not None:
                guardian, self._guardian = self._guardian, None
                guardian.dismiss()

    def load_image(self, archive: Path) -> None:
        """Put the images of an archive onto every node."""
        self.run_kind("load", "image-archive", str(archive.absolute()), "--name", self.options.name)

    def on_node(self, node: str, *argv: str) -> str:
        """Run a command in a node's container; what it prints."""
        return self._run_inside([self.engine.name, "exec", node, *argv])

    def limit_node(self, node: str, cpus: float) -> None:
        """Give a node's container that many cores at most."""
        self._run_inside([self.engine.name, "update", f"--cpus={cpus}", node])

    def run_kind(self, *arguments: str) -> str:
        """Run kind; what it prints."""
        try:
            program = self.toolbox.path("kind")
        except ToolError as error:
            raise ClusterError(str(error)) from error
        return self._run_inside([str(program), *arguments])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _create(self, engine: Engine) -> None:
        options = self.options
        config = options.run_dir / "kind.yaml"
        wanted: dict[str, Any] = yaml.safe_load(options.config.read_text(encoding="utf-8"))
        config.write_text(yaml.safe_dump(engine.adapted(wanted), sort_keys=False), encoding="utf-8")
        image = engine.node_image()
        arguments = [
            "--config",
            str(config),
            "--kubeconfig",
            str(self.kubeconfig),
            "--wait",
            "120s",
            *(["--image", image] if image else []),
        ]
        # Retained, for whoever looks into a failure: everything is removed with the run.
        self.run_kind("create", "cluster", "--name", options.name, "--retain", *arguments)
        if address := engine.address(f"{options.name}-control-plane"):
            text = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
            text["clusters"][0]["cluster"]["server"] = f"https://{address}:6443"
            self.kubeconfig.write_text(yaml.safe_dump(text), encoding="utf-8")
        self.wait_ready(READY_DEADLINE_S)
        engine.route(self._nodes_with_ranges(len(wanted.get("nodes") or [None])))

    def _nodes_with_ranges(self, count: int) -> list[dict[str, Any]]:
        end = time.monotonic() + READY_DEADLINE_S
        while True:
            nodes = [node for node in self.api.items("/api/v1/nodes") if node["spec"].get("podCIDR")]
            if len(nodes) == count:
                return nodes
            if time.monotonic() > end:
                raise ClusterError(f"{len(nodes)} of {count} nodes have a pod network after {READY_DEADLINE_S:.0f} s")
            time.sleep(0.2)

    def _run_inside(self, argv: Sequence[str]) -> str:
        engine = self.engine
        try:
            answer = subprocess.run(
                engine.command(argv),
                env=os.environ | engine.environment,
                capture_output=True,
                text=True,
                timeout=CREATE_DEADLINE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{' '.join(argv)} did not end within {CREATE_DEADLINE_S:.0f} s") from None
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(argv)} failed:\n{answer.stderr.strip()}")
        return answer.stdout

"""`tiphys kind`: a kind cluster with the project's images, kept or for one run of the tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.existing import ExistingCluster
from tiphys_testbed.cluster.runs import Run
from tiphys_testbed.kind import images, measuring, packages
from tiphys_testbed.kind.cluster import KindCluster, KindOptions
from tiphys_testbed.kind.engines import EngineMissingError, choose
from tiphys_testbed.kind.release import check, timed, with_release
from tiphys_testbed.kind.scaling.commands import scaling
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES
from tiphys_testbed.tools.toolbox import Toolbox

kind_app = typer.Typer(no_args_is_help=True, help="Real nodes: a kind cluster on Docker, or on podman without Docker and registry.")

kind_app.command()(measuring.monitor)
kind_app.command("features")(measuring.show_features)
kind_app.command()(measuring.functions)
kind_app.command()(scaling)
Kubernetes = Annotated[str, typer.Option(help="1.36 or 1.35")]
Name = Annotated[str, typer.Option(help="name of the cluster")]


@kind_app.command()
def up(name: Name = "tiphys", kubernetes: Kubernetes = DEFAULT_KUBERNETES) -> None:
    """Build the project's images, create a cluster, load them, leave it running; standard output is for `eval`."""
    with reported_errors():
        cluster = KindCluster(KindOptions(name=name, kubernetes=kubernetes, keep=True))
        check(cluster)
        made = images.build(cluster.toolbox, Path())
        cluster.start()
        for image in made:
            cluster.load_image(image.archive)
        said = make_console(stderr=True)
        said.print(f"Kubernetes {cluster.version} on {cluster.engine.name} with {', '.join(image.name for image in made)}", markup=False)
        said.print("end it with: tiphys kind down", markup=False)
        programs = os.pathsep.join(sorted({str(cluster.toolbox.path(program).parent) for program in ("kubectl", "helm")}))
        typer.echo(f"export KUBECONFIG={cluster.kubeconfig}\nexport PATH=$PATH:{programs}")


@kind_app.command()
def down(name: Name = "tiphys") -> None:
    """Delete a cluster that was left running, with everything that belongs to it."""
    with reported_errors():
        run = Run(KindOptions(name=name).run_dir)
        if not run.path.exists():
            raise ClusterError(f"no kind cluster {name!r} runs here")
        if run.owned() and not run.kept:
            raise ClusterError(f"kind cluster {name!r} belongs to a running program; end that one (Ctrl-C)")
        run.remove()


@kind_app.command("images")
def build_images(trainer: Annotated[bool, typer.Option(help="the trainer's too: with torch, gigabytes")] = False) -> None:
    """Build the project's images from its Dockerfile, and say how large they are."""
    with reported_errors():
        for image in images.build(Toolbox(), Path(), (*images.SERVICES, *(["trainer"] if trainer else []))):
            make_console().print(f"{image.name}  {image.size_mib:.0f} MiB  {image.archive}", markup=False)


@kind_app.command("packages")
def install_packages() -> None:
    """Where no Docker engine answers: install the Debian packages that nodes on podman need."""
    with reported_errors():
        try:
            installed = packages.install() if choose().name == "podman" else []
        except EngineMissingError as missing:
            make_console().print(f"skipped: {missing}", markup=False)
            return
        if installed:
            make_console().print(f"installed {' '.join(installed)}", markup=False)


@kind_app.command()
def e2e(
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster running")] = False,
    existing: Annotated[bool, typer.Option("--existing", help="use the cluster of KUBECONFIG, on which the images are")] = False,
    kubernetes: Kubernetes = DEFAULT_KUBERNETES,
    tests: Annotated[list[str] | None, typer.Argument(help="arguments for pytest instead of e2e")] = None,
) -> None:
    """Images, cluster, load, quick start, the tests that real nodes allow, delete: with the time of each."""
    with timed() as phases:
        cluster = ExistingCluster() if existing else KindCluster(KindOptions(kubernetes=kubernetes, keep=keep))
        choice = ["--cluster=existing"] if existing else ["--cluster=kind", "--attach", f"--kubernetes={kubernetes}"]

        def suite(environment: dict[str, str]) -> None:
            with phases.phase("suite"):
                command = [sys.executable, "-m", "pytest", *(tests or ["e2e"]), "-q", *choice]
                status = subprocess.run(command, env=environment, check=False).returncode
            if status != 0:
                raise ClusterError(f"the tests ended with {status}")

        with_release(phases, cluster, suite)


@kind_app.command()
def metrics(
    keep: Annotated[bool, typer.Option("--keep", help="leave the cluster running")] = False,
    kubernetes: Kubernetes = DEFAULT_KUBERNETES,
) -> None:
    """Images, cluster, load, quick start, then real metrics: every input of a decision, policies on real functions; delete."""
    with timed() as phases:
        cluster = KindCluster(KindOptions(kubernetes=kubernetes, keep=keep))

        def measure(_: dict[str, str]) -> None:
            with phases.phase("monitor"):
                measuring.install(cluster)
            with phases.phase("features"):
                measuring.print_features(cluster, markdown=True)
            with phases.phase("functions"):
                measuring.print_functions(cluster, measuring.FunctionLoad(), markdown=True)

        with_release(phases, cluster, measure)

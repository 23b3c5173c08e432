"""`tiphys cluster`: bring the local control plane up, take it down, look at it."""

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.runs import Run
from tiphys_testbed.plane.plane import Plane, start_plane, status_line
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES, ToolError

_TELL_EVERY_S = 10.0

cluster_app = typer.Typer(no_args_is_help=True, help="The local control plane: real Kubernetes, simulated nodes.")

Name = Annotated[str, typer.Option(help="name of the cluster; two names can run side by side")]


@cluster_app.command()
def up(
    nodes: Annotated[int, typer.Option(min=0, max=5000, help="simulated nodes to make")] = 20,
    keep: Annotated[bool, typer.Option("--keep", help="leave it running and return")] = False,
    name: Name = "default",
    kubernetes: Annotated[str, typer.Option(help="1.36 or 1.35")] = DEFAULT_KUBERNETES,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="with all of Tiphys at work: both schedulers, extender, operator, binder, Prometheus, policies of all kinds"
        ),
    ] = False,
) -> None:
    """Start a cluster; without --keep it ends with this command (Ctrl-C)."""
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    signal.signal(signal.SIGTERM, _interrupt)
    cluster = LocalCluster(LocalOptions(name=name, kubernetes=kubernetes, keep=keep))
    try:
        cluster.start()
        try:
            plane = start_plane(cluster, max(nodes, 1)) if full else None
            if plane is None:
                create_nodes(cluster.api, fleet(nodes))
            console.print(f"Kubernetes {cluster.version} at {cluster.server}, {nodes} simulated nodes")
            if plane is not None:
                console.print(status_line(plane), markup=False)
                console.print(f"pulse: {plane.page_url}/pulse   operator: {plane.operator_status_url}/metrics", markup=False)
                console.print(f"extender: {plane.services.status_url}/metrics   binder: {plane.binder_status_url}/metrics", markup=False)
            console.print(f"export KUBECONFIG={cluster.kubeconfig}", markup=False)
            console.print(f"kubectl: {cluster.toolbox.path('kubectl')}", markup=False)
            if keep:
                option = "" if name == "default" else f" --name {name}"
                console.print(f"end it with: tiphys cluster down{option}")
                cluster.leave()
                return
            console.print("Ctrl-C ends it")
            _watch(cluster, plane, console)
        except BaseException:
            cluster.stop()
            raise
    except KeyboardInterrupt:
        console.print("ended")
    except (ClusterError, ToolError, TimeoutError) as error:
        _fail(error)


@cluster_app.command()
def down(name: Name = "default") -> None:
    """End a cluster that was left running, in order, and delete its files."""
    run = Run(LocalOptions(name=name).run_dir)
    if not run.path.exists():
        _fail(ClusterError(f"no cluster {name!r} runs here"))
    if run.owned() and not run.kept:
        _fail(ClusterError(f"cluster {name!r} belongs to a running program; end that one (Ctrl-C)"))
    try:
        run.remove()
    except ClusterError as error:
        _fail(error)
    Console().print(f"cluster {name!r} is down")


@cluster_app.command()
def status(name: Name = "default") -> None:
    """Show a cluster's processes; exit status 1 if there is none or one of them is gone."""
    path: Path = LocalOptions(name=name).run_dir
    processes = ProcessTable(path).all()
    if not processes:
        _fail(ClusterError(f"no cluster {name!r} runs here; start one with: tiphys cluster up"))
    table = Table("process", "pid", "state", "address")
    for process in reversed(processes):
        state = "running" if process.alive() else "gone"
        table.add_row(process.name, str(process.pid), state, process.url)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"logs: {path / 'logs'}", markup=False, soft_wrap=True)
    console.print(f"export KUBECONFIG={path / 'admin.kubeconfig'}", markup=False, soft_wrap=True)
    if not all(process.alive() for process in processes):
        raise typer.Exit(1)


def _watch(cluster: LocalCluster, plane: Plane | None, console: Console) -> NoReturn:
    told_s = time.monotonic()
    while True:
        time.sleep(1.0)
        if plane is not None and time.monotonic() - told_s > _TELL_EVERY_S:
            told_s = time.monotonic()
            console.print(_told(plane), markup=False)
        for process in cluster.processes.all():
            if not process.alive():
                raise ClusterError(f"{process.name} ended; the end of its log ({process.log}):\n{process.log_tail()}")


def _told(plane: Plane) -> str:
    """The status line, or why there is none: an API server that does not answer for a moment ends nothing here."""
    try:
        return status_line(plane)
    except (ClusterError, OSError) as error:
        return f"cannot be told: {error}"


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _fail(error: Exception) -> NoReturn:
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"error: {error}")
    raise typer.Exit(1)

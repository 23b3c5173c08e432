"""A real control plane as plain processes on loopback; nodes are simulated by kwok."""

import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tiphys_cli.kube.errors import ClusterError
from tiphys_cli.kube.kubeconfig import Credentials, write_kubeconfig
from tiphys_testbed.cluster import flags
from tiphys_testbed.cluster.base import KubeCluster
from tiphys_testbed.cluster.options import LocalOptions, PrometheusOptions, SchedulerOptions
from tiphys_testbed.cluster.pki import Authority, Pair, make_authority, make_service_account_key
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import (
    RANK_APISERVER,
    RANK_CLIENT,
    RANK_CONTROLLER,
    RANK_ETCD,
    Process,
    ProcessTable,
)
from tiphys_testbed.cluster.prometheus import prometheus_config
from tiphys_testbed.cluster.readiness import PortTakenError, wait_healthy
from tiphys_testbed.cluster.runs import Guardian, Run, claim, sweep
from tiphys_testbed.tools.programs import CONTROL_PLANE, ToolError
from tiphys_testbed.tools.toolbox import Toolbox

_START_ATTEMPTS = 3


class LocalCluster(KubeCluster):
    """etcd, API server, controller-manager, a plain scheduler and kwok, with RBAC on."""

    kind: Literal["local"] = "local"

    def __init__(self, options: LocalOptions | None = None, toolbox: Toolbox | None = None) -> None:
        self.options = options or LocalOptions()
        super().__init__(toolbox or Toolbox(kubernetes=self.options.kubernetes))
        self.processes = ProcessTable(self.options.run_dir)
        self._run: Run | None = None
        self._guardian: Guardian | None = None
        self._ports: flags.Ports | None = None
        self._certificates: flags.Certificates | None = None
        self._authority: Authority | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, in the run directory."""
        return self.options.run_dir / "admin.kubeconfig"

    @property
    def server(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self._state()[0].apiserver}"

    @property
    def ca_file(self) -> Path:
        """The authority that signed every serving certificate here."""
        return self._state()[1].ca.cert

    @property
    def admin_pair(self) -> Pair:
        """The administrator's client certificate, for scraping the schedulers' metrics."""
        directory = self.options.run_dir / "pki"
        return Pair(directory / "admin.crt", directory / "admin.key")

    def start(self) -> Self:
        """Build what is missing, start everything and wait until pods can be scheduled."""
        if self._run is not None:
            raise ClusterError("this cluster is already started")
        try:
            programs = self.toolbox.ensure(self._program_names())
        except ToolError as error:
            raise ClusterError(str(error)) from error
        self.options.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for gone in sweep(self.options.root):
            self.toolbox.progress.note(f"cleared what a crashed run left in {gone}")
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._start(programs)
            except PortTakenError:
                self.stop()
                if attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End every process in order (clients, controllers, API server, etcd) and delete the run directory."""
        self.close()
        if self._run is None:
            return
        run, self._run = self._run, None
        try:
            run.remove()
        finally:
            if self._guardian is not None:
                guardian, self._guardian = self._guardian, None
                guardian.dismiss()

    def leave(self) -> None:
        """Forget the cluster without ending it (for `keep`)."""
        if not self.options.keep:
            raise ClusterError("only a cluster made with keep=True outlives this program")
        self.close()
        self._run = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # Parts that come and go

    def start_scheduler(self, options: SchedulerOptions) -> Process:
        """Start one more kube-scheduler and wait until it is healthy (a standby without the Lease is healthy too)."""
        self._running()
        directory = self.options.run_dir / "schedulers"
        directory.mkdir(exist_ok=True)
        kubeconfig = options.kubeconfig or self.options.run_dir / "scheduler.kubeconfig"
        config = directory / f"{options.name}.yaml"
        config.write_text(options.render(kubeconfig), encoding="utf-8")
        component = self._state()[1].component
        program = str(self.toolbox.path(options.program))

        def start(port: int) -> Process:
            command = [program, *flags.scheduler(config, kubeconfig, port, component, options.verbosity), *options.flags]
            process = self.processes.start(options.name, command, RANK_CLIENT, f"https://127.0.0.1:{port}")
            wait_healthy(process, "/healthz", self.ca_file, self.options.ready_deadline_s)
            return process

        return _on_a_free_port(start)

    def start_prometheus(self, options: PrometheusOptions) -> str:
        """Start a Prometheus on a loopback port of its own; return its URL."""
        self._running()
        try:
            program = str(self.toolbox.path("prometheus"))
        except ToolError as error:
            raise ClusterError(str(error)) from error
        directory = self.options.run_dir / options.name
        directory.mkdir(exist_ok=True)
        config = directory / "prometheus.yml"
        config.write_text(prometheus_config(options), encoding="utf-8")

        def start(port: int) -> Process:
            command = [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--storage.tsdb.retention.time={options.retention}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ]
            process = self.processes.start(options.name, command, RANK_CLIENT, f"http://127.0.0.1:{port}")
            wait_healthy(process, "/-/ready", None, self.options.ready_deadline_s)
            return process

        return _on_a_free_port(start).url

    def process(self, name: str) -> Process:
        """One process by name: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kwok`, …"""
        return self.processes.get(name)

    def stop_process(self, name: str) -> None:
        """End one process for good."""
        self.processes.stop(name)

    def pause(self, name: str) -> None:
        """Freeze one process: it hangs, and its sockets stay open."""
        self.processes.get(name).pause()

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self.processes.get(name).resume()

    def restart_process(self, name: str, health: str = "/healthz", downtime_s: float = 0.0) -> Process:
        """End a process (if it still runs), leave it away for a while and start it again with the same command line."""
        former = self.processes.get(name)
        self.processes.stop(name)
        time.sleep(downtime_s)
        process = self.processes.start(name, former.argv, former.rank, former.url)
        if process.url:
            ca = self.ca_file if process.url.startswith("https") else None
            wait_healthy(process, health, ca, self.options.ready_deadline_s)
        return process

    def restart_apiserver(self, downtime_s: float = 0.0) -> None:
        """An outage of the API server: it is back on the same port and ready, and the controllers have started anew.

        Controllers that lived through an outage look again after up to half a minute; a new namespace has no ServiceAccount until then."""
        self.restart_process("kube-apiserver", "/readyz", downtime_s)
        self.restart_process("kube-controller-manager")

    # Starting

    def _start(self, programs: dict[str, Path]) -> None:
        options = self.options
        with self.toolbox.progress.step(f"starting Kubernetes {options.kubernetes} in {options.run_dir}") as step:
            self._run = claim(options.run_dir, keep=options.keep)
            if not options.keep:
                self._guardian = Guardian.start(self._run)
            ports, certificates = self._prepare()
            run_dir = options.run_dir
            command = [str(programs["etcd"]), *flags.etcd(ports, certificates, run_dir / "etcd")]
            self.processes.start("etcd", command, RANK_ETCD)
            # The API server retries until etcd answers, so both may start at once.
            command = [str(programs["kube-apiserver"]), *flags.apiserver(options, ports, certificates)]
            server = self.processes.start("kube-apiserver", command, RANK_APISERVER, self.server)
            step.detail("waiting for the API server")
            wait_healthy(server, "/readyz", certificates.ca.cert, options.ready_deadline_s)
            step.detail("waiting for the controllers")
            self._start_clients(programs, ports, certificates)
            self.wait_ready(options.ready_deadline_s)

    def _start_clients(self, programs: dict[str, Path], ports: flags.Ports, certificates: flags.Certificates) -> None:
        run_dir = self.options.run_dir
        kubeconfig = run_dir / "controller-manager.kubeconfig"
        command = flags.controller_manager(self.options, ports, certificates, kubeconfig)
        started = [
            self.processes.start(
                "kube-controller-manager",
                [str(programs["kube-controller-manager"]), *command],
                RANK_CONTROLLER,
                f"https://127.0.0.1:{ports.controller_manager}",
            )
        ]
        if self.options.default_scheduler:
            config = run_dir / "default-scheduler.yaml"
            kubeconfig = run_dir / "scheduler.kubeconfig"
            plain = SchedulerOptions(scheduler_name="default-scheduler", qps=self.options.client_qps, burst=self.options.client_burst)
            config.write_text(plain.render(kubeconfig), encoding="utf-8")
            command = flags.scheduler(config, kubeconfig, ports.scheduler, certificates.component, plain.verbosity)
            argv = [str(programs["kube-scheduler"]), *command]
            url = f"https://127.0.0.1:{ports.scheduler}"
            started.append(self.processes.start("kube-scheduler", argv, RANK_CLIENT, url))
        if self.options.kwok:
            stages = sorted(Path(str(files("tiphys_testbed.cluster") / "stages")).glob("*.yaml"))
            command = flags.kwok(ports, certificates, self.kubeconfig, [*stages, *self.options.stages])
            url = f"https://127.0.0.1:{ports.kwok}"
            started.append(self.processes.start("kwok", [str(programs["kwok"]), *command], RANK_CLIENT, url))
        for process in started:
            wait_healthy(process, "/healthz", certificates.ca.cert, self.options.ready_deadline_s)

    def _prepare(self) -> tuple[flags.Ports, flags.Certificates]:
        """Keys, certificates, kubeconfigs and ports."""
        directory = self.options.run_dir / "pki"
        authority = make_authority(directory, "ca", "tiphys local cluster")
        front_proxy = make_authority(directory, "front-proxy-ca", "tiphys front proxy")
        certificates = flags.Certificates(
            ca=authority.pair,
            etcd=authority.issue("etcd", "etcd", server=True),
            apiserver=authority.issue("apiserver", "kube-apiserver", server=True),
            apiserver_etcd_client=authority.issue("apiserver-etcd-client", "kube-apiserver-etcd-client"),
            component=authority.issue("component", "tiphys-component", server=True),
            front_proxy_ca=front_proxy.pair,
            front_proxy_client=front_proxy.issue("front-proxy-client", "front-proxy-client"),
            service_account=make_service_account_key(directory),
        )
        ports = flags.Ports(*free_ports(6))
        self._ports, self._certificates, self._authority = ports, certificates, authority
        self._write_kubeconfig("admin", "tiphys:admin", ("system:masters",))
        self._write_kubeconfig("controller-manager", "system:kube-controller-manager")
        self._write_kubeconfig("scheduler", "system:kube-scheduler")
        return ports, certificates

    def _write_kubeconfig(self, name: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        if self._authority is None:
            raise ClusterError("the cluster is not started")
        pair = self._authority.issue(name, user, groups)
        credentials = Credentials(self.server, self._authority.cert.read_bytes(), pair.cert.read_bytes(), pair.key.read_bytes())
        return write_kubeconfig(self.options.run_dir / f"{name}.kubeconfig", credentials, user)

    def _program_names(self) -> list[str]:
        return [*CONTROL_PLANE, "etcd", *(["kwok"] if self.options.kwok else [])]

    def _credentials_dir(self) -> Path:
        return self.options.run_dir / "service-accounts"

    def _running(self) -> None:
        if self._run is None:
            raise ClusterError("the cluster is not started")

    def _state(self) -> tuple[flags.Ports, flags.Certificates]:
        if self._ports is None or self._certificates is None:
            raise ClusterError("the cluster is not started")
        return self._ports, self._certificates


def _on_a_free_port(start: Callable[[int], Process]) -> Process:
    """Start a server on a port that looked free; take another one if somebody was faster."""
    for _ in range(_START_ATTEMPTS - 1):
        try:
            return start(free_ports(1)[0])
        except PortTakenError:
            continue
    return start(free_ports(1)[0])

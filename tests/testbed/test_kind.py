"""The kind path as far as it needs neither engine nor root: archives, what is undone, configurations, refusals."""

import hashlib
import io
import itertools
import json
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.schema import FEATURES
from tiphys_testbed.cluster import host
from tiphys_testbed.cluster.runs import claim
from tiphys_testbed.kind import comparison, features, images, monitoring, nodeimage, packages
from tiphys_testbed.kind.archives import Layer, write_image
from tiphys_testbed.kind.cluster import KindCluster, KindOptions
from tiphys_testbed.kind.commands import kind_app
from tiphys_testbed.kind.engines import EngineMissingError, Podman, choose
from tiphys_testbed.kind.phases import Phases
from tiphys_testbed.kind.release import QUICK_START
from tiphys_testbed.kind.workloads import FUNCTIONS, RealFunction, call_pod, duration_s, repeated
from tiphys_testbed.tools.programs import programs

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "manifests" / "kind.yaml"


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_archive_holds_what_engines_look_for_and_digests_that_are_true(tmp_path: Path) -> None:
    program = executable(tmp_path / "program", "content")
    layer = Layer({"/usr/local/bin/program": program}, ("/usr/local/bin/program", "--serve"))
    write_image(tmp_path / "a.tar", ["registry.k8s.io/program:v1", "other:v2"], layer)
    with tarfile.open(tmp_path / "a.tar") as archive:
        parts = {name: (archive.extractfile(name) or io.BytesIO()).read() for name in archive.getnames()}
    (image,) = json.loads(parts["manifest.json"])
    assert image["RepoTags"] == ["registry.k8s.io/program:v1", "other:v2"]
    config = json.loads(parts[image["Config"]])
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/program", "--serve"]
    (content,) = [parts[name] for name in image["Layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(content)) as tree:
        assert tree.getnames() == ["usr", "usr/local", "usr/local/bin", "usr/local/bin/program"]
        inside = tree.getmember("usr/local/bin/program")
        assert (inside.mode, inside.uid, (tree.extractfile(inside) or io.BytesIO()).read()) == (0o755, 0, b"content")
    write_image(tmp_path / "b.tar", ["registry.k8s.io/program:v1", "other:v2"], layer)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_nodes_changed_is_undone_with_the_run_also_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, groups = tmp_path / "sys", tmp_path / "cgroup"
    (settings / "kernel" / "random").mkdir(parents=True)
    for name, value in {"panic": "1\n", "kept": "5\n", "ns_last_pid": "7\n", "random/uuid": "a\n"}.items():
        (settings / "kernel" / name).write_text(value)
    (groups / "cpu" / "ours" / "pod").mkdir(parents=True)
    monkeypatch.setattr(host, "_SYSCTL", settings)
    monkeypatch.setattr(host, "_CGROUPS", groups)
    monkeypatch.setattr(host, "_GLOBAL", ("kernel",))
    made, used = tmp_path / "made", tmp_path / "used"
    run = claim(tmp_path / "run", keep=False)
    host.note(run.path, sysctls=True, directories=[made, used], cgroups=["ours"], command=["touch", str(tmp_path / "deleted")])
    assert made.is_dir()
    (used / "file").touch()
    for name in ("panic", "ns_last_pid"):
        (settings / "kernel" / name).write_text("10\n")
    unchanged = (settings / "kernel" / "kept").stat().st_mtime_ns
    run.remove()
    assert (settings / "kernel" / "panic").read_text() == "1\n"
    assert (settings / "kernel" / "kept").stat().st_mtime_ns == unchanged
    assert (settings / "kernel" / "ns_last_pid").read_text() == "10\n", "it changes by itself"
    assert not made.exists()
    assert (used / "file").exists(), "somebody else's by now"
    assert not (groups / "cpu" / "ours").exists()
    assert (tmp_path / "deleted").exists()
    assert not run.path.exists()


def test_podman_gets_its_network_and_kubelet_settings_and_the_user_keeps_his() -> None:
    wanted = yaml.safe_load(CONFIG.read_text()) | {"networking": {"podSubnet": "10.1.0.0/16"}, "kubeadmConfigPatches": ["kind: Mine"]}
    adapted = Podman().adapted(wanted)
    assert adapted["nodes"] == wanted["nodes"]
    assert adapted["networking"] == {"podSubnet": "10.1.0.0/16", "disableDefaultCNI": True, "kubeProxyMode": "nftables"}
    mine, kubelet = adapted["kubeadmConfigPatches"]
    assert mine == "kind: Mine"
    # The driver must be containerd's, else no pod starts.
    containerd = (ROOT / "testbed/tiphys_testbed/kind/node/containerd.toml").read_text()
    assert yaml.safe_load(kubelet)["cgroupDriver"] == "cgroupfs"
    assert "SystemdCgroup = false" in containerd
    assert nodeimage.PAUSE in containerd


def test_the_names_of_the_control_planes_images_are_those_that_kubeadm_says(tmp_path: Path) -> None:
    lines = "registry.k8s.io/kube-proxy:v9.9.9 registry.k8s.io/coredns/coredns:v1.2.3 registry.k8s.io/etcd:3.6.8-0"
    kubeadm = executable(
        tmp_path / "kubeadm", f'#!/bin/sh\n[ "$*" = "config images list --kubernetes-version=v9.9.9" ] && printf "%s\\n" {lines}\n'
    )
    assert nodeimage.component_images(kubeadm, "v9.9.9") == {
        "kube-proxy": "registry.k8s.io/kube-proxy:v9.9.9",
        "coredns": "registry.k8s.io/coredns/coredns:v1.2.3",
        "etcd": "registry.k8s.io/etcd:3.6.8-0",
    }


def test_without_docker_and_root_the_run_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "docker", "#!/bin/sh\nexit 1\n")  # a client without an engine
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineMissingError, match="no Docker engine answers"):
        choose()
    answer = CliRunner().invoke(kind_app, ["e2e"])
    assert answer.exit_code == 0
    assert "skipped: no Docker engine answers" in answer.output


def test_packages_that_are_missing_are_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(packages.missing()) >= {"podman", "buildah", "debootstrap"}
    executable(tmp_path / "podman", "#!/bin/sh\n")
    assert "podman" not in packages.missing()
    assert packages.install_command(["runc"])[-1] == "runc"


def test_a_cluster_starts_only_where_its_configuration_is(tmp_path: Path) -> None:
    cluster = KindCluster(KindOptions(config=tmp_path / "none.yaml", root=tmp_path / "run"), engine=Podman())
    with pytest.raises(Exception, match="no kind configuration"):
        cluster.start()
    assert not (tmp_path / "run").exists()


def test_down_without_a_cluster_is_an_error_and_with_a_kept_one_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPHYS_CACHE", str(tmp_path))
    answer = CliRunner().invoke(kind_app, ["down"])
    assert answer.exit_code == 1
    assert "no kind cluster 'tiphys' runs here" in answer.output
    run = claim(KindOptions().run_dir, keep=True)
    assert CliRunner().invoke(kind_app, ["down"]).exit_code == 0
    assert not run.path.exists()


def test_an_image_is_built_anew_when_a_source_changes_and_only_then(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    source = tmp_path / "cli" / "a.py"
    source.write_text("a = 1")
    before = images.content_key(tmp_path, "buildah")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "kind.md").write_text("not read by the build")
    assert images.content_key(tmp_path, "buildah") == before
    source.write_text("a = 2")
    assert images.content_key(tmp_path, "buildah") != before


def test_every_phase_is_timed_also_the_one_that_fails() -> None:
    phases, output = Phases(), io.StringIO()
    with phases.phase("cluster"):
        pass
    with pytest.raises(ValueError, match="broken"), phases.phase("suite"):
        raise ValueError("broken")
    phases.show(Console(file=output, width=80))
    assert [line.split()[1] for line in output.getvalue().splitlines() if "│" in line] == ["cluster", "suite", "all"]


def test_the_documentation_shows_the_script_that_the_kind_tests_run() -> None:
    script = (ROOT / QUICK_START).read_text()
    assert f"```\n{script}```" in (ROOT / "docs" / "kind.md").read_text()


NODES = [
    {
        "metadata": {"name": name, "labels": {}},
        "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]},
    }
    for name, address in (("a", "10.0.0.2"), ("b", "10.0.0.3"))
]


def test_every_series_of_a_node_carries_its_name() -> None:
    jobs = {job["job_name"]: job for job in monitoring.scrape_config(NODES)["scrape_configs"]}
    assert set(jobs) == {"node", "cadvisor", "kubelet", "kube-state-metrics", "pods"}
    for name, port in (("node", 9100), ("cadvisor", 10250), ("kubelet", 10250)):
        found = {config["targets"][0]: config["labels"]["node"] for config in jobs[name]["static_configs"]}
        assert found == {f"10.0.0.2:{port}": "a", f"10.0.0.3:{port}": "b"}
    assert monitoring.WINDOW_S >= 4 * monitoring.SCRAPE_S, "a rate needs readings"


def test_pods_that_name_a_port_are_scraped_under_their_namespace_and_name() -> None:
    (job,) = [job for job in monitoring.scrape_config(NODES)["scrape_configs"] if job["job_name"] == "pods"]
    rules = {rule.get("target_label") or rule["regex"]: rule["source_labels"] for rule in job["relabel_configs"]}
    port = "__meta_kubernetes_pod_annotation_prometheus_io_port"
    assert rules[".+"] == [port]
    assert rules["__address__"] == ["__meta_kubernetes_pod_ip", port]
    assert (rules["namespace"], rules["pod"]) == (["__meta_kubernetes_namespace"], ["__meta_kubernetes_pod_name"])
    assert "enable_kubernetes_sd" in programs()["prometheus@kubernetes"].module.tags


def test_prometheus_may_read_what_it_scrapes_and_kube_state_metrics_what_it_counts() -> None:
    made = list(yaml.safe_load_all(monitoring.manifests(NODES)))
    rules = {each["metadata"]["name"]: each["rules"] for each in made if each["kind"] == "ClusterRole"}
    granted = {resource: rule["verbs"] for rule in rules["tiphys-kind-prometheus"] for resource in rule["resources"]}
    assert granted == {"nodes/metrics": ["get"], "pods": ["get", "list", "watch"]}
    (state,) = [each for each in made if each["kind"] == "Deployment" and each["metadata"]["name"] == "kube-state-metrics"]
    (argument,) = [arg for arg in state["spec"]["template"]["spec"]["containers"][0]["args"] if arg.startswith("--resources=")]
    counted = {resource for rule in rules["tiphys-kind-kube-state-metrics"] for resource in rule["resources"]}
    assert set(argument.removeprefix("--resources=").split(",")) == counted


def test_a_row_says_what_is_structurally_zero_and_what_nobody_measures() -> None:
    def seen(value: float | None) -> dict[str, dict[str, float | None]]:
        return {node: {"cpu_user": value, "cpu_irq": 0.0} for node in ("a", "b")}

    rows = {row.name: row for row in features.rows(["a", "b"], seen(0.0), seen(0.5))}
    assert list(rows) == [feature.name for feature in FEATURES]
    assert (rows["cpu_user"].idle, rows["cpu_user"].loaded, rows["cpu_user"].remark) == ((0.0, 0.0), (0.5, 0.5), "")
    assert rows["cpu_irq"].remark == "zero, idle and loaded"
    assert rows["warm"].remark == "missing: nobody measures it here"


def test_all_lanes_get_the_same_calls_of_every_function_at_the_rate() -> None:
    first, again = (comparison.arrivals(300, 2.0, np.random.default_rng(7)) for _ in range(2))
    assert first == again
    assert {call.function for call in first} == set(FUNCTIONS)
    assert first[-1].at_s == pytest.approx(150.0, rel=0.2)
    assert all(earlier.at_s < later.at_s for earlier, later in itertools.pairwise(first))


def test_a_call_is_a_pod_of_its_function_and_lasts_until_its_container_ended() -> None:
    pod = call_pod("call", FUNCTIONS[0], "image", scheduler="default-scheduler", node="a")
    assert pod["metadata"]["labels"] == {FUNCTION_LABEL: FUNCTIONS[0].name}
    assert (pod["spec"]["schedulerName"], pod["spec"]["nodeSelector"]) == ("default-scheduler", {"kubernetes.io/hostname": "a"})
    pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:58Z"
    pod["status"] = {"containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-01-01T00:01:03Z"}}}]}
    assert duration_s(pod) == 5.0


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_repeated_work_is_a_program(function: RealFunction) -> None:
    program = repeated(function, 1.5)
    compile(program, function.name, "exec")
    exec(program.replace("1.5", "0.0"), {})  # noqa: S102 - ours; no time, no work

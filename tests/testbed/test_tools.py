"""The toolbox: what decides a binary, where it is found, and that a build is whole or not there."""

import io
import json
import re
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from tiphys_testbed.tools.golang import build_environment, find_go, host_platform, pinned_version
from tiphys_testbed.tools.locks import exclusive
from tiphys_testbed.tools.programs import (
    CONTROL_PLANE,
    Module,
    Program,
    ToolError,
    cache_key,
    linker_flags,
    parse_go_version,
    programs,
    required_version,
)
from tiphys_testbed.tools.progress import Progress
from tiphys_testbed.tools.sources import module_source
from tiphys_testbed.tools.toolbox import Toolbox, cache_directory


def quiet() -> Progress:
    return Progress(Console(file=io.StringIO()))


def tiny_program(root: Path, source: str) -> Program:
    """A real Go program without dependencies, in the form of our tool modules."""
    code = root / "code"
    code.mkdir(parents=True)
    (code / "go.mod").write_text("module example.com/hello\n\ngo 1.21\n")
    (code / "main.go").write_text(source)
    (root / "go.mod").write_text(
        f"module example.com/tools\n\ngo 1.21\n\nrequire example.com/hello v1.2.3\n\nreplace example.com/hello => {code}\n"
    )
    (root / "go.sum").write_text("")
    return Program("hello", Module(str(root), "example.com/hello"), "example.com/hello")


def toolbox(cache: Path, program: Program) -> Toolbox:
    return Toolbox(cache_dir=cache, progress=quiet(), assets=None, catalogue={program.name: program})


HELLO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'


def test_every_program_has_a_version_a_go_line_and_checksums() -> None:
    for program in programs().values():
        assert re.fullmatch(r"v\d+\.\d+\.\d+", program.module.version), program.name
        assert program.module.minimum_go >= (1, 25, 0)
        assert (program.module.path / "go.sum").stat().st_size > 1000


def test_both_kubernetes_versions_are_offered_and_stamped() -> None:
    known = programs()
    for name in CONTROL_PLANE:
        current, previous = known[name], known[f"{name}@1.35"]
        assert current.module.version.startswith("v1.36.")
        assert previous.module.version.startswith("v1.35.")
        assert previous.executable == name
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            assert f"-X {package}.gitVersion={previous.module.version}" in previous.ldflags
            assert f"-X {package}.gitMinor=35" in previous.ldflags


def test_helm_3_renders_for_the_kubernetes_it_was_built_with() -> None:
    module = programs()["helm3"].module
    minor = required_version(module.go_mod(), "k8s.io/client-go").split(".")[1]
    assert f"chartutil.k8sVersionMinor={minor}" in linker_flags(module)
    assert int(minor) >= 30


def test_everything_that_decides_a_binary_is_in_its_key(tmp_path: Path) -> None:
    program = tiny_program(tmp_path, HELLO)
    keys = {
        cache_key(program, "go1.26.8", "linux/amd64"),
        cache_key(program, "go1.26.6", "linux/amd64"),
        cache_key(program, "go1.26.8", "linux/arm64"),
        cache_key(
            Program("hello", Module(str(tmp_path), "example.com/hello", tags="x"), program.package),
            "go1.26.8",
            "linux/amd64",
        ),
    }
    (tmp_path / "go.sum").write_text("changed")
    keys.add(cache_key(program, "go1.26.8", "linux/amd64"))
    (tmp_path / "go.mod").write_text((tmp_path / "go.mod").read_text().replace("v1.2.3", "v1.2.4"))
    keys.add(cache_key(program, "go1.26.8", "linux/amd64"))
    assert len(keys) == 6


def test_an_unknown_program_is_named_in_the_error_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"no program 'kubctl'.*kubectl"):
        Toolbox(cache_dir=tmp_path, progress=quiet(), assets=None).program("kubctl")


def test_a_chosen_kubernetes_changes_what_bare_names_mean(tmp_path: Path) -> None:
    box = Toolbox(cache_dir=tmp_path, kubernetes="1.35", progress=quiet(), assets=None)
    assert box.program("kubectl").module.version.startswith("v1.35.")
    assert box.program("etcd").name == "etcd"


@pytest.mark.slow
def test_builds_once_and_finds_it_again(tmp_path: Path) -> None:
    box = toolbox(tmp_path / "cache", tiny_program(tmp_path / "module", HELLO))
    assert box.find("hello") is None
    path = box.path("hello")
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "hello\n"
    assert path.parent.name.startswith("hello-1.2.3-")
    built = path.stat().st_ino
    assert box.path("hello") == path
    assert path.stat().st_ino == built
    assert box.find("hello") == path
    assert not list((tmp_path / "cache" / "bin").glob(".build-*"))


@pytest.mark.slow
def test_programs_of_one_module_get_their_own_names_not_gos(tmp_path: Path) -> None:
    hello = tiny_program(tmp_path / "module", HELLO)
    for name in ("updater", "recommender"):
        (tmp_path / "module" / "code" / name).mkdir()
        (tmp_path / "module" / "code" / name / "main.go").write_text(HELLO.replace("hello", name))
    parts = [Program(f"our-{name}", hello.module, f"{hello.package}/{name}") for name in ("updater", "recommender")]
    box = Toolbox(cache_dir=tmp_path / "cache", progress=quiet(), assets=None, catalogue={part.name: part for part in parts})
    for name, path in box.ensure(["our-updater", "our-recommender"]).items():
        assert path.name == name
        assert f"our-{subprocess.run([path], capture_output=True, text=True, check=True).stdout.strip()}" == name


def serve_module(root: Path, name: str, version: str, files: dict[str, str]) -> str:
    """A module proxy in a directory; its address."""
    home = root / name / "@v"
    home.mkdir(parents=True)
    (home / "list").write_text(f"{version}\n")
    (home / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
    (home / f"{version}.mod").write_text(files["go.mod"])
    with zipfile.ZipFile(home / f"{version}.zip", "w") as archive:
        for path, text in files.items():
            archive.writestr(f"{name}@{version}/{path}", text)
    return root.as_uri()


def test_the_source_of_a_program_is_that_of_the_required_version_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tiny_program(tmp_path / "module", HELLO)
    requirements = tmp_path / "module" / "go.mod"
    requirements.write_text(requirements.read_text().partition("replace")[0])
    box = toolbox(tmp_path / "cache", program)
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOSUMDB", "off")
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(ToolError, match=r"(?s)go mod download example.com/hello failed.*v1\.2\.3"):
        module_source(box, "hello")
    files = {"go.mod": "module example.com/hello\n\ngo 1.21\n", "deploy/crd.yaml": "kind: CustomResourceDefinition\n"}
    monkeypatch.setenv("GOPROXY", serve_module(tmp_path / "proxy", "example.com/hello", "v1.2.3", files))
    assert (module_source(box, "hello") / "deploy" / "crd.yaml").read_text() == files["deploy/crd.yaml"]


@pytest.mark.slow
def test_two_builds_at_once_make_one_binary(tmp_path: Path) -> None:
    program = tiny_program(tmp_path / "module", HELLO)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(toolbox(tmp_path / "cache", program).path, "hello") for _ in range(2)]
    first, second = (job.result() for job in jobs)
    assert first == second
    assert subprocess.run([first], capture_output=True, text=True, check=True).stdout == "hello\n"


@pytest.mark.slow
def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    box = toolbox(tmp_path / "cache", tiny_program(tmp_path / "module", "package main\n\nfunc main() { undefined() }\n"))
    with pytest.raises(ToolError, match=r"undefined: undefined"):
        box.path("hello")
    assert box.find("hello") is None
    assert not list((tmp_path / "cache" / "bin").glob(".build-*"))


def test_ready_made_assets_are_used_and_what_they_lack_is_not(tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    ready = assets / "etcd"
    ready.write_text("#!/bin/sh\n")
    ready.chmod(0o755)
    (assets / "kubectl").write_text("not executable")
    box = Toolbox(cache_dir=tmp_path / "cache", progress=quiet(), assets=assets)
    assert box.ensure(["etcd"]) == {"etcd": ready}
    assert box.find("kubectl") is None


def test_assets_never_stand_in_for_another_version(tmp_path: Path) -> None:
    ready = tmp_path / "kubectl"
    ready.write_text("#!/bin/sh\n")
    ready.chmod(0o755)
    box = Toolbox(cache_dir=tmp_path / "cache", progress=quiet(), assets=tmp_path)
    assert box.find("kubectl") == ready
    assert box.find("kubectl@1.35") is None


def test_the_cache_is_chosen_by_the_environment() -> None:
    assert cache_directory({"TIPHYS_CACHE": "/somewhere", "XDG_CACHE_HOME": "/else"}) == Path("/somewhere")
    assert cache_directory({"XDG_CACHE_HOME": "/else"}) == Path("/else/tiphys")
    assert cache_directory({}) == Path.home() / ".cache" / "tiphys"


def fake_go(directory: Path, version: str) -> None:
    directory.mkdir()
    program = directory / "go"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)


def test_a_new_enough_go_on_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path / "bin", "go1.26.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    go = find_go((1, 26, 0), tmp_path)
    assert (go.executable, go.version, go.installed) == (tmp_path / "bin" / "go", "go1.26.1", True)


@pytest.mark.parametrize("version", ["go1.25.9", "nonsense"])
def test_an_old_or_broken_go_gives_way_to_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_go(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    go = find_go((1, 26, 0), tmp_path)
    assert go.version == f"go{pinned_version()}"
    assert not go.installed
    assert tmp_path in go.executable.parents


def test_a_module_newer_than_the_pinned_go_asks_for_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"Go 9\.9\.0 or newer is needed; install it"):
        find_go((9, 9, 0), tmp_path)


def test_the_pinned_go_can_build_every_module() -> None:
    pinned = parse_go_version(pinned_version())
    assert all(pinned >= program.module.minimum_go for program in programs().values())


def test_the_users_go_flags_never_reach_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod -race")
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    environment = build_environment(tmp_path)
    assert environment["GOFLAGS"] == "-mod=readonly"
    assert f"{environment['GOOS']}/{environment['GOARCH']}" == host_platform()
    assert environment["GOPROXY"] == "https://proxy.example"
    assert environment["GOTOOLCHAIN"] == "local"


def test_a_lock_is_held_by_one_and_waiting_has_an_end(tmp_path: Path) -> None:
    waited = []
    with (
        exclusive(tmp_path / "lock", lambda: None),
        pytest.raises(TimeoutError),
        exclusive(tmp_path / "lock", lambda: waited.append(1), deadline_s=0.3),
    ):
        pytest.fail("two holders")
    assert waited
    with exclusive(tmp_path / "lock", lambda: pytest.fail("it is free")):
        pass


@pytest.mark.parametrize(("text", "version"), [("go1.26.8", (1, 26, 8)), ("1.26", (1, 26, 0)), ("go1.27rc1", (1, 27, 0))])
def test_go_versions_are_read(text: str, version: tuple[int, int, int]) -> None:
    assert parse_go_version(text) == version

"""values.yaml, its schema and the templates name the same things; the schema refuses what is wrong and says where."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART, MODES, HelmRefusedError, Manifest, render, render_text, run_helm, values_of, with_value

VALUES: Manifest = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: Manifest = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES = {path.name: path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir())}
Path = tuple[str, ...]

SELF_EXPLAINING = {"repository", "pullPolicy", "resources", "podLabels", "podAnnotations", "nodeSelector", "tolerations", "affinity"}
SELF_EXPLAINING |= {"terminationGracePeriodSeconds", "extraEnv"}


def resolved(schema: Manifest) -> Manifest:
    if "$ref" not in schema:
        return schema
    target: Manifest = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return {**resolved(target), **{key: value for key, value in schema.items() if key != "$ref"}}


def sections(schema: Manifest, path: Path = ()) -> Iterator[tuple[Path, Manifest]]:
    """Every property the chart itself defines, with its schema; `global` belongs to umbrella charts."""
    for key, inner in schema.get("properties", {}).items():
        if path == () and key == "global":
            continue
        yield (*path, key), resolved(inner)
        if "$ref" not in inner:
            yield from sections(inner, (*path, key))


def defaults(values: Manifest, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Leaves of values.yaml: what has no properties of its own in the schema."""
    for key, inner in values.items():
        here = (*path, key)
        if schema_at(here).get("properties") and not is_reference(here):
            yield from defaults(inner, here)
        else:
            yield here, inner


def raw_at(path: Path) -> Manifest:
    schema = SCHEMA
    for key in path:
        schema = schema["properties"][key]
    return schema


def schema_at(path: Path) -> Manifest:
    return resolved(raw_at(path))


def is_reference(path: Path) -> bool:
    return "$ref" in raw_at(path)


def at(values: Manifest, path: Path) -> Any:
    for key in path:
        values = values[key]
    return values


LEAVES = dict(defaults(VALUES))


def test_schema_and_values_name_the_same_things() -> None:
    described = {path for path, _ in sections(SCHEMA)}
    written = {path[:length] for path in LEAVES for length in range(1, len(path) + 1)}
    assert written == described


def test_every_section_of_the_values_schema_has_a_description_and_refuses_unknown_keys() -> None:
    for path, schema in sections(SCHEMA):
        assert len(schema["description"]) > 5, path
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
    assert SCHEMA["additionalProperties"] is False


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    uncommented = []
    for number, line in enumerate(lines):
        key = re.match(r"\s*([A-Za-z]+):", line)
        if key is None or key[1] in SELF_EXPLAINING or not re.search(r":\s*\S", line):
            continue
        if key[1] in ("requests", "limits") or (key[1] == "enabled" and lines[number - 1].strip().endswith(":")):
            continue
        if not lines[number - 1].lstrip().startswith("#"):
            uncommented.append(line.strip())
    assert uncommented == []


def test_templates_read_only_what_exists() -> None:
    known = {path for path, _ in sections(SCHEMA)}
    for name, text in TEMPLATES.items():
        for match in re.finditer(r"\.Values((?:\.\w+)+)", text):
            path = tuple(match[1].strip(".").split("."))
            assert path in known, f"{name} reads .Values{match[1]}"


# Values that shadow others: with these set, what they shadow is not looked at.
SHADOWING: dict[Path, Any] = {
    ("fullnameOverride",): "",
    ("models", "persistentVolumeClaim"): "",
    ("token", "existingSecret"): "",
    ("extender", "service", "tls", "ca", "bundle"): "",
    ("extender", "service", "clusterIP"): "",
    ("binder", "tenants", "existingSecret"): "",
    ("binder", "tls", "insecure"): False,
    **{(name, "image", "digest"): "" for name in ("operator", "scheduler", "extender", "trainer")},
    ("trainer", "schedule"): "",
    ("trainer", "existingClaim"): "",
    ("networkPolicy", "metricsFrom"): None,
    ("token", "separate"): False,
    ("status", "tls", "caSecretName"): "",
}
ON = {path: True for path, value in LEAVES.items() if isinstance(value, bool)} | {("routing", "apiVersion"): "v1"}


def sentinels() -> Manifest:
    """Values that are each recognisable in the output; some no schema would take."""
    values: Manifest = {}
    for number, (path, value) in enumerate(sorted(LEAVES.items())):
        mark: Any
        if path in ON:
            mark = ON[path]
        elif schema_at(path).get("enum") or path == ("scheduler", "httpTimeout"):
            mark = value
        elif path[:2] == ("operator", "lease"):
            mark = {"durationSeconds": 91111, "renewSeconds": 90111, "retrySeconds": 60111, "claimNamespace": "zq99999z"}[path[-1]]
        elif path == ("extender", "deadlineMilliseconds"):
            mark = 177
        elif isinstance(value, int):
            mark = 70000 + number
        elif isinstance(value, str):
            mark = f"zq{number}z"
        elif schema_at(path)["type"] == "object":
            mark = {"requests": {"cpu": f"zq{number}z"}} if path[-1] == "resources" else {f"zq{number}z": "x"}
        elif path[-1].endswith("Ports"):
            mark = [70000 + number]
        elif path[-1] == "extraArgs":
            mark = [f"zq{number}z"]
        else:
            mark = [{"name": f"zq{number}z"}]
        values = with_value(values, path, mark)
    return values


def test_every_value_reaches_the_output() -> None:
    values = sentinels()
    every = render_text(values, "--skip-schema-validation")
    plain = values
    for path, value in SHADOWING.items():
        plain = with_value(plain, path, value)
    # Beside the scheduler the extender has what it does not need as a Service.
    beside = with_value(values, ("extender", "service", "enabled"), False)
    text = every + "".join(render_text(other, "--skip-schema-validation") for other in (plain, beside))
    unseen = []
    for path, default in LEAVES.items():
        mark = at(values, path)
        if path in ON or mark == default:
            continue  # the next test
        word = re.search(r"zq\d+z|\d+", json.dumps(mark))
        assert word is not None
        if not re.search(rf"\b{word[0]}\b", text):
            unseen.append(path)
    assert unseen == []


OTHERS = {"info": "debug", "IfNotPresent": "Always", "decisive": "advisory", "200ms": "300ms", "faasrank": "faasrank-paper", "": "v1beta1"}
SWITCHES = [path for path, value in LEAVES.items() if isinstance(value, bool) or schema_at(path).get("enum") or value == "200ms"]


@pytest.mark.parametrize("path", SWITCHES, ids=".".join)
def test_every_switch_and_choice_changes_the_output(path: Path) -> None:
    ca = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
    service = {"tls": {"serverSecretName": "s", "clientSecretName": "c", "ca": {"bundle": ca}}}
    binder = {"enabled": True, "tenants": {"existingSecret": "t"}, "tls": {"serverSecretName": "s"}}
    base = {
        "token": {"existingSecret": "t"},
        "extender": {"service": service},
        "binder": binder,
        "routing": {"enabled": True},
        "trainer": {"enabled": True},
    }
    if path == ("scheduler", "enabled"):
        base = with_value(base, ("extender", "service", "enabled"), True)
    default = LEAVES[path]
    other = not at_or(base, path, default) if isinstance(default, bool) else OTHERS[default]
    assert render_text(base) != render_text(with_value(base, path, other))


def at_or(values: Manifest, path: Path, default: Any) -> Any:
    try:
        return at(values, path)
    except KeyError:
        return default


def wrong_values(path: Path, schema: Manifest) -> Iterator[Any]:
    """What this value may not be: another type, beyond each limit, not in the list, an unknown key."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "object" in kinds:
        yield from (["list"], 7)
        if schema.get("additionalProperties") is False:
            yield {"noSuchKey": 1}
        elif schema.get("additionalProperties"):
            yield {"key": ["not", "a", "string"]}
    elif "array" in kinds:
        yield from ({"a": "map"}, "text", [17 if schema["items"]["type"] == "object" else {"a": 1}])
        if schema["items"].get("additionalProperties") is False:
            yield [{"noSuchKey": 1}]
        if "maximum" in schema["items"]:
            yield [schema["items"]["maximum"] + 1]
    elif "boolean" in kinds:
        yield from ("yes", 1, [True])
    elif "integer" in kinds:
        yield from ("three", 1.5, [1], schema["minimum"] - 1, schema["maximum"] + 1)
    elif "string" in kinds:
        yield from (7, True, ["list"], {"a": "map"})
        if "pattern" in schema or "enum" in schema:
            yield from ("Not valid!", " ", "a b")
    else:
        raise AssertionError(f"no wrong value for {path}: {schema}")


def test_wrong_values_are_refused_and_the_message_says_which() -> None:
    # One wrong value a path in each round: Helm reports every one of them.
    rounds: list[list[tuple[Path, Any]]] = []
    for path in LEAVES:
        for number, value in enumerate(wrong_values(path, schema_at(path))):
            while len(rounds) <= number:
                rounds.append([])
            rounds[number].append((path, value))
    corpus = sum(map(len, rounds))
    assert corpus >= 100
    for cases in rounds:
        values: Manifest = {}
        for path, value in cases:
            values = with_value(values, path, value)
        with pytest.raises(HelmRefusedError) as refused:
            render(values)
        for path, value in cases:
            where = "/" + "/".join(path)
            assert re.search(rf"at '{re.escape(where)}[/']", str(refused.value)), f"{'.'.join(path)} = {value!r} was taken"


@pytest.mark.parametrize(
    "path", [(), *(path for path, schema in sections(SCHEMA) if "properties" in schema)], ids=lambda path: ".".join(path) or "top"
)
def test_unknown_keys_are_refused_everywhere(path: Path) -> None:
    answer = run_helm("lint", str(CHART), "--values", "-", stdin=json.dumps(with_value({}, (*path, "noSuchKey"), 1)))
    assert answer.returncode != 0
    where = "/" + "/".join(path) if path else ""
    assert f"at '{where}': additional properties 'noSuchKey' not allowed" in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, "/commonLabels/app.kubernetes.io~1name"),
        ({"schedulerName": "default-scheduler"}, "/schedulerName"),
        ({"operator": {"image": {"digest": "sha256:short"}}}, "/operator/image/digest"),
        ({"operator": {"resources": {"limits": {"memory": "lots"}}}}, "/operator/resources/limits/memory"),
        ({"scheduler": {"extraArgs": ["leader-elect=false"]}}, "/scheduler/extraArgs/0"),
        ({"extender": {"prometheus": {"url": "prometheus:9090"}}}, "/extender/prometheus/url"),
        ({"extender": {"prometheus": {"nodeMatchers": {"job": 1}}}}, "/extender/prometheus/nodeMatchers/job"),
        ({"extender": {"prometheus": {"tenant": {"value": "{name}"}}}}, "/extender/prometheus/tenant/value"),
        ({"operator": {"scaling": {"answers": {"maxSeries": 0}}}}, "/operator/scaling/answers/maxSeries"),
        ({"extender": {"service": {"tls": {"ca": {"bundle": "PRIVATE KEY"}}}}}, "/extender/service/tls/ca/bundle"),
        ({"networkPolicy": {"metricsFrom": [{}]}}, "/networkPolicy/metricsFrom/0"),
        ({"imagePullSecrets": [{"name": "Not_A_Name"}]}, "/imagePullSecrets/0/name"),
    ],
)
def test_particular_mistakes_are_refused(values: Manifest, path: str) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render(values)
    assert f"at '{path}'" in str(refused.value)


@pytest.mark.parametrize("mode", MODES)
def test_values_of_every_mode_name_only_what_exists(mode: str) -> None:
    known = {path for path, _ in sections(SCHEMA)}
    for path, _ in defaults(values_of(mode)):
        assert path in known

"""`python docs/generate.py [--check]`: the pages of `docs/reference/` from the code that they describe.

Kinds come from the CRD schemas, chart values from `values.yaml` and its schema, commands from the command line itself, metrics from the
registries of the services: a page cannot say anything that the program does not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from typer.main import get_command

from tiphys_cli.app import app
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.gates.metrics import ExtenderMetrics
from tiphys_models.api.crd import object_schema
from tiphys_models.api.resources import RESOURCES, Resource
from tiphys_operator.all_metrics import all_metrics

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "tiphys"
_LIMITS = {
    "minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "minItems": "at least {} items", "maxItems": "at most {} items",
    "maxProperties": "at most {} keys",
}  # fmt: skip


def pages() -> dict[str, str]:
    """Text of every generated page by its name in `docs/reference/`."""
    return {
        "kinds.md": _kinds(),
        "values.md": _values(),
        "commands.md": _commands(),
        "metrics.md": _metrics(),
        "models.md": _models(),
        "decisions.md": _decisions(),
    }


# ---- kinds -------------------------------------------------------------------------------------------------------------


def _kinds() -> str:
    parts = [
        "# Kinds\n",
        "Custom resources of `tiphys.io/v1alpha1`. Every field of a spec and of a status, as the API server checks it. "
        "Reasons of conditions are explained in [conditions](../conditions.md).\n",
        "| kind | short name | what it says |\n|---|---|---|",
        *(f"| [{r.kind}](#{r.kind.lower()}) | `{r.short_name}` | {_cell(r.description)} |" for r in RESOURCES),
        "",
    ]
    for resource in RESOURCES:
        parts += _kind(resource)
    return "\n".join(parts)


def _kind(resource: Resource) -> Iterator[str]:
    schema = object_schema(resource)["properties"]
    yield f"## {resource.kind}\n"
    yield f"{resource.description}\n"
    for part in ("spec", "status"):
        if part in schema:
            yield f"### {resource.kind}: {part}\n"
            yield from _fields(schema[part])
            yield ""
    rules = [rule["message"] for rule in schema["spec"].get("x-kubernetes-validations", ())]
    if rules:
        yield f"### {resource.kind}: rules between fields\n"
        yield from (f"- {rule}" for rule in rules)
        yield ""
    columns = [f"| {name} | {text} |{' only with `-o wide`' if wide else ''} |" for name, _, _, text, wide in resource.columns]
    if columns:
        yield f"### {resource.kind}: columns of `kubectl get`\n"
        yield "| column | what it shows | |\n|---|---|---|"
        yield from columns
        yield ""


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    for path, leaf, needed in _leaves(schema, ""):
        default = "*required*" if needed else f"`{json.dumps(leaf['default'], ensure_ascii=False)}`" if "default" in leaf else ""
        yield f"| `{path}` | {_type(leaf)} | {_cell(default)} | {_cell(leaf.get('description', ''))} |"


def _leaves(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, field, name in required
        items = field.get("items", {})
        if "properties" in field:
            yield from _leaves(field, f"{path}.")
        elif "properties" in items:
            yield from _leaves(items, f"{path}[].")


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "int or string" if schema.get("x-kubernetes-int-or-string") else "any")
    if isinstance(kind, list):
        kind = " or ".join(kind)
    if kind == "array":
        kind = f"list of {schema.get('items', {}).get('type', 'any')}"
    limits = [
        text.format(f"{schema[key]:,}" if isinstance(schema[key], int) else schema[key]) for key, text in _LIMITS.items() if key in schema
    ]
    return ", ".join([kind, *limits])


# ---- chart values ------------------------------------------------------------------------------------------------------


def _values() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    parts = [
        "# Chart values\n",
        "Every value of `helm/tiphys`. An unknown key is an error. Which values answer which wish: "
        "[the chart's README](https://github.com/tiphys-io/tiphys/blob/main/helm/tiphys/README.md).\n",
    ]
    flat = [name for name, field in schema["properties"].items() if "properties" not in field]
    parts += ["## Of the whole release\n", *_value_rows((name, schema["properties"][name], defaults.get(name)) for name in flat), ""]
    for name, field in schema["properties"].items():
        if "properties" in field:
            text = field.get("description", "")
            parts += [
                f"## {name}\n",
                *([f"{text}\n"] if text else []),
                *_value_rows(_values_of(field, name, defaults.get(name), schema)),
                "",
            ]
    return "\n".join(parts)


def _values_of(
    field: Mapping[str, Any], path: str, default: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    for name, inner in field.get("properties", {}).items():
        found = _resolved(inner, schema)
        here = default.get(name) if isinstance(default, dict) else None
        if "properties" in found:
            yield from _values_of(found, f"{path}.{name}", here, schema)
        else:
            yield f"{path}.{name}", found, here


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in field:
        return field
    found: Any = schema
    for step in field["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return {**found, **{key: value for key, value in field.items() if key != "$ref"}}


def _value_rows(values: Iterable[tuple[str, Mapping[str, Any], Any]]) -> Iterator[str]:
    yield "| value | type | default | meaning |\n|---|---|---|---|"
    for path, field, default in values:
        shown = _cell(f"`{json.dumps(default, ensure_ascii=False)}`")
        yield f"| `{path}` | {_type(field)} | {shown} | {_cell(field.get('description', ''))} |"


# ---- commands ----------------------------------------------------------------------------------------------------------


def _commands() -> str:
    root: Any = get_command(app)  # typer brings a click of its own, so its types are not click's
    context = root.make_context("tiphys", [], resilient_parsing=True)
    parts = ["# Commands\n", "Every command of `tiphys`, with its options, as `--help` shows them.\n"]
    for name in root.list_commands(context):
        parts += _command(root.get_command(context, name), f"tiphys {name}", context)
    return "\n".join(parts)


def _command(command: Any, path: str, parent: Any) -> Iterator[str]:
    context = command.make_context(path.rpartition(" ")[2], [], parent=parent, resilient_parsing=True)
    yield f"{'##' if path.count(' ') == 1 else '###'} {path}\n"
    yield f"{_plain(command.help or '')}\n"
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _command(command.get_command(context, name), f"{path} {name}", context)
        return
    rows = [row for parameter in command.get_params(context) if (row := _parameter(parameter, context))]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from rows
        yield ""


def _parameter(parameter: Any, context: Any) -> str:
    record = parameter.get_help_record(context)
    if record is None or parameter.name == "help":
        return ""
    return f"| {_cell(f'`{_plain(record[0])}`')} | {_cell(_plain(record[1]))} |"


def _plain(text: str) -> str:
    home = str(Path.home())
    return re.sub(r"\s+", " ", text.replace(home, "~")).strip()


# ---- metrics -----------------------------------------------------------------------------------------------------------


def _metrics() -> str:
    parts = [
        "# Metrics\n",
        "Every series of our own that a service serves under `/metrics`; those of the Python process (`process_*`) come with them. "
        "Alerts on them are explained in the [runbook](../runbook.md).\n",
    ]
    services = (("Extender", ExtenderMetrics().registry), ("Binder", BinderMetrics().registry), ("Operator", all_metrics().registry))
    for title, registry in services:
        parts += [f"## {title}\n", "| metric | kind | labels | meaning |\n|---|---|---|---|", *sorted(_series(registry)), ""]
    return "\n".join(parts)


def _series(registry: CollectorRegistry) -> Iterator[str]:
    for collector in dict.fromkeys(registry._names_to_collectors.values()):  # the registry lists names only; labels are with the collectors
        if isinstance(collector, MetricWrapperBase):
            name = collector._name + ("_total" if collector._type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in collector._labelnames)
            yield f"| `{name}` | {collector._type} | {labels} | {_cell(collector._documentation)} |"
        else:
            for found in collector.collect():
                if found.name.startswith("tiphys_"):
                    yield f"| `{found.name}` | {found.type} | | {_cell(found.documentation)} |"


# ---- decisions of the project ------------------------------------------------------------------------------------------


def _decisions() -> str:
    rows = []
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").strip()
        number = int(path.name[:4])
        title = re.sub(r"^(ADR )?0*\d+[.:]?\s*", "", title)
        rows.append(f"| {number} | [{_cell(title)}](../adr/{path.name}) |")
    text = (
        "Why things are as they are: one page a decision, with what was weighed and what follows. Numbers that are missing were never used."
    )
    return "\n".join(["# Decisions\n", f"{text}\n", "| number | decision |\n|---:|---|", *rows, ""])


def _models() -> str:
    rows = []
    for path in sorted((ROOT / "docs" / "model-cards").glob("*.md")):
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next((line for line in lines[1:] if line.strip() and not line.startswith(("|", "#", "<"))), "")
        text = re.split(r"(?<=[.:])\s", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first))[0]
        rows.append(f"| [{path.stem}](../model-cards/{path.name}) | {_cell(text)} |")
    text = "What every shipped model was trained for and on, how well it does beside the rules, and where it should not be used."
    return "\n".join(["# Model cards\n", f"{text}\n", "| model | what it is |\n|---|---|", *rows, ""])


def _cell(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<!\\)\|", "\\|", text).replace("<", "&lt;") if "`" not in text else re.sub(r"(?<!\\)\|", "\\|", text)


def main() -> int:
    """Write the pages, or with `--check` only compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    check: bool = parser.parse_args().check
    directory = ROOT / "docs" / "reference"
    directory.mkdir(exist_ok=True)
    stale = []
    for name, page in pages().items():
        path, text = directory / name, f"{page.rstrip()}\n"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{'differ' if check else 'wrote'}: {', '.join(stale)}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

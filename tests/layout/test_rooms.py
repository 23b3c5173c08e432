"""Rooms of the house: packages know each other in one direction only."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIRECTORIES = ("models", "operator", "extender", "cli", "testbed")
Graph = dict[str, set[str]]


@lru_cache(maxsize=1)
def sources() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for directory in DIRECTORIES:
        for path in sorted((ROOT / directory).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT / directory).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """Modules of the product that this one imports, also where it does so late."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in sources() else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def siblings() -> dict[str, Graph]:
    """Of every package, which of its children imports which other, whatever lies inside them. The empty name holds the roots."""
    graphs: dict[str, Graph] = {}
    for name, path in sources().items():
        mine = name.split(".")
        for other in imported(path):
            if other not in sources():
                continue
            theirs = other.split(".")
            shared = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            if shared is not None:
                graph = graphs.setdefault(".".join(mine[:shared]), {})
                graph.setdefault(mine[shared], set()).add(theirs[shared])
    return graphs


def in_cycles(graph: Graph) -> set[str]:
    """What remains when everything is taken away that imports nothing that remains, or that nothing that remains imports."""
    left = set(graph) | {b for targets in graph.values() for b in targets}
    while True:
        ends = {x for x in left if not graph.get(x, set()) & left or not any(x in graph.get(y, set()) for y in left)}
        if not ends:
            return left
        left -= ends


def test_cycles_are_found() -> None:
    assert in_cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}) == {"a", "b", "c"}
    assert not in_cycles({"a": {"b", "c"}, "b": {"c"}})


def test_packages_import_each_other_in_one_direction_only() -> None:
    assert len(sources()) > 300, "all roots were read"
    found = {package or "roots": sorted(cycle) for package, graph in siblings().items() if (cycle := in_cycles(graph))}
    assert not found


ROLES = {
    "Plan": "of hosts for tasks, of writes for objects, and of cells for each benchmark",
    "Preset": "of a trainer, one a system",
    "Trained": "by a trainer, one a system",
    "Cell": "what a study plays at once, one a study",
    "Played": "what came of a cell, one a study",
    "View": "of a decider, one a system",
    "NodeSink": "of a watch, one an owner",
    "PodSink": "of a watch, one an owner",
    "Running": "tasks of a host, pods of a workload, a policy between its windows",
}
"""Names of a role that several systems fill alike, each in a room of its own."""


def test_no_class_name_stands_for_three_things() -> None:
    places: dict[str, list[str]] = {}
    for name, path in sources().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    found = {name: where for name, where in places.items() if len(where) > 2 and name not in ROLES}
    assert not found, "call each what it is: docs/glossary.md"

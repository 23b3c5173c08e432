"""A build whose source differs from upstream's in declared pieces: each is found exactly once, or nothing is built.

The module is checked against go.sum and then copied; Go refuses to overlay files of its own cache, so the copy replaces the dependency
for this one build.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.substitutions import Substitution


def applied(substitution: Substitution, text: str) -> str:
    """The file's text with the piece replaced; ToolError unless it stands there exactly once."""
    count = text.count(substitution.former)
    if count != 1:
        raise ToolError(f"{substitution.file} has {substitution.former!r} {count} times, not once: upstream has changed")
    return text.replace(substitution.former, substitution.now)


def change(substitutions: Iterable[Substitution], module: Path, copy: Path) -> None:
    """A copy of the module with the pieces replaced."""
    shutil.copytree(module, copy, copy_function=shutil.copyfile)  # Go's cache is read only, modes included; the copy is not
    for path in (copy, *copy.rglob("*/")):
        path.chmod(0o755)
    for substitution in substitutions:
        file = copy / substitution.file
        if not file.is_file():
            raise ToolError(f"{module.name} has no {substitution.file}: upstream has changed")
        file.write_text(applied(substitution, file.read_text(encoding="utf-8")), encoding="utf-8")


def replace_dependency(go_mod: Path, dependency: str, copy: str) -> None:
    """The line that has Go build the copy instead of the dependency."""
    with go_mod.open("a", encoding="utf-8") as handle:
        handle.write(f"\nreplace {dependency} => {copy}\n")

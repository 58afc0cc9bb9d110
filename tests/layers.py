"""The package as a graph: its modules, what each imports, and the order in which its parts may."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.conftest import ROOT

ORDER = (  # from the bottom; a part imports only from those before it
    *("exits", "presence", "host", "errors", "records", "units", "stats", "present", "notebook"),
    *("collectives", "datatypes", "properties", "cases", "results", "topology"),
    *("runfile", "platforms", "algorithms", "model", "measure"),
    *("analysis", "plots", "requests", "cli", "commands"),
)
ENTRIES = {"__init__", "__main__"}  # the version, which everything may know; and the door

Graph = Mapping[str, set[str]]


@cache
def modules() -> dict[str, Path]:
    """Every module's file by its name without `collbench.`; a package goes by the name of its folder."""
    names = {}
    for path in sorted((ROOT / "collbench").rglob("*.py")):
        words = path.relative_to(ROOT / "collbench").with_suffix("").parts
        names[".".join(words[:-1] if len(words) > 1 and words[-1] == "__init__" else words)] = path
    return names


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(node: ast.AST) -> Iterator[str]:
    """Full names of what is imported, wherever that stands, also for types only: a reader must know those too."""
    for child in ast.walk(node):
        if isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are absolute"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)


def module_of(name: str) -> str | None:
    """The module of ours that an imported name is, or is in."""
    words = name.split(".")
    if words[0] != "collbench":
        return None
    names = (".".join(words[1:end]) for end in range(len(words), 1, -1))
    return next((module for module in names if module in modules()), "__init__")


@cache
def graph() -> Graph:
    """By module, the modules of ours that it imports; the package itself, which imports on demand, has none."""
    return {
        name: {target for word in imports(tree(path)) if (target := module_of(word))} - {name}
        for name, path in modules().items()
        if name != "__init__"
    } | {"__init__": set()}


def part(name: str) -> str:
    return name.partition(".")[0]


def within(package: str) -> Graph:
    """The same between what lies directly in a package; `.` is its own `__init__`."""

    def inside(name: str) -> str | None:
        if name == package:
            return "."
        return name.removeprefix(f"{package}.").partition(".")[0] if name.startswith(f"{package}.") else None

    arrows: dict[str, set[str]] = {}
    for name, targets in graph().items():
        if start := inside(name):
            ends = {end for target in targets if (end := inside(target))}
            arrows[start] = arrows.get(start, set()) | ends - {start}
    return arrows


def circle(arrows: Graph) -> list[str]:
    """Parts that need each other, one after the other; empty if there are none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []

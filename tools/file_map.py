"""The map of the modules, docs/files.md, from their docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.layers import ORDER, modules, tree
from tools import ROOT

SHORTEST = 30  # characters of a clause that is long enough
HEAD = """# Where everything is

Every module with the first line of its docstring, written by `python -m tools.pages file-map`. A package imports from
those above it on this page; [architecture](architecture.md) explains them. Each command also has a `command.py`.
"""


def line(path: Path) -> str:
    """Return the first line of a module's docstring; AssertionError if it has none."""
    text = ast.get_docstring(tree(path))
    assert text, f"{path} has no docstring"
    return text.partition("\n")[0]


def heading(name: str) -> str:
    return f"\n{'#' * (2 + name.count('.'))} {name.replace('.', '/')}/\n\n{line(modules()[name])}\n"


def section(name: str) -> Iterator[str]:
    """Yield the lines of a package: its modules, then the packages in it."""
    yield heading(name)
    inside = [module for module in modules() if module.rpartition(".")[0] == name]
    packages = [module for module in inside if modules()[module].name == "__init__.py"]
    for module in inside:
        if module not in packages and not module.endswith(".command"):  # its docstring is the text of `--help`
            yield entry(modules()[module])
    for package in packages:
        yield from section(package)


def entry(path: Path) -> str:
    """Return the line of a module, with the first clause of its docstring."""
    clause = re.split(r"(?<=\w{3})(?:[:;.] )", line(path))[0].rstrip(".")
    return f"* `{path.name}`: {clause}" if len(clause) > SHORTEST else f"* `{path.name}`: {line(path).rstrip('.')}"


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the head of a kernel's file."""
    comment = re.match(r"((?:// ?.*\n)+)", path.read_text(encoding="utf-8"))
    assert comment, f"{path} has no comment at its head"
    text = re.sub(r"^// ?", "", comment[1], flags=re.MULTILINE).partition("\n\n")[0]
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


def written() -> Iterator[tuple[Path, str]]:
    top = [name for name in (*ORDER, "__main__") if name in modules() and modules()[name].name != "__init__.py"]
    packages = [name for name in ORDER if name in modules() and name not in top]
    kernels = sorted(path for path in (ROOT / "kernels").rglob("*") if path.suffix in (".cu", ".cuh", ".hpp"))
    lines = [HEAD, f"## collbench/\n\n{line(modules()['__init__'])}\n", *(entry(modules()[name]) for name in top)]
    for name in packages:
        lines += section(name)
    lines.append("\n## kernels/\n\nThe hand-written collectives, one source for GPUs and CPUs.\n")
    lines += [f"* `{path.relative_to(ROOT / 'kernels')}`: {first_sentence(path)}" for path in kernels]
    yield ROOT / "docs" / "files.md", "\n".join(lines) + "\n"

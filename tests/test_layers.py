"""Dependencies point down, what is heavy is imported only by whom it serves, and only the command line speaks."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator

from tests.conftest import ROOT
from tests.layers import ENTRIES, ORDER, circle, graph, imports, modules, part, tree, within

HEAVY = {  # library: modules, or packages, that may import it
    "click": ("cli",),
    "cuda": ("platforms.gpu",),
    "cupy": ("platforms.gpu.cuda",),
    "jinja2": ("report",),
    "matplotlib": ("figures", "report.machines"),
    "mpi4py": (
        *("launcher", "platforms.cpu", "platforms.processes", "measure.watchdog"),
        *("implementations.mpi", "implementations.mpi_python"),
    ),
    "scipy": ("stats", "model", "analysis"),
}
WHEN_USED = {"cupy", "matplotlib", "mpi4py", "scipy"}  # never by loading a module
SPEAKING = {
    "platforms.gpu.cuda_extra": "a script that the Makefile runs",
    "measure.worker": "the last words of a rank that the supervisor no longer hears, for its log",
    "measure.launched": "what MPI_Abort would leave unsaid",
    "api.patience": "what takes so long, which a notebook should say too",
    "measure.watchdog": "why it ends all processes of a launcher",
}


def test_every_part_has_a_place_in_the_order_and_imports_only_from_below() -> None:
    assert {part(name) for name in modules()} - ENTRIES == set(ORDER)
    rank = {name: place for place, name in enumerate(["__init__", *ORDER, "__main__"])}
    for name, targets in graph().items():
        for target in targets:
            assert rank[part(target)] <= rank[part(name)], f"{name} imports {target}"


def test_neither_modules_nor_parts_of_a_package_import_each_other_in_a_circle() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle(graph())
    for package in {name.rpartition(".")[0] for name in modules() if "." in name}:
        assert not circle(within(package)), package


def libraries(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def at_loading(node: ast.AST) -> Iterator[str]:
    """What is imported when a module is loaded: not in functions, nor for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module([child], []))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        ):
            yield from at_loading(child)


def test_heavy_libraries_are_imported_where_they_serve_and_when_they_are_used() -> None:
    """A run of one process never imports MPI; the supervisor touches neither MPI nor CUDA."""
    for name, path in modules().items():
        for library in libraries(imports(tree(path))) & set(HEAVY):
            allowed = any(f"{name}.".startswith(f"{place}.") for place in HEAVY[library])
            assert allowed, f"{name} imports {library}"
        assert not libraries(at_loading(tree(path))) & WHEN_USED, name


def speaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "print"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        *("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
        *("click.echo", "click.secho", "traceback.print_exc", "traceback.print_exception"),
    )


def test_only_the_command_line_speaks_and_only_two_modules_warn() -> None:
    speaking = {name for name, path in modules().items() if any(map(speaks, ast.walk(tree(path))))}
    assert {name for name in speaking if part(name) != "cli"} == set(SPEAKING)
    warning = [name for name, path in modules().items() if "warnings.warn(" in path.read_text()]
    assert sorted(warning) == ["measure.supervisor", "runs.file"]


def test_the_help_needs_no_numerical_library() -> None:
    script = (
        "import sys, collbench.cli\n"
        "try: collbench.cli.group.main(['--help'], standalone_mode=False)\n"
        "except BaseException: pass\n"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'mpi4py', 'cupy', 'jinja2'}\n"
        "print(*sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip() == ""
    assert "sweep" in done.stdout

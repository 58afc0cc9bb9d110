"""Dependencies point down, what is heavy is imported only by whom it serves, and only the command line speaks."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator

from tests.conftest import ROOT
from tests.layers import ENTRIES, ORDER, circles, graph, imports, modules, part, tree, within

HEAVY = {  # library: modules, or packages, that may import it
    "click": ("cli",),
    "cuda": ("platforms.gpu",),
    "cupy": ("platforms.gpu.cuda",),
    "jinja2": ("report",),
    "matplotlib": ("figures", "report.machines"),
    "mpi4py": (
        "launcher",
        "platforms.cpu",
        "platforms.processes",
        "implementations.mpi",
        "implementations.mpi_python",
        "measure.watchdog",
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
LINES_OF_A_MODULE, LINES_OF_A_FUNCTION = 260, 30


def belongs(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or in one."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_every_part_has_its_place_in_the_order() -> None:
    """A new one must be given a place, and a place must have a part."""
    assert {part(name) for name in modules()} - ENTRIES == set(ORDER)


def test_a_module_imports_only_from_below() -> None:
    """So every part can be read and tested with what is under it."""
    rank = {name: place for place, name in enumerate(["__init__", *ORDER, "__main__"])}
    upward = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in targets
        if rank[part(target)] > rank[part(name)]
    ]
    assert not upward, "\n".join(upward)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for types: either could not be read without the other."""
    assert circles(graph()) == []


def test_the_parts_of_a_package_have_an_order_too() -> None:
    """Folders and modules side by side depend on each other in one direction only."""
    packages = {name.rpartition(".")[0] for name in modules() if "." in name}
    assert not [circle for name in packages for circle in circles(within(name))]


def test_a_circle_is_seen() -> None:
    """Of two, of three, and none where there is none."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}}) == [["a", "b", "c"], ["d", "e"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_heavy_libraries_are_imported_where_they_serve() -> None:
    """A run of one process never imports MPI; the supervisor touches neither MPI nor CUDA."""
    elsewhere = [
        f"{name} imports {library}"
        for name, path in modules().items()
        for library in libraries(imports(tree(path)))
        if library in HEAVY and not belongs(name, HEAVY[library])
    ]
    assert not elsewhere, "\n".join(elsewhere)


def libraries(names: Iterable[str]) -> set[str]:
    """The first words of names with dots."""
    return {name.partition(".")[0] for name in names}


def at_loading(node: ast.AST) -> Iterator[str]:
    """What is imported when a module is loaded: not in functions, nor for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module([child], []))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not for_types(child):
            yield from at_loading(child)


def for_types(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def test_what_takes_long_to_import_is_imported_when_it_is_used() -> None:
    """So that a command loads what it needs."""
    loaded = [(name, libraries(at_loading(tree(path))) & WHEN_USED) for name, path in modules().items()]
    assert not [f"{name} imports {', '.join(names)}" for name, names in loaded if names]


def speaks(node: ast.AST) -> bool:
    """Whether it writes to the terminal: print, sys.stdout, sys.stderr, click.echo, traceback."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "print"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        *("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
        *("click.echo", "click.secho", "traceback.print_exc", "traceback.print_exception"),
    )


def test_only_the_command_line_speaks() -> None:
    """Library functions return or yield; the exceptions are few, and each of them still is one."""
    speaking = {name for name, path in modules().items() if any(map(speaks, ast.walk(tree(path))))}
    assert {name for name in speaking if part(name) != "cli"} == set(SPEAKING)


def test_only_two_things_are_warned_of() -> None:
    """A torn last line, which is read past, and ranks that died when nothing was lost; the command line shows both."""
    warning = [name for name, path in modules().items() if "warnings.warn(" in path.read_text()]
    assert sorted(warning) == ["measure.supervisor", "runs.file"]


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring and its decorators."""
    first, end = function.body[0], function.end_lineno
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    assert end
    assert first.end_lineno
    return end - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if documented else 0)


def declared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the parameters: of the library's functions they are what a user reads, one a line."""
    return function.body[0].lineno - function.lineno - 1


def test_modules_and_functions_are_short() -> None:
    """A function on a page, a module in one sitting."""
    functions = [
        (f"{name}.{node.name}", length(node) - (declared(node) if part(name) == "api" else 0))
        for name, path in modules().items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [f"{name} has {lines} lines" for name, lines in functions if lines > LINES_OF_A_FUNCTION]
    files = [(name, len(path.read_text().splitlines())) for name, path in modules().items()]
    long += [f"{name} has {lines} lines" for name, lines in files if lines > LINES_OF_A_MODULE]
    assert not long, "\n".join(long)


def test_the_help_needs_no_numerical_library() -> None:
    """`collbench --help` answers at once."""
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

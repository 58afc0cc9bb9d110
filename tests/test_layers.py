"""Dependencies point down, what is heavy is imported only by whom it serves, and only the command line speaks."""

import ast
import subprocess
import sys

from tests.conftest import ROOT
from tests.layers import ENTRIES, ORDER, circle, graph, imports, modules, part, tree, within

HEAVY = {  # library: modules, or packages, that may import it
    "click": ("cli",),
    "cuda": ("platforms.gpu",),
    "cupy": ("platforms.gpu.cuda",),
    "jinja2": ("reports", "lesson.page", "plots.document"),
    "matplotlib": ("plots", "lesson.kit"),
    "mpi4py": (
        *("platforms.cpu", "platforms.mpi_processes", "measure.watchdog"),
        *("algorithms.mpi", "algorithms.mpi_python"),
    ),
    "scipy": ("stats", "model", "analysis"),
}
SPEAKING = {
    "measure.worker": "the last words of a rank that the supervisor no longer hears, for its log",
    "api.notices": "what takes so long, which a notebook should say too",
    "measure.external_launcher": "what MPI_Abort would leave unsaid",
    "measure.watchdog": "why it ends all processes of a launcher",
    "host.driver_question": "that a driver still starts, which takes minutes",
    "present.terminal": "how wide standard output is; it says nothing itself",
    "host.signals": "what was printed, before a signal ends the command",
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


def test_heavy_libraries_are_imported_where_they_serve() -> None:
    """A run of one process never imports MPI; the supervisor touches neither MPI nor CUDA."""
    for name, path in modules().items():
        for library in {word.partition(".")[0] for word in imports(tree(path))} & set(HEAVY):
            allowed = any(f"{name}.".startswith(f"{place}.") for place in HEAVY[library])
            assert allowed, f"{name} imports {library}"


def speaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "print"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        *("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
        *("click.echo", "click.secho", "traceback.print_exc", "traceback.print_exception"),
    )


def test_only_the_command_line_speaks_and_only_four_modules_warn() -> None:
    speaking = {name for name, path in modules().items() if any(map(speaks, ast.walk(tree(path))))}
    assert {name for name in speaking if part(name) != "cli"} == set(SPEAKING)
    warning = [name for name, path in modules().items() if "warnings.warn(" in path.read_text()]
    assert sorted(warning) == ["api.importing", "api.measuring", "measure.supervisor", "runfile.store"]


def loaded(script: str, *libraries: str) -> str:
    """What the script prints, and those of the libraries that it loads."""
    asking = f"import sys\n{script}\nprint(*sorted({set(libraries)!r} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return done.stdout


def test_what_takes_long_to_import_is_imported_when_it_is_used() -> None:
    every = [f"collbench.{name}" for name in modules() if name not in ENTRIES]
    loaded(
        f"from importlib import import_module\n[*map(import_module, {every})]", "cupy", "matplotlib", "mpi4py", "scipy"
    )
    group = "from collbench.cli.commands import group"
    help_ = f"{group}\ntry: group.main(['--help'], standalone_mode=False)\nexcept SystemExit: pass"
    assert "sweep" in loaded(help_, "numpy", "scipy", "matplotlib", "mpi4py", "cupy", "jinja2")


def test_a_sweep_loads_neither_the_model_nor_the_tables_of_other_commands() -> None:
    loaded("import collbench.cli.sweep", "collbench.model.predict", "collbench.cli._step_tables", "collbench.planner")

"""Dependencies point down, what is heavy is imported only by whom it serves, and only the command line speaks."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import packages_distributions

from tests.conftest import BUDGETS, DELETED, ROOT
from tests.layers import ENTRIES, ORDER, circle, graph, imports, modules, part, tree, within

HEAVY = {  # library: modules, or packages, that may import it
    "click": ("cli", "commands"),
    "cuda": ("platforms.gpu",),
    "cupy": ("platforms.gpu.cuda",),
    "jinja2": ("present.page", "commands.report"),
    "matplotlib": ("plots", "commands", "present.figures"),
    "mpi4py": ("platforms.cpu", "platforms.mpi_processes", "measure.launcher_watchdog", "algorithms.mpi"),
    "scipy": ("stats", "model", "analysis", "commands"),
}
SPEAKING = {
    "present.notices": "what takes so long, which a notebook should say too",
    "measure.worker": "the last words of a rank that the supervisor no longer hears, and what MPI_Abort leaves unsaid",
    "measure.launcher_watchdog": "why it ends all processes of a launcher",
    "present.terminal": "how wide standard output is; it says nothing itself",
    "platforms.gpu.nccl.communicators": "what the user has asked NCCL to print, for the ranks' log",
    "host.signals": "what was printed, before a signal ends the command",
    "host.files": "likewise, before what an option sends to /dev/stdout",
}


OTHERS = {"lesson": {"sweep", "explain", "report", "exercise"}, "sweep": {"compare"}}
OTHERS |= {"check": {"formats"}}
"""Commands that use other commands.  What two need otherwise moves down."""


def test_every_part_has_a_place_in_the_order_and_imports_only_from_below() -> None:
    unplaced = ({part(name) for name in modules()} - ENTRIES) ^ {*ORDER}
    assert not unplaced, f"{', '.join(sorted(unplaced))}: give it a place in ORDER of tests/layers.py, or take it out"
    rank = {name: place for place, name in enumerate(["__init__", *ORDER, "__main__"])}
    for name, targets in graph().items():
        for target in targets:
            assert rank[part(target)] <= rank[part(name)], f"{name} imports {target}"


def test_a_command_imports_no_other_command_but_the_few_that_stand_here() -> None:
    used: dict[str, set[str]] = {}
    for name, targets in graph().items():
        if part(name) == "commands" and "." in name:
            folder = name.split(".")[1]
            others = {target.split(".")[1] for target in targets if part(target) == "commands" and "." in target}
            used[folder] = used.get(folder, set()) | others - {folder}
    assert {folder: others for folder, others in used.items() if others} == {
        folder: others - DELETED for folder, others in OTHERS.items() if folder not in DELETED and others - DELETED
    }


def test_neither_modules_nor_parts_of_a_package_import_each_other_in_a_circle() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle(graph())
    for package in {name.rpartition(".")[0] for name in modules() if "." in name}:
        assert not circle(within(package)), package


def test_heavy_libraries_are_imported_where_they_serve() -> None:
    for name, path in modules().items():
        for library in {word.partition(".")[0] for word in imports(tree(path))} & set(HEAVY):
            allowed = any(f"{name}.".startswith(f"{place}.") for place in HEAVY[library])
            assert allowed, f"{name} imports {library}"


def distributions(requirements: Iterable[str]) -> set[str]:
    """The names of distributions, each spelt in one way whatever a requirement says of versions."""
    return {re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[]", each, maxsplit=1)[0]).lower() for each in requirements}


def test_every_library_that_is_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = distributions(project["dependencies"]) | distributions([*extras["cuda12"], *extras["parquet"]])
    installed = packages_distributions()
    for name, path in modules().items():
        libraries = {word.partition(".")[0] for word in imports(tree(path))}
        for library in libraries - sys.stdlib_module_names - {"collbench"}:
            assert distributions(installed[library]) & declared, f"{name} imports {library}"


def speaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "print"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        *("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
        *("click.echo", "click.secho", "traceback.print_exc", "traceback.print_exception"),
    )


def test_only_the_command_line_speaks_and_only_three_modules_warn() -> None:
    speaking = {name for name, path in modules().items() if any(map(speaks, ast.walk(tree(path))))}
    unlisted = {name for name in speaking if part(name) not in ("cli", "commands")} ^ {*SPEAKING}
    assert not unlisted, f"{', '.join(sorted(unlisted))}: return what is printed, or give the reason in SPEAKING"
    warning = [name for name, path in modules().items() if "warnings.warn(" in path.read_text()]
    assert sorted(warning) == ["commands.formats.importing", "errors", "runfile.store"]


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
    group = "from collbench.cli.group import group"
    help_ = f"{group}\ntry: group.main(['--help'], standalone_mode=False)\nexcept SystemExit: pass"
    assert "sweep" in loaded(help_, "numpy", "scipy", "matplotlib", "mpi4py", "cupy", "jinja2")


def test_a_sweep_loads_neither_the_model_nor_the_tables_of_other_commands() -> None:
    loaded(
        "import collbench.commands.sweep.command",
        "collbench.model.predict",
        "collbench.commands.step.section",
        "collbench.planner",
    )


PACKAGES = [path.parent for path in (ROOT / "collbench").glob("*/__init__.py") if path.parent.name != "commands"]
FOLDERS = [str(path.relative_to(ROOT)) for path in (*PACKAGES, *(ROOT / "collbench" / "commands").glob("[a-z]*"))]
WHOLES = ("collbench", "kernels", "tests", "tools")
SLACK = 100  # lines that a folder may grow by before its limit is looked at


def lines_in(folder: str) -> int:
    sources = (ROOT / folder).rglob("*.[ch]*" if folder == "kernels" else "*.py")
    return sum(path.read_text(encoding="utf-8").count("\n") for path in sources)


def complaints(limits: Mapping[str, int], new: Mapping[str, int], lines: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with the limits of folders, and what to do; what is new is added to the limit of its whole."""
    for folder in lines.keys() - limits.keys() - new.keys():
        yield f'{folder} has no budget: add the line `"{folder}" = {lines[folder]}` to tests/budgets.toml, below [new]'
    for folder in (limits.keys() | new.keys()) - lines.keys():
        yield f"tests/budgets.toml has a line for {folder}, which is no folder: remove it"
    for folder, limit in {**limits, **new}.items():
        limit += sum(more for name, more in new.items() if name.startswith(f"{folder}/"))
        has = f"{folder} has {lines.get(folder)} lines, its budget is {limit}"
        if lines.get(folder, limit) > limit:
            yield f"{has}: take something away, or as much elsewhere, raise it, and write both into CHANGELOG"
        if lines.get(folder, limit) < limit - SLACK:
            yield f"{has}: lower it in tests/budgets.toml, to {lines[folder] + SLACK} at most"


def test_each_folder_keeps_to_its_budget_of_lines_and_each_budget_falls_with_its_folder(all_commands: None) -> None:
    limits = tomllib.loads(BUDGETS.read_text())
    new = limits.pop("new")
    folders = {*FOLDERS, *WHOLES, *(name for name in new if (ROOT / name).is_dir())}
    found = list(complaints(limits, new, {folder: lines_in(folder) for folder in folders}))
    assert not found, "\n".join(found)


def test_a_folder_that_comes_brings_its_budget_into_the_whole_and_the_complaint_is_the_line_to_add() -> None:
    limits, come = {"collbench": 200, "collbench/host": 90}, "collbench/commands/fastest"
    lines = {"collbench": 260, "collbench/host": 80, come: 60}
    assert {text.split(":")[0] for text in complaints(limits, {}, lines)} == {
        f"{come} has no budget",
        "collbench has 260 lines, its budget is 200",
    }
    assert not list(complaints(limits, {come: 60}, lines))
    for changed in ({come: 61}, {come: 60, "collbench": 261}, {"collbench/host": 91}, {"collbench": 159}, {"tests": 1}):
        assert len(list(complaints(limits, {come: 60}, lines | changed))) == 1, changed

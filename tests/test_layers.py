"""Dependencies point down, and what is heavy is imported only by whom it serves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

LAYERS = [  # from the bottom; a module may import from its own layer and those below
    {"errors", "units", "foreign", "cuda_extra", "__init__"},
    {"collectives", "datatypes", "topology", "stats"},
    {"sweep", "measurement", "records", "store", "environment", "world", "cost", "hardware"},
    {"kernels", "platforms", "link", "leftovers"},
    {"implementations"},
    {"runner", "tracing", "model"},
    {"worker", "joined", "modelled"},
    {"supervisor", "session", "paired"},
    {"analysis", "table", "panels", "plots", "picture", "breakdown", "timeline", "perfetto", "formats", "history"}
    | {"looks", "views", "styles", "overlay", "scales", "legends"},
    {"report", "ratios", "gate"},
    {"cli", "__main__"},
]
HEAVY = {"cupy": {"platforms", "implementations"}, "mpi4py": {"platforms", "implementations", "world"}}
MODULES = sorted((ROOT / "collbench").rglob("*.py"))


def imports(path: Path) -> set[str]:
    """The first two parts of the name of everything that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def part(path: Path) -> str:
    """The module or folder directly below collbench."""
    return path.relative_to(ROOT / "collbench").with_suffix("").parts[0]


def level(name: str) -> int:
    """Where it stands; a new part of the package must be given a place."""
    return next(number for number, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    """So every part can be read and tested with what is under it."""
    for name in imports(path):
        words = name.split(".")
        if words[0] == "collbench" and len(words) > 1:
            target = words[1] if words[1] != "__version__" else "__init__"
            assert level(target) <= level(part(path)), f"{part(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_libraries_are_imported_where_they_serve(path: Path) -> None:
    """A run of one process never imports MPI; the supervisor touches neither MPI nor CUDA."""
    for name in imports(path):
        library = name.split(".")[0]
        assert part(path) in HEAVY.get(library, {part(path)})


def test_only_the_command_line_prints() -> None:
    """Library functions return or yield."""
    for path in MODULES:
        if part(path) not in ("cli", "__main__"):
            calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            assert not any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls), path


def test_the_help_needs_no_numerical_library() -> None:
    """`collbench --help` answers at once."""
    script = (
        "import sys, collbench.cli\n"
        "try: collbench.cli.group.main(['--help'], standalone_mode=False)\n"
        "except BaseException: pass\n"
        "print(*sorted({'numpy', 'matplotlib', 'mpi4py', 'cupy', 'rich', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip() == ""
    assert "sweep" in done.stdout

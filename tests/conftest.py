"""What tests share: cases, measurements, and the real command run as a user runs it."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from collbench.cases import Case
from collbench.cli import main
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.host.signals import ENDING
from collbench.platforms.cpu.mpi_libraries import own
from collbench.results import Measurement

ROOT = Path(__file__).parents[1]
BUDGETS = ROOT / "tests" / "budgets.toml"
_BUDGETS = tomllib.loads(BUDGETS.read_text())
_FOLDERS = [ROOT / name for name in (*_BUDGETS, *_BUDGETS["new"]) if name.startswith("collbench/commands/")]
DELETED = {folder.name for folder in _FOLDERS if not folder.is_dir()}
"""Commands whose folder somebody has taken away (`python -m tools.without`); of a whole checkout none."""
Tree = Callable[[dict[str, str]], Path]

# Users' Pythons keep what they compile of our modules: every command that a test starts would compile them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("COLUMNS", None)  # which xdist sets, and no user's pipe has
sys.dont_write_bytecode = False
# A shell starts what it leaves in the background deaf to Ctrl-C, and nohup to its end; commands would inherit that.
if threading.current_thread() is threading.main_thread():
    for deaf, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(deaf) is signal.SIG_IGN:
            signal.signal(deaf, handler)


@cache
def commands_of(path: Path) -> frozenset[str]:
    """The commands that a file of tests needs, itself or by another file of tests or tools."""
    text = path.read_text(encoding="utf-8")
    names = {*re.findall(r"""(?:(?:collbench|tests)\.commands(?:\.| import )|"commands" / ")(\w+)""", text)}
    for function in re.findall(r"\bcollbench\.(\w+)\(", text):  # of the library
        names.add({"import_": "formats", "pairs": "scan"}.get(function, function))
    for module, imported in re.findall(r"^from ((?:tests|tools)[\w.]*) import (.+)", text, re.MULTILINE):
        for name in ("", *re.findall(r"\w+", imported)):
            other = ROOT / f"{module.replace('.', '/')}/{name}".rstrip("/")
            if (file := other.with_suffix(".py")).exists() and file != Path(__file__):
                names |= commands_of(file)
    return frozenset(names)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a file of tests that imports a command which was taken away."""
    left_out = DELETED and collection_path.suffix == ".py" and DELETED & commands_of(collection_path)
    return True if left_out else None


def needs_command(name: str) -> None:
    """Leave out the rest of a test that carries out a command which was taken away."""
    folder = "formats" if name in ("import", "export") or name.endswith("_perf") else name
    if folder in DELETED:
        pytest.skip(f"there is no command {name}")


@pytest.fixture
def all_commands() -> None:
    """Leave out a test that is about all commands where one was taken away."""
    if DELETED:
        pytest.skip(f"without {', '.join(sorted(DELETED))}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test that depends on the machine's scheduler once more where it fails."""
    for item in items:
        if item.get_closest_marker("machine"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that passed or failed only when they were run once more."""
    if repeated := terminalreporter.getreports("rerun"):
        terminalreporter.section("run once more, since they depend on the machine")
        for report in repeated:
            terminalreporter.line(report.nodeid)


def case(collective: str = "allreduce", nbytes: int = 1024, **changes: object) -> Case:
    chosen = COLLECTIVES[collective]
    redop = REDUCTIONS["sum"] if chosen.reduces else NONE
    fields = {"dtype": DATATYPES["float"], "redop": redop, "root": 0, "ranks": 2, "in_place": False} | changes
    return Case(chosen, nbytes, **fields)  # type: ignore[arg-type]


def measurement(
    implementation: str = "mpi", seconds: tuple[float, ...] = (1e-6,) * 7, **changes: object
) -> Measurement:
    return Measurement(case(**changes), implementation, "cpu", 1, seconds)  # type: ignore[arg-type]


def mpiexec() -> str:
    return str(own().launcher)


@pytest.fixture
def environment() -> dict[str, str]:
    return of_a_user()


def of_a_user() -> dict[str, str]:
    prefixes = ("PMI", "OMPI", "MPI_", "SLURM", "RANK", "WORLD_SIZE", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def sanitizer() -> None:
    """Without ThreadSanitizer no race is found: a reason to skip on a user's machine, a failure in CI."""
    from collbench.measure import races

    try:
        races.launcher()
    except races.NoSanitizer as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture
def collbench(tmp_path: Path, environment: dict[str, str]) -> Command:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return carried_out(tmp_path, environment | variables, *arguments)

    return run


def carried_out(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    needs_command(*arguments[:1] or ("list",))
    return subprocess.run(
        [sys.executable, "-m", "collbench", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.fixture
def here(tmp_path: Path, environment: dict[str, str]) -> Command:
    """The same with the command in this process, and its ranks in theirs: without an interpreter's start."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        needs_command(*arguments[:1] or ("list",))
        status, output, errors = 0, io.StringIO(), io.StringIO()
        handlers = {number: signal.getsignal(number) for number in ENDING}  # the command sets its own
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["collbench", *arguments])
            surroundings = mock.patch.dict(os.environ, environment | variables, clear=True)
            with surroundings, contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                try:
                    main()
                except SystemExit as end:
                    status = int(end.code or 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return subprocess.CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())

    return run


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `collbench ...` and leave it running; whatever is left at the end is killed."""
    started = []

    def run(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        needs_command(*arguments[:1] or ("list",))
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "collbench", *arguments],
            cwd=tmp_path,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write


def drawn_again(here: Command, folder: Path) -> list[str]:
    """The names of a run's pictures, which `collbench plot` has drawn from its run file and found equal to the byte."""
    done = here("plot", str(folder), "-o", "again")
    assert done.returncode == 0, done.stderr
    again = [Path(line).name for line in done.stdout.splitlines()]
    for name in again:
        assert (folder.parent / "again" / name).read_bytes() == (folder / name).read_bytes(), name
    assert sorted(again) == sorted(path.name for path in folder.iterdir() if path.suffix == ".png")
    return again

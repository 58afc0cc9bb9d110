"""Copies of collbench told apart by their code."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.measure.installation import _LEFT_OUT, _SOURCES, installation
from collbench.measure.start import mpiexec
from tests.conftest import ROOT


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A copy of the whole package with its kernels."""
    for name in ("collbench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / "other" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "other"


def told(root: Path, **variables: str) -> list[str]:
    """What a process that runs the copy in that folder says of itself."""
    script = "from collbench.measure.installation import installation; print(*installation(), sep='\\n')"
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    command = [sys.executable, "-P", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_code_is_the_same_wherever_it_lies(other: Path, tmp_path: Path) -> None:
    """A copy has its own folder only, and kernels tried in place of its own (COLLBENCH_KERNELS) are a setting."""
    version, code, folder = told(other, COLLBENCH_KERNELS=str(tmp_path))
    assert (version, code) == (installation().version, installation().code)
    assert folder == str(other / "collbench")


@pytest.mark.parametrize(
    ("file", "differs"),
    [
        ("collbench/measure/runner.py", True),
        ("collbench/errors.py", True),
        ("collbench/platforms/gpu/cuda.py", True),
        ("kernels/direct.cu", True),
        ("kernels/flags.cuh", True),
        ("kernels/host/cuda.hpp", True),
        ("kernels/host/library.cpp", True),
        ("collbench/cli/plot.py", False),
    ],
)
def test_an_edit_of_what_ranks_run_is_another_code(other: Path, file: str, differs: bool) -> None:
    """An edited page of the report is none."""
    with (other / file).open("a") as edited:
        edited.write("\n")
    assert (told(other)[1] != installation().code) == differs


def test_every_kernel_file_is_code() -> None:
    """Of whichever language."""
    kinds = {path.suffix for path in (ROOT / "kernels").rglob("*") if path.is_file()}
    assert kinds <= set(_SOURCES)


def test_a_file_that_moved_is_another_code(other: Path) -> None:
    """Though all bytes in order are the same."""
    (other / "kernels" / "direct.cu").rename(other / "kernels" / "direct2.cu")
    assert told(other)[1] != installation().code


def test_ranks_import_nothing_that_is_left_out() -> None:
    """Else a difference there would go unseen."""
    script = (
        "import sys, collbench.measure.worker\n"
        "from collbench.implementations import implementations\n"
        "from collbench.platforms import platforms\n"
        "implementations(), platforms()\n"
        "print(*(name for name in sys.modules if name.startswith('collbench.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert {"measure", "platforms", "implementations"} <= rooms
    assert not rooms & set(_LEFT_OUT)


def test_telling_costs_less_than_twenty_milliseconds() -> None:
    """Of processor time, once in each process; 6 of a quiet machine, whose caches no other work empties."""

    def spent() -> float:
        begun = time.process_time()
        installation.__wrapped__()
        return time.process_time() - begun

    assert min(spent() for _ in range(20)) < 0.02


def test_ranks_of_a_launcher_with_different_copies_are_refused(
    other: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """In one line, by the first of them; it names both folders, and nothing is stored."""
    with (other / "collbench" / "measure" / "runner.py").open("a") as edited:
        edited.write("\n")
    sweep = ("-P", "-m", "collbench", "sweep", "--on", "cpu", "-e", "8", "--no-plot", "--out", "out")
    ranks = [("-n", "1", "env", f"PYTHONPATH={root}", sys.executable, *sweep) for root in (ROOT, other)]
    command = [mpiexec(), *ranks[0], ":", *ranks[1]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: error")]
    assert f"rank 1 runs collbench {installation().version} in {other / 'collbench'} " in line
    assert f"rank 0 runs {installation()}: " in line
    assert not (tmp_path / "out").exists()

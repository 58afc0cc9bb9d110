"""Copies of collbench told apart by their code, and launchers that start ranks on this machine whatever is around."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.host.launcher import unlaunched
from collbench.measure.protocol import _NOT_ON_RANKS, _SOURCES, installation
from collbench.platforms.cpu.mpi_libraries import KINDS
from tests.conftest import ROOT, mpiexec
from tools.faults.surroundings import BATCH, STARTERS


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A copy of the whole package with its kernels."""
    for name in ("collbench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / "other" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "other"


TELL = """
import pathlib, sys
from collbench.measure.protocol import installation
print(*installation(), sep="\\t")
for name in sys.argv[2:]:
    path = pathlib.Path(sys.argv[1], name)
    text = path.read_bytes()
    path.write_bytes(text + b"\\n")
    print(*installation.__wrapped__(), sep="\\t")
    path.write_bytes(text)
"""


def told(root: Path, *edited: str, **variables: str) -> list[list[str]]:
    """What a process that runs the copy in that folder says of itself: at once, and with each of these files edited."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    command = [sys.executable, "-P", "-c", TELL, str(root), *edited]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_code_is_the_same_wherever_it_lies_and_another_after_an_edit_of_what_ranks_run(
    other: Path, tmp_path: Path
) -> None:
    ranks_run = (
        "collbench/measure/sampling.py",
        "collbench/errors.py",
        "collbench/platforms/gpu/cuda.py",
        "kernels/direct.cu",
        "kernels/flags.cuh",
        "kernels/host/cuda.hpp",
        "kernels/host/library.cpp",
    )
    copy, page, *edited = told(other, "collbench/cli/plot.py", *ranks_run, COLLBENCH_KERNELS=str(tmp_path))
    assert copy == [installation().version, installation().code, str(other / "collbench")]
    assert page == copy
    for file, (_, code, _) in zip(ranks_run, edited, strict=True):
        assert code != installation().code, file
    (other / "kernels" / "direct.cu").rename(other / "kernels" / "direct2.cu")
    assert told(other)[0][1] != installation().code, "a file that moved, though all bytes in order are the same"
    assert {path.suffix for path in (ROOT / "kernels").rglob("*") if path.is_file()} <= set(_SOURCES)


def test_ranks_import_nothing_that_is_left_out_of_what_tells_copies_apart() -> None:
    script = (
        "import sys, collbench.measure.worker\n"
        "from collbench.algorithms import implementations\n"
        "from collbench.platforms import platforms\n"
        "implementations(), platforms()\n"
        "print(*(name for name in sys.modules if name.startswith('collbench.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert {"measure", "platforms", "algorithms"} <= rooms
    assert not rooms & set(_NOT_ON_RANKS)


def test_ranks_of_a_launcher_with_different_copies_are_refused(
    other: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    with (other / "collbench" / "measure" / "sampling.py").open("a") as edited:
        edited.write("\n")
    sweep = ("-P", "-m", "collbench", "sweep", "--on", "cpu", "-e", "8", "--no-plot", "--out", "out")
    ranks = [("-n", "1", "env", f"PYTHONPATH={root}", sys.executable, *sweep) for root in (ROOT, other)]
    command = [mpiexec(), *ranks[0], ":", *ranks[1]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("collbench: error")]
    assert f"rank 1 runs collbench {installation().version} in {other / 'collbench'} " in line
    assert f"rank 0 runs {installation()}: " in line
    assert not (tmp_path / "out").exists()


def started_here(system: str, folder: Path) -> None:
    """No program that starts processes elsewhere is called, and no variable of the batch system changes that."""
    folder.mkdir()
    for name in STARTERS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>{folder}/called\nexit 1\n")
        (folder / name).chmod(0o755)
    (folder / "nodes").write_text("elsewhere\n")
    variables = {name: value.replace("@", str(folder)) for name, value in BATCH[system].items()}
    given = unlaunched(os.environ | variables | {"PATH": f"{folder}:{os.environ['PATH']}"})
    hydra = str(Path(sys.executable).with_name("mpiexec"))
    brief = "echo here; sleep 0.3"  # of programs that end at once Hydra itself may die by SIGPIPE
    command = [hydra, *KINDS["mpich"].options, "-n", "2", "sh", "-c", brief]
    done = subprocess.run(
        command, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stdout) == (0, "here\nhere\n"), (system, done.stderr)
    assert not (folder / "called").exists(), system


QUICK = ("Slurm's allocation", "PBS", "HYDRA_HOST_FILE")


def test_hydra_starts_ranks_on_this_machine_within_a_batch_system(tmp_path: Path) -> None:
    for system in QUICK:
        started_here(system, tmp_path / system)


def test_every_hydra_is_told_to_start_ranks_here() -> None:
    for kind in KINDS.values():
        if "mpiexec.hydra" in kind.launchers and kind.key != "cray":  # whose launcher is mostly another
            assert kind.options == ("-launcher", "fork", "-rmk", "user", "-hosts", "localhost"), kind.name

"""`sweep --mpi`: real ranks of several MPI libraries.

Every machine has two: MPICH's wheel, and a copy of it in a folder of its own.  Every library that `--mpi` finds by its
name is tried, in continuous integration MPICH and Open MPI at least.  Debian's MPICH, whose library has not the name
that mpi4py needs, is measured there and where it is installed (`apt install mpich`).
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from collbench.errors import UsageError
from collbench.platforms.cpu.mpi_libraries import KINDS, Library, find, own
from collbench.results import Measurement
from collbench.runfile.store import read
from tests.conftest import Command, of_a_user

QUICK = ("sweep", "--on", "cpu", "-n", "3", "--starts", "1", "-e", "64", "-f", "8", "--no-plot", "--out", "out")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second MPICH: another launcher and another file, in a folder of their own."""
    folder, usual = tmp_path_factory.mktemp("second") / "mpich", own()
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    for program in usual.launcher.parent.glob("*hydra*"):
        shutil.copy(program, folder / "bin")
    place = usual.launcher.parent.parent / "lib"
    shutil.copy(place / "libmpi.so.12", folder / "lib")
    for beside in place.glob("mpich"):
        (folder / "lib" / beside.name).symlink_to(beside)
    return folder


def test_rows_of_two_libraries_stay_apart_and_say_which_they_are_of(
    here: Command, copied: Path, tmp_path: Path
) -> None:
    done = here(*QUICK, "--mpi", f"mpich,{copied}", "--impl", "library,two-shot")
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    version = run.header.environment.versions["mpi"].split()[-1]
    names = ["mpi", "mpi@mpich", "two-shot"]
    assert [result.implementation for result in run.results] == names * 2
    assert list(run.header.sweep.implementations) == names
    for result in run.results:
        assert isinstance(result, Measurement)
        assert result.right
        assert result.library == ("" if result.implementation == "two-shot" else f"MPICH {version}")
    assert len(re.findall(rf"^ +\d+ B +mpi: MPICH {version} ", done.stdout, re.MULTILINE)) == 4
    assert "vs best" in done.stdout


def test_each_library_is_loaded_from_its_own_folder(copied: Path, tmp_path: Path) -> None:
    library = find(str(copied))
    # A file of each rank: in the output of a launcher the lines of two ranks may run into one another.
    look = (
        "from mpi4py import MPI; "
        "mapped = {line.split()[-1] for line in open('/proc/self/maps') if 'libmpi.so' in line}; "
        "open(f'rank {MPI.COMM_WORLD.rank}', 'w').write(' '.join(mapped))"
    )
    command = [*library.command(2), sys.executable, "-c", look]
    subprocess.run(command, env=library.environment(of_a_user()), check=True, cwd=tmp_path)
    for rank in range(2):
        assert (tmp_path / f"rank {rank}").read_text() == str(copied / "lib" / "libmpi.so.12")


@pytest.fixture(scope="module")
def installed() -> dict[str, Library]:
    """Every MPI library on this machine by its word for --mpi; in CI those that .ci/run installs are among them."""
    libraries = {}
    for word in KINDS:
        with suppress(UsageError):
            libraries[word] = find(word)
    if "CI" in os.environ:
        assert {"mpich", "openmpi"} <= set(libraries)
    return libraries


def test_every_installed_library_is_measured_by_its_name(
    here: Command, installed: dict[str, Library], tmp_path: Path
) -> None:
    assert installed
    for word, library in installed.items():
        done = here(*QUICK[:-2], "-e", "8", "--impl", "mpi", "--timeout", "20", "--mpi", word, "--out", word)
        assert done.returncode == 0, done.stderr
        [row] = read(tmp_path / word).results
        assert isinstance(row, Measurement)
        assert row.right
        assert library.own or row.library.startswith(library.kind.name), row.library


TOLD = """
import sys, time
from pathlib import Path
from collbench.platforms.mpi_processes import MpiProcesses

world, folder = MpiProcesses.of_world(), Path(sys.argv[1])
if sys.argv[2] == "bells":
    world.hang_bells(folder)
for length in (0, 100, 5_000, 70_000, 3_000_000) * 2:
    if world.leader:
        time.sleep(0.02)  # so that the others sleep
    assert world.broadcast("x" * length if world.leader else None) == "x" * length
    assert world.exchange(world.rank) == list(range(world.size))
(folder / f"rank {world.rank}").touch()
"""


def test_orders_of_any_length_reach_ranks_that_sleep_by_every_installed_library(
    installed: dict[str, Library], tmp_path: Path
) -> None:
    for word, library in installed.items():
        for way in ("bells", "naps"):
            folder = tmp_path / f"{word}-{way}"
            folder.mkdir()
            command = [*library.command(3), sys.executable, "-c", TOLD, str(folder), way]
            subprocess.run(command, env=library.environment(of_a_user()), check=True, cwd=tmp_path, timeout=60)
            assert {f"rank {rank}" for rank in range(3)} <= {path.name for path in folder.iterdir()}


@pytest.fixture
def debian() -> str:
    """The launcher of Debian's MPICH; without it a reason to skip on a user's machine, and a failure in CI."""
    launcher = shutil.which("mpirun.mpich")
    if not launcher:
        missing = "mpirun.mpich is not installed (Debian's package mpich)"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    return launcher


def test_the_mpich_of_debian_is_measured_beside_the_wheel_and_under_its_launcher(
    here: Command, debian: str, tmp_path: Path
) -> None:
    few = (*QUICK[:-2], "-e", "8", "--impl", "mpi")
    done = here(*few, "--mpi", f"mpich,{debian}", "--out", "both")
    assert done.returncode == 0, done.stderr
    rows = list(read(tmp_path / "both").results)
    assert [row.implementation for row in rows] == ["mpi", "mpi@mpich"]
    for out, variables in (("found", {}), ("named", {"MPI4PY_LIBMPI": str(find(debian).file)})):
        command = [debian, "-n", "2", sys.executable, "-m", "collbench", *few, "--out", out]
        environment = of_a_user() | variables
        under = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert under.returncode == 0, under.stderr
        rows += read(tmp_path / out).results
    for row in rows:
        assert isinstance(row, Measurement)
        assert row.right
    _, *of_debian = [row.library for row in rows]
    assert len(of_debian) == 3
    assert len(set(of_debian)) == 1

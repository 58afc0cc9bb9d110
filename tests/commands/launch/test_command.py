"""`collbench launch`: what it prints, what it refuses, and real ranks that it starts."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from collbench.platforms import on_auto
from collbench.results import Measurement
from collbench.runfile.store import read
from tests.conftest import Command

ECHO = """#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
printf '%s\\n' "$@"
"""
RANKS = {"PMI_SIZE": "2", "PMI_RANK": "0"}


@pytest.fixture
def openmpi(tmp_path: Path) -> str:
    """The PATH of an Open MPI whose launcher prints its arguments, a line each."""
    launcher = tmp_path / "bin" / "mpirun.openmpi"
    library = tmp_path / "lib" / "libmpi.so.40"
    for file, content in ((launcher, ECHO.encode()), (library, b"\0ompi_mpi_comm_self\0")):
        file.parent.mkdir()
        file.write_bytes(content)
    launcher.chmod(0o755)
    return f"{launcher.parent}:/usr/bin:/bin"


def test_the_command_is_alone_on_stdout_and_a_shell_reads_it_as_it_was_made(here: Command, openmpi: str) -> None:
    words = ["sweep", "--on", "cpu", "--out", "some where/$HOME"]
    done = here("launch", "--launcher", "openmpi", "--hosts", "a:3,b", "--", *words, PATH=openmpi)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert done.stderr.startswith("openmpi: ")
    told = subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[-5:] == words
    assert told[:4] == ["-n", "5", "--host", "a:3,b:2"]


def test_ranks_sweep_an_all_reduce_here_or_what_stands_behind_the_name_of_the_program(
    here: Command, openmpi: str
) -> None:
    for words in ([], ["--", "collbench", "sweep", "--op", "allreduce"], ["--", "/opt/collbench", "sweep", "-b", "8"]):
        told = shlex.split(here("launch", "--launcher", "ompi", *words, PATH=openmpi).stdout)
        assert told[-4:] == ["collbench", *(words[2:] or ["sweep", "--op", "allreduce"])]
        assert "localhost:2" in told


def test_a_file_names_the_hosts(here: Command, openmpi: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1 slots=4\nnode2:4  # the other dialect\n")
    for option in ("--hostfile", "--hosts"):
        done = here("launch", "--launcher", "openmpi", option, "hosts", PATH=openmpi)
        assert done.returncode == 0, option
        assert " node1:4,node2:4 " in done.stdout, option


def test_nodes_are_the_first_of_the_hosts(here: Command, openmpi: str) -> None:
    done = here("launch", "--launcher", "openmpi", "--hosts", "a:2,b:4,c:4", "--nodes", "2", PATH=openmpi)
    assert "-n 6 --host a:2,b:4 " in done.stdout


def test_without_a_gpu_here_ranks_of_other_hosts_are_a_guess_and_said_to_be(here: Command, openmpi: str) -> None:
    for words, guessed in (("--hosts a,b", on_auto() == "cpu"), ("--hosts a:2,b:2", False)):
        done = here("launch", *words.split(), PATH=openmpi)
        assert ("--ranks-per-node 8" in done.stderr) == guessed, words


def test_what_cannot_be_launched_is_refused_in_one_line(here: Command) -> None:
    for words, variables, reason in (
        (["--", "sweep"], RANKS, "a launcher (mpirun, srun) already started this"),
        (["--", "sweeping"], {}, "'sweeping' is no command for several processes; choose from: check, explain"),
        (["--launcher", "srun"], {}, "no launcher can be used: srun: no "),
        (["--", "sweep", "--on=dgx-h100"], {}, "unknown platform 'dgx-h100'"),
        (["--hosts", ""], {}, "there is no host in --hosts"),
        (["--nodes", "64"], {}, "--nodes 64 exceeds the 1 host known here; name 64 with --hosts or --hostfile"),
        (["--hostfile", "nowhere"], {}, "cannot read nowhere: No such file"),
    ):
        done = here("launch", *words, **variables)
        assert done.returncode == 2, (words, done.stderr)
        (line,) = done.stderr.splitlines()
        assert line.startswith("collbench: error: "), words
        assert reason in line, words
        assert not done.stdout, words


@pytest.mark.full
def test_go_starts_the_ranks_of_either_mpi(collbench: Command, tmp_path: Path) -> None:
    installed = {"mpich": "MPICH"}
    if shutil.which("mpirun.openmpi"):
        installed["openmpi"] = "Open MPI"
    sweep = "sweep --on cpu --impl mpi,ring-flags -n 3 --starts 1 -e 8 --no-plot --out"
    for launcher, library in installed.items():
        start = f"launch --launcher {launcher} --ranks-per-node 2 --go --"
        done = collbench(*start.split(), *sweep.split(), launcher)
        assert done.returncode == 0, done.stderr
        rows = [row for row in read(tmp_path / launcher).results if isinstance(row, Measurement)]
        assert [(row.implementation, row.case.ranks, row.right) for row in rows] == [
            ("mpi", 2, True),
            ("ring-flags", 2, True),
        ], launcher
        assert rows[0].library.startswith(library)

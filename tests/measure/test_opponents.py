"""Several MPI libraries in one sweep: whose rows are called what, and that no case is left before all had it."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cases import Sweep
from collbench.errors import UsageError
from collbench.measure.greeting import Greeting
from collbench.measure.opponents import Opponents, suffixes
from collbench.measurement import Failed, Result
from collbench.platforms.cpu.installed import Library
from collbench.platforms.cpu.libraries import KINDS
from tests.measure.test_turns import Acted, measured
from tests.test_cases import sweep

NAMES = ("mpi", "mpi-python", "two-shot")
SAID = {"mpich": "MPICH Version: 5.0.2", "openmpi": "Open MPI v5.0.11, package: x", "intel": "Intel(R) MPI Library 1"}


def library(key: str, folder: Path | None) -> Library:
    """One in a folder, or the one that mpi4py loads by itself."""
    return Library(KINDS[key], (folder or Path("/own")) / "bin" / "mpiexec", folder / "libmpi.so" if folder else None)


MPICH, OPEN, INTEL = library("mpich", None), library("openmpi", Path("/ompi")), library("intel", Path("/impi"))


def asked_for() -> Sweep:
    return replace(sweep(64, 1024), implementations=NAMES)


def against(*libraries: Library, log: list[str], **ranks: Acted) -> Opponents:
    """Ranks of these libraries that answer at once."""

    def start(_: Sweep, chosen: Library) -> Acted:
        key = chosen.kind.key
        return ranks.get(key) or Acted(key, log, greeting=Greeting(versions={"mpi": SAID[key]}))

    return Opponents(asked_for(), libraries, start)


def test_rows_are_called_after_their_library_unless_it_is_the_usual_one() -> None:
    """So a row called mpi is of the same library as in a sweep that names none, in whatever order they are given."""
    assert suffixes([MPICH, OPEN, INTEL]) == ["", "@openmpi", "@intel"]
    assert suffixes([OPEN, MPICH]) == ["@openmpi", ""]
    second = library("openmpi", Path("/other"))
    assert suffixes([OPEN, second]) == ["@openmpi", "@openmpi-2"]
    with pytest.raises(UsageError, match=r"--mpi names Open MPI twice \(/ompi/libmpi.so\); leave one out"):
        suffixes([OPEN, MPICH, OPEN])


def test_every_library_measures_a_case_before_the_next_and_the_first_alone_the_rungs() -> None:
    log: list[str] = []
    with against(MPICH, OPEN, INTEL, log=log) as opponents:
        results = list(opponents.run())
    rows = [(result.case.nbytes, result.implementation) for result in results]
    names = ["mpi", "mpi@openmpi", "mpi@intel"]
    names += ["mpi-python", "mpi-python@openmpi", "mpi-python@intel", "two-shot"]
    assert rows == [(size, name) for size in (64, 1024) for name in names]
    assert list(opponents.sweep.implementations) == names
    half = (len(log) - 6) // 2  # without the starts and the ends
    asked = log[3 : 3 + half]
    assert {asked.count(key) for key in SAID} == {half // 3}
    assert asked[:6] == ["mpich", "openmpi", "intel", "intel", "openmpi", "mpich"]


def test_the_header_says_which_library_each_name_stands_for() -> None:
    with against(MPICH, OPEN, log=[]) as opponents:
        assert opponents.greeting.versions == {"mpi": SAID["mpich"], "mpi@openmpi": SAID["openmpi"]}
    with against(OPEN, log=[]) as alone:
        assert alone.greeting.versions["mpi@openmpi"] == SAID["openmpi"]


def test_one_library_alone_takes_no_turns_and_keeps_the_names_of_the_rungs() -> None:
    log: list[str] = []
    with against(OPEN, log=log) as opponents:
        names = [result.implementation for result in opponents.run()]
    assert names == ["mpi@openmpi", "mpi-python@openmpi", "two-shot"] * 2
    assert log == ["start openmpi", "openmpi", "openmpi", "end openmpi"]


def test_a_library_whose_ranks_fail_costs_its_own_rows_only() -> None:
    log: list[str] = []

    def dies(asked: object, name: str, round_: int) -> Result:
        return Failed(measured(asked, name, 1.0).case, name, "cpu", "a rank died")  # type: ignore[arg-type]

    ranks = Acted("openmpi", log, answer=dies, greeting=Greeting(versions={"mpi": SAID["openmpi"]}))
    with against(MPICH, OPEN, log=log, openmpi=ranks) as opponents:
        failed = {result.implementation for result in opponents.run() if isinstance(result, Failed)}
    assert failed == {"mpi@openmpi", "mpi-python@openmpi"}


def test_libraries_that_nothing_calls_are_refused() -> None:
    """Of one the ranks may still be wanted: another launcher places them differently."""
    ladder = replace(asked_for(), implementations=("two-shot",))
    with pytest.raises(UsageError, match=r"--impl two-shot calls no MPI library.*; add mpi"):
        Opponents(ladder, [MPICH, OPEN])
    assert Opponents(ladder, [OPEN]).sweep.implementations == ("two-shot",)


def test_an_implementation_has_as_much_time_with_one_library_as_with_another() -> None:
    """The first shares its budget with the rungs, so the others have as much less as they have fewer to measure."""
    budgets = []

    def start(own: Sweep, chosen: Library) -> Acted:
        budgets.append(own.sampling.budget / len(own.implementations))
        return Acted(chosen.kind.key, [])

    Opponents(asked_for(), (MPICH, OPEN, INTEL), start)
    assert budgets == pytest.approx([budgets[0]] * 3)

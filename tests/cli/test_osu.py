"""`osu_latency`, `osu_iallreduce` and their like: OSU's options in, OSU's tables out, and those are read again."""

from pathlib import Path

import pytest

from collbench.cli._osu import osu, programs
from collbench.cli._osu_options import as_sweep, bounds
from collbench.errors import UsageError
from collbench.formats.osu_nonblocking import overlap
from collbench.formats.osu_tests import PROGRAMS
from collbench.runs.file import read
from tests.conftest import Command

QUICK = ("--budget", "0.05", "-i", "3", "--on", "cpu", "-g", "2")
BEGUN = [name for name in programs() if name.removeprefix("osu_") not in PROGRAMS]


def rows(text: str) -> list[list[str]]:
    """The words of the rows of a table."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def chosen(name: str, words: str) -> str:
    """The platform of a program with these words."""
    command = osu(name)
    assert command
    options = command.make_context(name, words.split()).params
    return str(as_sweep(PROGRAMS[name.removeprefix("osu_")], options)["on"])


@pytest.mark.parametrize("name", [name for name in programs() if name not in BEGUN])
def test_a_program_prints_osu_s_table_which_is_imported_as_what_it_measured(
    name: str, here: Command, tmp_path: Path
) -> None:
    """A row for every size, each twice the one before, and in the run file the same means."""
    done = here(name, *QUICK, "-m", "8:32", "--out", "own")
    assert done.returncode == 0, done.stderr
    kind = PROGRAMS[name.removeprefix("osu_")]
    assert f"# OSU MPI {kind.title} Test v7" in done.stdout
    printed = rows(done.stdout)
    if kind.measured.sized:
        assert [row[0] for row in printed] == ["8", "16", "32"]
    own = read(tmp_path / "own").results
    assert {result.case.collective.name for result in own} == {kind.measured.name}
    assert len(own) == len(printed)
    (tmp_path / "log").write_text(done.stdout)
    assert here("import", "log", "--out", "again").returncode == 0
    again = read(tmp_path / "again").results
    assert [(one.case.collective, one.case.ranks) for one in again] == [(own[0].case.collective, 2)] * len(own)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["osu_iallreduce", "osu_ialltoall"])
def test_a_non_blocking_program_prints_the_overlap(name: str, here: Command, tmp_path: Path) -> None:
    """Overall, computing, communicating and what is hidden, as OSU reckons it; the run file has all its steps."""
    done = here(name, *QUICK, "-m", "1K:4K", "--out", "own")
    assert done.returncode == 0, done.stderr
    printed = rows(done.stdout)
    assert [row[0] for row in printed] == ["1024", "2048", "4096"], done.stdout
    for _, overall, compute, pure, hidden in printed:
        assert min(float(overall), float(compute), float(pure)) > 0
        assert 0 <= float(hidden) <= 100
    schedules = [result.case.step.schedule for result in read(tmp_path / "own").results if result.case.step]
    assert schedules == ["compute", "communicate", "sequential", "nonblocking"] * 3


def test_every_collective_but_pairs_and_the_barrier_has_a_non_blocking_program() -> None:
    assert {"osu_iallreduce", "osu_ibcast", "osu_ialltoall", "osu_iallgather"} <= set(BEGUN)
    assert not {"osu_ilatency", "osu_ibw", "osu_ibarrier"} & set(programs())
    assert all(osu(name) for name in programs())
    assert osu("osu_nothing") is None
    assert osu("latency") is None


def test_overlap_is_what_computing_hides() -> None:
    """All of it where the step takes no longer than computing, none where one follows the other or worse."""
    assert overlap(overall=10, compute=10, pure=5) == 100
    assert overlap(overall=15, compute=10, pure=5) == 0
    assert overlap(overall=12.5, compute=10, pure=5) == pytest.approx(50)
    assert overlap(overall=30, compute=10, pure=5) == 0
    assert overlap(overall=8, compute=10, pure=5) == 100


@pytest.mark.parametrize(
    ("words", "platform"),
    [
        ("", "auto"),
        ("-d cuda", "gpu"),
        ("D D", "gpu"),
        ("-d cuda D D", "gpu"),
        ("D D --on gpu", "gpu"),
        ("H H", "cpu"),
        ("-d host H H", "cpu"),
        ("-d cuda H H", "cpu"),  # there, too, -d says what a device is, and H that no buffer is on it
    ],
)
def test_both_ranks_buffers_are_where_osu_s_letters_say(words: str, platform: str) -> None:
    """Behind the options or between them."""
    assert chosen("osu_bw", words) == platform


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("D H", "D H: the ranks of a run live on GPUs or on CPUs, all of them"),
        ("-d cuda H D", "H D: the ranks of a run live"),
        ("-d cuda M M", "M M: managed memory is not measured here"),
        ("D MD", "D MD: managed memory is not measured here"),
        ("D", "D does not say where the buffers of two ranks are"),
        ("D D D", "D D D does not say"),
        ("d d", "d d does not say"),
        ("D D --on cpu", "D D are buffers of a gpu, and -d or --on says another"),
        ("-d host D D", "D D are buffers of a gpu"),
        ("H H --on gpu", "H H are buffers of a cpu"),
    ],
)
def test_buffers_that_are_not_measured_are_refused_with_the_letters_that_are(words: str, reason: str) -> None:
    """In a line that begins with what was said."""
    with pytest.raises(UsageError) as refused:
        chosen("osu_latency", words)
    assert str(refused.value).startswith(reason)
    assert "D D for buffers on GPUs, or H H for buffers on the host" in str(refused.value)


def test_collectives_take_no_letters(here: Command) -> None:
    """As in OSU; and those of pairs are taken by the command itself."""
    assert "unexpected extra arguments (D D)" in here("osu_allreduce", "D", "D").stderr
    done = here("osu_latency", "-m", "8", *QUICK[:4], "H", "H")
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in rows(done.stdout)] == ["1", "2", "4", "8"]


@pytest.mark.parametrize(
    ("program", "said", "ranks", "expected"),
    [
        ("latency", "2:8", 2, (2, 8)),
        ("latency", "4", 2, (1, 4)),
        ("latency", None, 2, (1, 2**22)),
        ("bw", "1M:", 2, (2**20, 2**22)),
        ("alltoall", "8:16", 4, (32, 64)),
        ("allreduce", "8", 4, (4, 8)),
        ("allreduce", None, 4, (4, 2**20)),
        ("reduce_scatter", ":8", 4, (4, 8)),
    ],
)
def test_sizes_count_as_osu_counts_them(program: str, said: str | None, ranks: int, expected: tuple[int, int]) -> None:
    """Of every rank's message where OSU does so; a bound that is left out is the usual one."""
    kind = PROGRAMS[program]
    assert bounds(kind, said, ranks, 4 if kind.measured.reduces else 1) == expected


@pytest.mark.parametrize("said", ["9:8", "0:8", ":0"])
def test_no_sizes_are_refused(said: str) -> None:
    with pytest.raises(UsageError, match="has no size; give MIN:MAX"):
        bounds(PROGRAMS["latency"], said, 2, 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("osu_latency", "-d", "rocm"), "unknown -d 'rocm'; choose from: cuda, host"),
        (("osu_latency", "-T", "mpi_bool"), "unknown -T 'mpi_bool'; choose from: mpi_char, "),
        (("osu_latency", "-m", "x"), "x"),
        (("osu_bw", "-m", "8:900T"), "of shared memory"),
        (("osu_bcats",), "unknown command 'osu_bcats'"),
        (("osu_iallreduce", "-d", "cuda"), "osu_iallreduce is of MPI on CPUs; leave --on and -d out"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: tuple[str, ...], line: str, here: Command) -> None:
    done = here(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert line in done.stderr


def test_one_rank_has_no_pair(here: Command) -> None:
    """It is said in the table, and the status tells it."""
    done = here("osu_bw", "--on", "cpu", "-g", "1", "-m", "8")
    assert "# 8 B: bandwidth takes 2 ranks" in done.stdout


def test_another_window_is_said_to_be_none(here: Command) -> None:
    done = here("osu_bw", *QUICK, "-W", "16", "-m", "8:8")
    assert "-W 16 has no effect: 64 messages are in flight" in done.stderr

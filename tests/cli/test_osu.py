"""`osu_latency`, `osu_iallreduce` and their like: OSU's options in, OSU's tables out, and those are read again."""

from pathlib import Path

import pytest

from collbench.cli._osu import osu, programs
from collbench.cli._osu_options import as_sweep, bounds
from collbench.errors import UsageError
from collbench.formats.osu_nonblocking import overlap
from collbench.formats.osu_tests import PROGRAMS
from collbench.runfile.store import read
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


def table_is_read_again(name: str, here: Command, folder: Path, *words: str) -> str:
    """A row for every size, each twice the one before, and what is imported of it is what was measured."""
    done = here(name, *QUICK, "-m", "8:32", "--out", f"own-{name}", *words)
    assert done.returncode == 0, (name, done.stderr)
    kind = PROGRAMS[name.removeprefix("osu_")]
    assert f"# OSU MPI {kind.title} Test v7" in done.stdout
    printed = rows(done.stdout)
    if kind.measured.sized:
        assert [row[0] for row in printed] == ["8", "16", "32"], name
    own = read(folder / f"own-{name}").results
    assert {result.case.collective.name for result in own} == {kind.measured.name}, name
    assert len(own) == len(printed)
    (folder / "log").write_text(done.stdout)
    assert here("import", "log", "--out", f"again-{name}").returncode == 0, name
    again = read(folder / f"again-{name}").results
    assert [(one.case.collective, one.case.ranks) for one in again] == [(own[0].case.collective, 2)] * len(own), name
    return done.stderr


@pytest.mark.usefixtures("made_up_ranks")
def test_a_program_prints_osu_s_table_which_is_imported_as_what_it_measured(here: Command, tmp_path: Path) -> None:
    for name in programs():
        if name not in BEGUN:
            table_is_read_again(name, here, tmp_path)


def test_messages_between_a_pair_of_real_ranks_are_measured(here: Command, tmp_path: Path) -> None:
    """With buffers where OSU's letters say; another window is said to be none."""
    said = table_is_read_again("osu_bw", here, tmp_path, "-W", "16", "H", "H")
    assert "-W 16 has no effect: 64 messages are in flight" in said


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_non_blocking_program_prints_the_overlap(here: Command, tmp_path: Path) -> None:
    """Overall, computing, communicating and what is hidden, as OSU reckons it; the run file has all its steps."""
    done = here("osu_ialltoall", *QUICK, "-m", "1K:2K", "--out", "own")
    assert done.returncode == 0, done.stderr
    printed = rows(done.stdout)
    assert [row[0] for row in printed] == ["1024", "2048"], done.stdout
    for _, overall, compute, pure, hidden in printed:
        assert min(float(overall), float(compute), float(pure)) > 0
        assert 0 <= float(hidden) <= 100
    schedules = [result.case.step.schedule for result in read(tmp_path / "own").results if result.case.step]
    assert schedules == ["compute", "communicate", "sequential", "nonblocking"] * 2


def test_overlap_is_what_computing_hides() -> None:
    """All of it where the step takes no longer than computing, none where one follows the other or worse."""
    for overall, hidden in ((10, 100), (15, 0), (12.5, 50), (30, 0), (8, 100)):
        assert overlap(overall=overall, compute=10, pure=5) == pytest.approx(hidden), overall


def test_both_ranks_buffers_are_where_osu_s_letters_say() -> None:
    """Behind the options or between them; -d says what a device is, and H that no buffer is on it."""
    for words, platform in {
        "": "auto",
        "-d cuda": "gpu",
        "D D": "gpu",
        "-d cuda D D": "gpu",
        "D D --on gpu": "gpu",
        "H H": "cpu",
        "-d host H H": "cpu",
        "-d cuda H H": "cpu",
    }.items():
        assert chosen("osu_bw", words) == platform, words


def test_buffers_that_are_not_measured_are_refused_with_the_letters_that_are() -> None:
    """In a line that begins with what was said."""
    for words, reason in {
        "D H": "D H: the ranks of a run live on GPUs or on CPUs, all of them",
        "-d cuda H D": "H D: the ranks of a run live",
        "-d cuda M M": "M M: managed memory is not measured here",
        "D MD": "D MD: managed memory is not measured here",
        "D": "D does not say where the buffers of two ranks are",
        "D D D": "D D D does not say",
        "d d": "d d does not say",
        "D D --on cpu": "D D are buffers of a gpu, and -d or --on says another",
        "-d host D D": "D D are buffers of a gpu",
        "H H --on gpu": "H H are buffers of a cpu",
    }.items():
        with pytest.raises(UsageError) as refused:
            chosen("osu_latency", words)
        assert str(refused.value).startswith(reason), words
        assert "D D for buffers on GPUs, or H H for buffers on the host" in str(refused.value)


def test_sizes_count_as_osu_counts_them() -> None:
    """Of every rank's message where OSU does so; a bound that is left out is the usual one."""
    for program, said, ranks, expected in (
        ("latency", "2:8", 2, (2, 8)),
        ("latency", "4", 2, (1, 4)),
        ("latency", None, 2, (1, 2**22)),
        ("bw", "1M:", 2, (2**20, 2**22)),
        ("alltoall", "8:16", 4, (32, 64)),
        ("allreduce", "8", 4, (4, 8)),
        ("allreduce", None, 4, (4, 2**20)),
        ("reduce_scatter", ":8", 4, (4, 8)),
    ):
        kind = PROGRAMS[program]
        assert bounds(kind, said, ranks, 4 if kind.measured.reduces else 1) == expected, (program, said)
    for said in ("9:8", "0:8", ":0"):
        with pytest.raises(UsageError, match="has no size; give MIN:MAX"):
            bounds(PROGRAMS["latency"], said, 2, 1)

"""Nothing that a log says wrongly, or does not say, is read as right; nothing that surrounds it hides what it says."""

import re
import time
from collections.abc import Callable

import pytest

from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.formats import imported, read_tests
from collbench.formats.imported import Hints, known_collective, remarks
from collbench.formats.source import decode
from tests.formats.goldens import DATA, GOLDENS, golden_tests, parsed, reported, run_of
from tests.formats.test_writing import export
from tests.formats.wrapped import TABLES, WRAPPINGS

LOG = (DATA / "nccl_tests_2_19.txt").read_text()
TRIMMED = (DATA / "nccl_tests_trimmed_ranks.txt").read_text()
COMMANDS = (DATA / "nccl_tests_several_commands.txt").read_text()
PLAIN = ("nccl_tests_2_19.txt", "nccl_tests_2018_error_column.txt", "nccl_tests_several_tests.txt")
OSU = ("osu_nccl_full.txt", "osu_mpi_datatypes.txt", "osu_mpi_cuda_bandwidth.txt")
ONE_SIDED = """$ srun -N2 --ntasks-per-node=4 ./one-sided/osu_put_latency
# OSU MPI_Put Latency Test v5.8
# Window creation: MPI_Win_allocate
# Synchronization: MPI_Win_flush
# Size          Latency (us)
1                       1.21
8                       1.24
$ srun -N2 --ntasks-per-node=4 ./pt2pt/osu_bibw
# OSU MPI Bi-Directional Bandwidth Test v5.8
# Size      Bandwidth (MB/s)
65536               21850.31
$ srun -N2 --ntasks-per-node=4 ./collective/osu_allgather -f

# OSU MPI Allgather Latency Test v5.8
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       4.11              3.70              4.52        1000
1024                    9.87              9.02             10.60        1000
"""


def facts(tests: list[imported.Test]) -> list[object]:
    return [(row.case, row.seconds, row.wrong_elements) for row in reported(tests)]


def read(text: str, collective: str = "", ranks: int | None = None) -> list[imported.Test]:
    return list(read_tests(decode("log", text.encode()), Hints(ranks, collective)))


def ranks_of(tests: list[imported.Test]) -> set[int]:
    return {row.case.ranks for row in reported(tests)}


def collectives_of(tests: list[imported.Test]) -> list[str]:
    return [row.case.collective.name for row in reported(tests)]


def said(tests: list[imported.Test]) -> str:
    return "\n".join(remarks(tests))


@pytest.mark.parametrize("name", PLAIN + OSU)
def test_what_surrounds_a_log_does_not_matter(name: str) -> None:
    """Tags of launchers and containers, time stamps, quotes, bullets, colours, tables and blanks of documents."""
    text, ranks, expected = (DATA / name).read_text(), GOLDENS[name].given, facts(golden_tests(name))
    for way, wrap in (WRAPPINGS if name in OSU else TABLES).items():
        assert facts(read(wrap(text), ranks=ranks)) == expected, way


def test_a_row_torn_by_log_lines_is_read_under_any_tag() -> None:
    """Its pieces have the tag each."""
    name = "nccl_tests_stamped_percentiles_warnings.txt"
    for way in ("mpirun --tag-output", "srun --label, padded", "pdsh", "kubectl logs --timestamps", "mail", "colours"):
        assert facts(read(WRAPPINGS[way]((DATA / name).read_text()))) == facts(golden_tests(name)), way


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ((0, 7, 8, 15), "12 of 16 are not there"),
        ((15,), "15 of 16 are not there"),
        ((0, 1, 2, 3), "it lists 4 ranks, and its rows are those of 16"),
        ((8, 9, 10), "it lists 11 ranks, and its rows are those of 16"),
    ],
)
def test_a_trimmed_list_of_ranks_does_not_make_a_smaller_run(kept: tuple[int, ...], words: str) -> None:
    """The highest rank and the bus bandwidths tell how many there were."""
    first = next(line for line in TRIMMED.splitlines() if "Rank  0" in line)
    bare = [line for line in TRIMMED.splitlines() if " Rank " not in line and "..." not in line]
    at = bare.index("# Using devices") + 1
    listed = [first.replace("Rank  0", f"Rank {rank:2d}") for rank in kept]
    tests = read("\n".join([*bare[:at], *listed, *bare[at:]]) + "\n")
    assert ranks_of(tests) == {16}
    assert words in said(tests)
    for row in reported(tests):
        assert row.busbw / 1e9 == pytest.approx(float(row.printed["busbw"]), rel=0.01)
    assert tests[0].machine.name.startswith("16 x ")


def test_without_a_bandwidth_that_tells_the_highest_rank_counts() -> None:
    """A broadcast's bus bandwidth is the same for any number."""
    broadcast = COMMANDS[COMMANDS.index("./build/broadcast") : COMMANDS.index("./build/sendrecv")]
    lines = [line for line in broadcast.splitlines() if "Rank  1" not in line and "Rank  2" not in line]
    tests = read("\n".join(lines).replace("nGpus 4", "nGpus 1").replace("-g 4", "") + "\n")
    assert ranks_of(tests) == {4}
    assert "2 of 4 are not there" in said(tests)
    (cut,) = read(broadcast.replace("nThread 1 nGpus 4", "nThread 1 nGpus 8"))  # a process alone had more than listed
    assert cut.machine.ranks == 8


def test_rows_that_fit_no_number_of_ranks_are_refused() -> None:
    """Three times the algorithm bandwidth is what an all-reduce never reaches; 1.6 / 1 may be of 4 to 7."""
    impossible = with_bandwidths("   50.00  150.00")
    (test,) = read(impossible)
    assert test.left_out == ("7 rows: not of all_reduce_perf: its bus bandwidths are another collective's",)
    vague = re.sub(r"(?m)^#  Rank  [0-2] .*\n", "", with_bandwidths("     1.0     1.6")).replace("Rank  3", "Rank 99")
    vague = vague.replace("nGpus 4", "nGpus 1")
    with pytest.raises(UsageError, match="it lists 100 ranks, and its rows are not those of so many; give --ranks N"):
        read(vague)
    assert ranks_of(read(vague, ranks=4)) == {4}


def with_bandwidths(words: str) -> str:
    """The log with these in every row, as long as those of the other place."""
    rows = re.compile(r"(?m)^( +\d+ +\d+ +float +sum +-1 +\S+) +\S+ +\S+( +\S+ +\S+) +\S+ +\S+( +\S+)$")
    changed, times = rows.subn(rf"\1{words}\2{words}\3", LOG)
    assert times == 7
    return changed


def test_a_number_of_ranks_that_the_rows_contradict_is_not_taken_on_anyones_word() -> None:
    """What the rows say stands, and it is told; where they say nothing, the user's word does."""
    tests = read(LOG, ranks=16)
    assert ranks_of(tests) == {4}
    assert "it is of 4 ranks by its list or its rows, not of the 16 of --ranks" in said(tests)
    assert ranks_of(read(TRIMMED.replace("Rank", "rank"), "allreduce", 16)) == {16}
    broadcast = COMMANDS[COMMANDS.index("./build/broadcast") : COMMANDS.index("./build/sendrecv")]
    assert ranks_of(read(broadcast, ranks=3)) == {4}  # a list may be too short, and is never too long
    assert "not of the 3 of --ranks" in said(read(broadcast, ranks=3))
    assert ranks_of(read(broadcast, ranks=16)) == {16}
    assert "read as the 16 ranks of --ranks, though it lists 4" in said(read(broadcast, ranks=16))
    for ranks in (0, -1, 2**70):
        with pytest.raises(UsageError, match="is no number of ranks"):
            Hints(ranks)


def test_a_word_of_the_user_does_not_relabel_several_tests() -> None:
    """Each has its command line above it."""
    plain, tests = read(COMMANDS), read(COMMANDS, "broadcast")
    assert collectives_of(tests) == collectives_of(plain)
    assert len(set(collectives_of(plain))) == 5
    assert said(tests).count("not read as the broadcast of --op") == 4
    assert "--op" not in said(plain)
    itself = read(LOG, "reducescatter")
    assert set(collectives_of(itself)) == {"allreduce"}
    assert "it says all_reduce_perf, so it is not read as the reducescatter of --op" in said(itself)


def test_a_word_of_the_user_tells_what_the_log_does_not() -> None:
    """Also where another name is mentioned above the only table, which is told."""
    text = "".join(f"{line}\n" for line in LOG.splitlines() if "Collective test" not in line)
    assert set(collectives_of(read(text, "allreduce"))) == {"allreduce"}
    with pytest.raises(UsageError, match="give --op"):
        read(text.replace("     sum      -1", "    none      -1"))
    pair = COMMANDS[COMMANDS.index("./build/sendrecv") :]
    assert set(collectives_of(read(pair))) == {"sendrecv"}
    tests = read("built reduce_perf and all_reduce_perf\n" + pair[pair.index("# nThread") :], "sendrecv")
    assert set(collectives_of(tests)) == {"sendrecv"}


def test_a_test_that_does_not_tell_its_collective_costs_itself_only() -> None:
    """The other tests of the file are read; its rows are counted, with what to give."""
    silent = "".join(f"{line}\n" for line in LOG.splitlines() if "Collective test" not in line)
    tests = read("# nccl-tests version 2.19.6\n" + silent.replace("     sum  ", "    none  ") + LOG)
    assert facts(tests) == facts(golden_tests("nccl_tests_2_19.txt"))
    assert "7 rows: log does not say which collective it is of" in said(tests)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("     sum  ", "    none  "), "its rows reduce nothing"),
        (("     sum      -1", "     sum       3"), "its rows have a root"),
    ],
)
def test_a_test_whose_rows_are_of_another_collective_is_left_out(change: tuple[str, str], words: str) -> None:
    """By what reduces, and what has a root: it says all_reduce_perf, and is not."""
    (test,) = read(LOG.replace(*change))
    assert not test.results
    assert test.left_out == (f"7 rows: not of all_reduce_perf: {words}",)


def test_bandwidths_and_shares_tell_one_collective_from_another() -> None:
    """An all-gather's rows under the name of an all-reduce, and the other way round."""
    gathered = COMMANDS[COMMANDS.index("./build/all_gather") : COMMANDS.index("./build/alltoall")]
    (test,) = read("# Collective test starting: broadcast_perf\n" + gathered)
    assert not test.results
    assert (
        "not of broadcast_perf: its sizes are 4 times count and type" in test.left_out[0] or "root" in test.left_out[0]
    )
    (reduced,) = read(LOG.replace("all_reduce", "all_gather"))
    assert not reduced.results
    assert "not of all_gather_perf" in reduced.left_out[0]


@pytest.mark.parametrize(
    ("pattern", "by", "words"),
    [
        (r"(1048576        262144     float     sum      -1) +([\d.]+)", r"\1   9999.9", "bytes in 9999.9 us are not"),
        (r"1048576        262144     float", "2048576        262144     float", "are not"),
    ],
)
def test_a_row_that_contradicts_itself_is_left_out_and_named(pattern: str, by: str, words: str) -> None:
    """Size, time and bandwidth, or size, count and type; the other rows are kept."""
    changed, times = re.subn(pattern, by, TRIMMED, count=1)
    assert times == 1
    (test,) = read(changed)
    assert len(test.results) == 8
    assert len(test.left_out) == 1
    assert words in test.left_out[0]


def test_a_type_that_its_bandwidth_belies_is_remarked() -> None:
    """Size and time agree with the bandwidth: the count was changed, and it is said."""
    tests = read(TRIMMED.replace("1048576        262144     float", "1048576         26214     float"))
    assert len(reported(tests)) == 10
    assert "count and type do not make the size in 1 rows" in said(tests)


def test_every_line_that_looks_like_a_row_is_counted() -> None:
    """Above any header, behind a torn one, between two tests, and cut short."""
    row = next(line for line in LOG.splitlines() if line.strip().startswith("8 "))
    short = row[: row.rindex("0.00")]
    text = f"{row}\n{LOG}{row}\n{short}\n"
    tests = read(text)
    results, left = len(reported(tests)), sum(int(reason.split()[0]) for test in tests for reason in test.left_out)
    assert (results, left) == (16, 2)


def test_a_log_of_several_tools_is_read_for_each() -> None:
    """Neither hides the rows of the other."""
    name = "osu_nccl_full.txt"
    tests = read((DATA / name).read_text() + LOG, ranks=4)
    assert facts(tests) == facts(read((DATA / name).read_text(), ranks=4)) + facts(golden_tests("nccl_tests_2_19.txt"))
    assert not [reason for test in tests for reason in test.left_out if "whole row" in reason]


def test_one_sided_tests_are_no_collective() -> None:
    """They are left out by name; what stands beside them is read, with the ranks of its command line."""
    tests = read(ONE_SIDED)
    assert collectives_of(tests) == ["sendrecv", "allgather", "allgather"]
    assert [row.case.ranks for row in reported(tests)] == [2, 8, 8]
    assert [row.case.nbytes for row in reported(tests)] == [65536, 32, 8192]
    assert [reason for test in tests for reason in test.left_out] == [
        "2 rows: collbench has no collective like 'one-sided MPI_Put Latency'"
    ]
    assert "8 ranks, as its command line says" in said(tests)


@pytest.mark.parametrize(
    "title",
    [
        *("MPI_Put Latency", "MPI_Get Bandwidth", "MPI One Sided MPI_Accumulate Latency", "MPI Multi Latency"),
        *("OpenSHMEM Put", "UPC++ Broadcast Latency", "MPI Non-blocking Allreduce Latency", "MPI Init"),
    ],
)
def test_tests_of_other_kinds_never_become_a_pairs(title: str) -> None:
    """Whatever they are called."""
    (test,) = read(f"# OSU {title} Test v7.3\n# Size          Latency (us)\n8      1.20\n", ranks=2)
    assert not test.results
    assert len(test.left_out) == 1


@pytest.mark.parametrize(
    "word", ["all_reduce_perf", "all_reduce_perf_mpi", "./build/all_reduce_perf_mpi", "all_reduce_test"]
)
def test_programs_have_suffixes(word: str) -> None:
    """NAME_SUFFIX of the Makefile, a path, and the first names."""
    collective = known_collective(word)
    assert collective
    assert collective.name == "allreduce"
    assert known_collective("all_reduce_mpi_perfect") is None


def test_milliseconds_are_milliseconds() -> None:
    """2015 to 2018: other names of the columns, and a time a thousand times as long."""
    tests = golden_tests("nccl_tests_milliseconds.txt")
    assert {row.case.dtype.name for row in reported(tests)} == {"float", "int8"}
    assert [row.seconds for row in reported(tests)][:2] == pytest.approx([179e-6, 183e-6])
    assert "older" not in said(tests)
    assert not [reason for test in tests for reason in test.left_out]


def test_an_error_that_was_too_large_is_wrong() -> None:
    """rccl-tests put an asterisk behind it."""
    rows = reported(golden_tests("rccl_tests_asterisk.txt"))
    assert [row.right for row in rows] == [True, True, False, True, True, True]
    assert "largest error 6e-02" in str(rows[2].note)


@pytest.mark.parametrize("name", sorted(name for name, golden in GOLDENS.items() if golden.format == "nccl-tests"))
def test_an_exported_log_says_by_itself_what_had_to_be_found_out(name: str) -> None:
    """Its collective and ranks are read again without the command lines that are gone."""
    tests = golden_tests(name)
    text, _ = export(run_of(tests), "nccl-tests")
    assert facts(read(text, ranks=GOLDENS[name].given)) == facts(tests)


def test_means_are_called_means() -> None:
    """Every number of another tool says what it is; samples have a median."""
    kinds = {
        "nccl_tests_2_19.txt": "mean",
        "osu_nccl_full.txt": "mean",
        "rccl_list.json": "mean",
        "json_v3_percentiles.json": "median",
    }
    for name, kind in kinds.items():
        assert reported(golden_tests(name))[0].figure == kind
    assert "slowest rank" in reported(golden_tests("nccl_tests_several_commands.txt"))[0].statistic
    assert reported(golden_tests("nccl_tests_2_19.txt"))[0].standing == "reported mean, ok"


def test_what_is_no_mean_says_so_in_another_tools_table() -> None:
    """Where there is no column for it; and an import heeds it."""
    text = (DATA / "tidy.csv").read_text()
    (test,) = parsed(text)
    row = reported([test])[0]
    assert row.figure != "mean"
    exported, _ = export(run_of([test]), "nccl-tests", row.implementation)
    assert f"times are of the kind {row.figure}" in exported
    assert {again.figure for again in reported(read(exported))} == {row.figure}


HOSTILE = (
    *(" ", "\t", "1 ", "8 2 float ", "#", "> ", "a.", "1:", "|", "[1,0]", "all_reduce_", "mpirun -np ", "Rank 1 "),
    *("# OSU MPI a ", "{", "[", "0.00 ", "\x1b[", "&", "<p", "`", "a:1:1 [0] NCCL INFO ", "size type algbw time "),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_no_line_takes_longer_than_it_is_long(unit: str) -> None:
    """One of 100,000 characters, and many of 16,000: a second would be a hundred times what they take."""
    line = (unit * 100_000)[:100_000]
    start = time.process_time()
    for head in ("", LOG, (DATA / "osu_nccl_full.txt").read_text()):
        try:
            read(head + line + "\n" + (line[:16_000] + "\n") * 4, ranks=4)
        except CollbenchError:
            continue
    assert time.process_time() - start < 3


@pytest.mark.parametrize("make", [lambda n: _rows(n), lambda n: LOG * (n // 7)], ids=["rows", "tests"])
def test_reading_and_writing_take_time_in_proportion(make: Callable[[int], str]) -> None:
    """Twice the rows, about twice the time; 5,000 rows were once half a minute."""

    def took(rows: int) -> float:
        start = time.process_time()
        export(run_of(read(make(rows))), "nccl-tests")
        return time.process_time() - start

    took(70)
    once, more = (min(took(rows) for _ in range(3)) for rows in (700, 2800))
    assert more < 4 * 2.5 * once


def _rows(count: int) -> str:
    lines = LOG.splitlines(keepends=True)
    rows = [line for line in lines if line.strip()[:1].isdigit()]
    at = lines.index(rows[0])
    return "".join([*lines[:at], *(rows * (count // len(rows) + 1))[:count], *lines[at + len(rows) :]])


def test_a_log_without_a_table_is_refused_in_one_line() -> None:
    """Not read as something else."""
    for text in ("# nccl-tests version 2.19.6\n", LOG[: LOG.index("           8")]):
        with pytest.raises(RunFileError, match="without a row of results"):
            read(text)

"""Nothing that a log says wrongly, or does not say, is read as right; nothing that surrounds it hides what it says."""

import re
from contextlib import suppress

import pytest

from collbench.errors import CollbenchError, UsageError
from collbench.formats import imported
from collbench.formats.imported import Hints, known_collective, remarks
from tests.formats.goldens import DATA, GOLDENS, golden_tests, parsed, reported, run_of
from tests.formats.test_writing import export
from tests.formats.wrapped import TABLES, WRAPPINGS

LOG = (DATA / "nccl_tests_2_19.txt").read_text()
TRIMMED = (DATA / "nccl_tests_trimmed_ranks.txt").read_text()
COMMANDS = (DATA / "nccl_tests_several_commands.txt").read_text()
BROADCAST = COMMANDS[COMMANDS.index("./build/broadcast") : COMMANDS.index("./build/sendrecv")]
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
    return parsed(text, ranks, collective=collective)


def ranks_of(tests: list[imported.Test]) -> set[int]:
    return {row.case.ranks for row in reported(tests)}


def collectives_of(tests: list[imported.Test]) -> list[str]:
    return [row.case.collective.name for row in reported(tests)]


def said(tests: list[imported.Test]) -> str:
    return "\n".join(remarks(tests))


def test_what_surrounds_a_log_does_not_matter() -> None:
    for name in PLAIN + OSU:
        text, ranks, expected = (DATA / name).read_text(), GOLDENS[name].given, facts(golden_tests(name))
        for way, wrap in (WRAPPINGS if name in OSU else TABLES).items():
            assert facts(read(wrap(text), ranks=ranks)) == expected, (name, way)
    torn = "nccl_tests_stamped_percentiles_warnings.txt"
    for way in ("mpirun --tag-output", "srun --label, padded", "pdsh", "kubectl logs --timestamps", "mail", "colours"):
        assert facts(read(WRAPPINGS[way]((DATA / torn).read_text()))) == facts(golden_tests(torn)), way


def test_a_trimmed_list_of_ranks_does_not_make_a_smaller_run() -> None:
    first = next(line for line in TRIMMED.splitlines() if "Rank  0" in line)
    bare = [line for line in TRIMMED.splitlines() if " Rank " not in line and "..." not in line]
    at = bare.index("# Using devices") + 1
    for kept, words in (
        ((0, 7, 8, 15), "12 of 16 are not there"),
        ((15,), "15 of 16 are not there"),
        ((0, 1, 2, 3), "it lists 4 ranks, and its rows are those of 16"),
        ((8, 9, 10), "it lists 11 ranks, and its rows are those of 16"),
    ):
        listed = [first.replace("Rank  0", f"Rank {rank:2d}") for rank in kept]
        tests = read("\n".join([*bare[:at], *listed, *bare[at:]]) + "\n")
        assert ranks_of(tests) == {16}, kept
        assert words in said(tests)
        for row in reported(tests):
            assert row.busbw / 1e9 == pytest.approx(float(row.printed["busbw"]), rel=0.01)
        assert tests[0].machine.name.startswith("16 x ")


def test_without_a_bandwidth_that_tells_the_highest_rank_counts() -> None:
    lines = [line for line in BROADCAST.splitlines() if "Rank  1" not in line and "Rank  2" not in line]
    tests = read("\n".join(lines).replace("nGpus 4", "nGpus 1").replace("-g 4", "") + "\n")
    assert ranks_of(tests) == {4}
    assert "2 of 4 are not there" in said(tests)
    (cut,) = read(BROADCAST.replace("nThread 1 nGpus 4", "nThread 1 nGpus 8"))  # a process alone had more than listed
    assert cut.machine.ranks == 8


def test_rows_that_fit_no_number_of_ranks_are_refused() -> None:
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
    tests = read(LOG, ranks=16)
    assert ranks_of(tests) == {4}
    assert "it is of 4 ranks by its list or its rows, not of the 16 of --ranks" in said(tests)
    assert ranks_of(read(TRIMMED.replace("Rank", "rank"), "allreduce", 16)) == {16}
    assert ranks_of(read(BROADCAST, ranks=3)) == {4}  # a list may be too short, and is never too long
    assert "not of the 3 of --ranks" in said(read(BROADCAST, ranks=3))
    assert ranks_of(read(BROADCAST, ranks=16)) == {16}
    assert "read as the 16 ranks of --ranks, though it lists 4" in said(read(BROADCAST, ranks=16))
    for ranks in (0, -1, 2**70):
        with pytest.raises(UsageError, match="is no number of ranks"):
            Hints(ranks)


def test_a_word_of_the_user_does_not_relabel_several_tests() -> None:
    plain, tests = read(COMMANDS), read(COMMANDS, "broadcast")
    assert collectives_of(tests) == collectives_of(plain)
    assert len(set(collectives_of(plain))) == 5
    assert said(tests).count("not read as the broadcast of --op") == 4
    assert "--op" not in said(plain)
    itself = read(LOG, "reducescatter")
    assert set(collectives_of(itself)) == {"allreduce"}
    assert "it says all_reduce_perf, so it is not read as the reducescatter of --op" in said(itself)


def test_a_word_of_the_user_tells_what_the_log_does_not() -> None:
    text = "".join(f"{line}\n" for line in LOG.splitlines() if "Collective test" not in line)
    assert set(collectives_of(read(text, "allreduce"))) == {"allreduce"}
    with pytest.raises(UsageError, match="give --op"):
        read(text.replace("     sum      -1", "    none      -1"))
    pair = COMMANDS[COMMANDS.index("./build/sendrecv") :]
    assert set(collectives_of(read(pair))) == {"sendrecv"}
    tests = read("built reduce_perf and all_reduce_perf\n" + pair[pair.index("# nThread") :], "sendrecv")
    assert set(collectives_of(tests)) == {"sendrecv"}


def test_a_test_that_does_not_tell_its_collective_costs_itself_only() -> None:
    silent = "".join(f"{line}\n" for line in LOG.splitlines() if "Collective test" not in line)
    tests = read("# nccl-tests version 2.19.6\n" + silent.replace("     sum  ", "    none  ") + LOG)
    assert facts(tests) == facts(golden_tests("nccl_tests_2_19.txt"))
    assert "7 rows: log does not say which collective it is of" in said(tests)


def test_a_test_whose_rows_are_of_another_collective_is_left_out() -> None:
    gathered = COMMANDS[COMMANDS.index("./build/all_gather") : COMMANDS.index("./build/alltoall")]
    for text, words in (
        (LOG.replace("     sum  ", "    none  "), "not of all_reduce_perf: its rows reduce nothing"),
        (LOG.replace("     sum      -1", "     sum       3"), "not of all_reduce_perf: its rows have a root"),
        ("# Collective test starting: broadcast_perf\n" + gathered, "not of broadcast_perf: its "),
        (LOG.replace("all_reduce", "all_gather"), "not of all_gather_perf"),
    ):
        (test,) = read(text)
        assert not test.results, words
        assert words in test.left_out[0]


def test_a_row_that_contradicts_itself_is_left_out_and_named() -> None:
    for pattern, by, words in (
        (r"(1048576        262144     float     sum      -1) +([\d.]+)", r"\1   9999.9", "bytes in 9999.9 us are not"),
        (r"1048576        262144     float", "2048576        262144     float", "are not"),
    ):
        changed, times = re.subn(pattern, by, TRIMMED, count=1)
        assert times == 1
        (test,) = read(changed)
        assert (len(test.results), len(test.left_out)) == (8, 1)
        assert words in test.left_out[0]


def test_a_type_that_its_bandwidth_belies_is_remarked() -> None:
    tests = read(TRIMMED.replace("1048576        262144     float", "1048576         26214     float"))
    assert len(reported(tests)) == 10
    assert "count and type do not make the size in 1 rows" in said(tests)


def test_every_line_that_looks_like_a_row_is_counted() -> None:
    row = next(line for line in LOG.splitlines() if line.strip().startswith("8 "))
    short = row[: row.rindex("0.00")]
    text = f"{row}\n{LOG}{row}\n{short}\n"
    tests = read(text)
    results, left = len(reported(tests)), sum(int(reason.split()[0]) for test in tests for reason in test.left_out)
    assert (results, left) == (16, 2)


def test_a_log_of_several_tools_is_read_for_each() -> None:
    name = "osu_nccl_full.txt"
    tests = read((DATA / name).read_text() + LOG, ranks=4)
    assert facts(tests) == facts(read((DATA / name).read_text(), ranks=4)) + facts(golden_tests("nccl_tests_2_19.txt"))
    assert not [reason for test in tests for reason in test.left_out if "whole row" in reason]


def test_one_sided_tests_are_no_collective() -> None:
    tests = read(ONE_SIDED)
    assert collectives_of(tests) == ["sendrecv", "allgather", "allgather"]
    assert [row.case.ranks for row in reported(tests)] == [2, 8, 8]
    assert [row.case.nbytes for row in reported(tests)] == [65536, 32, 8192]
    assert [reason for test in tests for reason in test.left_out] == [
        "2 rows: collbench has no collective like 'one-sided MPI_Put Latency'"
    ]
    assert "8 ranks, as its command line says" in said(tests)


def test_tests_of_other_kinds_never_become_a_pairs() -> None:
    for title in (
        *("MPI_Put Latency", "MPI_Get Bandwidth", "MPI One Sided MPI_Accumulate Latency", "MPI Multi Latency"),
        *("OpenSHMEM Put", "UPC++ Broadcast Latency", "MPI Non-blocking Allreduce Latency", "MPI Init"),
    ):
        (test,) = read(f"# OSU {title} Test v7.3\n# Size          Latency (us)\n8      1.20\n", ranks=2)
        assert not test.results, title
        assert len(test.left_out) == 1, title


def test_programs_have_suffixes() -> None:
    for word in ("all_reduce_perf", "all_reduce_perf_mpi", "./build/all_reduce_perf_mpi", "all_reduce_test"):
        collective = known_collective(word)
        assert collective, word
        assert collective.name == "allreduce"
    assert known_collective("all_reduce_mpi_perfect") is None


def test_an_exported_log_says_by_itself_what_had_to_be_found_out() -> None:
    for name in (name for name, golden in GOLDENS.items() if golden.format == "nccl-tests"):
        tests = golden_tests(name)
        text, _ = export(run_of(tests), "nccl-tests")
        assert facts(read(text, ranks=GOLDENS[name].given)) == facts(tests), name


def test_means_are_called_means() -> None:
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


@pytest.mark.timeout(100)
def test_no_line_takes_longer_than_it_is_long() -> None:
    osu = (DATA / "osu_nccl_full.txt").read_text()
    for unit in HOSTILE:
        line = (unit * 100_000)[:100_000]
        for head in ("", LOG, osu):
            with suppress(CollbenchError):
                read(head + line + "\n" + (line[:16_000] + "\n") * 4, ranks=4)

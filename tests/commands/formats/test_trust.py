"""Nothing that a log says wrongly, or does not say, is read as right; nothing that surrounds it hides what it says."""

import re
from contextlib import suppress

import pytest

from collbench.collectives import COLLECTIVES
from collbench.commands.formats.foreign_row import known_collective
from collbench.commands.formats.imported import ImportedTest
from collbench.commands.formats.importing import remarks
from collbench.errors import CollbenchError, UsageError
from tests.commands.formats.goldens import DATA, GOLDENS, golden_tests, parsed, reported
from tests.commands.formats.wrapped import TABLES, WRAPPINGS

LOG = (DATA / "nccl_tests_2_19.txt").read_text()
TRIMMED = (DATA / "nccl_tests_trimmed_ranks.txt").read_text()
COMMANDS = (DATA / "nccl_tests_several_commands.txt").read_text()
GATHERED = COMMANDS[COMMANDS.index("./build/all_gather") : COMMANDS.index("./build/alltoall")]
SILENT = GATHERED[GATHERED.index("#") :]  # no command
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


def facts(tests: list[ImportedTest]) -> list[object]:
    return [(row.case, row.seconds, row.wrong_elements) for row in reported(tests)]


def read(text: str, collective: str = "", ranks: int | None = None) -> list[ImportedTest]:
    return parsed(text, ranks, collective=collective)


def ranks_of(tests: list[ImportedTest]) -> set[int]:
    return {row.case.ranks for row in reported(tests)}


def collectives_of(tests: list[ImportedTest]) -> list[str]:
    return [row.case.collective.name for row in reported(tests)]


def said(tests: list[ImportedTest]) -> str:
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
    for kept, missing, given in (((0, 7, 8, 15), 12, None), ((15,), 15, None), ((0, 1), 14, 16), ((8, 9, 10), 13, 16)):
        listed = [first.replace("Rank  0", f"Rank {rank:2d}").replace(":10:", f":{rank + 16:02x}:") for rank in kept]
        text = "\n".join([*bare[:at], *listed, *bare[at:]]) + "\n"
        if given:
            with pytest.raises(UsageError, match=f"do not fit allreduce on {kept[-1] + 1} ranks; give --ranks 16"):
                read(text)
        tests = read(text, ranks=given)
        assert ranks_of(tests) == {16}, kept
        assert f"{missing} of 16 are missing" in said(tests)
        assert tests[0].machine.name.startswith("16 x ")


def test_numbers_tell_no_more_than_their_digits_do() -> None:
    header = LOG[LOG.index("#       size") : LOG.index("#        (B)")]
    row = "17179869184 4294967296 float sum -1 91237 188.30 {0} 0 91237 188.30 {0} 0\n"
    assert ranks_of(read(header + row.format("373.66"))) == {128}
    with pytest.raises(UsageError, match="give --ranks N"):
        read(header + row.format("373.7"))
    for name, busbw in (("allreduce", "0.15"), ("reducescatter", "0.08")):
        odd = header + f"1028 64 float sum -1 10.0 0.10 {busbw} 0 10.0 0.10 {busbw} 0\n"
        tests = read(odd, name, 4)
        assert set(collectives_of(tests)) == {name}
        assert all("count and type contradict the size" in str(row.note) for row in reported(tests))


def test_ranks_that_nobody_lists_are_those_of_the_command_or_the_one_number_that_rows_leave() -> None:
    command, rest = COMMANDS[COMMANDS.index("./build/all_reduce") :].split("\n", 1)
    table = rest[rest.index("#       size") : rest.index("# Out of")]
    assert ranks_of(read(f"{command}\n{table}")) == {4}
    assert ranks_of(read(table)) == {4}, "by its bus bandwidths"
    assert ranks_of(read(GATHERED[GATHERED.index("#       size") :], "allgather")) == {4}, "by its counts"
    table = BROADCAST[BROADCAST.index("#       size") :]  # whose bus bandwidth is that of any number
    with pytest.raises(UsageError, match="it lists no ranks; give --ranks N"):
        read(table)
    for started in (
        "mpirun -np 2 --map-by node ./build/broadcast_perf -g 2",
        "srun -n4 broadcast_perf -n 20",
        "srun -N2 --ntasks-per-node=2 --cpus-per-task 8 broadcast_perf",
        "mpiexec -ppn 2 --nodes=2 broadcast_perf",
        "prterun --np 1 broadcast_perf -t2 --ngpus=2",
    ):
        assert ranks_of(read(f"{started}\n{table}")) == {4}, started


def test_without_a_bandwidth_that_tells_the_highest_rank_counts() -> None:
    lines = [line for line in BROADCAST.splitlines() if "Rank  1" not in line and "Rank  2" not in line]
    tests = read("\n".join(lines).replace("nGpus 4", "nGpus 1").replace("-g 4", "") + "\n")
    assert ranks_of(tests) == {4}
    assert "2 of 4 are missing" in said(tests)
    (cut,) = read(BROADCAST.replace("nThread 1 nGpus 4", "nThread 1 nGpus 8"))  # a process alone had more than listed
    assert cut.machine.ranks == 8


def test_a_number_of_ranks_that_the_rows_contradict_is_not_taken_on_anyones_word() -> None:
    with pytest.raises(UsageError, match="do not fit allreduce on 16 ranks; give --ranks 4"):
        read(LOG, ranks=16)
    assert ranks_of(read(BROADCAST, ranks=3)) == {4}, "a list may be too short, and is never too long"
    assert ranks_of(read(BROADCAST, ranks=16)) == {16}


def test_a_word_of_the_user_does_not_relabel_several_tests() -> None:
    assert collectives_of(read(COMMANDS, "broadcast")) == collectives_of(read(COMMANDS))
    assert len(set(collectives_of(read(COMMANDS)))) == 5
    assert set(collectives_of(read(LOG, "reducescatter"))) == {"allreduce"}


def test_a_word_of_the_user_tells_what_the_log_does_not() -> None:
    with pytest.raises(UsageError, match="allgather, alltoall would fit; give --op NAME"):
        read(SILENT)
    with pytest.raises(UsageError, match="alltoall_perf, all_gather_perf would fit; give --op"):
        read("built alltoall_perf and all_gather_perf\n" + SILENT)
    assert set(collectives_of(read("built alltoall_perf\n" + SILENT, "allgather"))) == {"allgather"}
    for wrong in ("broadcast", "allreduce", "gather"):
        with pytest.raises(UsageError, match=f"its columns do not fit {wrong}; give another --op NAME"):
            read(SILENT, wrong)


def test_a_table_may_tell_its_collective_by_its_columns() -> None:
    header = LOG[LOG.index("#       size") : LOG.index("#        (B)")]
    for name, case, busbw in (
        ("allreduce", "1024 256 float sum -1", "0.15"),
        ("reducescatter", "1024 64 float sum -1", "0.08"),
        ("reduce", "1024 256 float sum 0", "0.10"),
        ("broadcast", "1024 256 float none 0", "0.10"),
        ("sendrecv", "1024 256 float none -1", "0.10"),
    ):
        place = f"10.0 0.10 {busbw} 0"
        assert collectives_of(read(f"{header}{case} {place} {place}\n", ranks=4)) == [name] * 2


def test_a_test_that_does_not_tell_its_collective_costs_itself_only() -> None:
    tests = read("# nccl-tests version 2.19.6\n" + SILENT + LOG)
    assert facts(tests) == facts(golden_tests("nccl_tests_2_19.txt"))
    assert "give --op NAME" in said(tests)


def test_a_test_whose_rows_are_of_another_collective_is_left_out() -> None:
    for text, name in (
        (LOG.replace("     sum  ", "    none  "), "allreduce"),
        (LOG.replace("     sum      -1", "     sum       3"), "allreduce"),
        ("# Collective test starting: broadcast_perf\n" + GATHERED, "broadcast"),
        (LOG.replace("all_reduce", "all_gather"), "allgather"),
    ):
        (test,) = read(text)
        assert not test.results, name
        assert f"its columns do not fit {name}" in test.left_out[0]
    with pytest.raises(UsageError, match="do not fit sendrecv on 4 ranks; give --ranks N or --op NAME"):
        read(LOG.replace("all_reduce", "sendrecv"))


def test_a_row_that_contradicts_itself_is_left_out_and_named() -> None:
    row = "1048576        262144     float     sum      -1"
    for pattern, changed, kept in ((rf"{row} +[\d.]+", f"{row}   9999.9", 9), (row, f"2{row[1:]}", 8)):
        assert re.search(pattern, TRIMMED)
        (test,) = read(re.sub(pattern, changed, TRIMMED, count=1))
        assert len(test.results) == kept
        assert all("of bus bandwidth" in reason for reason in test.left_out)


CUT = (  # a file of each reader, whose last row is cut
    *("json_v3_percentiles.json", "nccl_tests_2_19.txt", "nccl_tests_2018_error_column.txt", "osu_mpi_datatypes.txt"),
    *("osu_nccl_full.txt", "rccl_mpi.csv", "rccl_old_header.csv", "tidy.csv"),
)


def test_a_row_that_is_cut_is_named_with_its_line_and_read_as_nothing_else() -> None:
    for name in CUT:
        lines, whole = (DATA / name).read_text().split("\n"), facts(golden_tests(name))
        at = max(number for number, line in enumerate(lines) if re.match(r'\s*(?:\d+[\s,]|\{"|"2 ranks)', line))
        for word in re.finditer(r"[^\s,]+", lines[at]):
            for end in {word.start() + 1, word.end() - 1, word.end()} - {word.start(), len(lines[at])}:
                for below in ([], lines[at + 1 :]) if GOLDENS[name].format != "nccl-tests-json" else ([],):
                    tests = read("\n".join([*lines[:at], lines[at][:end], *below]), ranks=GOLDENS[name].given)
                    kept = facts(tests)
                    assert all(row in whole for row in kept), (name, lines[at][:end])
                    assert kept == whole or f"line {at + 1} " in said(tests).replace(":", " "), (name, lines[at][:end])


def test_a_log_of_several_tools_is_read_for_each() -> None:
    name = "osu_nccl_full.txt"
    tests = read((DATA / name).read_text() + LOG, ranks=4)
    assert facts(tests) == facts(read((DATA / name).read_text(), ranks=4)) + facts(golden_tests("nccl_tests_2_19.txt"))
    assert not [reason for test in tests for reason in test.left_out if "whole row" in reason]


def test_one_sided_tests_are_no_collective() -> None:
    tests = read(ONE_SIDED)
    rows = [(row.case.collective.name, row.case.ranks, row.case.nbytes) for row in reported(tests)]
    assert rows == [("sendrecv", 2, 65536), ("allgather", 8, 32), ("allgather", 8, 8192)]
    assert said(tests).count("2 rows: collbench has no collective like 'MPI_Put Latency'") == 1
    for title in (
        *("MPI_Get Bandwidth", "MPI One Sided MPI_Accumulate Latency", "MPI Multi-threaded Latency", "OpenSHMEM Put"),
        *("UPC++ Broadcast Latency", "MPI Non-blocking Allreduce Latency", "MPI Init"),
    ):
        (test,) = read(f"# OSU {title} Test v7.3\n# Size          Latency (us)\n8      1.20\n", ranks=2)
        assert not test.results, title
        assert len(test.left_out) == 1, title


def test_programs_have_suffixes() -> None:
    for word in ("all_reduce_perf", "./build/all_reduce_perf_mpi", "all_reduce_test"):
        assert known_collective(word) == COLLECTIVES["allreduce"], word
    assert known_collective("all_reduce_mpi_perfect") is None


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

"""What a log tells of how its test ran stays in the run: copies side by side, one rank alone, rounds, settings."""

import re

from collbench.commands.formats.importing import grouped, remarks, tables
from collbench.runfile.schema import variables
from collbench.runfile.store import Run
from tests.commands.formats.goldens import parsed, stored
from tests.commands.formats.test_reports import text_of

F13 = text_of("F13")
LINES = F13.splitlines(True)
LISTS = [[line for line in LINES if f"{node} device" in line] for node in ("node1", "node2")]
BOTH = [line for line in LINES if " float " in line]
A, B = BOTH[::2], BOTH[1::2]
NP_2, NP_4 = LINES[0], LINES[0].replace("-np 2", "-np 4")
UNSAID, LOCAL = "mpirun -H a,b -N 1 ./all_reduce_perf -g 8\n", "$ ./build/all_reduce_perf -b 1G -e 8G -f 2 -g 8\n"
ENDS = [[listed[0], listed[-1]] for listed in LISTS]
ALONE = [re.sub(r"[\d.]+(?= +0(\s|$))", "0.00", line) for line in A]
OF_16 = [re.sub(r"[\d.]+(?= +0(\s|$))", lambda busbw: f"{float(busbw[0]) * 15 / 14:.2f}", line) for line in A]
PIDS = [LISTS[0][0].replace("Pid    100", f"Pid    10{number}") for number in range(4)]


def output(listed: list[str], rows: list[str], gpus: int = 8) -> str:
    settings, header = LINES[1].replace("nGpus 8", f"nGpus {gpus}"), [line for line in LINES if "algbw" in line][:1]
    return "".join([settings, "# Using devices\n", *listed, *header, *rows, "# Out of bounds values : 0 OK\n"])


def runs(text: str) -> list[Run]:
    return [stored(imported) for imported in grouped(parsed(text, None, "allreduce"))]


FIRST, SECOND = output(LISTS[0], A), output(LISTS[1], B)
PREFIXED = re.sub("(?m)^", "0: ", FIRST.strip()) + re.sub("(?m)^", "\n1: ", SECOND)
JOINED = output(LISTS[0], OF_16)
AGAIN = SECOND.replace("node2", "node1")
KINDS = {  # a text; copies, ranks, hosts, nodes and tests of its first run; rounds of a case
    "as reported": (F13, (2, 8, 2, 1, 1), 0),
    "rows of a size alternate": (output(LISTS[0], BOTH), (2, 8, 0, 1, 1), 0),
    "one output behind the other": (NP_2 + FIRST + SECOND, (2, 8, 2, 1, 2), 0),
    "on one host": (NP_2 + FIRST + AGAIN, (2, 8, 0, 1, 2), 0),
    "behind prefixes": (NP_2 + PREFIXED, (2, 8, 2, 1, 2), 0),
    "lists interleaved": (NP_2 + output(LISTS[0][:4] + LISTS[1] + LISTS[0][4:], A), (2, 8, 2, 1, 1), 0),
    "a rank each": (NP_4 + "".join(output([pid], ALONE, 1) for pid in PIDS), (4, 1, 0, 1, 4), 0),
    "lists of a rank each": (NP_4 + output(PIDS, sorted(ALONE * 4), 1), (4, 1, 0, 1, 1), 0),
    "by a launcher that does not say how many": (UNSAID + FIRST + SECOND, (2, 8, 2, 1, 2), 0),
    "lists trimmed": (NP_2 + output(ENDS[0], A) + output(ENDS[1], B), (2, 8, 2, 0, 2), 0),
    "a command of its own below": (NP_2 + FIRST + SECOND + LOCAL + AGAIN, (2, 8, 2, 1, 2), 0),
    "rounds of local commands": (NP_2 + LOCAL + FIRST + LOCAL + AGAIN, (0, 8, 0, 1, 2), 2),
    "rounds": (FIRST + AGAIN, (0, 8, 0, 1, 2), 2),
    "rounds by a command each": (NP_2 + FIRST + NP_2 + AGAIN, (0, 8, 0, 1, 2), 2),
    "rounds, by one process": (NP_2 + FIRST + FIRST, (0, 8, 0, 1, 2), 2),
    "rounds of cycles": (output(LISTS[0], A + B), (0, 8, 0, 1, 1), 2),
    "rounds of MPI, lists trimmed": (NP_2 + JOINED + JOINED.replace("Pid    1", "Pid    3"), (0, 16, 0, 0, 2), 2),
    "hosts by themselves": (FIRST + SECOND, (0, 8, 0, 1, 1), 0),
    "a list printed twice": (NP_2 + output(LISTS[0] * 2, A), (0, 8, 0, 1, 1), 0),
    "one rank alone: nothing crossed a link": (text_of("F18"), (0, 1, 0, 1, 1), 0),
    "rounds far apart": (text_of("F15"), (0, 2, 0, 1, 2), 2),
    "listed by an attempt before": (output(LISTS[0] + AGAIN.splitlines(True)[2:10], A), (0, 8, 0, 1, 1), 0),
    "listed by processes of MPI": (output(LISTS[0] + LISTS[1], A, 1), (0, 8, 0, 1, 1), 0),
}


def test_copies_side_by_side_are_told_from_rounds_and_from_tests_of_their_own() -> None:
    for name, (text, expected, rounds) in KINDS.items():
        run = runs(text)[0]
        where, tests = run.header.topology, run.header.imported.tests
        assert (where.copies, where.ranks, len(where.hosts), where.nodes, len(tests)) == expected, name
        assert {(row.implementation, len(row.rounds)) for row in run.cases} == {("nccl", rounds)}, name
        told = f"{where.copies} copies of the test on {where.ranks} rank" if where.copies else name
        assert (told in str(tests[0].remarks)) == (where.copies > 0 or "alone" in name), name
        assert sum("copies" in line for line in remarks(parsed(text, None, "allreduce"))) == (expected[0] > 0), name
    slowest = [round(row.typical * 1e6, 1) for row in runs(F13)[0].cases if not row.case.in_place]
    assert slowest == [3944.3, 7883.6, 15762.2, 31519.4]
    wrong = runs(F13.replace("477.39      0\n", "477.39      7\n", 1))[0].cases
    assert [row.outcome.bad for row in wrong if row.case.in_place] == [True, False, False, False]


def test_tables_of_a_file_are_apart_and_those_of_one_kind_are_rounds() -> None:
    tests = parsed(FIRST + SECOND + AGAIN + FIRST.replace(" sum ", " max "), None, "allreduce")
    assert [len(table.tests) for table in tables(tests)] == [2, 1, 1]


def test_settings_of_mpi_are_kept_without_the_addresses_and_keys_of_its_launcher() -> None:
    kept = {"OMPI_MCA_btl": "self", "OMPI_MCA_rmaps_x": "1", "PRTE_MCA_hwloc_x": "1", "I_MPI_PIN": "off", "UCC_X": "1"}
    left_out = ("OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_x", "PRTE_MCA_plm_x", "PMIX_SERVER_URI", "I_MPI_HYDRA_X")
    assert variables(kept | dict.fromkeys(left_out, "x")) == kept
    words = "--mca btl self -mca rmaps_x 1 --mca plm_rsh_agent ssh --prtemca hwloc_x 1 -x UCC_X=1 -genv I_MPI_PIN off"
    (test,) = parsed(f"mpirun -np 1 {words} ./all_reduce_perf\n{FIRST}")
    assert dict(test.machine.variables) == kept
    assert len(runs(f"mpirun -mca btl self ./all_reduce_perf -g 8\n{FIRST}mpirun ./all_reduce_perf -g 8\n{AGAIN}")) == 2

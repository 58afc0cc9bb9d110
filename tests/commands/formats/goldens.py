"""Files written by hand in every variant that is read, what they hold, and the way from a file to a run in memory."""

from dataclasses import dataclass
from pathlib import Path

from collbench.commands.formats.imported import Hints, Imported, ImportedTest, grouped
from collbench.commands.formats.registry import read_tests
from collbench.commands.formats.source import decode, load
from collbench.results.collectives import Reported
from collbench.runfile.store import Run
from tools.fuzz import as_run

DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class Golden:
    """What a file holds."""

    format: str
    results: int
    ranks: int
    implementation: str
    collectives: tuple[str, ...]
    microseconds: tuple[float, ...]  # of the first results
    left_out: int = 0  # rows
    given: int | None = None  # ranks that the user must tell
    complete: bool = True


# Those of inspector_* and nvbandwidth_* are made up, with the members and the order of them that the sources of NCCL
# Inspector (inspector_json.cc) and nvbandwidth (json_output.cpp) have.
GOLDENS = {
    "inspector_v4_0.log": Golden(
        "nccl-inspector", 4, 8, "nccl", ("allreduce", "reducescatter"), (27.0, 316.0, 4137.5, 418.0), left_out=2
    ),
    "inspector_v4_4.log": Golden(
        "nccl-inspector", 3, 2, "nccl", ("allgather", "allreduce", "sendrecv"), (31.0, 9.0, 96.0), left_out=2
    ),
    "json_v1_misspelled.json": Golden("nccl-tests-json", 4, 8, "nccl", ("broadcast",), (3.1, 3.0), complete=True),
    "json_v2_torn.json": Golden(
        "nccl-tests-json", 2, 4, "nccl", ("reducescatter",), (30.1, 30.0), left_out=1, complete=False
    ),
    "json_v3_percentiles.json": Golden(
        "nccl-tests-json", 7, 8, "nccl", ("allreduce",), (14.21, 14.11, 16.8, 16.9, 0.0, 38.4, 38.2), left_out=1
    ),
    "nccl_tests_2018_error_column.txt": Golden("nccl-tests", 6, 8, "nccl", ("allreduce",), (38.12, 37.9)),
    "nccl_tests_2_19.txt": Golden("nccl-tests", 14, 4, "nccl", ("allreduce",), (12.9, 12.87, 13.02)),
    "nccl_tests_cputime_exponents.txt": Golden(
        "nccl-tests", 4, 8, "nccl", ("alltoall",), (0.1, 0.1, 1.2e7, 1.2e7), left_out=1
    ),
    "nccl_tests_hypercube.txt": Golden("nccl-tests", 4, 4, "nccl", ("reduce",), (21.1, 21.0), left_out=2),
    "nccl_tests_last_rank.txt": Golden("nccl-tests", 4, 72, "nccl", ("allreduce",), (1554.82, 1523.72)),
    "nccl_tests_milliseconds.txt": Golden(
        "nccl-tests", 12, 4, "nccl", ("allreduce", "allgather"), (179.0, 183.0, 568.0, 579.0)
    ),
    "nccl_tests_no_ranks_no_name.txt": Golden("nccl-tests", 4, 16, "nccl", ("allreduce",), (740.0, 741.0)),
    "nccl_tests_several_commands.txt": Golden(
        "nccl-tests", 30, 4, "nccl", ("allreduce", "allgather", "alltoall", "broadcast", "sendrecv"), (22.56, 22.11)
    ),
    "nccl_tests_several_tests.txt": Golden(
        "nccl-tests", 12, 2, "nccl", ("allgather", "broadcast"), (6.1, 6.0, 14.1, 14.0)
    ),
    "nccl_tests_stamp_first.txt": Golden("nccl-tests", 6, 2, "nccl", ("sendrecv",), (17.1, 17.0)),
    "nccl_tests_stamped_percentiles_warnings.txt": Golden(
        "nccl-tests", 2, 2, "nccl", ("allreduce",), (13.1, 13.05), left_out=5
    ),
    "nccl_tests_torn.txt": Golden(
        "nccl-tests", 12, 4, "nccl", ("allreduce",), (12.9, 12.87), left_out=1, complete=False
    ),
    "nccl_tests_trimmed_ranks.txt": Golden("nccl-tests", 10, 16, "nccl", ("allreduce",), (64.26, 62.98)),
    "nvbandwidth_v0_8.json": Golden(
        "nvbandwidth",
        4,
        2,
        "memcpy-read-ce",
        ("bandwidth", "bidirectional"),
        (2**29 / 394.25e3, 2**29 / 198.75e3, 2**30 / 784.5e3, 2**29 / 367.5e3),
        left_out=5,
    ),
    "osu_mpi_cuda_bandwidth.txt": Golden("osu", 3, 2, "mpi", ("sendrecv",), (1 / 0.35, 1024 / 340.12)),
    "osu_mpi_datatypes.txt": Golden("osu", 6, 4, "mpi", ("allgather",), (1.2, 2.4, 21.7, 1.25), given=4),
    "osu_mpi_nonblocking.txt": Golden("osu", 2, 4, "mpi", ("reducescatter",), (1.42, 1.44), left_out=1, given=4),
    "osu_nccl_full.txt": Golden("osu", 3, 8, "nccl", ("allreduce",), (18.4, 19.1, 52.3), given=8),
    "rccl_mpi.csv": Golden("rccl", 4, 16, "rccl", ("allreduce",), (41.2, 41.0, 82.4, 82.1), left_out=1),
    "rccl_old_header.csv": Golden("rccl", 2, 16, "rccl", ("reducescatter",), (35.1, 70.2)),
    "rccl_one_process.csv": Golden("rccl", 2, 8, "rccl", ("allgather",), (22.1, 41.2)),
    "rccl_tests_appended.txt": Golden("nccl-tests", 4, 2, "rccl", ("allreduce",), (21.1, 20.9, 25.2, 25.0)),
    "rccl_tests_asterisk.txt": Golden("nccl-tests", 6, 2, "rccl", ("allreduce",), (170.2, 170.2)),
    "rccl_tests_one_place.txt": Golden("nccl-tests", 3, 4, "rccl", ("reducescatter",), (21.1, 25.2, 40.2)),
    "tidy.csv": Golden("csv", 3, 2, "mpi", ("allreduce",), (2.125, 1.5, 0.0)),
}


def golden_tests(name: str) -> list[ImportedTest]:
    """The tests of a golden, its format told from its content."""
    return list(read_tests(load(DATA / name), Hints(GOLDENS[name].given)))


def run_of(tests: list[ImportedTest]) -> Run:
    """The one run that they make, as it would be read from its file."""
    groups = grouped(tests)
    assert len(groups) == 1
    return stored(groups[0])


def stored(imported: Imported) -> Run:
    """A run by way of its JSON."""
    return as_run(imported.header(["collbench", "import"]), list(imported.results))


def parsed(text: str, ranks: int | None = None, collective: str = "") -> list[ImportedTest]:
    """The tests of a text."""
    return list(read_tests(decode("log", text.encode()), Hints(ranks, collective)))


def counted(tests: list[ImportedTest]) -> int:
    """How many rows are told to be left out."""
    return sum(int(reason.split()[0]) for test in tests for reason in test.left_out)


def reported(tests: list[ImportedTest]) -> list[Reported]:
    """Their rows."""
    return [result for test in tests for result in test.results if isinstance(result, Reported)]

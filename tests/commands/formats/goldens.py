"""Files written by hand in every variant that is read, what they hold, and the way from a file to a run in memory."""

from dataclasses import dataclass, replace
from pathlib import Path

from collbench.commands.formats.imported import Hints, Imported, ImportedTest
from collbench.commands.formats.importing import grouped, read_tests
from collbench.commands.formats.source import decode, load
from collbench.results.collectives import Reported
from collbench.runfile.store import Run
from tools.fuzz import as_run

DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class Golden:
    """What a file holds."""

    results: int
    ranks: int
    collectives: str
    microseconds: tuple[float, ...]  # of the first results
    implementation: str = "nccl"
    left_out: int = 0  # rows
    given: int | None = None  # ranks that the user must tell
    complete: bool = True
    format: str = ""


# Those of inspector_* and nvbandwidth_* are made up, with the members and the order of them that the sources of NCCL
# Inspector (inspector_json.cc) and nvbandwidth (json_output.cpp) have.
_BY_FORMAT = {
    "nccl-inspector": {
        "inspector_v4_0.log": Golden(4, 8, "allreduce reducescatter", (27.0, 316.0, 4137.5, 418.0), left_out=2),
        "inspector_v4_4.log": Golden(3, 2, "allgather allreduce sendrecv", (31.0, 9.0, 96.0), left_out=2),
    },
    "nccl-tests-json": {
        "json_v1_misspelled.json": Golden(4, 8, "broadcast", (3.1, 3.0)),
        "json_v2_torn.json": Golden(2, 4, "reducescatter", (30.1, 30.0), left_out=1, complete=False),
        "json_v3_percentiles.json": Golden(7, 8, "allreduce", (14.21, 14.11, 16.8, 16.9, 0.0, 38.4, 38.2), left_out=1),
    },
    "nccl-tests": {
        "nccl_tests_2018_error_column.txt": Golden(6, 8, "allreduce", (38.12, 37.9)),
        "nccl_tests_2_19.txt": Golden(14, 4, "allreduce", (12.9, 12.87, 13.02)),
        "nccl_tests_cputime_exponents.txt": Golden(4, 8, "alltoall", (0.1, 0.1, 12000000.0, 12000000.0), left_out=1),
        "nccl_tests_hypercube.txt": Golden(4, 4, "reduce", (21.1, 21.0), left_out=2),
        "nccl_tests_last_rank.txt": Golden(4, 72, "allreduce", (1554.82, 1523.72)),
        "nccl_tests_milliseconds.txt": Golden(12, 4, "allreduce allgather", (179.0, 183.0, 568.0, 579.0)),
        "nccl_tests_no_ranks_no_name.txt": Golden(4, 16, "allreduce", (740.0, 741.0)),
        "nccl_tests_several_commands.txt": Golden(
            30, 4, "allreduce allgather alltoall broadcast sendrecv", (22.56, 22.11)
        ),
        "nccl_tests_several_tests.txt": Golden(12, 2, "allgather broadcast", (6.1, 6.0, 14.1, 14.0)),
        "nccl_tests_stamp_first.txt": Golden(6, 2, "sendrecv", (17.1, 17.0)),
        "nccl_tests_stamped_percentiles_warnings.txt": Golden(2, 2, "allreduce", (13.1, 13.05), left_out=5),
        "nccl_tests_torn.txt": Golden(12, 4, "allreduce", (12.9, 12.87), left_out=1, complete=False),
        "nccl_tests_trimmed_ranks.txt": Golden(10, 16, "allreduce", (64.26, 62.98)),
        "rccl_tests_appended.txt": Golden(4, 2, "allreduce", (21.1, 20.9, 25.2, 25.0), implementation="rccl"),
        "rccl_tests_asterisk.txt": Golden(6, 2, "allreduce", (170.2, 170.2), implementation="rccl"),
        "rccl_tests_one_place.txt": Golden(3, 4, "reducescatter", (21.1, 25.2, 40.2), implementation="rccl"),
    },
    "nvbandwidth": {
        "nvbandwidth_v0_8.json": Golden(
            4,
            2,
            "bandwidth bidirectional",
            (2**29 / 394.25e3, 2**29 / 198.75e3, 2**30 / 784.5e3, 2**29 / 367.5e3),
            implementation="memcpy-read-ce",
            left_out=5,
        )
    },
    "osu": {
        "osu_mpi_cuda_bandwidth.txt": Golden(3, 2, "sendrecv", (1 / 0.35, 1024 / 340.12), implementation="mpi"),
        "osu_mpi_datatypes.txt": Golden(6, 4, "allgather", (1.2, 2.4, 21.7, 1.25), implementation="mpi", given=4),
        "osu_mpi_nonblocking.txt": Golden(
            2, 4, "reducescatter", (1.42, 1.44), implementation="mpi", left_out=1, given=4
        ),
        "osu_nccl_full.txt": Golden(3, 8, "allreduce", (18.4, 19.1, 52.3), given=8),
    },
    "rccl": {
        "rccl_mpi.csv": Golden(4, 16, "allreduce", (41.2, 41.0, 82.4, 82.1), implementation="rccl", left_out=1),
        "rccl_old_header.csv": Golden(2, 16, "reducescatter", (35.1, 70.2), implementation="rccl"),
        "rccl_one_process.csv": Golden(2, 8, "allgather", (22.1, 41.2), implementation="rccl"),
    },
    "csv": {"tidy.csv": Golden(3, 2, "allreduce", (2.125, 1.5, 0.0), implementation="mpi")},
}
GOLDENS = {name: replace(golden, format=kind) for kind, files in _BY_FORMAT.items() for name, golden in files.items()}


def golden_tests(name: str) -> list[ImportedTest]:
    return list(read_tests(load(DATA / name), Hints(GOLDENS[name].given)))


def run_of(tests: list[ImportedTest]) -> Run:
    """The one run that they make, as it would be read from its file."""
    groups = grouped(tests)
    assert len(groups) == 1
    return stored(groups[0])


def stored(imported: Imported) -> Run:
    return as_run(imported.header(["collbench", "import"]), list(imported.results))


def parsed(text: str, ranks: int | None = None, collective: str = "") -> list[ImportedTest]:
    return list(read_tests(decode("log", text.encode()), Hints(ranks, collective)))


def counted(tests: list[ImportedTest]) -> int:
    return sum(int(reason.split()[0]) for test in tests for reason in test.left_out)


def reported(tests: list[ImportedTest]) -> list[Reported]:
    return [result for test in tests for result in test.results if isinstance(result, Reported)]

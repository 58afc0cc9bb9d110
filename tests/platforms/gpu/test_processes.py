"""The GPU platform under an outside launcher: real processes, started by a real mpiexec, on GPUs that are made up.

The scenarios run one after the other in the same processes (scenarios.py); here is what must have come of them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.cli._table import ESTIMATE, SHARED
from collbench.implementations import implementations
from collbench.measure.start import mpiexec
from collbench.measurement import Failed, Measurement
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import placement
from collbench.runs.file import read
from tests.conftest import ROOT
from tools.stand_in.cases import AMONG_PROCESSES
from tools.stand_in.cuda import Machine
from tools.stand_in.ipc import build_driver
from tools.stand_in.simulate import build_extension
from tools.stand_in.whole_commands import SECONDS, on_gpus, surroundings

EXACT = [way.name for way in AMONG_PROCESSES if not way.wire]
OF_FOUR = ("every_case", "all_on_one_gpu", "stores_of_one_are_lost", "two_nodes", "one_waits_in_vain")

Said = Callable[[str], list[Any]]
Mpirun = Callable[..., subprocess.CompletedProcess[str]]


def played(folder: Path, ranks: int, *names: str) -> Said:
    build_driver(folder, devices=2)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "tools.stand_in.scenarios", str(folder), *names]
    with subprocess.Popen(
        command, env=surroundings(folder), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as players:
        errors, seen = "", -1
        while players.poll() is None and seen < (seen := len(list(folder.glob("*.json")))):
            with suppress(subprocess.TimeoutExpired):
                errors = players.communicate(timeout=SECONDS)[1]
        players.kill()
    assert players.returncode == 0, errors or f"nothing came for {SECONDS} s"
    return lambda name: [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What each of two processes saw."""
    return played(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What each of four processes saw, two of them on each GPU."""
    return played(tmp_path_factory.mktemp("four"), 4, *OF_FOUR)


@pytest.fixture(params=["two", pytest.param("four", marks=pytest.mark.full)])
def said(request: pytest.FixtureRequest) -> Said:
    chosen: Said = request.getfixturevalue(request.param)
    return chosen


def same(everyone: list[Any]) -> Any:
    """What all processes say alike."""
    assert all(report == everyone[0] for report in everyone), everyone
    return everyone[0]


def test_every_implementation_gives_every_rank_what_the_definition_says(said: Said) -> None:
    everyone = said("every_case")
    found = same([report["found"] for report in everyone])
    expected = (2 if len(everyone) == 2 else 1) * sum(
        len(implementations()[name].collectives) for name in (*EXACT, "narrow-half")
    )
    assert len(found) == expected + 4 + 3, "types and roots besides"
    assert {words: what for words, what in found.items() if what != "right"} == {}
    assert [report["local"] for report in everyone] == [[rank] for rank in range(len(everyone))]
    assert same([report["note"] for report in everyone]) == ("4 processes share 2 GPUs" if len(everyone) == 4 else "")


def test_processes_share_one_gpu_and_let_go_of_everything_before_its_owner_frees_it(said: Said) -> None:
    """The made-up CUDA refuses to free what a process still has open, and the later ones are slow to close it."""
    found, ranks = same(said("all_on_one_gpu")), len(said("all_on_one_gpu"))
    assert found["found"] == dict.fromkeys(EXACT, "right")
    assert found["note"] == f"{ranks} processes share 1 GPU"
    assert found["blocks"] == 8 // ranks, "each rank gets its share of the multiprocessors, and all get as many"
    assert found["left"] == []


def test_the_runner_decides_alike_everywhere(two: Said) -> None:
    """Launches and samples are the same on every process, to the last bit, and the slowest rank counts."""
    results = same(two("the_runner"))
    assert [name for name, *_ in results] == ["nccl", "ring-flags", "two-shot", "ring-host"]
    assert all(len(seconds) == 3 and mismatch == "None" for _, _, seconds, mismatch in results)
    assert same(two("the_slowest_rank_counts")) >= 0.2


def test_all_processes_simulate_together_or_none_does(two: Said) -> None:
    """The largest estimate counts; where one process cannot even ask, the others do not: planning may connect ranks."""
    assert same(two("nccl_expects_more_of_one")) == [pytest.approx(15e-6), "right", 2]
    assert same(two("nccl_cannot_say_on_one")) == [pytest.approx(12.5e-6), "right", 2]
    assert same(two("one_has_no_function_to_ask")) == [None, "right", 0]


def test_what_one_gpu_cannot_hold_is_neither_measured_nor_explained_by_any(two: Said) -> None:
    for found in same(two("room_for_no_grid_on_one")):
        assert found.pop("nccl") == "done" or "cannot be looked into" in found["nccl"]
        assert found.pop("ring-host") == "done"
        for what in found.values():
            assert what.startswith("rank 1: ")
            assert "cannot run at once on GPU 1, which holds 0" in what


def test_a_wrong_element_of_one_process_is_told_to_all(two: Said) -> None:
    assert same(two("a_wrong_element")).startswith("rank 1, element 3 (chunk 0): got 7.0, expected")


def test_a_pair_without_trustworthy_memory_skips_the_ladder_on_every_rank(two: Said) -> None:
    for scenario, reason in (
        ("no_peer_access_for_one", "rank 1 cannot open the memory of rank 0: cudaErrorPeerAccessUnsupported: "),
        ("stores_of_one_are_lost", "rank 0 cannot use the memory of rank 1: a kernel's stores gave wrong data"),
        ("copies_of_one_are_lost", "rank 1 cannot use the memory of rank 0: a copy gave wrong data"),
        ("one_cannot_share", "rank 1 cannot share its memory: cudaErrorNotSupported: "),
    ):
        found = same(two(scenario))
        assert found.pop("nccl") == "right"
        assert all(what.startswith(f"skipped: {reason}") for what in found.values()), found


@pytest.mark.full
def test_one_bad_pair_among_four_ranks_is_enough(four: Said) -> None:
    found = same(four("stores_of_one_are_lost"))
    assert found.pop("nccl") == "right"
    assert all("skipped: rank 0 cannot use the memory of rank " in what for what in found.values()), found


def test_an_nccl_that_not_all_can_use_is_skipped_by_all(two: Said) -> None:
    for scenario, reason in (
        ("no_nccl_for_one", "skipped: rank 1: CuPy found no NCCL"),
        ("an_older_nccl_for_one", "skipped: the processes load different NCCLs (2.30.4, 2.30.7)"),
    ):
        found = same(two(scenario))
        assert found.pop("nccl").startswith(reason)
        assert set(found.values()) == {"right"}


def test_on_two_nodes_nccl_runs_and_the_ladder_is_skipped(said: Said) -> None:
    seen, ranks = same(said("two_nodes")), len(said("two_nodes"))
    reason = "the ranks are on 2 nodes, and a kernel reaches its own node's memory only"
    assert seen["found"].pop("nccl") == "right"
    assert seen["found"].pop("auto").endswith(reason)
    assert set(seen["found"].values()) == {f"skipped: {reason}"}
    topology = seen["topology"]
    assert topology["nodes"] == 2
    assert [(gpu["host"], gpu["bus_id"]) for gpu in topology["gpus"]] == [
        ("node0", "0000:00:00.0"),
        ("node1", "0000:00:00.0"),
    ]
    assert topology["places"] == ([0, 0, 1, 1] if ranks == 4 else [])
    assert topology["name"] == ("4 ranks sharing 2" if ranks == 4 else "2") + " x Test GPU, network, 2 nodes"


def test_a_process_that_cannot_open_its_gpu_fails_all_with_its_words(two: Said) -> None:
    assert same(two("no_memory_for_one")).startswith("PlatformError: rank 1: the ranks on GPU 1 need ")
    assert same(two("no_gpu_for_one")).startswith("PlatformError: rank 1: no GPU found (cudaErrorNoDevice: ")


def test_after_a_failure_of_one_gpu_all_still_come_to_an_end(two: Said) -> None:
    """NCCL would wait for the process that can no longer let go of its communicator."""
    assert same(two("a_broken_gpu_at_the_end")) == "right"


def test_what_rank_0_found_is_what_all_measure(two: Said) -> None:
    """Another node may have no GPU, or less memory."""
    assert same(two("another_platform_and_sweep_for_one")) == ["gpu", [4, 1000, 70000]]


def test_whatever_happens_to_one_process_reaches_the_others_wherever_they_wait(two: Said) -> None:
    """It is there to be said while the others are busy."""
    error, after = same(two("a_surprise_for_one"))
    assert error == "PlatformError: rank 1: ZeroDivisionError: nobody thought of it"
    assert after == [0, 1], "and they speak of the same thing again afterwards"
    error, heard = same(two("one_fails_while_the_other_is_busy"))
    assert error.startswith("PlatformError: rank 1: CUDARuntimeError: cudaErrorIllegalAddress")
    assert heard[0] == ["", ""]
    assert heard[1][0].startswith("cudaErrorIllegalAddress")
    assert heard[1][1] == "", "and no longer, once all have heard it"


def test_a_rank_that_waits_in_vain_fails_the_case_on_every_process(said: Said) -> None:
    for words in same(said("one_waits_in_vain")):
        assert words.startswith("CaseFailed: rank 0: a rank waited in vain for another's flag")


class Told:
    """A process among others, which have told what is here."""

    def __init__(self, rank: int, nodes: list[tuple[str, str]]) -> None:
        self.rank, self.size, self._nodes = rank, len(nodes), nodes

    def local(self, ranks: int) -> tuple[int, ...]:
        return (self.rank,)

    def exchange(self, mine: Any) -> list[Any]:
        return self._nodes if isinstance(mine, tuple) else [[replace(mine[0], node=node)] for node in self._nodes]


def test_the_processes_of_each_node_are_dealt_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = gpu_cuda.Cuda(Machine(3).cupy())
    for nodes, devices in {"aaaa": "0120", "aaabbb": "012012", "ababab": "001122", "aabaab": "010201"}.items():
        for rank, device in enumerate(devices):
            monkeypatch.setattr(placement, "node_name", lambda node=nodes[rank]: (node, ""))
            team: Any = Told(rank, [(node, "") for node in nodes])
            placed = placement.place_ranks(cuda, team, len(nodes))
            assert placed.device == {rank: int(device)}, nodes
            assert placed.nodes == len(set(nodes))


ALONE = """
import sys
from collbench.platforms import open_platform
from collbench.platforms.gpu import platform
from collbench.platforms.processes import Alone
from tools.stand_in.cuda import Machine
from tools.stand_in.cases import needs, sweep

platform.load_cupy = Machine(2).cupy
wanted = sweep(ranks=2)
opened = open_platform(wanted, needs(wanted.implementations, 2, "gpu"), "gpu", Alone())
print(list(opened.local), "mpi4py" in sys.modules)
opened.close()
"""


def test_a_process_that_is_alone_holds_all_ranks_and_never_imports_mpi(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env=surroundings(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[0, 1] False", done.stderr


@pytest.fixture
def mpirun(tmp_path: Path) -> Mpirun:
    """Run `mpiexec -n 2 collbench ...` to its end, on a machine with these fields."""

    def run(*arguments: str, **machine: Any) -> subprocess.CompletedProcess[str]:
        return on_gpus(tmp_path, *arguments, launcher=(mpiexec(), "-n", "2"), **machine)

    return run


SWEEP = ("-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")


def test_mpirun_collbench_sweep_takes_the_gpus(mpirun: Mpirun, tmp_path: Path) -> None:
    """Without --on: one table and one run file, of ranks that are the launcher's processes; what NCCL expects too.

    There is a column for the collectives of which there may be estimates, and one more line below the table.
    """
    simulation = {"extension": str(build_extension(tmp_path / "nccl")), "expects": 35.5}
    some = ("--impl", "nccl,ring-flags", "--op", "allreduce,alltoall", *SWEEP)
    done = mpirun("sweep", *some, devices=1, simulation=simulation)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^ .* ok, 2 processes share 1 GPU", done.stdout, re.MULTILINE)) == 3
    assert done.stderr.count(SHARED) == 1
    headings = [line for line in done.stdout.splitlines() if line.endswith("check")]
    assert [" estimate " in line for line in headings] == [True, False]
    rows = [line for line in done.stdout.splitlines() if " ok" in line]
    assert [("35.5 us" in line, "ring-flags" in line) for line in rows] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert ESTIMATE in done.stderr
    run = read(tmp_path / "out")
    assert run.complete
    assert {(result.platform, result.case.ranks) for result in run.results} == {("gpu", 2)}
    found = [result.estimate for result in run.results if isinstance(result, Measurement)]
    assert found == [pytest.approx(35.5e-6), None, None]


def test_mpirun_all_reduce_perf_lists_every_ranks_gpu(mpirun: Mpirun, tmp_path: Path) -> None:
    """By its own name and number, as the run file has them: the header that it is printed from was never in a file."""
    some = ("-b", "64", "-e", "100", "-n", "2", "-G", "1", "--impl", "nccl", "--out", "out")
    done = mpirun("all_reduce_perf", *some, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = re.findall(r"^#  Rank +(\d+) .* device +(\d+) \[(\S+)\] (.*)$", done.stdout, re.MULTILINE)
    assert listed == [("0", "0", "0000:00:00", "Test GPU"), ("1", "1", "0000:01:00", "Test GPU")]
    (said,) = re.findall(r"^# nThread .*", done.stdout, re.MULTILINE)
    assert "nGpus 1 minBytes 64 maxBytes 100 step: 1048576(bytes)" in said
    assert said.endswith("graph: 1")
    assert read(tmp_path / "out").header.processes == 2


@pytest.mark.full
def test_mpirun_collbench_verify_finds_everything_right(mpirun: Mpirun) -> None:
    few = ("--impl", "nccl,ring-flags", "--op", "allreduce,gather", "-d", "half", "-o", "avg")
    done = mpirun("verify", "--on", "gpu", *few, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong, 0 failed" in done.stdout


def test_what_one_process_lacks_is_said_once_with_exit_status_2(mpirun: Mpirun) -> None:
    done = mpirun("sweep", "--on", "gpu", *SWEEP, **{"devices": 2, "process 1": {"devices": 0}})  # type: ignore[arg-type]
    assert done.returncode == 2
    assert done.stderr.count("collbench: error: rank 1: no GPU found") == 1
    assert "Traceback" not in done.stderr


def test_a_process_that_dies_ends_the_run(mpirun: Mpirun, tmp_path: Path) -> None:
    """Nobody is left waiting for it, and what was measured can be read."""
    some = ("sweep", "--on", "gpu", "--impl", "nccl,ring-flags", *SWEEP)
    done = mpirun(*some, **{"devices": 1, "process 1": {"dies": True}})  # type: ignore[arg-type]
    assert done.returncode != 0
    assert not read(tmp_path / "out").complete


@pytest.mark.parametrize(
    ("hangs", "doing"),
    [("operation", "carry out its first operation"), pytest.param("start", "start", marks=pytest.mark.full)],
)
def test_processes_whose_nccl_hangs_end_with_a_whole_run_file(
    hangs: str, doing: str, mpirun: Mpirun, tmp_path: Path
) -> None:
    """Nothing waits for it as they exit, where CuPy would destroy its communicators and NCCL wait for its streams."""
    done = mpirun("sweep", *SWEEP, "--impl", "nccl", "--timeout", "2", devices=2, nccl_hangs=hangs, patience=1)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"NCCL did not {doing} within 2 s" in done.stdout
    assert "Traceback" not in done.stderr
    run = read(tmp_path / "out")
    assert run.complete
    assert [type(result) for result in run.results] == [Failed]

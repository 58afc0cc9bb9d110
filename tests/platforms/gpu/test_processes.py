"""The GPU platform under an outside launcher: real processes, started by a real mpiexec, on GPUs that are made up.

The scenarios are tools/stand_in/scenarios.py's; here is what must have come of them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.algorithms.nccl import FAST_PATHS
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import discover
from collbench.results import Measurement
from collbench.runfile.store import read
from tests.conftest import ROOT, Tree, mpiexec
from tools.stand_in.cases import AMONG_PROCESSES
from tools.stand_in.cuda import Machine
from tools.stand_in.ipc import build_driver
from tools.stand_in.simulate import build_extension
from tools.stand_in.whole_commands import SECONDS, on_gpus, surroundings

EXACT = [way.name for way in AMONG_PROCESSES if not way.wire]
SOME = ("nccl", "ring-flags", "two-shot", "ring-host")  # in two sizes

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


def same(everyone: list[Any]) -> Any:
    assert all(report == everyone[0] for report in everyone), everyone
    return everyone[0]


RIGHT = ("every_case", "all_on_one_gpu", "two_nodes", "near_their_gpus")


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_every_implementation_gives_every_rank_what_the_definition_says(ranks: int, tmp_path: Path) -> None:
    said = played(tmp_path, ranks, *RIGHT)
    everyone = said("every_case")
    found = same([report["found"] for report in everyone])
    sizes = {name: 1 + (name in SOME) for name in (*EXACT, "narrow-bfloat16")}
    assert len(found) == sum(sizes[name] * len(implementations()[name].collectives) for name in sizes) + 4 + 3
    assert {words: what for words, what in found.items() if what != "right"} == {}
    assert [report["local"] for report in everyone] == [[rank] for rank in range(ranks)]
    assert same([report["note"] for report in everyone]) == ("4 processes share 2 GPUs" if ranks == 4 else "")

    shared = same(said("all_on_one_gpu"))
    assert shared["found"] == dict.fromkeys(EXACT, "right")
    assert shared["note"] == f"{ranks} processes share 1 GPU"
    assert shared["blocks"] == 8 // ranks, "each rank gets its share of the multiprocessors, and all get as many"
    assert shared["left"] == []

    apart, reason = same(said("two_nodes")), "the ranks are on 2 nodes, and a kernel reaches its own node's memory only"
    assert apart["found"].pop("nccl") == "right"
    assert apart["found"].pop("auto").endswith(reason)
    assert set(apart["found"].values()) == {f"skipped: {reason}"}
    topology, bus = apart["topology"], "0000:00:00.0"
    assert topology["nodes"] == 2
    assert [(gpu["host"], gpu["bus_id"]) for gpu in topology["gpus"]] == [("node0", bus), ("node1", bus)]
    assert topology.get("places", []) == ([0, 0, 1, 1] if ranks == 4 else [])
    for rank, (cores, found) in enumerate(said("near_their_gpus")):
        near, theirs = cores[rank % 2 % len(cores)], cores[-1 - rank % len(cores)]
        assert found == [[cores, "right"], [[near], "right"], [[theirs], "right"]], rank
    assert topology["name"] == ("4 ranks sharing 2" if ranks == 4 else "2") + " x Test GPU, network, 2 nodes"


UNTRUSTED = {  # scenario: why nothing but NCCL is measured
    "no_peer_access_for_one": "rank 1 cannot open the memory of rank 0: cudaErrorPeerAccessUnsupported: ",
    "gpus_hidden_from_each_other": "rank 0 cannot open the memory of rank 1: cudaErrorInvalidValue: invalid argument; ",
    "stores_of_one_are_lost": "rank 0 cannot use the memory of rank 1: a kernel's stores gave wrong data",
    "copies_of_one_are_lost": "rank 1 cannot use the memory of rank 0: a copy gave wrong data",
    "one_cannot_share": "rank 1 cannot share its memory: cudaErrorNotSupported: ",
}
WITHOUT_NCCL = {
    "no_nccl_for_one": "skipped: rank 1: CuPy found no NCCL",
    "an_older_nccl_for_one": "skipped: the processes load different NCCL releases (2.30.4, 2.30.7)",
}
CANNOT_OPEN = {
    "no_memory_for_one": "PlatformError: rank 1: the ranks on GPU 1 need ",
    "no_gpu_for_one": "PlatformError: rank 1: no GPU found (cudaErrorNoDevice: ",
}
IN_ALL = (
    *("the_runner", "the_slowest_rank_counts", "room_for_no_grid_on_one", "a_wrong_element", "one_waits_in_vain"),
    *("a_broken_gpu_at_the_end", "another_platform_and_sweep_for_one", "a_surprise_for_one"),
    *("one_fails_while_the_other_is_busy", "more_operations_than_a_graph_has"),
)


def test_what_one_process_lacks_or_fails_of_is_told_and_decided_alike_by_all(tmp_path: Path) -> None:
    said = played(tmp_path, 2, *UNTRUSTED, *WITHOUT_NCCL, *CANNOT_OPEN, *IN_ALL)
    for scenario, reason in UNTRUSTED.items():
        found = same(said(scenario))
        assert found.pop("nccl") == "right", scenario
        assert all(what.startswith(f"skipped: {reason}") for what in found.values()), found
        assert all(("by --gpus-per-node=2 " in what) == ("hidden" in scenario) for what in found.values()), found
    for scenario, reason in WITHOUT_NCCL.items():
        found = same(said(scenario))
        assert found.pop("nccl").startswith(reason), scenario
        assert set(found.values()) == {"right"}, scenario
    for scenario, reason in CANNOT_OPEN.items():
        assert same(said(scenario)).startswith(reason), scenario

    results = same(said("the_runner"))  # launches and samples alike, to the last bit
    assert [name for name, *_ in results] == ["nccl", "ring-flags", "two-shot", "ring-host"]
    assert all(len(seconds) == 3 and mismatch == "None" for _, _, seconds, mismatch in results)
    assert same(said("the_slowest_rank_counts")) >= 0.2
    assert same(said("more_operations_than_a_graph_has")) == 3
    for found in same(said("room_for_no_grid_on_one")):  # measured and explained
        assert found.pop("nccl") == "done" or "is not seen" in found["nccl"]
        assert found.pop("ring-host") == "done"
        for what in found.values():
            assert what.startswith("rank 1: ")
            assert "cannot run at once on GPU 1, which holds 0" in what
    assert same(said("a_wrong_element")).startswith("rank 1, element 3 (chunk 0): got 7.0, expected")
    for words in same(said("one_waits_in_vain")):
        assert words.startswith("TimedOut: rank 0: a rank waited in vain for another's flag")
    assert same(said("a_broken_gpu_at_the_end")) == "right", "NCCL would wait for the one that cannot let go"
    assert same(said("another_platform_and_sweep_for_one")) == ["gpu", [4, 1000, 70000]], "as rank 0 found"

    error, after = same(said("a_surprise_for_one"))
    assert error == "PlatformError: rank 1: ZeroDivisionError: nobody thought of it"
    assert after == [0, 1], "they speak of the same thing again afterwards"
    error, heard = same(said("one_fails_while_the_other_is_busy"))
    assert error.startswith("PlatformError: rank 1: CUDARuntimeError: cudaErrorIllegalAddress")
    assert heard[0] == ["", ""]
    assert heard[1][0].startswith("cudaErrorIllegalAddress")
    assert heard[1][1] == "", "and no longer, once all have heard it"


@pytest.mark.full
def test_all_processes_simulate_together_or_none_does(tmp_path: Path) -> None:
    names = ("nccl_expects_more_of_one", "nccl_cannot_say_on_one", "one_has_no_function_to_ask")
    said = played(tmp_path, 2, *names)
    expected = [[pytest.approx(15e-6), "right", 2], [pytest.approx(12.5e-6), "right", 2], [None, "right", 0]]
    assert [same(said(name)) for name in names] == expected


def test_the_processes_of_each_node_are_dealt_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = gpu_cuda.Cuda(Machine(3).cupy())
    for nodes, devices in {"aaaa": "0120", "aaabbb": "012012", "ababab": "001122", "aabaab": "010201"}.items():
        names = [(node, "") for node in nodes]

        def exchange(mine: Any, names: list[tuple[str, str]] = names) -> list[Any]:
            return names if isinstance(mine, tuple) else [[replace(mine[0], node=name)] for name in names]

        for rank, device in enumerate(devices):
            monkeypatch.setattr(discover, "node_name", lambda name=names[rank]: name)
            local = (rank,)
            team: Any = SimpleNamespace(
                rank=rank, size=len(nodes), exchange=exchange, local=lambda ranks, local=local: local
            )
            placed = discover.place_ranks(cuda, team, len(nodes))
            assert placed.device == {rank: int(device)}, nodes
            assert placed.nodes == len(set(nodes))


def test_a_process_is_bound_next_to_its_gpu_where_no_launcher_bound_its_neighbours(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree({"sys/bus/pci/devices/0000:0a:00.0/local_cpulist": "0-3,8-11"})
    bound: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: bound.append(cores))
    far = {4, 5}
    for mine, others, nodes, bus_id, near in (
        ({*range(16)}, {*range(16)}, "aa", "0000:0A:00.0", {0, 1, 2, 3, 8, 9, 10, 11}),
        ({3, 4, 5}, {3, 4, 5}, "aa", "0000:0A:00.0", {3}),
        ({3, 4, 5}, {0, 1, 2}, "ab", "0000:0A:00.0", {3}),
        ({3, 4, 5}, {0, 1, 2}, "aa", "0000:0A:00.0", None),
        (far, far, "aa", "0000:0A:00.0", None),
        ({*range(16)}, {*range(16)}, "aa", "0000:0B:00.0", None),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, mine=mine: mine)
        places = tuple(discover.GpuPlace((node, ""), bus_id, "GPU", 64, 2**20) for node in nodes)
        team: Any = SimpleNamespace(exchange=lambda mine, others=others: [mine, others])
        discover.bind_near(team, discover.Placement((0,), {0: 0}, places, 2), root)
        assert bound == ([near] if near else []), (mine, others, nodes, bus_id)
        bound.clear()


@pytest.fixture
def mpirun(tmp_path: Path) -> Mpirun:
    """Run `mpiexec -n 2 collbench ...` to its end, on a machine with these fields."""

    def run(*arguments: str, **machine: Any) -> subprocess.CompletedProcess[str]:
        return on_gpus(tmp_path, *arguments, launcher=(mpiexec(), "-n", "2"), **machine)

    return run


SWEEP = ("-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")


@pytest.mark.full
def test_processes_measure_nccls_fast_paths(mpirun: Mpirun, tmp_path: Path) -> None:
    simulation = {"extension": str(build_extension(tmp_path / "nccl"))}
    done = mpirun("sweep", "--impl", "nccl,paths,one-shot", *SWEEP, devices=2, simulation=simulation)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row.implementation: row for row in read(tmp_path / "out").results}
    assert len(rows) == 2 + len(FAST_PATHS)
    assert all(isinstance(row, Measurement) and row.right for row in rows.values())
    assert {name: row.method for name, row in rows.items() if row.method != "ring/ll"} == {
        "nccl@symmetric": "symm/LL",
        "nccl@copy-engine": "symm/LL",
        "one-shot": "",
    }


def test_a_scan_names_the_slow_one_of_three_processes_of_which_one_waits_in_every_round(tmp_path: Path) -> None:
    machine: dict[str, Any] = {"devices": 3, "nccl_seconds": 0.002, "slower": {"2": 3.0}}
    done = on_gpus(tmp_path, "scan", "--size", "8K", launcher=(mpiexec(), "-n", "3"), **machine)
    assert (done.returncode, "collbench: SLOW scan: rank 2 is" in done.stdout) == (3, True), done.stderr


def test_mpirun_all_reduce_perf_lists_every_ranks_gpu(mpirun: Mpirun, tmp_path: Path) -> None:
    some = ("-b", "64", "-e", "100", "-n", "2", "-G", "1", "--impl", "nccl", "--out", "out")
    done = mpirun("all_reduce_perf", *some, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = re.findall(r"^#  Rank +(\d+) .* device +(\d+) \[(\S+)\] (.*)$", done.stdout, re.MULTILINE)
    assert listed == [("0", "0", "0000:00:00", "Test GPU"), ("1", "1", "0000:01:00", "Test GPU")]
    (said,) = re.findall(r"^# nThread .*", done.stdout, re.MULTILINE)
    assert "nGpus 1 minBytes 64 maxBytes 100 step: 1048576(bytes)" in said
    assert said.endswith("graph: 1 unalign: 0")
    assert read(tmp_path / "out").header.processes == 2


def test_a_process_that_dies_ends_the_run(mpirun: Mpirun, tmp_path: Path) -> None:
    some = ("sweep", "--on", "gpu", "--impl", "nccl,ring-flags", *SWEEP)
    done = mpirun(*some, **{"devices": 1, "process 1": {"dies": True}})  # type: ignore[arg-type]
    assert done.returncode != 0
    assert not read(tmp_path / "out").complete

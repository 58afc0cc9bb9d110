"""Which stores are chosen by made-up times, and what is beyond the caches; then both as real ranks measure them."""

import json
import subprocess
import sys

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.platforms import compiler
from collbench.platforms.cpu import memory as memory_traffic
from collbench.platforms.cpu.memory import NEVER, UNMEASURED, beyond, streamed_from
from collbench.results.collectives import Measurement
from collbench.runfile.schema import to_result
from tests.conftest import ROOT, case, mpiexec, of_a_user

KIB, MIB = 2**10, 2**20


def test_stores_go_past_the_caches_from_where_that_is_faster_for_good() -> None:
    for name, seconds, chosen in (
        ("nothing measured", {}, UNMEASURED),
        ("no shared cache", {16 * KIB: (2.0, 1.0), MIB: (2.0, 1.0)}, 16 * KIB // 16),
        ("one that ends", {16 * KIB: (1.0, 2.0), MIB: (2.0, 1.0)}, MIB // 16),
        ("never", {16 * KIB: (1.0, 2.0), MIB: (1.0, 2.0)}, NEVER),
        ("no cache ends twice", {16 * KIB: (2.0, 1.0), MIB: (1.0, 2.0)}, NEVER),
        ("the last", {16 * KIB: (2.0, 1.0), 128 * KIB: (1.0, 2.0), MIB: (2.0, 1.0)}, MIB // 16),
        ("equal", {MIB: (1.0, 1.0)}, NEVER),
    ):
        assert streamed_from(seconds, 16) == chosen, name


def test_beyond_the_caches_is_four_times_as_large() -> None:
    for nbytes, in_place, large in (
        *((MIB, False, True), (MIB - 4, False, False)),
        *((2 * MIB, True, True), (2 * MIB - 4, True, False)),
    ):
        assert beyond(case(nbytes=nbytes, in_place=in_place), MIB) == large, (nbytes, in_place)
        assert not beyond(case(nbytes=nbytes, in_place=in_place), None), "nobody knows"


def test_the_traffic_of_a_share_is_as_many_lines_and_no_more() -> None:
    aligned = np.zeros(64 * 302 // 4, np.uint32)
    source = aligned[-aligned.ctypes.data % 64 // 4 :][: 64 * 301 // 4]
    source[:] = np.arange(1, source.size + 1)
    for streamed in (0, 1, 2):
        for read, written in ((7, 7), (1, 300), (300, 1), (129, 64), (0, 5), (5, 0)):
            place = np.full(64 * 400 // 4, 0xABABABAB, np.uint32)
            target = place[-place.ctypes.data % 64 // 4 :]
            shares = source.ctypes.data, read, target.ctypes.data, written
            compiler.host_kernel(memory_traffic.KERNELS, "traffic")(*map(np.uint64, shares), np.uint32(streamed))
            copied = min(read, written) // 2 * 2 * 16
            assert (target[:copied] == source[:copied]).all(), (read, written, streamed)
            assert (target[copied : written * 16] == 0).all(), (read, written, streamed)
            assert (target[written * 16 :] == 0xABABABAB).all(), (read, written, streamed)


@pytest.mark.parametrize("names", [("allreduce", "pingpong"), pytest.param(tuple(COLLECTIVES), marks=pytest.mark.full)])
def test_ranks_measure_floors_of_every_case_beyond_the_caches_and_spoil_no_result(names: tuple[str, ...]) -> None:
    """Of every collective but those of which a time is a part, out of place and in place.

    Two ranks whose caches are next to nothing: floors write into the buffers between samples, and every closing check
    is right.  They try pieces of 16 KiB and 128 KiB, and agree on the stores: from one of them on, or never.
    """
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "tools.ranks.floors", *names]
    done = subprocess.run(command, cwd=ROOT, env=of_a_user(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    rows = [to_result(row) for row in measured if row.get("kind") == "measurement"]
    seen, places = set(), set()
    for row in rows:
        assert isinstance(row, Measurement)
        seen.add(row.case.collective.name)
        places.add(row.case.in_place)
        beyond_caches = row.case.nbytes > 2**16 and row.case.collective.parts == 1
        assert (row.floor is not None) == beyond_caches, row
        assert row.floor is None or row.floor > 0, row
        assert row.right, row
    assert (seen, places) == ({*names}, {False, True})
    chosen = [row["streamed"] for row in measured if "streamed" in row]
    assert len(chosen) == 2
    assert set(chosen) <= {1024, 8192, NEVER}


def test_shares_of_the_ranks_add_up() -> None:
    one = case("allgather", 4 * MIB, ranks=4)
    for way, streamed in zip(memory_traffic.copies(one, 4096, 8192), (0, 1, 2), strict=True):
        assert way == (4096, 4 * MIB // 4 // 64, 8192, 4 * 4 * MIB // 4 // 64, streamed)

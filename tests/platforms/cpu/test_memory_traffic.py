"""Which stores are chosen by made-up times, and what is beyond the caches; then both as real ranks measure them."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.measure.start import mpiexec
from collbench.platforms import kernels
from collbench.platforms.cpu import memory_traffic
from collbench.platforms.cpu.memory_traffic import ALWAYS, NEVER, UNMEASURED, beyond, streamed_from
from tests.conftest import ROOT, case, of_a_user

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({}, UNMEASURED),
        ({16 * KIB: (2.0, 1.0), MIB: (2.0, 1.0)}, 16 * KIB // 16),
        ({16 * KIB: (1.0, 2.0), MIB: (2.0, 1.0)}, MIB // 16),
        ({16 * KIB: (1.0, 2.0), MIB: (1.0, 2.0)}, NEVER),
        ({16 * KIB: (2.0, 1.0), MIB: (1.0, 2.0)}, NEVER),
        ({16 * KIB: (2.0, 1.0), 128 * KIB: (1.0, 2.0), MIB: (2.0, 1.0)}, MIB // 16),
        ({MIB: (1.0, 1.0)}, NEVER),
    ],
    ids=["nothing measured", "no shared cache", "one that ends", "never", "no cache ends twice", "the last", "equal"],
)
def test_stores_go_past_the_caches_from_where_that_is_faster_for_good(
    seconds: dict[int, tuple[float, float]], chosen: int
) -> None:
    """In packs of 16 bytes."""
    assert streamed_from(seconds, 16) == chosen


def test_a_choice_fits_into_the_kernels_word() -> None:
    """World::streamed has 32 bits."""
    assert 0 <= ALWAYS < UNMEASURED < NEVER == np.iinfo(np.uint32).max
    assert streamed_from(dict.fromkeys(memory_traffic.PIECES, (2.0, 1.0)), 16) < NEVER


@pytest.mark.parametrize(
    ("nbytes", "in_place", "large"),
    [(MIB, False, True), (MIB - 4, False, False), (2 * MIB, True, True), (2 * MIB - 4, True, False)],
)
def test_beyond_the_caches_is_four_times_as_large(nbytes: int, in_place: bool, large: bool) -> None:
    """An all-reduce of 2 ranks reads and writes 4 S out of place, and 2 S in place."""
    assert beyond(case(nbytes=nbytes, in_place=in_place), MIB) == large
    assert not beyond(case(nbytes=nbytes, in_place=in_place), None), "nobody knows"


@pytest.mark.parametrize("streamed", [0, 1, 2])
@pytest.mark.parametrize(("read", "written"), [(7, 7), (1, 300), (300, 1), (129, 64), (0, 5), (5, 0)])
def test_the_traffic_of_a_share_is_as_many_lines_and_no_more(read: int, written: int, streamed: int) -> None:
    """What is copied comes from the source, all of the target is written, and nothing behind it."""
    source = np.arange(1, 64 * 301 // 4 + 1, dtype=np.uint32)
    place = np.full(64 * 400 // 4, 0xABABABAB, np.uint32)
    skip = -place.ctypes.data % 64 // 4
    target = place[skip:]
    aligned = np.zeros(source.size + 16, np.uint32)
    start = -aligned.ctypes.data % 64 // 4
    aligned[start : start + source.size] = source
    where = np.uint64(aligned[start:].ctypes.data), np.uint64(read), np.uint64(target.ctypes.data), np.uint64(written)
    kernels.host_kernel(memory_traffic.KERNELS, "traffic")(*where, np.uint32(streamed))
    copied = min(read, written) // 2 * 2 * 16
    assert (target[:copied] == source[:copied]).all()
    assert (target[copied : written * 16] == 0).all()
    assert (target[written * 16 :] == 0xABABABAB).all()


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    """Rows of all collectives by two ranks whose caches are next to nothing, out of place and in place."""
    done = subprocess.run(
        [mpiexec(), "-n", "2", sys.executable, "-m", "tests.platforms.cpu.floor_ranks"],
        cwd=ROOT,
        env=of_a_user(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_case_beyond_the_caches_has_a_floor(measured: list[dict[str, Any]]) -> None:
    """Of every collective but those of which a time is a part; what fits into them has none."""
    rows = [row for row in measured if row.get("kind") == "measurement"]
    floors = {(row["collective"], row["in_place"], row["nbytes"]): row.get("floor") for row in rows}
    assert {name for name, _, _ in floors} == set(COLLECTIVES)
    assert {in_place for _, in_place, _ in floors} == {False, True}
    for (name, _, nbytes), floor in floors.items():
        assert (floor is not None) == (nbytes > 2**16 and COLLECTIVES[name].parts == 1)
        assert floor is None or 0 < floor < 1


def test_what_measures_the_floor_spoils_no_result(measured: list[dict[str, Any]]) -> None:
    """It writes into the buffers between samples, and every closing check is right."""
    rows = [row for row in measured if row.get("kind") == "measurement"]
    assert len(rows) > 20
    assert {row["check"] for row in rows} == {"ok"}


def test_ranks_agree_on_the_stores(measured: list[dict[str, Any]]) -> None:
    """Pieces of 16 KiB and 128 KiB were tried: from one of them on, or never."""
    chosen = [row["streamed"] for row in measured if "streamed" in row]
    assert len(chosen) == 2
    assert set(chosen) <= {1024, 8192, NEVER}


def test_shares_of_the_ranks_add_up() -> None:
    """Each moves as many lines, in each kind of stores."""
    one = case("allgather", 4 * MIB, ranks=4)
    for way, streamed in zip(memory_traffic.ways(one, 4096, 8192), (0, 1, 2), strict=True):
        assert way == (4096, 4 * MIB // 4 // 64, 8192, 4 * 4 * MIB // 4 // 64, streamed)

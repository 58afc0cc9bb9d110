"""A group of a wire in the hands of several threads, as on a GPU, makes the same bits as in those of one."""

import re
from collections.abc import Sequence

import numpy as np

from collbench.algorithms import narrow
from collbench.datatypes import GROUP, WIRES, Wire
from tests.conftest import ROOT, case
from tools.kernels.grid import GRID, Ranks

TILE = 16 * GROUP  # elements that a warp takes at once
RANKS, ROOM = 3, 4096  # bytes of a box: few, so that a message takes several rounds
GRIDS = [(1, 32), (2, 64), (1, 40)]  # blocks and threads; of 40 threads, 8 are no whole warp


def exchanged(
    wire: Wire, count: int, team: int, *more: str, grid: tuple[int, int] = (1, 1), calls: int = 1, starts: Sequence = ()
) -> set[bytes]:
    residual = narrow.KINDS * RANKS * ROOM
    ranks = Ranks(case(nbytes=4 * count, ranks=RANKS), residual + 8 * count + 16, starts)
    random = np.random.default_rng(count)
    for rank in range(RANKS):
        ranks.part(0, rank)[:] = random.standard_normal(count) * 2.0 ** random.integers(-9, 9, count)
    options, (blocks, threads) = (*GRID, f"-DWIRE={wire.code}", f"-DTEAM={team}", *more), grid
    for _ in range(calls):
        numbers = (0, ROOM, ROOM // wire.group, count, residual)
        ranks.launch("narrow.cu", "narrow_allreduce", numbers, options, blocks, threads, spins=2**22, streamed=2**31)
    return ranks.results()


def test_a_team_makes_the_same_bits_as_a_thread_alone() -> None:
    for shift, (name, wire) in enumerate(WIRES.items()):
        for turn, count in enumerate((33, GROUP + TILE * RANKS, 2500 + 9 * TILE)):
            grid = GRIDS[(shift + turn) % len(GRIDS)]
            (wanted,) = exchanged(wire, count, 1)
            assert any(wanted), name
            assert exchanged(wire, count, narrow.TEAM, grid=grid) == {wanted}, (name, count, grid)


def test_buffers_may_start_at_any_element_and_on_every_rank_at_another() -> None:
    count = RANKS * 5 * TILE + 7
    for name, wire in WIRES.items():
        wanted = exchanged(wire, count, 1)
        for starts in ([(1, 1)] * 3, [(0, 0), (1, 1), (2, 2)]):
            assert exchanged(wire, count, narrow.TEAM, grid=(2, 64), starts=starts) == wanted, (name, starts)


def test_a_team_keeps_what_its_group_loses() -> None:
    count = RANKS * TILE + 5
    for name in ("e4m3", "topk"):
        alone = exchanged(WIRES[name], count, 1, narrow.FEEDBACK, calls=3)
        assert exchanged(WIRES[name], count, narrow.TEAM, narrow.FEEDBACK, grid=(1, 32), calls=3) == alone, name
        assert exchanged(WIRES[name], count, 1, calls=3) != alone, name


def test_a_team_has_as_many_threads_as_the_launch_counts_on() -> None:
    (team,) = re.findall(r"defined\(__CUDACC__\)\n#define TEAM (\d+)", (ROOT / "kernels" / "wires.cuh").read_text())
    assert int(team) == narrow.TEAM

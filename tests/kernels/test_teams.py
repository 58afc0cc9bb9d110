"""A group of a wire in the hands of several threads, as on a GPU, makes the same bits as in those of one."""

import re
from dataclasses import dataclass

import numpy as np

from collbench.datatypes import DATATYPES, REDUCTIONS, Array
from collbench.implementations import narrow
from collbench.platforms import kernels
from collbench.platforms.layout import WINDOW_HEAD, WORLD
from collbench.wires import GROUP, WIRES, Wire
from tests.conftest import ROOT

GRID = (*kernels.defines(DATATYPES["float"], REDUCTIONS["sum"]), "-DHOST_GRID", "-O1")
TEAM, ALONE = f"-DTEAM={narrow.TEAM}", "-DTEAM=1"
TILE = 16 * GROUP  # elements that a warp takes at once
RANKS, ROOM = 3, 4096  # bytes of a box: few, so that a message takes several rounds


@dataclass(frozen=True)
class Form:
    """A form of the kernel, and its grid."""

    options: tuple[str, ...]
    blocks: int = 1
    threads: int = 1


CPU = Form((ALONE,))
GPU = [Form((TEAM,), 1, 32), Form((TEAM,), 2, 64), Form((TEAM,), 1, 40)]  # of 40 threads, 8 are no whole warp


def buffer(nbytes: int, start: int = 0) -> Array:
    """Zeroed bytes, `start` behind a multiple of 128."""
    raw = np.zeros(nbytes + start + 256, np.uint8)
    first = -raw.ctypes.data % 128 + start
    return raw[first : first + nbytes]


def exchanged(
    wire: Wire, form: Form, count: int, calls: int = 1, starts: tuple[int, ...] = (0,) * RANKS
) -> list[Array]:
    """What every rank has after these calls, and behind it what must stay as it is: one element."""
    residual = narrow.KINDS * RANKS * ROOM
    windows = [buffer(WINDOW_HEAD + residual + 8 * count + 16) for _ in range(RANKS)]
    sends, receives = ([buffer(4 * count + 4, start) for start in starts] for _ in range(2))
    random = np.random.default_rng(count)
    for send in sends:
        send[:-4].view(np.float32)[:] = random.standard_normal(count) * 2.0 ** random.integers(-9, 9, count)
    world = np.zeros((), WORLD)
    for name, buffers in (("window", windows), ("send", sends), ("receive", receives)):
        world[name][:RANKS] = [each.ctypes.data for each in buffers]
    world["ranks"], world["stride"], world["blocks"] = RANKS, 1, form.blocks
    world["spins"], world["yield_after"], world["streamed"] = 2**22, 1, 2**31
    options = (*GRID, f"-DWIRE={wire.code}", *form.options)
    kernel = kernels.host_kernel("narrow.cu", "narrow_allreduce", options)
    numbers = (0, ROOM, ROOM // wire.group, count, residual)
    for _ in range(calls):
        kernel(world, *map(np.uint64, numbers), blocks=form.blocks * RANKS, threads=form.threads)
    return receives


def bits(results: list[Array]) -> set[bytes]:
    return {result.tobytes() for result in results}


def test_a_team_makes_the_same_bits_as_a_thread_alone() -> None:
    """On every rank, whatever the grid, in one round or several, with tiles or without; nothing beyond the end."""
    for name, wire in WIRES.items():
        for count in (33, GROUP + TILE * RANKS, 2500 + 9 * TILE):
            (wanted,) = bits(exchanged(wire, CPU, count))
            assert any(wanted), name
            for form in GPU:
                assert bits(exchanged(wire, form, count)) == {wanted}, (name, count, form)


def test_buffers_may_start_at_any_element_and_on_every_rank_at_another() -> None:
    """Then no thread has sixteen bytes in one piece; blocks that wait for each other have the same groups."""
    count = RANKS * 5 * TILE + 7
    for name, wire in WIRES.items():
        wanted = bits(exchanged(wire, CPU, count))
        for starts in ((4, 4, 4), (0, 4, 8)):
            assert bits(exchanged(wire, GPU[1], count, starts=starts)) == wanted, (name, starts)


def test_a_team_keeps_what_its_group_loses() -> None:
    """With feedback, call after call."""
    more, count = (narrow.FEEDBACK,), RANKS * TILE + 5
    for name in ("int8", "topk"):
        alone = exchanged(WIRES[name], Form((ALONE, *more)), count, calls=3)
        assert bits(exchanged(WIRES[name], Form((TEAM, *more), 1, 32), count, calls=3)) == bits(alone), name
        assert bits(alone) != bits(exchanged(WIRES[name], CPU, count, calls=3)), name


def test_a_team_has_as_many_threads_as_the_launch_counts_on() -> None:
    (team,) = re.findall(r"defined\(__CUDACC__\)\n#define TEAM (\d+)", (ROOT / "kernels" / "wires.cuh").read_text())
    assert int(team) == narrow.TEAM

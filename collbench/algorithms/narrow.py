"""`narrow-bfloat16`, `narrow-e4m3` and `narrow-topk`: two-shots that exchange fewer bytes.

One implementation for each format of collbench/datatypes.py. None is exact: results are checked against a proved bound.
"""

import numpy as np

from collbench.algorithms import Implementation
from collbench.cases import Case
from collbench.datatypes import GROUP, LEARNT, PREFIX, STATE_NBYTES, WIRES, Wire
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Wait
from collbench.platforms.interface import Platform, Prepared

BLOCKS, THREADS = 64, 256  # of a rank on a GPU with room for them
BOXES = {"gpu": 8 * 2**20, "cpu": 2**18}  # bytes that come to a rank in a round of a long message, from all ranks
TEAM = 8  # threads that share a group on a GPU (kernels/wires.cuh)
KINDS = 4  # of boxes: for inputs and for sums, by turns of the round's parity
FEEDBACK = "-DFEEDBACK"
"""The compiler option for kernels that add a call's rounding error to the next call."""


def prefixed(wire: Wire) -> str:
    """Return the name of a wire's implementation."""
    return f"{PREFIX}{wire.name}"


def room(ranks: int, platform: str) -> int:
    """Bytes of the box of one rank: whole lines."""
    return max(1, BOXES[platform] // ranks // 128) * 128


def rounds(case: Case, wire: Wire, platform: str) -> int:
    """Return the number of rounds of a message: in each, every rank adds a piece that fits its boxes."""
    groups = -(-case.block // GROUP)
    return -(-groups // (room(case.ranks, platform) // wire.group * case.ranks))


def private(wire: Wire, ranks: int, platform: Platform) -> int:
    """Return where a rank's private memory starts in a window, in bytes behind the flags: losses, then a study's."""
    return platform.layout.fifos[prefixed(wire)] + KINDS * ranks * room(ranks, platform.name)


def prepare(wire: Wire, case: Case, platform: Platform, *options: str) -> Prepared:
    """Prepare a case in a wire format, with more options of the compiler."""
    name, size = prefixed(wire), room(case.ranks, platform.name)
    kernel = platform.launcher.kernel(
        "narrow.cu", "narrow_allreduce", case.dtype, case.redop, f"-DWIRE={wire.code}", *options
    )
    fifo, most = platform.layout.fifos[name], size // wire.group
    groups = -(-case.block // GROUP)

    # Eight threads share a group on a GPU, and no rank has more groups in a round than fit into its box.
    grid = platform.launcher.grid(TEAM * min(most, -(-groups // case.ranks)), THREADS, BLOCKS)
    numbers = fifo, size, most, case.block, private(wire, case.ranks, platform)
    return Prepared(platform.launcher.bind(kernel, case, *grid, *map(np.uint64, numbers)), wire=wire)


def _supports(case: Case) -> None:
    if case.dtype.name != "float":
        raise Unsupported(f"wires are narrower than float, and carry nothing else: not {case.dtype.name}")
    if case.redop.name != "sum":
        raise Unsupported(f"the bound on what wires lose is proved for sum only, not for {case.redop.name}")


def _cost(wire: Wire, case: Case) -> Cost:
    """Return the cost of `two-shot` with the wire's bytes on the link, and of writing and reading narrow values."""
    share, others = wire.nbytes / case.dtype.itemsize, (case.ranks - 1) / case.ranks
    again, boxes = rounds(case, wire, "gpu"), 4 * others * share
    return Cost(Wait.BARRIER, 1 + again, 2 * others * share, 2 + boxes, blocks=BLOCKS, fences=again, cached=boxes)


def _implementation(wire: Wire) -> Implementation:
    return Implementation(
        name=prefixed(wire),
        summary=f"a two-shot in {wire.summary}",
        prepare=lambda case, platform: prepare(wire, case, platform),
        supports=_supports,
        order=12,
        cost=lambda case: _cost(wire, case),
        fifo=lambda ranks, platform: KINDS * ranks * room(ranks, platform) + STATE_NBYTES * LEARNT,
        wire=wire,
    )


IMPLEMENTATIONS = tuple(map(_implementation, WIRES.values()))

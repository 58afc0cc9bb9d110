"""Layout of each rank's memory as kernels see it (kernels/world.cuh).

A guard before and after every buffer must stay unchanged, which checks verify.
"""

import copy
import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol, Self

import numpy as np

from collbench.cases import Case, Sweep
from collbench.collectives import chunk_elements
from collbench.errors import Unsupported
from collbench.platforms import tracelog
from collbench.results.facts import Overrun

MAX_RANKS = 128  # of one World, unless it is compiled for fewer
WINDOW_HEAD = 65536  # bytes of flags before the FIFOs of a window
LINE = 128  # bytes: regions start at multiples of it
GUARD = 4096  # bytes before and after every buffer; a whole page, so that the alignment of buffers stays the same
GUARDED = 0x5C  # what they hold
UNTOUCHED = bytes([GUARDED]) * GUARD
_WARP = 32  # threads


def world_type(most: int = MAX_RANKS) -> np.dtype[np.void]:
    """`struct World` of kernels/world.cuh, field by field, as compiled with -DMAX_RANKS=most."""
    fields: list[Any] = [(name, np.uint64, most) for name in ("window", "send", "receive")]
    fields += [(name, np.uint64) for name in ("spins", "trace")]
    fields += [(name, np.uint32) for name in ("ranks", "first", "stride", "blocks", "yield_after", "streamed")]
    return np.dtype(fields)


WORLD = world_type()


class Region(Enum):
    """The memory of one rank; every region but SEND and RECEIVE is private to the hand-written implementations."""

    SEND = "send"
    RECEIVE = "receive"
    STAGING = "staging"  # one chunk: where host-driven implementations copy to before they add
    WINDOW = "window"  # flags, then FIFOs; peers write into it


SHIFTED = (Region.SEND, Region.RECEIVE)
"""Where a bucket of a case lies behind the start."""


@dataclass(frozen=True)
class Needs:
    """The needs of a sweep's implementations besides the buffers of its cases."""

    fifos: Mapping[str, int] = field(default_factory=dict)  # bytes that each wants in a window for its own
    buffers: int = 0  # bytes that a send or receive buffer has room for, however small the cases are


@dataclass(frozen=True)
class Guard:
    """GUARD bytes that nobody may write."""

    buffer: str  # before or after which they are
    region: Region
    start: int  # of the first, in bytes behind the region's start; negative, before it

    def overrun(self, rank: int, held: bytes) -> Overrun | None:
        """Return what bytes of a rank show that were GUARDED before, or None."""
        if held == UNTOUCHED:
            return None
        changed = [offset for offset, byte in enumerate(held) if byte != GUARDED]

        # The byte next to the buffer is named: behind it the first that changed, before it the last.
        nearest = changed[0] if self.start >= 0 else changed[-1] - GUARD
        return Overrun(rank, self.buffer, nearest, len(changed))


@dataclass(frozen=True)
class MemoryLayout:
    """The regions of a rank, one behind the other, the same on every rank."""

    sizes: Mapping[Region, int]  # bytes, whole lines
    fifos: Mapping[str, int] = field(default_factory=dict)  # where each starts in a window, in bytes behind the flags
    ends: Mapping[str, int] = field(default_factory=dict)  # where each FIFO ends, and its guard starts

    @classmethod
    def of(cls, sweep: Sweep, needs: Needs) -> Self:
        """Return the layout for the cases of a sweep, and for what its implementations need."""
        fifos = {tracelog.FIFO: tracelog.NBYTES} if sweep.sampling.traced else {}
        fifos |= needs.fifos
        sizes = dict.fromkeys(Region, LINE)
        sizes[Region.SEND] = sizes[Region.RECEIVE] = max(LINE, needs.buffers)
        sizes[Region.WINDOW] = WINDOW_HEAD + sum(fifos.values()) + GUARD * len(fifos)

        # A region is as large as the case that needs most of it.
        for case in sweep.cases():
            for region, nbytes in _sizes(case).items():
                sizes[region] = max(sizes[region], nbytes)
        lines = {region: -(-nbytes // LINE) * LINE for region, nbytes in sizes.items()}

        # A guard follows each FIFO.
        guarded = accumulate((nbytes + GUARD for nbytes in fifos.values()), initial=0)
        starts = dict(zip(fifos, guarded, strict=False))
        return cls(lines, starts, {name: starts[name] + fifos[name] for name in fifos})

    @cached_property
    def starts(self) -> Mapping[Region, int]:
        """Where each region starts, in bytes."""
        guarded = accumulate((nbytes + GUARD for nbytes in self.sizes.values()), initial=GUARD)
        return dict(zip(self.sizes, guarded, strict=False))

    @cached_property
    def nbytes(self) -> int:
        """Return the bytes of all regions of a rank and of their guards."""
        return sum(self.sizes.values()) + GUARD * (len(self.sizes) + 1)

    def guards(self, case: Case) -> Iterator[Guard]:
        """Yield all guards of a rank in a case; the buffers' guards start where the buffers end, not their regions."""
        buffers = {"receive buffer": (Region.RECEIVE, _sizes(case)[Region.RECEIVE])}
        if not case.in_place:
            buffers["send buffer"] = Region.SEND, _sizes(case)[Region.SEND]
        for name, (region, nbytes) in buffers.items():
            yield Guard(name, region, nbytes)
            yield Guard(name, region, case.misalignment - GUARD)
        yield Guard("staging buffer", Region.STAGING, self.sizes[Region.STAGING])
        for name, end in self.ends.items():
            yield Guard(f"FIFO of {name}", Region.WINDOW, WINDOW_HEAD + end)


def _sizes(case: Case) -> Mapping[Region, int]:
    """Bytes of each region that a case needs, those before a misaligned buffer among them."""
    size = case.dtype.itemsize
    send, receive = case.misalignment + case.send_count * size, case.misalignment + case.receive_count * size
    return {
        Region.SEND: LINE if case.in_place else send,
        Region.RECEIVE: max(send, receive) if case.in_place else receive,
        Region.STAGING: chunk_elements(case.block, case.ranks, size) * size,
    }


_LINES = 2 + 3 * 64  # before the flags by which all ranks meet: error and calls, then three of each block's channel
_ARRIVED = 2  # the first of the three; the previous rank writes there, and the next one into the second


def awaited(place: int, rank: int, ranks: int) -> str:
    """Return the writer of the word at `place` bytes in a rank's window on a CPU."""
    # kernels/world.cuh: error and calls, the flags of each block's channel, the flags by which all meet, the FIFOs.
    line = place // LINE
    if line >= WINDOW_HEAD // LINE:
        return "a packet"
    if line >= _LINES:
        return f"rank {(line - _LINES) % ranks}"
    return f"rank {(rank - 1) % ranks}" if line % 3 == _ARRIVED else f"rank {(rank + 1) % ranks}"


class Memory(Protocol):
    """Regions of memory on every rank, which kernels load and store."""

    layout: MemoryLayout
    _offset: int = 0  # bytes by which buffers start later, see `shifted`

    def address(self, region: Region, rank: int) -> int:
        """Return where a region of any rank starts, as this process's kernels may load and store it."""

    def multicast(self, region: Region) -> int:
        """Return where a switch loads and stores a region of all ranks at once; Unsupported without a switch."""
        raise Unsupported("no switch knows this memory")

    def shifted(self, offset: int) -> Self:
        """Return the same memory with the buffers of a bucket, `offset` bytes after those of the case."""
        other = copy.copy(self)
        other._offset = offset
        return other

    def _start(self, region: Region) -> int:
        return self.layout.starts[region] + (self._offset if region in SHIFTED else 0)


def buffers(memory: Memory, case: Case, rank: int) -> tuple[int, int]:
    """Return where the send and the receive buffer of a rank start; in place, both are in the receive region."""
    send, receive = case.places(rank)
    home = memory.address(Region.RECEIVE, rank) + case.misalignment
    origin = home if case.in_place else memory.address(Region.SEND, rank) + case.misalignment
    return origin + send * case.dtype.itemsize, home + receive * case.dtype.itemsize


def view(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes at an address of this process as an array, shape (nbytes,); the owner must outlive it."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def grid(units: int, threads: int, blocks: int) -> tuple[int, int]:
    """Return threads of a block, in whole warps, and blocks for `units` units of work.

    There are no more of either than units, but one warp: every block must be started, counted and waited for.
    """
    blocks = max(1, min(blocks, -(-units // threads)))
    if blocks == 1:
        threads = min(threads, max(1, -(-units // _WARP)) * _WARP)
    return threads, blocks

"""The bytes beside buffers that nobody may write."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collbench.algorithms import needs
from collbench.cases import Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.platforms.checking import POISON
from collbench.platforms.cpu.platform import CpuChecker
from collbench.platforms.layout import GUARD, UNTOUCHED, WINDOW_HEAD, Guard, MemoryLayout, Region
from collbench.requests.sweeps import MOST_UNALIGN
from collbench.results.facts import Overrun
from tests.conftest import case

SWEEP = Sweep((COLLECTIVES["allreduce"],), (1000, 4000), (DATATYPES["float"],), (REDUCTIONS["sum"],), 2, ("mpi",))


@pytest.mark.parametrize(("in_place", "unalign"), [(False, 0), (True, 0), (False, 1), (True, MOST_UNALIGN)])
def test_guards_lie_within_the_memory_and_beside_all_that_is_used(in_place: bool, unalign: int) -> None:
    cases = replace(SWEEP, in_place=in_place, unalign=unalign)
    layout = MemoryLayout.of(cases, needs(("ring-flags", "one-shot-ll"), 2, "cpu"))
    one = case(nbytes=1000, in_place=in_place, unalign=unalign)
    starts = [layout.starts[guard.region] + guard.start for guard in layout.guards(one)]
    assert min(starts) >= 0
    assert max(starts) + GUARD <= layout.nbytes
    window = layout.starts[Region.WINDOW]
    fifos = window + WINDOW_HEAD
    used = [(window, fifos), *((fifos + first, fifos + layout.ends[name]) for name, first in layout.fifos.items())]
    for region in (Region.RECEIVE,) if in_place else (Region.RECEIVE, Region.SEND):
        first = layout.starts[region] + 4 * unalign
        used.append((first, first + 1000))
    for start in starts:
        assert all(start + GUARD <= first or start >= end for first, end in used)


def test_a_buffer_is_guarded_where_it_ends_and_what_was_written_is_told_by_its_place() -> None:
    layout = MemoryLayout.of(SWEEP, needs((), 2, "cpu"))
    guards = [guard for guard in layout.guards(case(nbytes=1000)) if guard.region is Region.RECEIVE]
    assert [guard.start for guard in guards] == [1000, -GUARD]
    behind, before = Guard("send buffer", Region.SEND, 1000), Guard("send buffer", Region.SEND, -GUARD)
    held = bytearray(UNTOUCHED)
    assert behind.overrun(0, bytes(held)) is None
    held[8:12] = b"\0\0\0\0"
    assert behind.overrun(3, bytes(held)) == Overrun(3, "send buffer", 8, 4)
    assert before.overrun(3, bytes(held)) == Overrun(3, "send buffer", 11 - GUARD, 4)


def test_a_misaligned_receive_buffer_is_poisoned_to_its_end() -> None:
    misaligned = case(nbytes=1000, unalign=3)
    layout = MemoryLayout.of(replace(SWEEP, unalign=3), needs((), 2, "cpu"))
    held = np.zeros(layout.nbytes, np.uint8)
    memory: Any = SimpleNamespace(layout=layout, address=lambda region, _: held.ctypes.data + layout.starts[region])
    launcher: Any = SimpleNamespace(kernel=lambda *_: lambda *_: None, synchronize=lambda: None)
    team: Any = SimpleNamespace(rank=0)
    CpuChecker(team, memory, launcher).fill(misaligned, 1)
    first = layout.starts[Region.RECEIVE] + misaligned.misalignment
    assert (held[first : first + misaligned.nbytes] == POISON).all()

"""The bytes beside buffers that nobody may write."""

from dataclasses import replace
from itertools import pairwise

import pytest

from collbench.flaws import Overrun
from collbench.implementations import needs
from collbench.platforms.layout import GUARD, UNTOUCHED, Guard, Layout, Region
from tests.conftest import case
from tests.test_cases import sweep


def spans(layout: Layout, in_place: bool) -> list[tuple[int, int]]:
    """First byte and the one behind the last of every guard, in the memory of a rank."""
    one = case(nbytes=1000, in_place=in_place)
    starts = [layout.starts[guard.region] + guard.start for guard in layout.guards(one)]
    return sorted((start, start + GUARD) for start in starts)


@pytest.mark.parametrize("in_place", [False, True])
def test_guards_lie_beside_each_other_and_within_the_memory(in_place: bool) -> None:
    wanted = replace(sweep(1000, 4000), in_place=in_place)
    layout = Layout.of(wanted, needs(("ring-flags", "ring-ll", "one-shot-ll"), 2, "cpu"))
    found = spans(layout, in_place)
    assert found[0][0] >= 0
    assert found[-1][1] <= layout.nbytes
    assert all(behind[0] >= before[1] for before, behind in pairwise(found))


def test_a_buffer_is_guarded_where_it_ends_not_where_its_region_does() -> None:
    """The regions have room for the largest case."""
    layout = Layout.of(sweep(1000, 4000), needs((), 2, "cpu"))
    guards = [guard for guard in layout.guards(case(nbytes=1000)) if guard.region is Region.RECEIVE]
    assert [guard.start for guard in guards] == [1000, -GUARD]


def test_what_was_written_is_told_by_its_place() -> None:
    """From the end of the buffer, or from its start."""
    behind, before = Guard("send buffer", Region.SEND, 1000), Guard("send buffer", Region.SEND, -GUARD)
    held = bytearray(UNTOUCHED)
    assert behind.overrun(0, bytes(held)) is None
    held[8:12] = b"\0\0\0\0"
    assert behind.overrun(3, bytes(held)) == Overrun(3, "send buffer", 8, 4)
    assert before.overrun(3, bytes(held)) == Overrun(3, "send buffer", 11 - GUARD, 4)

"""Properties of a case's buffers, as used by titles, layouts, files and `--only`.

A property is a field of `Case` and of `Sweep` (cases.py), and an option of requests, all under one name.  The name of
an implementation, not the case, holds its library or path: `nccl@2.30.7`, `nccl@registered` (`results.facts.family`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collbench.units import counted


@dataclass(frozen=True)
class Property:
    """A property: its usual value, its presentation, and its effect on buffers."""

    name: str  # of the fields, of the column, and in run files
    usual: Any
    other: Any  # a value for which a sum must have the same bits
    subject: str  # name of the comparison of these bits
    title: Callable[[Any], str]  # the value in a title
    word: Callable[[Any], str]  # the value in names of figure files, and for `--only`
    value: Callable[[str], Any]  # parses a word of `--only`; None for other words
    shift: Callable[[Any], int] = lambda _: 0  # elements by which every buffer is shifted
    letter: str = ""  # of the nccl-tests option, if it prints the value above a table
    modelled: bool = True  # whether predictions support it


PROPERTIES = {
    each.name: each
    for each in (
        Property(
            "in_place",
            usual=False,
            other=True,
            subject="in place",
            title=lambda _: "in place",
            word=lambda _: "in-place",
            value={"in-place": True, "out-of-place": False}.get,
        ),
        Property(
            "unalign",
            usual=0,
            other=1,
            subject="alignment",
            title=lambda elements: f"misaligned by {counted(elements, 'element')}",
            word=lambda elements: f"unalign{elements}",
            value=lambda word: int(word[7:]) if re.fullmatch(r"unalign\d{1,9}", word) else None,
            shift=int,
            letter="u",
            modelled=False,
        ),
    )
}
"""All properties by name, in the order of titles."""

NCCL_TESTS = tuple(each for each in PROPERTIES.values() if each.letter)
"""The properties that are also options of nccl-tests."""

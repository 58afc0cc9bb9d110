"""The properties of a case that say how its buffers lie: titles, layouts, files and `--only` ask the record of each.

A property is a field of `Case` and of `Sweep` (cases.py), and an option of requests, all under one name.  An
implementation's name holds its library or path (`nccl@2.30.7`, `nccl@registered`); the case does not
(`results.facts.family`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collbench.units import counted


@dataclass(frozen=True)
class Property:
    """How a value that is not the usual one shows, and what it changes."""

    name: str  # of the fields, of the column, and of the fields of run files
    usual: Any
    other: Any  # a value under which a sum must have the same bits
    subject: str  # fields compared by these bits
    title: Callable[[Any], str]  # the value in a title
    word: Callable[[Any], str]  # in the name of a figure's file, and for `--only`
    value: Callable[[str], Any]  # that a word for `--only` means, also the usual one; None for other words
    shift: Callable[[Any], int] = lambda _: 0  # elements by which every buffer lies later
    letter: str = ""  # of the option, where nccl-tests has it too and says it above a table
    modelled: bool = True  # whether a prediction knows of it


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
"""The properties that are options of nccl-tests, too."""

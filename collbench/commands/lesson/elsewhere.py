"""What is known of other machines: numbers that others published, curves of the model, and what was measured there."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import msgspec

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.lesson import asset, table
from collbench.commands.lesson.content import LessonMachine
from collbench.commands.lesson.numbers import Numbers
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.results import Measurement

COMMITTED = "two-cores"
"""The place whose numbers stand in for those that could not be measured."""
ONE_STEP = "one-shot-ll"


def published() -> Mapping[str, Mapping[str, str]]:
    """Return every published number by its key: its value with its unit, what was measured, and the source."""
    numbers: Mapping[str, Mapping[str, str]] = table("published")["p"]
    return numbers


@cache
def places() -> Mapping[str, LessonMachine]:
    """Return the other machines by their names in the texts (assets/places.json, by tools/lesson_places.py)."""
    return msgspec.json.decode(asset("places.json"), type=dict[str, LessonMachine])


@cache
def numbers(place: str) -> Numbers:
    """Return the all-reduces of a place."""
    machine, rows = places()[place], []
    for name, times in machine.curves.items():
        for nbytes, seconds in times.items():
            rows.append(Measurement(allreduce(nbytes, machine.ranks), name, "gpu", launches=1, seconds=(seconds,)))
    shares = {(name, nbytes): parts for name, sizes in machine.shares.items() for nbytes, parts in sizes.items()}
    return replace(Numbers.of(rows), shares=shares)


def allreduce(nbytes: int, ranks: int) -> Case:
    """Return the sum of so many bytes of float."""
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, ranks, False)


def constants(measured: Numbers) -> tuple[float, float] | None:
    """Return seconds of a step, and bytes/s of a link: the least time of one step, and the most bytes in a time.

    A step is the least that `one-shot-ll` takes, where it was measured, since it has one.  None if its smallest
    message was disturbed, or every row.
    """
    rows = measured.timed.items()
    single = {nbytes: row.typical for (name, nbytes), row in rows if name == ONE_STEP}
    disturbed = [nbytes for name, nbytes in measured.disturbed if name == ONE_STEP]
    if not rows or min(disturbed, default=math.inf) < min(single, default=math.inf):
        return None
    least = min(single.values() or [row.typical for _, row in rows])

    # The least time is that of a single step, and the best rate that of a link.
    rates = [row.case.nbytes * link_of(name, row.case) / row.typical for (name, _), row in rows]
    return least, max(rates)


def link_of(name: str, case: Case) -> float:
    """Return the bytes through the busiest link for a byte of the array; unknown: those of an ideal ring."""
    implementation = implementations().get(name)
    if implementation and implementation.cost:
        return implementation.cost(case).link
    return case.collective.bus_factor(case.ranks)

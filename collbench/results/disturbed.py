"""Disturbed rows: ranks were off their cores in too many samples.

`Scheduling.disturbed` decides by the share of a row's spoiled samples (`SchedulingWatch.spoiled` in
platforms/processes.py). A disturbed row is shown, but left out of comparisons.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Protocol, Self

from collbench.records import Record
from collbench.results.facts import Outcome

DISTURBED_SHARE = 0.25
"""Share of samples with a rank off its core at which a result counts as disturbed."""


class Scheduling(Record, frozen=True):
    """The scheduling of CPU ranks during a result's samples.

    A rank that another program displaces from its core makes all ranks wait milliseconds for an operation of a
    microsecond.
    """

    off_core: float = 0.0  # share of samples with a rank off its core, after repeats
    repeated: int = 0  # samples repeated for that reason
    switches: int = 0  # involuntary context switches of all ranks, also in repeated samples
    cores: tuple[tuple[int, ...], ...] = ()  # cores of each rank; empty if unknown

    @property
    def disturbed(self) -> bool:
        """Whether too many samples are spoiled."""
        return self.off_core > DISTURBED_SHARE

    def __str__(self) -> str:
        """Return text such as `disturbed: ranks had to wait for a core in 80% of the samples`, or ""."""
        if not self.disturbed:
            return ""
        return f"disturbed: ranks had to wait for a core in {self.off_core:.0%} of the samples"

    @classmethod
    def of_ranks(cls, spoiled: Sequence[Sequence[bool]]) -> Self:
        """Return the scheduling of samples, given whether each rank was off its core."""
        samples = [any(ranks) for ranks in zip(*spoiled, strict=True)]
        return cls(sum(samples) / max(1, len(samples)))

    @classmethod
    def joined(cls, rounds: Iterable[tuple[Self | None, int]]) -> Self | None:
        """Return the combined scheduling of rounds, weighted by samples; None if none is known."""
        known = [(part, samples) for part, samples in rounds if part]
        if not known:
            return None
        parts = [part for part, _ in known]
        spoiled, taken = sum(part.off_core * samples for part, samples in known), sum(samples for _, samples in known)
        cores_of_ranks = zip_longest(*(part.cores for part in parts), fillvalue=())
        return cls(
            off_core=spoiled / max(1, taken),
            repeated=sum(part.repeated for part in parts),
            switches=sum(part.switches for part in parts),
            cores=tuple(tuple(sorted({*chain(*cores)})) for cores in cores_of_ranks),
        )


class Row(Protocol):
    """The members of a result that this module uses."""

    @property
    def scheduling(self) -> Scheduling | None:
        """The scheduling of its ranks, if known."""

    @property
    def disturbed(self) -> bool:
        """Whether its ranks were off their cores too often."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of its case."""


def disturbed_in_words(rows: Sequence[Row]) -> str:
    """Return the number of disturbed rows, with advice, or ""."""
    disturbed = [row for row in rows if row.disturbed]
    if not disturbed:
        return ""
    others, helps = " or other ranks", "Close them, leave out --bind none,"

    # A rank that stayed on one core was bound to it, so no other rank displaced it.
    if any(row.scheduling and max(map(len, row.scheduling.cores), default=1) == 1 for row in disturbed):
        others, helps = "", "Close them"
    judged = sum(row.outcome is not Outcome.SKIPPED for row in rows)
    return disturbed_count_in_words(len(disturbed), judged, others, helps)


def disturbed_count_in_words(disturbed: int, rows: int, others: str = "", helps: str = "Close them") -> str:
    """Return how many measurements other programs (and these *others*) disturbed, with advice."""
    was, are = ("was", "is") if disturbed == 1 else ("were", "are")
    return (
        f"{disturbed} of {rows} measurements {was} disturbed by other programs{others} and {are} left out of "
        f"comparisons. {helps} and run again."
    )


def all_disturbed(rows: Iterable[Row]) -> str:
    """Return a remark, with advice, if all rows with a time are disturbed, else ""."""
    timed = [row.disturbed for row in rows if row.outcome is not Outcome.SKIPPED]
    return "all rows were disturbed by other programs: close them and run again" if timed and all(timed) else ""

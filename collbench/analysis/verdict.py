"""What a verdict on measured times rests on: whether the results are right, and which sizes are far out of line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Self

from collbench.analysis.gate import INCONCLUSIVE, PASSED, REGRESSION
from collbench.notebook import Shown
from collbench.results import Outcome, Reported, Result, Timed
from collbench.results.base import FromModel
from collbench.units import format_size, printable

FAR = 1.25
"""Times the upper end of its band from which on a size is an exception: one in ten is outside, but not so far.

Of published healthy machines that the model has not seen, 5 of 1837 sizes are, each where the library's tuning jumps.
"""
MANY = 4
"""A curve is slow if one in so many of its sizes is an exception: of 315 published healthy ones, at most 2 of 19."""
ALONE = 4.0
"""Times the upper end of its band beyond which a single size fails a check: of 6703 published healthy ones that the
model has not seen, the farthest is at 1.8 times."""
LISTED = 3  # exceptions or faults that are named; the others are counted


class Status(Enum):
    """The word of a verdict, the worst last: what is not known is no mere warning."""

    OK = "OK"
    WARN = "WARN"
    UNKNOWN = "UNKNOWN"
    FAIL = "FAIL"


EXITS: Mapping[str, Mapping[Status, int]] = {
    "plain": {Status.OK: 0, Status.WARN: 0, Status.FAIL: 3, Status.UNKNOWN: 4},
    "nagios": {Status.OK: 0, Status.WARN: 1, Status.FAIL: 2, Status.UNKNOWN: 3},
    "npd": {Status.OK: 0, Status.WARN: 0, Status.FAIL: 1, Status.UNKNOWN: 2},
}
"""Exit statuses: those of `compare --gate`, of Nagios' plugins, and of node-problem-detector's."""
_NAGIOS = {Status.OK: "OK", Status.WARN: "WARNING", Status.FAIL: "CRITICAL", Status.UNKNOWN: "UNKNOWN"}
_NPD_LENGTH = 80  # bytes of a message that node-problem-detector keeps


def line_of(exits: str, status: Status, words: str) -> str:
    """Return words, of an error too, as Nagios or node-problem-detector expects the first line of standard output."""
    words = printable(words)
    if exits == "nagios":  # to which performance data begins at a bar
        return f"COLLBENCH {_NAGIOS[status]}: {words.replace('|', '/')}"
    return f"collbench: {status.value} {words}".encode()[:_NPD_LENGTH].decode(errors="ignore")


class Health(Enum):
    """Of a curve, or of a run by the worst of its curves; the worst first."""

    WRONG = "wrong"  # a result is wrong, or missing because a case failed; no time makes up for it
    SLOW = "slow"
    UNKNOWN = "unknown"
    FASTER = "faster than modelled"
    AS_EXPECTED = "as expected"


@dataclass(frozen=True)
class Correctness(Shown):
    """What became of the rows of a curve or of a run."""

    right: int = 0  # with a time, and nothing known to be wrong
    unchecked: int = 0  # of these, reported by a tool that did not check
    disturbed: int = 0  # of these, with times that say more of the machine, which are not judged
    faults: tuple[Result, ...] = ()  # wrong or failed
    untried: int = 0  # skipped by an implementation that has faults

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Count results; those that an implementation cannot do by its nature, and predictions, are not counted."""
        right, faults, skipped = [], [], []
        for result in results:
            if result.outcome.bad:
                faults.append(result)
            elif result.outcome is Outcome.SKIPPED:
                skipped.append(result.implementation)
            elif result.outcome is not Outcome.PREDICTED:
                right.append(result)
        broken = {fault.implementation for fault in faults}
        return cls(
            right=len(right),
            unchecked=sum(isinstance(result, Reported) and result.wrong_elements is None for result in right),
            disturbed=sum(result.outcome is Outcome.DISTURBED for result in right),
            faults=tuple(faults),
            untried=sum(name in broken for name in skipped),
        )

    @property
    def total(self) -> int:
        """Rows that should be right."""
        return self.right + len(self.faults) + self.untried

    def in_words(self, named: bool = True) -> str:
        """Return `28 of 30 rows right; WRONG: 1 MiB, ring-flags: rank 1, ...`; `named` with the implementations."""
        words = [f"{self.right - self.unchecked} of {self.total} rows right"]
        if self.unchecked == self.total > 0:
            words = [f"{self.total} rows, none of them checked"]
        elif self.unchecked:
            words.append(f"{self.unchecked} not checked")
        if self.disturbed:
            words.append(f"{self.disturbed} disturbed by other programs and not judged")
        words += [_fault(fault, named) for fault in self.faults[:LISTED]]
        if len(self.faults) > LISTED:
            words.append(f"and {len(self.faults) - LISTED} more wrong or failed")
        if self.untried:
            words.append(f"{self.untried} not tried after that")
        return "; ".join(words)


def _fault(fault: Result, named: bool) -> str:
    name = (fault.case.collective.name, fault.implementation) if named else ()
    return printable(f"{' '.join((format_size(fault.case.nbytes), *name))}: {fault.problem}")


class Exceptional(NamedTuple):
    """A size that is far above its band."""

    nbytes: int
    ratio: float  # measured over expected seconds
    beyond: float  # measured seconds over the upper end of its band

    def __str__(self) -> str:
        return f"{format_size(self.nbytes)} {self.ratio:.1f}x slow"


def exceptions(rows: Sequence[Timed], expected: Sequence[FromModel]) -> tuple[Exceptional, ...]:
    """Return the sizes of a curve whose times are far above their bands, the worst first."""
    far = []
    for row, other in zip(rows, expected, strict=True):
        beyond = row.typical / other.band[1]
        if beyond > FAR:
            far.append(Exceptional(row.case.nbytes, row.typical / other.typical, beyond))
    return tuple(sorted(far, key=lambda size: -size.ratio))


def listed(far: Sequence[Exceptional], sizes: int) -> str:
    """Return `2 of 30 sizes: 1 MiB 13.4x slow, 4 MiB 2.1x slow`."""
    more = [f"{len(far) - LISTED} more"] if len(far) > LISTED else []
    return f"{len(far)} of {sizes} sizes: {', '.join([*map(str, far[:LISTED]), *more])}"


def but_for(far: Sequence[Exceptional], sizes: int) -> str:
    """Return the same behind ` but for `; empty where there is no exception."""
    return f" but for {listed(far, sizes)}" if far else ""


def status(verdicts: Iterable[tuple[Health, bool]]) -> int:
    """Return the exit status for verdicts, each with whether it has exceptions: that of `compare --gate`."""
    every = list(verdicts)
    if any(health in (Health.SLOW, Health.WRONG) for health, _ in every):
        return REGRESSION
    unsure = not every or any(health is Health.UNKNOWN or excepted for health, excepted in every)
    return INCONCLUSIVE if unsure else PASSED

"""What overlap hides: communication that is exposed with it and without, and what computing pays for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeGuard

from collbench.analysis.rounds import Estimate, by_round, estimated
from collbench.cases import COMMUNICATE, COMPUTE, SEQUENTIAL, Step
from collbench.results import Result, StepPrediction, StepRow, StepTimes
from collbench.units import format_seconds, format_size

HELPS, COSTS, INCONCLUSIVE = "helps", "costs", "inconclusive"


@dataclass(frozen=True)
class Overlap:
    """A step by one implementation and schedule, beside the same step one part after the other, and its parts alone."""

    row: StepRow
    sequential: StepRow
    compute: StepRow
    communicate: StepRow

    @property
    def step(self) -> Step:
        """How it is carried out."""
        assert self.row.case.step
        return self.row.case.step

    def _rounds(self) -> Sequence[tuple[float, float, float, float]]:
        """Seconds of a step in every round: overlapped, sequential, computing alone, communicating alone."""
        rows = (self.row, self.sequential, self.compute, self.communicate)
        return list(zip(*map(by_round, rows), strict=False))

    @property
    def gain(self) -> Estimate:
        """How many times as fast as one part after the other."""
        return estimated([sequential / own for own, sequential, _, _ in self._rounds()])

    @property
    def bound(self) -> float:
        """Seconds of a step that would hide all it can: the longer part alone."""
        return max(self.compute.typical, self.communicate.typical)

    @property
    def hidden(self) -> Estimate:
        """What is hidden of what could be, from what it costs one part after the other down to the bound."""
        return estimated(
            [
                (sequential - own) / could
                for own, sequential, compute, communicate in self._rounds()
                if (could := sequential - max(compute, communicate)) > 0
            ]
            or [float("nan")]
        )

    @property
    def exposed(self) -> Estimate:
        """Seconds of a step beyond computing alone."""
        return estimated([own - compute for own, _, compute, _ in self._rounds()])

    @property
    def slowdown(self) -> Estimate:
        """How many times as long computing takes while the rank communicates."""
        return estimated(
            [own / alone for own, alone in zip(_computing(self.row), _computing(self.compute), strict=False)]
        )

    @property
    def verdict(self) -> str:
        """Whether it helps: all of the gain's interval decides; a prediction has none, and is taken at its word."""
        if isinstance(self.row, StepPrediction):
            return HELPS if self.gain.value > 1 else COSTS
        if not self.gain.known or self.gain.low <= 1 <= self.gain.high:
            return INCONCLUSIVE
        return HELPS if self.gain.low > 1 else COSTS


def _computing(result: StepRow) -> list[float]:
    """Seconds of a step in which a rank computes, by round."""
    if isinstance(result, StepPrediction):
        return [result.computing()]
    means = [fmean(series.computing(rank) for rank in range(series.ranks)) for series in result.series]
    counts = result.rounds or (1,) * len(means)
    return [fmean(means[sum(counts[:place]) :][:count]) for place, count in enumerate(counts)]


def overlaps(results: Iterable[Result]) -> list[Overlap]:
    """All that can be told from these rows, in their order."""
    rows = [result for result in results if _timed(result)]
    alone = {(row.case.kind_of_step, _name(row), _schedule(row)): row for row in rows}
    found = []
    for row in rows:
        kind, name = row.case.kind_of_step, row.implementation
        parts = (
            alone.get((kind, name, SEQUENTIAL)),
            alone.get((kind, "", COMPUTE)),
            alone.get((kind, name, COMMUNICATE)),
        )
        sequential, compute, communicate = parts
        if sequential and compute and communicate and _schedule(row) not in (COMPUTE, COMMUNICATE, SEQUENTIAL):
            found.append(Overlap(row, sequential, compute, communicate))
    return found


def _timed(result: Result) -> TypeGuard[StepRow]:
    return isinstance(result, StepPrediction) or (
        isinstance(result, StepTimes) and result.right and not result.disturbed
    )


def _schedule(row: StepRow) -> str:
    return row.case.step.schedule if row.case.step else ""


def _name(row: StepRow) -> str:
    """Whoever computes alone, communicates in nobody's way."""
    return "" if _schedule(row) == COMPUTE else row.implementation


def best(found: Sequence[Overlap]) -> Overlap | None:
    """The fastest of them by its median."""
    return min(found, key=lambda one: one.row.typical, default=None)


def best_of_schedules(found: Sequence[Overlap]) -> list[Overlap]:
    """The fastest of every implementation and schedule."""
    groups: dict[tuple[str, str], list[Overlap]] = {}
    for one in found:
        groups.setdefault((one.row.implementation, one.step.schedule), []).append(one)
    return [fastest for own in groups.values() if (fastest := best(own))]


def as_good(fastest: Overlap, others: Iterable[Overlap]) -> list[Overlap]:
    """Those that are not told apart from it: the interval of the ratio, round by round, has 1 in it."""

    def ratio(other: Overlap) -> Estimate:
        pairs = zip(by_round(other.row), by_round(fastest.row), strict=False)
        return estimated([theirs / own for theirs, own in pairs])

    return [other for other in others if other is not fastest and not ratio(other).low > 1]


def verdict(fastest: Overlap, own: Sequence[Overlap]) -> str:
    """Whether overlap helps, by how much, with what buckets, and why not if it does not."""
    step, note = fastest.step, str(fastest.row.note)
    before, after = format_seconds(fastest.sequential.typical), format_seconds(fastest.row.typical)
    words = {HELPS: "overlap helps", COSTS: "overlap costs more than it hides"}
    judged = words.get(fastest.verdict, "inconclusive, 1 is in the interval")
    others = {one.step.bucket for one in as_good(fastest, own) if one.step.way == step.way}
    said = [
        f"{fastest.row.label}: {step.way} with buckets of {format_size(step.bucket)} is fastest: "
        f"{before} -> {after}, {fastest.gain.text('x')}: {judged}",
        f"nothing could be below {format_seconds(fastest.bound)}, the longer part alone",
        f"computing takes {fastest.slowdown.text('x')} as long meanwhile" if fastest.slowdown.value > 1.05 else "",
        f"not told apart from buckets of {', '.join(map(format_size, sorted(others)))}" if others else "",
    ]
    return "; ".join(filter(None, said)) + (f" ({note})" if note else "")


def verdicts(results: Iterable[Result]) -> list[str]:
    """One for every implementation, of its fastest way."""
    found = overlaps(results)
    groups = (
        [one for one in found if one.row.implementation == name]
        for name in dict.fromkeys(one.row.implementation for one in found)
    )
    return [verdict(fastest, own) for own in groups if (fastest := best(own))]

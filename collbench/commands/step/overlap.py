"""Overlap: exposed and hidden communication, gain, and slowdown of computing."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean

from collbench.cases import Case
from collbench.commands.step.rows import StepPrediction, StepRow
from collbench.commands.step.scaling import by_round, in_rounds, is_timed
from collbench.commands.step.work import COMMUNICATE, COMPUTE, SEQUENTIAL, step_of
from collbench.results import Result, by_key
from collbench.stats import Estimate
from collbench.units import format_seconds, format_size

HELPS, COSTS, INCONCLUSIVE = "overlap helps", "overlap costs more than it hides", "inconclusive"


@dataclass(frozen=True)
class Overlap:
    """An overlapped step by an implementation and a schedule, its sequential form, and its parts alone."""

    row: StepRow
    sequential: StepRow
    compute: StepRow
    communicate: StepRow

    def _rounds(self) -> Iterator[tuple[float, float, float, float]]:
        """Yield the seconds of a step in every round: overlapped, sequential, computing alone, communicating alone."""
        rows = (self.row, self.sequential, self.compute, self.communicate)
        yield from zip(*map(by_round, rows), strict=False)

    @property
    def gain(self) -> Estimate:
        """Return the speed-up over the sequential step."""
        return Estimate.of_median([sequential / overlapped for overlapped, sequential, _, _ in self._rounds()])

    @property
    def bound(self) -> float:
        """Return the seconds of a step with perfect overlap: the longer part alone."""
        return max(self.compute.typical, self.communicate.typical)

    @property
    def hidden(self) -> Estimate:
        """Return the hidden share of what can be hidden: 0 is the sequential step, 1 the longer part alone."""
        shares = []
        for overlapped, sequential, compute, communicate in self._rounds():
            possible = sequential - max(compute, communicate)
            if possible > 0:
                shares.append(round((sequential - overlapped) / possible, 9) + 0.0)  # 0, not -0
        return Estimate.of_median(shares or [float("nan")])

    @property
    def exposed(self) -> Estimate:
        """Return the seconds of a step beyond computing alone."""
        return Estimate.of_median([overlapped - compute for overlapped, _, compute, _ in self._rounds()])

    @property
    def slowdown(self) -> Estimate:
        """Return the computing time with overlap over that alone."""
        pairs = zip(_computing(self.row), _computing(self.compute), strict=False)
        return Estimate.of_median([overlapped / alone for overlapped, alone in pairs])

    @property
    def verdict(self) -> str:
        """Return whether overlap helps, by the whole interval of the gain; a prediction has only a value."""
        if isinstance(self.row, StepPrediction):
            return HELPS if self.gain.value > 1 else COSTS
        if not self.gain.known or self.gain.holds(1):
            return INCONCLUSIVE
        return HELPS if self.gain.surely_above(1) else COSTS


def _computing(result: StepRow) -> list[float]:
    """Return the seconds of a step in which a rank computes, by round."""
    if isinstance(result, StepPrediction):
        return [result.parts.computing]
    means = [fmean(series.parts(rank).computing for rank in range(series.ranks)) for series in result.series]
    return in_rounds(means, result.rounds)


def kind_of_step(case: Case) -> Case:
    """Return the case without schedule and bucket, as a key for comparable steps."""
    return replace(case, work=replace(step_of(case), schedule="", bucket=0))


def overlaps(results: Iterable[Result]) -> list[Overlap]:
    """Return all overlapped steps whose parts alone were measured too, in the order of the rows."""
    rows = [row for row in filter(is_timed, results) if row.case.work]
    by_schedule: dict[object, StepRow] = {}
    for row in rows:
        # Computing alone is measured with one implementation, and compared with all.
        schedule = step_of(row.case).schedule
        communicator = "" if schedule == COMPUTE else row.implementation
        by_schedule[kind_of_step(row.case), communicator, schedule] = row
    complete = []
    for row in rows:
        if step_of(row.case).schedule in (COMPUTE, COMMUNICATE, SEQUENTIAL):
            continue
        kind, name = kind_of_step(row.case), row.implementation
        sequential = by_schedule.get((kind, name, SEQUENTIAL))
        compute = by_schedule.get((kind, "", COMPUTE))
        communicate = by_schedule.get((kind, name, COMMUNICATE))
        if sequential and compute and communicate:
            complete.append(Overlap(row, sequential, compute, communicate))
    return complete


def verdict(fastest: Overlap) -> str:
    """Return a line: the fastest schedule and bucket size, its gain, the bound, and the slowdown of computing."""
    step, note = step_of(fastest.row.case), str(replace(fastest.row.note, buffers=""))
    before, after = format_seconds(fastest.sequential.typical), format_seconds(fastest.row.typical)
    parts = [
        f"{fastest.row.label}: {step.schedule} with buckets of {format_size(step.bucket)} is fastest: "
        f"{before} -> {after}, {fastest.gain.text(unit='x')}: {fastest.verdict}",
        f"the longer part alone takes {format_seconds(fastest.bound)}",
    ]
    if fastest.slowdown.value > 1.05:
        parts.append(f"overlapped computing takes {fastest.slowdown.text(unit='x')} as long")
    line = "; ".join(parts)
    return f"{line} ({note})" if note else line


def verdicts(results: Iterable[Result]) -> list[str]:
    """Return a line on the fastest schedule of each implementation, the fastest implementation first."""
    by_implementation = by_key(overlaps(results), lambda overlap: overlap.row.implementation)
    fastest = [min(members, key=lambda overlap: overlap.row.typical) for members in by_implementation.values()]
    fastest.sort(key=lambda overlap: overlap.row.typical)
    return [verdict(overlap) for overlap in fastest]

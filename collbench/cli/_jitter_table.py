"""Who is late, as lines of text: the table of rows, what is known of every rank, the noise, and the verdict."""

from collections.abc import Iterator, Sequence

import numpy as np

from collbench.analysis.jitter import noise
from collbench.analysis.jitter.accusation import Testimony, verdict
from collbench.analysis.jitter.judgement import signed, verdicts
from collbench.analysis.jitter.lateness import Steps, witnesses
from collbench.analysis.jitter.maximum import expected_maximum
from collbench.analysis.jitter.tails import PERCENTS, Tail, tail
from collbench.results import Result, StepTimes, Untimed
from collbench.units import format_seconds

LEGEND = (
    "step: mean of a series, its median over series; percentiles are of single steps, - where too few were measured\n"
    "computing, waiting (for others to have computed), exposed (communication that no computing hides): means\n"
    "last: in what share of the steps a rank was the last to have computed; late: when it had computed, behind the\n"
    "median of the others: median of stretches of steps, with an interval of 99 % for all ranks together\n"
    "costs: what the others wait where it is the last, of the time of all steps"
)
_ROW = "{name:<16} {step:>9} {interval:>7} {p50:>9} {p99:>9} {p999:>9} {computing:>9} {waiting:>9} {exposed:>9}  {note}"
_RANK = "  {rank:>4} {last:>6} {late:>9} {interval:<22} {p99:>9} {p999:>9} {computes:>9} {costs:>6}"
_SHOWN = 8  # ranks of a row: those that cost most
RANKS = (8, 64, 1024, 16384)
"""For how many ranks a step is expected."""


def heading() -> str:
    """The names of the columns."""
    names = {name: name for name in ("step", "p50", "p99", "computing", "waiting", "exposed")}
    return _ROW.format(name="", interval="± 95 %", p999="p99.9", note="", **names).rstrip()


def row(result: Result) -> str:
    """One implementation."""
    if isinstance(result, Untimed):
        return f"{result.label:<16} {'skipped' if result.outcome.name == 'SKIPPED' else 'FAILED'}: {result.reason}"
    if not isinstance(result, StepTimes) or not result.right:
        return f"{result.label:<16} {f'WRONG: {result.wrong}' if result.wrong else 'not timed'}"
    steps = Steps.of(result.series)
    tails = [_of_tail(tail(steps.seconds, percent)) for percent in PERCENTS]
    parts = {name: format_seconds(getattr(result, name)()) for name in ("computing", "waiting", "exposed")}
    return _ROW.format(
        name=result.label,
        step=format_seconds(result.typical),
        interval=_halfwidth(result),
        note="; ".join(filter(None, [result.check, str(result.note)])),
        **dict(zip(("p50", "p99", "p999"), tails, strict=True)),
        **parts,
    ).rstrip()


def _halfwidth(result: StepTimes) -> str:
    low, high = result.interval
    return f"{(high - low) / 2 / result.typical:.1%}" if np.isfinite(high) else "?"


def _of_tail(known: Tail | None) -> str:
    return format_seconds(known.value) if known else "-"


def sections(results: Sequence[Result]) -> Iterator[str]:
    """What is known of every row, and the verdict on all."""
    for result, steps in witnesses(results):
        yield ""
        yield from _section(result, steps)
    for line in verdicts(results):
        yield ""
        yield line


def _section(result: StepTimes, steps: Steps) -> Iterator[str]:
    yield (
        f"{result.label}: {steps.count} steps in {len(steps.lengths)} series; "
        f"moments of two ranks are off by at most {format_seconds(result.clock)}"
    )
    names = {"rank": "rank", "last": "last", "late": "late", "interval": "", "p99": "p99", "p999": "p99.9"}
    yield _RANK.format(**names, computes="computes", costs="costs").rstrip()
    own = verdict([steps])
    order = sorted(range(steps.ranks), key=steps.cost, reverse=True)
    for rank in order[:_SHOWN]:
        yield _rank(steps, own.testimonies[rank])
    if len(order) > _SHOWN:
        yield f"  ... and {len(order) - _SHOWN} ranks that cost less"
    yield f"  steps: {'; '.join(_in_full(percent, tail(steps.seconds, percent)) for percent in PERCENTS)}"
    yield f"  {_noise(steps)}"
    yield from _larger(result, steps)


def _in_full(percent: float, known: Tail | None) -> str:
    if known is None:
        return f"p{percent:g} unknown, too few steps"
    return f"p{percent:g} {format_seconds(known.value)} ({format_seconds(known.low)} .. {format_seconds(known.high)})"


def _rank(steps: Steps, testimony: Testimony) -> str:
    rank = testimony.rank
    late = steps.late[rank]
    p99, p999 = (_of_tail(tail(late, percent)) for percent in PERCENTS[1:])
    return _RANK.format(
        rank=rank,
        last=f"{steps.last_share(rank):.0%}",
        late=signed(testimony.late * steps.typical),
        interval=f"({' .. '.join(signed(share * steps.typical) for share in testimony.interval)})",
        p99=p99,
        p999=p999,
        computes=format_seconds(float(np.median(steps.computing[rank]))),
        costs=f"{steps.cost(rank):.1%}",
    )


def _noise(steps: Steps) -> str:
    """What the times of steps remember, and whether they repeat."""
    remembered = noise.autocorrelation(steps, 1)[1]
    line = noise.period(steps)
    told = f"noise: a step is {remembered:+.2f} correlated with the next"
    if line is None:
        return f"{told}; no period"
    return f"{told}; period {format_seconds(line.seconds)} ({1 / line.seconds:.3g} Hz)"


def _larger(result: StepTimes, steps: Steps) -> Iterator[str]:
    """What a step would take on more ranks that are as these are; first on as many, where it was measured too."""
    exposed = result.exposed()
    yield "  a step of more ranks such as these, each disturbed by itself, with communication as here:"
    for ranks in (steps.ranks, *(more for more in RANKS if more > steps.ranks)):
        one = expected_maximum(steps.computing, ranks)
        low, high = (format_seconds(seconds + exposed) for seconds in (one.low, one.high))
        remark = f"measured {format_seconds(float(steps.seconds.mean()))}" if ranks == steps.ranks else ""
        remark = "at least: beyond the longest that was measured" if one.at_least else remark
        yield f"  {ranks:>7} {format_seconds(one.value + exposed):>9} {f'({low} .. {high})':<22} {remark}".rstrip()

"""Tables of measured, predicted and imported results, row by row."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple, cast

from collbench.analysis.crossover import Times, Tradeoff, buffers_in_words
from collbench.analysis.roofline import share_in_words
from collbench.present.columns import ALWAYS, Column
from collbench.present.terminal import Table
from collbench.results import Explanation, Observed, Prediction, Result, Timed
from collbench.results.collectives import sample_in_words
from collbench.units import counted, digits, format_range, format_rate, format_seconds, format_size, significant

LEGEND = "time: median, slowest rank; algbw, busbw: GB/s; vs: the other's time over this row's, above 1 is faster"
REPORTED_LEGEND = (
    "time: {figures}, as the log reports; collbench has not checked the results\n"
    "algbw, busbw: GB/s, 1e9 bytes/s, computed from size and time"
)
EXPECTED_LEGEND = "algbw, busbw: GB/s; vs: the other's time over this row's, above 1 is faster"
EXPLAIN_LEGEND = (
    "time: median of one operation; parts: shares of the median operation, averaged over ranks\n"
    "waited: for another rank or the host; moved: copied bytes; added: reduced and moved;\n"
    "published: barriers, fences, flags; launch: the rest, for example the start of the kernel;\n"
    "tracing: time added by the log"
)
WIRES_LEGEND = (
    "bytes: per element; vs exact, vs lib: speed-up over the fastest of them; from: smallest size with a speed-up\n"
    "errors: relative to the RMS of exact sums; bias: of the mean over all rounds; fed: losses enter the next round"
)
RAN_LEGEND = "ran: algorithm and protocol from NCCL's log; symm: a kernel for symmetric buffers; ce: copy engines"
ESTIMATE = "estimate: NCCL's prediction of the time, from its own tables"
SHARED = "no busbw: {sharing}, and within a GPU there is no bus"
NAME = 16  # characters of an implementation's name
EXTRAS = "percentiles", "report_cputime", "memory_report"
"""Optional columns; options of `collbench sweep` have these names."""
_SPREAD = (("min", 0), ("p95", 95), ("p99", 99), ("max", 100))


class Compared(NamedTuple):
    """A row: a result, and the library's result for the same case to compare it with."""

    result: Timed
    library: Timed | None = None

    @property
    def problem(self) -> str:
        """The reason for a missing time; some tools print rows without times."""
        result = self.result
        if result.problem or result.typical > 0:
            return result.problem
        return remarks("no time", result)

    @property
    def digits(self) -> int:
        """The number of significant digits of the time."""
        return digits(_halfwidth(self.result) or 0)

    @property
    def ratio(self) -> str:
        """The library's time over this row's time; empty for the library itself and for an unsure row."""
        result, library = self.result, self.library
        if not library or library is result or result.unsure:
            return ""
        speedup = library.typical / result.typical
        count = max(2, digits(math.hypot(_halfwidth(result) or 0, _halfwidth(library) or 0)))
        return f"{significant(speedup, count, 2)}x" if speedup >= 0.01 else f"{speedup:.1g}x"


def _rate(row: Compared, rate: float) -> str:
    """Return a bandwidth with as many digits as the time has; empty for a barrier."""
    return format_rate(rate, row.digits) if row.result.case.collective.sized else ""


def _busbw(row: Compared) -> str:
    """Return the bus bandwidth; empty for ranks that share a GPU, which no link connects."""
    return "" if row.result.note.shared else _rate(row, row.result.busbw)


def _halfwidth(result: Timed) -> float | None:
    """Return half the interval of the median over the median; None if there are too few samples."""
    if isinstance(result, Observed) and math.isfinite(result.relative_halfwidth):
        return result.relative_halfwidth
    return None


def _percentage(half: float) -> str:
    if half >= 10:
        return ">999%"
    return f"{half:.1%}" if half < 0.1 else f"{half:.0%}"


SIZE: Column[Compared] = Column("size", lambda row: row.result.case.nbytes, format_size, form=">9")
TIME: Column[Compared] = Column("time", lambda row: format_seconds(row.result.typical, row.digits), form=">9")
INTERVAL: Column[Compared] = Column("± 95 %", lambda row: _halfwidth(row.result), _percentage, 10, ">7")
ALGBW: Column[Compared] = Column("algbw", lambda row: _rate(row, row.result.algbw), importance=3, form=">8")
BUSBW: Column[Compared] = Column("busbw", _busbw, importance=11, form=">8")
BAND: Column[Compared] = Column(
    "nine in ten", lambda row: format_range(*row.result.band, format_seconds), str, 5, ">18"
)
ALGORITHM: Column[Compared] = Column("algorithm", lambda row: row.result.method, importance=4, form="<16")
RAN: Column[Compared] = Column("ran", lambda row: _ran(row.result), importance=7, form="<11")
PROBLEM: Callable[[Compared], str] = attrgetter("problem")
CHECK: Column[Compared] = Column("check", lambda row: remarks(row.result.check, row.result))


def _ran(result: Timed) -> str:
    """Return the library's method in few characters; only rings and trees have several protocols."""
    return result.method if result.algorithm in ("ring", "tree") else result.algorithm


def _name(width: int, row: Compared) -> str:
    """Return the implementation, with the version of a library if it fits into the width."""
    return row.result.label if len(row.result.label) <= width else row.result.implementation


def timed_table(
    library: str = "",
    modelled: bool = False,
    extra: Collection[str] = (),
    estimates: bool = False,
    ran: bool = False,
    bus: bool = True,
    width: int = NAME,
) -> Table[Compared]:
    """Return a table for measured, imported or predicted (`modelled`) results.

    *library* adds the column "vs", *extra* some of EXTRAS, *estimates* the library's own estimates and *ran* its
    algorithms.  *bus* is false if ranks share a GPU.  *width* is the length of the longest implementation's name.
    """
    # Predictions have no samples and no versions of libraries.
    if modelled:
        extra, estimates, ran, width = (), False, False, NAME
    name: Column[Compared] = Column("", partial(_name, width), form=f"<{width}")
    columns = [SIZE, name, TIME, BAND if modelled else INTERVAL]
    if "percentiles" in extra:
        columns += [Column(name, partial(_percentile, percent), format_seconds, 1, ">9") for name, percent in _SPREAD]
    if ran:
        columns.append(RAN)
    if estimates:
        columns.append(Column("estimate", lambda row: row.result.estimate, format_seconds, 2, ">9"))
    if "report_cputime" in extra:
        columns.append(Column("enqueue", lambda row: row.result.enqueue, format_seconds, 9, ">9"))
    if "memory_report" in extra:
        columns.append(Column("memory", lambda row: row.result.library_bytes, format_size, 9, ">9"))
    columns.append(ALGBW)
    if modelled:
        columns.append(replace(BUSBW, importance=6))
    elif bus:
        columns.append(BUSBW)
    if library:
        columns.append(Column(f"vs {library}", lambda row: row.ratio, importance=12, form=">8"))
    columns += [ALGORITHM, replace(CHECK, name="")] if modelled else [CHECK]
    return Table(columns, PROBLEM)


def _percentile(percent: float, row: Compared) -> float | None:
    return row.result.percentile(percent) if isinstance(row.result, Observed) else None


def row(result: Result, library: Timed | None = None, table: Table[Compared] | None = None) -> str:
    """Return a result as a row; `library` is the library's result for the same case, to compare it with.

    Without a `table`, the row belongs to a table with a ratio if `library` is given.
    """
    if isinstance(result, Explanation):
        return EXPLAIN.row(result)
    if table is None:
        versus = "library" if library else ""
        table = timed_table(versus, isinstance(result, Prediction), bus=not result.note.shared)
    return table.row(Compared(cast("Timed", result), library))


def _part(name: str, importance: int = ALWAYS, form: str = ">8") -> Column[Explanation]:
    return Column(name, lambda result: result.share(name) if result.tracks else None, "{:.0%}".format, importance, form)


def _explained(result: Explanation) -> str:
    remarks = [result.altered, str(result.note.brief)]
    if result.disturbed:
        remarks.insert(1, result.check)
    if not result.tracks:
        remarks[:0] = [result.ran, "no parts: libraries keep no log"]
    return "; ".join(filter(None, remarks))


EXPLAIN: Table[Explanation] = Table(
    (
        Column("", lambda result: result.implementation, form="<16"),
        Column("time", lambda result: result.seconds, format_seconds, form=">9"),
        _part("launch", 12),
        _part("waited"),
        _part("moved"),
        _part("added", 13),
        _part("published", 11, ">9"),
        Column("tracing", lambda result: result.overhead if result.tracks else None, "{:+.0%}".format, 10, ">8"),
        Column("", _explained),
    ),
    attrgetter("problem"),
    names=1,
)


def remarks(check: str, result: Timed) -> str:
    """Return the last cell of a row: its check, its share of the roofline and its note."""
    return ", ".join(filter(None, [check, share_in_words(result), str(result.note.brief)]))


def legend_lines(results: Iterable[Result]) -> list[str]:
    """Return the lines below a table that explain its optional columns and remarks."""
    results = list(results)
    lines = []
    if any(isinstance(result, Observed) and result.algorithm for result in results):
        lines.append(RAN_LEGEND)
    if any(result.estimate is not None for result in results):
        lines.append(ESTIMATE)
    if sharing := next((result.note.shared for result in results if result.note.shared), None):
        lines.append(SHARED.format(sharing=sharing))
    return [*lines, *buffers_in_words(results)]


def extra_legends(extra: Collection[str], results: Iterable[Result]) -> Iterator[str]:
    """Yield the meanings of the optional columns."""
    if "percentiles" in extra:
        what = sample_in_words(results)
        yield "min, p95, p99, max: of the samples" + (f", each {what}; single operations vary more" if what else "")
    if "report_cputime" in extra:
        yield "enqueue: host time to launch one operation without a graph, on the slowest process"
    if "memory_report" in extra:
        yield "memory: GPU memory of a rank that the library has taken so far, for communicators and connections"


def _errors(row: Tradeoff) -> Sequence[str]:
    if not row.study:
        return "----"
    plain, fed = row.study.plain, row.study.fed
    return [f"{error:.2g}" for error in (plain.most, plain.rms, plain.bias, fed.bias)]


WIRES: Table[Tradeoff] = Table(
    (
        Column("", lambda row: row.name, form="<18"),
        Column("bytes", lambda row: row.nbytes, "{:.3g}".format, form=">7"),
        Column("vs exact", lambda row: _gain(row, row.exact), form=">10"),
        Column("from", lambda row: _pays_from(row, row.exact), importance=7, form=">10"),
        Column("vs lib", lambda row: _gain(row, row.libraries), form=">10"),
        Column("from", lambda row: _pays_from(row, row.libraries), importance=7, form=">10"),
        Column("max", lambda row: _errors(row)[0], importance=8, form=">10"),
        Column("RMS", lambda row: _errors(row)[1], form=">10"),
        Column("bias", lambda row: _errors(row)[2], importance=9, form=">10"),
        Column("bias fed", lambda row: _errors(row)[3], form=">10"),
    )
)


def wires_table(tradeoffs: Sequence[Tradeoff]) -> Iterator[str]:
    """Yield a table for each kind of case, with speed-up and error of each wire format."""
    for title in dict.fromkeys(row.case.title for row in tradeoffs):
        rows = [row for row in tradeoffs if row.case.title == title]
        rounds = next((f", {counted(row.study.rounds, 'round')}" for row in rows if row.study), "")
        yield f"\nwires, {title}, at {format_size(rows[0].case.nbytes)}{rounds}"
        yield WIRES.heading()
        yield from map(WIRES.row, rows)


def _gain(row: Tradeoff, others: Times) -> str:
    gain = row.gain(others)
    return "-" if gain is None else f"{gain:.3g}x"


def _pays_from(row: Tradeoff, others: Times) -> str:
    start = row.pays_from(others)
    if row.gain(others) is None:
        return "-"
    return "never" if start is None else format_size(start)

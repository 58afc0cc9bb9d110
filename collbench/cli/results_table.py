"""Results as rows of a table, made while a sweep runs or is predicted, or while a log is imported."""

import math
from collections.abc import Iterable, Iterator, Sequence

from collbench.analysis.roofline import share_in_words
from collbench.analysis.wires import Times, Tradeoff
from collbench.cli.tables import Table
from collbench.results import PARTS, Explanation, Observed, Prediction, Result, Timed
from collbench.results.collectives import sample_in_words
from collbench.units import counted, digits, format_range, format_rate, format_seconds, format_size, significant

LEGEND = "time: median, slowest rank; algbw, busbw: GB/s; vs: the other's time over this row's, above 1 is faster"
REPORTED_LEGEND = (
    "time: {figures}; as the log reports; collbench has not checked the results\n"
    "algbw, busbw: GB/s, 1e9 bytes/s, computed from size and time"
)
EXPECTED_LEGEND = "time: by a model; algbw, busbw: GB/s; vs: the other's time over this row's, above 1 is faster"
EXPLAIN_LEGEND = (
    "time: median of one operation; parts: shares of an operation of median length, averaged over ranks\n"
    "waited: for another rank or the host; moved: bytes; added: and moved; published: barriers, fences, flags;\n"
    "launch: the rest, such as starting the kernel; tracing: time that keeping the log adds"
)
WIRES_LEGEND = (
    "bytes: of an element; vs exact, vs lib: above 1 is faster than the fastest of them; from: from which size on\n"
    "errors: over the RMS of exact sums; bias: of the mean over all rounds; fed: losses go into the next round"
)
ESTIMATE = (
    "estimate: how long NCCL itself expects the operation to take, from its own tables; nothing is measured for it"
)
SHARED = "no busbw: {sharing}, and within a GPU there is no bus"
NAME = 16  # characters of an implementation's name
_RATIO = " {ratio:>8}"  # of tables in which something is compared with
_MEASURED = Table(
    "{size:>9}  {name:<WIDTH} {time:>9} {interval:>7} {spread}{estimate}{algbw:>8}{busbw}" + _RATIO + "  {check}",
    ("spread", "estimate", "algbw"),
    {"name": "", "interval": "± 95 %"},
    last_out=("interval", "busbw", "ratio"),
)
_EXPECTED = Table(
    "{size:>9}  {name:<WIDTH} {time:>9} {band:>18} {algbw:>8}{busbw}" + _RATIO + "  {how:<15}  {check}",
    ("algbw", "how", "band", "busbw"),
    {"name": "", "band": "nine in ten", "how": "algorithm", "check": ""},
    last_out=("ratio",),
)
EXPLAIN = Table(
    "{name:<16} {time:>9} {launch:>8} {waited:>8} {moved:>8} {added:>8} {published:>9} {tracing:>8}  {note}",
    heads={"name": ""},
    last_out=("tracing", "published", "launch", "added"),
)
_WIRES = "{:<18}  {:>6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}"
_SPREAD = {"min": 0, "p95": 95, "p99": 99, "max": 100}


def heading(library: str, spread: bool = False, estimates: bool = False, width: int = NAME, bus: bool = True) -> str:
    """Return the names of the columns of measured rows; the library is what "vs" compares with, "" for nothing.

    With `spread` there are percentiles of the samples, with `estimates` what the library itself expects; `width` is
    that of the longest implementation's name, in characters.  Ranks that share a GPU have no `bus` between them.
    """
    return _sized(_MEASURED, bool(library), width).heading(**_heads(library, spread, estimates, bus))


def expected_heading(library: str) -> str:
    """Return the names of the columns of predicted rows."""
    return _sized(_EXPECTED, bool(library)).heading(**_heads(library))


def left_out(library: str, spread: bool, estimates: bool, width: int, modelled: bool, bus: bool = True) -> list[str]:
    """Return the columns that a terminal is too narrow for."""
    table = _sized(_EXPECTED if modelled else _MEASURED, bool(library), NAME if modelled else width)
    names = table.headings(**_heads(library, spread, estimates, bus))
    return [title for name in table.left_out(names) if (title := names[name].strip())]


def _sized(table: Table, versus: bool, width: int = NAME) -> Table:
    """Return the table with names of so many characters, and without ratios where nothing is compared with."""
    form = table.form if versus else table.form.replace(_RATIO, "")
    return table._replace(form=form.replace("WIDTH", str(width)))


def _heads(library: str, spread: bool = False, estimates: bool = False, bus: bool = True) -> dict[str, str]:
    """Return the names of the columns that not every table has."""
    return {
        "ratio": f"vs {library}",
        "spread": "".join(f"{name:>9} " for name in _SPREAD) if spread else "",
        "estimate": f"{'estimate':>9} " if estimates else "",
        "busbw": bus_cell("busbw", bus),
    }


def bus_cell(text: str, bus: bool) -> str:
    """Return a cell of the column of bus bandwidths, which a table of ranks without a bus between them has not."""
    return f" {text:>8}" if bus else ""


def row(
    result: Result,
    library: Timed | None,
    spread: bool = False,
    estimates: bool = False,
    width: int = NAME,
    versus: bool | None = None,
) -> str:
    """Return a collective's result as a row; `library` is the result for the same case that it is compared with.

    `versus` says whether the table compares at all, by default whether there is such a result.
    """
    if isinstance(result, Explanation):
        return _explained_row(result)
    name = result.label if len(result.label) <= width else result.implementation
    start = f"{format_size(result.case.nbytes):>9}  {name:<{width}}"
    if result.problem:
        return Table("{start} {reason}").row(start=start, reason=result.problem)
    assert isinstance(result, Observed | Prediction)
    if not result.typical > 0:  # some tools print a row without a time
        return f"{start} {remarks('no time', result)}"
    cells = cells_of(result, library) | {"name": name, "check": remarks(result.check, result)}
    versus = library is not None if versus is None else versus
    if isinstance(result, Prediction):
        band = format_range(*result.band, format_seconds)
        return _sized(_EXPECTED, versus).row(**cells, band=band, how=result.method)
    percentiles = [result.percentile(percent) for percent in _SPREAD.values()] if spread else []
    estimate = "" if result.estimate is None else format_seconds(result.estimate)
    return _sized(_MEASURED, versus, width).row(
        **cells,
        interval=halfwidth(result),
        spread="".join(f"{format_seconds(seconds):>9} " for seconds in percentiles),
        estimate=f"{estimate:>9} " if estimates else "",
    )


def _explained_row(result: Explanation) -> str:
    """Return where the time of one implementation goes; a library shows its time alone."""
    parts = dict.fromkeys((*PARTS, "tracing"), "")
    notes = [result.altered, result.check if result.disturbed else "", str(result.note.brief)]
    if result.tracks:
        parts = {part: f"{result.share(part):.0%}" for part in PARTS} | {"tracing": f"{result.overhead:+.0%}"}
    else:
        notes.insert(0, "the inside of a library is not seen")
    note = "; ".join(filter(None, notes))
    return EXPLAIN.row(name=result.implementation, time=format_seconds(result.seconds), note=note, **parts)


def cells_of(result: Timed, library: Timed | None = None) -> dict[str, str]:
    """Return the cells that measured and predicted rows have in common."""
    known = digits(_relative_halfwidth(result))
    sized = result.case.collective.sized
    ratio = ""
    if library and library is not result and not result.disturbed:
        speedup = library.typical / result.typical
        count = max(2, digits(math.hypot(_relative_halfwidth(result), _relative_halfwidth(library))))
        ratio = f"{significant(speedup, count, 2)}x" if speedup >= 0.01 else f"{speedup:.1g}x"
    return {
        "size": format_size(result.case.nbytes),
        "name": result.label,
        "time": format_seconds(result.typical, known),
        "algbw": format_rate(result.algbw, known) if sized else "",
        "busbw": bus_cell(format_rate(result.busbw, known) if sized else "", not result.note.shared),
        "ratio": ratio,
    }


def remarks(check: str, result: Timed) -> str:
    """Return the last cell of a row: how it was checked, and what else there is to say of it."""
    return ", ".join(filter(None, [check, share_in_words(result), str(result.note.brief)]))


def halfwidth(result: Observed) -> str:
    """Return half the interval of the median as a percentage of it; nothing where there are too few samples."""
    half = result.relative_halfwidth
    if not math.isfinite(half):
        return ""
    if half >= 10:
        return ">999%"
    return f"{half:.1%}" if half < 0.1 else f"{half:.0%}"


def legend_lines(results: Iterable[Result]) -> list[str]:
    """Return a line below the table for each thing in it that only some tables have."""
    results = list(results)
    lines = [ESTIMATE] if any(result.estimate is not None for result in results) else []
    if sharing := next((result.note.shared for result in results if result.note.shared), None):
        lines.append(SHARED.format(sharing=sharing))
    return lines


def spread_legend(results: Iterable[Result]) -> str:
    """Return what the percentiles are of."""
    what = sample_in_words(results)
    return f"min, p95, p99, max: of the samples{f', each {what}, which differ by more' if what else ''}"


def _relative_halfwidth(result: Timed) -> float:
    """Return half the interval over the median; 0 for what was not measured, of which digits cannot show more."""
    if not isinstance(result, Observed) or not math.isfinite(result.interval[1]):
        return 0.0
    return result.relative_halfwidth


def wires_table(found: Sequence[Tradeoff]) -> Iterator[str]:
    """Yield a title and a row for each wire format, for each kind of case: time saved against error introduced."""
    for title in dict.fromkeys(one.case.title for one in found):
        rows = [one for one in found if one.case.title == title]
        rounds = next((f", {counted(one.study.rounds, 'round')}" for one in rows if one.study), "")
        yield f"\nwires, {title}, at {format_size(rows[0].case.nbytes)}{rounds}"
        yield _WIRES.format("", "bytes", "vs exact", "from", "vs lib", "from", "max", "RMS", "bias", "bias fed")
        for one in rows:
            errors = ["-"] * 4
            if study := one.study:
                known = (study.plain.most, study.plain.rms, study.plain.bias, study.fed.bias)
                errors = [f"{error:.2g}" for error in known]
            gains = (*_gain(one, one.exact), *_gain(one, one.libraries))
            yield _WIRES.format(one.name, f"{one.nbytes:.3g}", *gains, *errors)


def _gain(one: Tradeoff, others: Times) -> tuple[str, str]:
    """Return how many times as fast a wire format is, and from which size on it is faster."""
    gain, start = one.gain(others), one.pays_from(others)
    if gain is None:
        return "-", "-"
    return f"{gain:.3g}x", format_size(start) if start is not None else "never"

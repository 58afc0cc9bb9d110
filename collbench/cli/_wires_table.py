"""The table of wires that a sweep prints behind its own: time saved against error introduced."""

from collections.abc import Iterator, Sequence

from collbench.analysis.wires import Times, Tradeoff
from collbench.units import format_size

WIRES_LEGEND = """bytes: of an element on the wire
vs exact, vs lib: the time of the fastest exact implementation or library over the wire's, and the size from which on it
is above 1
errors: relative to the root mean square of exact sums, over rounds of gradients whose means stay; max and RMS of single
ones, bias of their means over all rounds; fed: where what a round loses is added to the next"""

_COLUMNS = (18, 6, 9, 9, 9, 9, 9, 9, 9, 9)


def lines(found: Sequence[Tradeoff]) -> Iterator[str]:
    """Yield a title and a row for each wire format, for each kind of case."""
    for title in dict.fromkeys(one.case.title for one in found):
        rows = [one for one in found if one.case.title == title]
        rounds = next((f", {one.study.rounds} rounds" for one in rows if one.study), "")
        yield f"\nwires, {title}, at {format_size(rows[0].case.nbytes)}{rounds}"
        names = "", "bytes", "vs exact", "from", "vs lib", "from", "max", "RMS", "bias", "bias fed"
        yield _row(names)
        yield from (_row(_cells(one)) for one in rows)


def _cells(one: Tradeoff) -> tuple[str, ...]:
    study = one.study
    errors = (study.plain.most, study.plain.rms, study.plain.bias, study.fed.bias) if study else (None,) * 4
    sides = (cell for others in (one.exact, one.libraries) for cell in _side(one, others))
    return (one.name, f"{one.nbytes:.3g}", *sides, *("-" if error is None else f"{error:.2g}" for error in errors))


def _side(one: Tradeoff, others: Times) -> tuple[str, str]:
    gain, start = one.gain(others), one.pays_from(others)
    if gain is None:
        return "-", "-"
    return f"{gain:.3g}x", format_size(start) if start is not None else "never"


def _row(cells: Sequence[str]) -> str:
    rest = (f"{cell:>{width}}" for cell, width in zip(cells[1:], _COLUMNS[1:], strict=True))
    return "  ".join([f"{cells[0]:<{_COLUMNS[0]}}", *rest]).rstrip()

"""Writes the table of nccl-tests: a foreign test's rows as they were, others in the layout of version 2.19."""

from collections.abc import Iterator

from collbench.datatypes import NONE
from collbench.formats._listed import listed
from collbench.formats._numbers import program, shrunk
from collbench.formats.exported import Line, Part, Selection, mean_seconds, parts, signature, texts, wrong
from collbench.measurement import Observed

NAME = "nccl-tests"
MISSING = f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}    N/A"
_COLUMNS = "    time   algbw   busbw  #wrong "
_UNITS = "    (us)  (GB/s)  (GB/s)         "
HEADER = (
    f"#{'':62}out-of-place{'':23}in-place          ",
    f"#       size         count      type   redop    root {_COLUMNS}{_COLUMNS}",
    f"#        (B)    (elements)                           {_UNITS}{_UNITS}",
)


def write(selection: Selection) -> str:
    """The text of a log with every test."""
    found = [_own(part) if part.test.get("format") == NAME else _made(part, selection) for part in parts(selection)]
    return "\n".join(line for lines in found for line in lines) + "\n"


def _own(part: Part) -> Iterator[str]:
    """As it was, without what other programs printed in between."""
    yield from texts(part.layout.get("before"))
    for line in part.lines:
        yield str(line.printed.get("line", ""))
    yield from texts(part.layout.get("after"))


def _made(part: Part, selection: Selection) -> Iterator[str]:
    first = part.lines[0].any
    ranks = first.case.ranks
    yield signature(first)
    yield f"# Collective test starting: {program(first.case.collective)}"
    yield _settings(part)
    yield from ("#", "# Using devices", *listed(selection, ranks), "#", *HEADER)
    yield from map(_row, part.lines)
    if part.complete:
        yield from _footer(part)


def _settings(part: Part) -> str:
    sizes = sorted({line.case.nbytes for line in part.lines})
    factor = round(sizes[1] / sizes[0]) if len(sizes) > 1 and sizes[0] else 2
    iters = part.iterations
    checked = all(wrong(place) is not None for line in part.lines for place in line.places if place)
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {factor}(factor) warmup iters: 1 "
        f"iters: {iters} agg iters: 1 validation: {int(checked)} graph: 0"
    )


def _row(line: Line) -> str:
    case = line.case
    root = case.root if case.collective.rooted else -1
    redop = case.redop.name if case.redop is not NONE else "none"
    start = f"{case.nbytes:12d}  {case.block:12d}  {case.dtype.name:>8}  {redop:>6}  {root:>6d}"
    return start + "".join(_place(each) if each else MISSING for each in line.places)


def _place(result: Observed) -> str:
    """Without a time it may still say how many elements are wrong."""
    seconds, elements = mean_seconds(result), wrong(result)
    told = "    N/A" if elements is None else f"  {elements:6g}"
    if seconds <= 0:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}{told}"
    algbw = result.case.nbytes / seconds / 1e9
    busbw = algbw * result.case.collective.bus_factor(result.case.ranks)
    return f"  {shrunk(seconds * 1e6, 7):>7}  {shrunk(algbw, 6):>6}  {shrunk(busbw, 6):>6}{told}"


def _footer(part: Part) -> Iterator[str]:
    found = [place for line in part.lines for place in line.places if place]
    bad = sum(bool(wrong(each)) for each in found)
    timed = [each for each in found if mean_seconds(each) > 0]
    rates = [each.case.nbytes / mean_seconds(each) for each in timed]
    buses = [rate * each.case.collective.bus_factor(each.case.ranks) for rate, each in zip(rates, timed, strict=True)]
    yield f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}"
    yield f"# Avg bus bandwidth    : {sum(buses) / len(buses) / 1e9 if buses else 0:g} "
    yield "#"
    yield f"# Collective test concluded: {program(part.lines[0].case.collective)}"
    yield "#"

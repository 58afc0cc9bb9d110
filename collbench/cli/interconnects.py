"""Interconnects side by side: systems to predict and runs among them, as a table, as CSV and as JSON.

`collbench predict A,B,...` prints them for what it is given, `collbench compare` for runs of different machines.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from collbench.algorithms import choose
from collbench.analysis.interconnects import (
    Cell,
    Chosen,
    Interconnect,
    Line,
    Table,
    common_ranks,
    left_out,
    of_run,
    records,
    short_names,
    tables,
)
from collbench.api.notices import is_leader
from collbench.api.requests import SweepRequest, predicted_sweep
from collbench.cases import Sweep
from collbench.cli.options import STANDARD, into, sweep_request
from collbench.cli.running import say_where
from collbench.cli.tables import grid, room
from collbench.datatypes import NONE
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.host.sanitize import cell
from collbench.measure.session import Session
from collbench.results import Timed, timed
from collbench.runfile.store import Run, read, why_none
from collbench.topology import files
from collbench.topology.system import System
from collbench.units import format_seconds, format_size, printable

LEGEND = (
    "vs: the time of the first over this row's, so above 1 is faster; ~ where they are not distinguishable\n"
    "band: of a prediction where nine in ten should lie, of a measurement the 95 % interval of its median\n"
    "* is fastest, ? likely or perhaps; each is as fast as its library, or as the requested implementations"
)
NARROWEST = 50  # columns, below which nothing more is left out


def side_by_side(names: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], form: str) -> int:
    """Predict every system, read every run, and print them as a table for each kind of case; the exit status."""
    found = _named(names)
    runs = [what for what in found.values() if isinstance(what, Run)]
    rows = [row for run in runs for row in timed(run.results) if row.case.nbytes]
    if runs and not rows:
        raise UsageError(why_none(runs))
    request = sweep_request(options, on=",".join(names))
    ranks = _ranks(found, request)
    every = []
    for name, what in found.items():
        if isinstance(what, Run):
            every.append(of_run(name, what))
            continue
        part, sweep = _sweep(what, request, ranks, rows)
        folder = options["out"] / name.replace("/", "-") if options["out"] else None
        formats = ("png",) if options["plot"] else ()
        every.append(_predicted(name, part, sweep, folder, what_ifs, formats if form == "table" else None))
    compared = tables(every, _selected(request))
    reasons = left_out(every, compared)
    if not compared:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if is_leader(launched()):
        for line in (_ranks_in_words(ranks, request), *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        FORMATS[form](compared)
        if options["as_json"] not in (None, STANDARD):
            with into(options["as_json"]):
                FORMATS["json"](compared)
    return 0


def _named(words: Sequence[str]) -> dict[str, System | Run]:
    """Return systems and runs by short names: of a preset, a file or a run's folder, or the whole word if two agree."""
    for word in words:
        if words.count(word) > 1:
            raise UsageError(f"{word} is named twice; name each once")
    return {name: _found(word) for word, name in zip(words, short_names(words), strict=True)}


def _found(word: str) -> System | Run:
    if word in files.names() or word.endswith(".toml"):
        return files.load(word)
    if not word or not Path(word).exists():
        raise unknown("system", word, (*files.names(), "FILE.toml", "the path of a run"))
    return read(Path(word))


def _ranks(found: Mapping[str, System | Run], request: SweepRequest) -> int | None:
    """Return the number of ranks of all: the requested one, or the largest that one has and all can have, if any."""
    if request.nodes or request.ranks_per_node:
        return None
    if request.ranks:
        return request.ranks
    measured = [{row.case.ranks for row in timed(what.results)} for what in found.values() if isinstance(what, Run)]
    return common_ranks([what for what in found.values() if isinstance(what, System)], measured)


def _ranks_in_words(ranks: int | None, request: SweepRequest) -> str:
    """Return how many ranks each has, and how to have others."""
    if request.nodes or request.ranks or request.ranks_per_node:
        return "ranks as they were requested"
    if ranks is None:
        return "no number of ranks is possible on all: each has its own; --ranks for another"
    return f"{ranks} ranks on each, the most that all can have of what one of them has; --ranks for another number"


def _sweep(system: System, request: SweepRequest, ranks: int | None, rows: Sequence[Timed]) -> tuple[System, Sweep]:
    """Return the part of the system with so many ranks, and its cases.

    Where the command line does not say which cases, they are those of the given runs.
    """
    if ranks:
        request = replace(request, ranks=ranks, nodes=-(-ranks // system.gpus))
    part, sweep = predicted_sweep(system, request)
    if not rows:
        return part, sweep
    cases = [row.case for row in rows]
    if not _given("op"):
        sweep = replace(sweep, collectives=tuple(dict.fromkeys(case.collective for case in cases)))
    if not _given("datatype"):
        sweep = replace(sweep, dtypes=tuple(dict.fromkeys(case.dtype for case in cases)))
    if not _given("redop"):
        redops = dict.fromkeys(case.redop for case in cases if case.redop != NONE)
        sweep = replace(sweep, redops=tuple(redops) or (NONE,))
    if not _given("root"):
        sweep = replace(sweep, root=max(case.root for case in cases))
    if not _given("in_place"):
        sweep = replace(sweep, in_place=all(case.in_place for case in cases))
    if not _given("minbytes", "maxbytes", "stepfactor", "stepbytes"):
        sweep = replace(sweep, sizes=tuple(sorted({case.nbytes for case in cases})))
    return part, sweep


def _given(*names: str) -> bool:
    """Return whether one of these options is on the command line."""
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def _predicted(
    name: str,
    system: System,
    sweep: Sweep,
    folder: Path | None,
    what_ifs: tuple[str, ...],
    formats: Sequence[str] | None,
) -> Interconnect:
    """Return the predictions of a system; they are stored in the folder, and that is printed if there are `formats`."""
    from collbench.measure.predicted import Modelled

    session = Session(Modelled(system, sweep, what_ifs), sweep, launched(), folder, modelled=True)
    with session:
        results = list(session.run())
    if session.leader and folder and formats is not None:
        say_where(session, formats)
    skipped = [f"{row.implementation} skipped: {row.reason}" for row in results if row.reason]
    return Interconnect(name, session.topology, tuple(timed(results)), tuple(dict.fromkeys(skipped)))


def _selected(request: SweepRequest) -> Chosen | None:
    """Return which implementations `--impl` names; without it an interconnect is as fast as its library."""
    if not _given("impl"):
        return None
    names: set[str] = set()
    for platform in ("gpu", "cpu"):
        try:
            names.update(choose(request.implementations, platform))
        except UsageError:
            continue  # there may be such implementations on the other platform
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


# --------------------------------------------------------------------------------------------------------------- output


def show(tables: Sequence[Table]) -> None:
    """Print every table, then what the columns mean."""
    printed: list[str] = []
    for table in tables:
        heads = list(head(table))
        if heads != printed:
            printed = heads
            click.echo("\n".join([*heads, ""]))
        click.echo("\n".join([table.title, *lines(table, room()), "", *table.verdict(), ""]))
    click.echo(LEGEND, err=True)


def head(table: Table) -> Iterator[str]:
    """Yield what each interconnect is, how its times are known, and what makes them unlike."""
    width = max(len(one.name) for one in table.interconnects)
    for one in table.interconnects:
        yield f"{printable(one.name):<{width}}  {one.origin}: {printable(one.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for one in table.interconnects:
        for remark in one.remarks:
            yield f"note: {one.name}: {remark}"


def lines(table: Table, width: int | None) -> list[str]:
    """Return the table in so many columns, or as many as it needs; without room the algorithm goes, then the band."""
    versus = f"vs {table.interconnects[0].name}"
    titles = {"size": "size", "name": "", "time": "time", "vs": versus if len(versus) <= 8 else "vs first"}
    rows: list[dict[str, str]] = [titles | {"band": "band", "method": "algorithm"}]
    for line in table.lines:
        there = _with_time(table, line)
        for number, (one, found) in enumerate(there):
            rows.append(_cells(one, line, found, first=not number))
    shown = list(rows[0])
    for name in ("method", "band"):
        widest = max(map(len, _grid(rows, shown)))
        if width and widest > max(width, NARROWEST):
            shown.remove(name)
    return _grid(rows, shown)


def _grid(rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    right = [number for number, name in enumerate(names) if name not in ("name", "method")]
    return grid([[row[name] for name in names] for row in rows], right)


def _with_time(table: Table, line: Line) -> list[tuple[Interconnect, Cell]]:
    pairs = zip(table.interconnects, line.cells, strict=True)
    return [(one, found) for one, found in pairs if found]


def _cells(one: Interconnect, line: Line, found: Cell, first: bool) -> dict[str, str]:
    """Return the cells of a row; the size stands in the first of its rows only."""
    low, high = found.row.band
    mark = " "
    if one.name in line.ranking.names:
        mark = "*" if line.ranking.surely and len(line.ranking.names) == 1 else "?"
    return {
        "size": format_size(line.nbytes) if first else "",
        "name": f"{mark} {printable(one.name)}",
        "time": format_seconds(found.row.typical),
        "vs": found.ratio,
        "band": f"{format_seconds(low)} .. {format_seconds(high)}" if low == low else "",  # NaN: no interval
        "method": printable(found.method),
    }


def _csv(tables: Sequence[Table]) -> None:
    rows = [record for table in tables for record in records(table)]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(value) for name, value in row.items()})


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return a record for each table: what is compared, the rows, and the verdict in sentences."""
    return [
        {
            "case": table.title,
            "interconnects": [
                {"name": one.name, "title": one.title, "origin": one.origin, "ranks": count, "remarks": one.remarks}
                for one, count in zip(table.interconnects, table.ranks, strict=True)
            ],
            "rows": records(table),
            "verdict": table.verdict(),
        }
        for table in tables
    ]


def _json(tables: Sequence[Table]) -> None:
    click.echo(json.dumps({"tables": as_json(tables)}, indent=2, allow_nan=False))


FORMATS: Mapping[str, Callable[[Sequence[Table]], None]] = {"table": show, "csv": _csv, "json": _json}

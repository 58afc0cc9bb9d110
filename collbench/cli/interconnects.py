"""Interconnects side by side: systems to predict and runs among them, as a table, as CSV and as JSON.

`collbench predict A,B,...` prints them for what it is given, `collbench compare` for runs of different machines.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from collbench.algorithms import choose
from collbench.analysis.crossover import handicaps
from collbench.analysis.interconnects import (
    Chosen,
    Interconnect,
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
from collbench.cli.options import STANDARD, print_answer, sweep_request
from collbench.cli.running import say_where
from collbench.cli.tables import grid
from collbench.datatypes import NONE
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.results import Prediction, Timed, timed
from collbench.runfile.store import Run, read, why_none
from collbench.topology import files
from collbench.topology.system import System, launched_in_graph
from collbench.units import counted, format_range, format_seconds, format_size, printable

LEGEND = (
    "vs: above 1 is faster, ~ bands or intervals overlap; *: fastest, ?: perhaps fastest; by: over the next\n"
    "band: nine in ten of what is predicted, the 95 % interval of a measured median"
)


def side_by_side(
    names: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], graph: bool = False
) -> int:
    """Predict every system, read every run, and print them as a table for each kind of case; the exit status."""
    from collbench.measure.predicted import Modelled

    found = _named(names)
    runs = [what for what in found.values() if isinstance(what, Run)]
    measured = [row for run in runs for row in timed(run.cases) if row.case.nbytes]
    if runs and not measured:
        raise UsageError(why_none(runs))
    request = sweep_request(options, on=",".join(names))
    ranks, ranks_in_words = _ranks(found.values(), request)
    every = []
    for name, what in found.items():
        if isinstance(what, Run):
            every.append(of_run(name, what))
            continue
        part, sweep = _sweep(launched_in_graph(what) if graph else what, request, ranks, measured)
        folder = options["out"] / name.replace("/", "-") if options["out"] else None
        with Session(Modelled(part, sweep, what_ifs), sweep, launched(), folder, modelled=True) as session:
            results = list(session.run())
        if session.leader and folder and STANDARD not in (options["as_json"], options["as_csv"]):
            say_where(session, options["plot"])
        skipped = [f"{row.implementation} skipped: {row.reason}" for row in results if row.reason]
        remarks = tuple(dict.fromkeys(skipped))
        every.append(Interconnect(name, session.topology, tuple(timed(results)), remarks))
    compared = tables(every, _selected(request))
    reasons = left_out(every, compared)
    if not compared:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if is_leader(launched()):
        for line in (ranks_in_words, *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        rows = [record for table in compared for record in records(table)]
        written = options["as_json"], {"tables": as_json(compared)}, options["as_csv"], list(rows[0]), rows
        print_answer(lambda: show(compared, what_ifs), *written)
    return 0


def _named(words: Sequence[str]) -> dict[str, System | Run]:
    """Return systems and runs by short names: of a preset, a file or a run's folder, or the whole word if two agree."""
    found: dict[str, System | Run] = {}
    for word, name in zip(words, short_names(words), strict=True):
        if words.count(word) > 1:
            raise UsageError(f"{word} is named twice; name each once")
        if word in files.names() or word.endswith(".toml"):
            found[name] = files.load(word)
        elif word and Path(word).exists():
            found[name] = read(Path(word))
        else:
            raise unknown("system", word, (*files.names(), "FILE.toml", "the path of a run"))
    return found


def _ranks(found: Iterable[System | Run], request: SweepRequest) -> tuple[int | None, str]:
    """Return the number of ranks of all, None where each has its own, and how to have others in words.

    It is the requested number, or the largest that one has and all can have.
    """
    if request.nodes or request.ranks or request.ranks_per_node:
        whole = None if request.nodes or request.ranks_per_node else request.ranks
        return whole, "ranks as they were requested"
    systems = [what for what in found if isinstance(what, System)]
    measured = [{row.case.ranks for row in timed(what.cases)} for what in found if isinstance(what, Run)]
    ranks = common_ranks(systems, measured)
    if ranks is None:
        return None, "each has its own number of ranks, since none is possible on all; --ranks for another"
    return ranks, f"{counted(ranks, 'rank')} on each, as many as all can have; --ranks for another number"


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
    redops = dict.fromkeys(case.redop for case in cases if case.redop != NONE)
    measured: dict[str, tuple[tuple[str, ...], Any]] = {
        "collectives": (("op",), tuple(dict.fromkeys(case.collective for case in cases))),
        "dtypes": (("datatype",), tuple(dict.fromkeys(case.dtype for case in cases))),
        "redops": (("redop",), tuple(redops) or (NONE,)),
        "root": (("root",), max(case.root for case in cases)),
        "in_place": (("in_place",), all(case.in_place for case in cases)),
        "sizes": (("minbytes", "maxbytes", "stepfactor", "stepbytes"), tuple(sorted({case.nbytes for case in cases}))),
    }
    fields = {name: value for name, (options, value) in measured.items() if not _given(*options)}
    return part, replace(sweep, **fields)


def _given(*names: str) -> bool:
    """Return whether one of these options is on the command line."""
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def _selected(request: SweepRequest) -> Chosen | None:
    """Return which implementations `--impl` names; without it an interconnect is as fast as its library."""
    if not _given("impl"):
        return None
    names: set[str] = set()
    for platform in ("gpu", "cpu"):
        with suppress(UsageError):  # there may be such implementations on the other platform
            names.update(choose(request.implementations, platform))
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


# --------------------------------------------------------------------------------------------------------------- output


def show(tables: Sequence[Table], what_ifs: Sequence[str] = ()) -> None:
    """Print who is fastest, where and by how much, then every table, and what the columns mean."""
    changed = f"with {', '.join(what_ifs)} on all, " if what_ifs else ""
    for table in tables:
        of_several = f"{table.title}: " if len(tables) > 1 else ""
        click.echo(f"answer: {changed}{of_several}{table.verdict()[0]}")
    click.echo()
    printed: list[str] = []
    for table in tables:
        heads = list(_head(table))
        if heads != printed:
            printed = heads
            click.echo("\n".join([*heads, ""]))
        click.echo("\n".join([table.title, *_lines(table), "", *table.verdict()[1:], ""]))
    click.echo(LEGEND, err=True)


def _head(table: Table) -> Iterator[str]:
    """Yield what each interconnect is, how its times are known, and what makes them unlike."""
    width = max(len(one.name) for one in table.interconnects)
    for one in table.interconnects:
        yield f"{printable(one.name):<{width}}  {one.origin}: {printable(one.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for one in table.interconnects:
        for remark in (*one.remarks, *handicaps(one.results)):
            yield f"note: {one.name}: {remark}"


def _lines(table: Table) -> list[str]:
    """Return the table; where there is no room algorithms are left out, then intervals."""
    versus = f"vs {table.interconnects[0].name}"
    if len(versus) > 8:
        versus = "vs first"
    predicted = {isinstance(found.row, Prediction) for line in table.lines for found in line.cells if found}
    interval = "nine in ten" if predicted == {True} else "interval"
    rows: list[Sequence[str]] = [("size", "", "time", versus, interval, "algorithm")]
    for line in table.lines:
        size = format_size(line.nbytes)
        for one, found in zip(table.interconnects, line.cells, strict=True):
            if not found:
                continue
            low, high = found.row.band
            mark = " "
            if one.name in line.ranking.names:
                mark = "*" if line.ranking.surely and len(line.ranking.names) == 1 else "?"
            band = format_range(low, high, format_seconds)
            name, seconds = f"{mark} {printable(one.name)}", format_seconds(found.row.typical)
            rows.append((size, name, seconds, found.ratio, band, printable(found.method)))
            size = ""  # which stands in the first of its rows only
    return grid(rows, right=(0, 2, 3, 4), first_out=(5, 4))


def as_json(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return a record for each table: what is compared, the rows, and the verdict in sentences."""
    found = []
    for table in tables:
        interconnects = [
            {"name": one.name, "title": one.title, "origin": one.origin, "ranks": count, "remarks": one.remarks}
            for one, count in zip(table.interconnects, table.ranks, strict=True)
        ]
        rows = {"interconnects": interconnects, "rows": records(table), "verdict": table.verdict()}
        found.append({"case": table.title} | rows)
    return found

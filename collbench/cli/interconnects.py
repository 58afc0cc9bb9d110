"""Interconnects side by side: systems to predict, as a table, as CSV and as JSON.

`collbench predict A,B,...` prints them for what it is given, `collbench compare` for runs of different machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from collbench.algorithms import choose
from collbench.analysis.crossover import handicaps
from collbench.analysis.interconnects import (
    Chosen,
    Interconnect,
    InterconnectTable,
    common_ranks,
    left_out,
    short_names,
    tables,
)
from collbench.cli.options import STANDARD, given, made, print_answer
from collbench.cli.running import say_where
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.present.terminal import lines
from collbench.requests.notices import is_leader
from collbench.requests.sweeps import SweepRequest, find_system, predicted_sweep
from collbench.results import timed
from collbench.topology.system import System, launched_in_graph
from collbench.units import counted, printable

LEGEND = (
    "vs: above 1 is faster, ~ bands or intervals overlap; *: fastest, ?: perhaps fastest; by: over the next\n"
    "band: nine in ten of what is predicted, the 95 % interval of a measured median"
)


def side_by_side(
    names: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], graph: bool = False
) -> int:
    """Predict every system, and print them as a table for each kind of case; the exit status."""
    from collbench.measure.predicted import Modelled

    if len(set(names)) < len(names):
        raise UsageError(f"{','.join(names)} names a system twice; name each once")
    systems = [launched_in_graph(find_system(name)) if graph else find_system(name) for name in names]
    request = made(SweepRequest, options, on=",".join(names))
    ranks, ranks_in_words = _ranks(systems, request)
    every = []
    for name, system in zip(short_names(names), systems, strict=True):
        own = replace(request, ranks=ranks, nodes=-(-ranks // system.gpus)) if ranks else request
        part, sweep = predicted_sweep(system, own)
        folder = options["out"] / name.replace("/", "-") if options["out"] else None
        with Session(Modelled(part, sweep, what_ifs), sweep, launched(), folder, modelled=True) as session:
            results = list(session.run())
        if session.leader and folder and STANDARD not in (options["as_json"], options["as_csv"]):
            say_where(session, options["plot"])
        skipped = [f"{row.implementation} skipped: {row.reason}" for row in results if row.reason]
        every.append(Interconnect(name, session.topology, tuple(timed(results)), tuple(dict.fromkeys(skipped))))
    compared = tables(every, _selected(request))
    reasons = left_out(every, compared)
    if not compared:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if is_leader(launched()):
        for line in (ranks_in_words, *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        rows = [record for table in compared for record in table.records()]
        written = options["as_json"], {"tables": as_json(compared)}, options["as_csv"], list(rows[0]), rows
        print_answer(lambda: show(compared, what_ifs), *written)
    return 0


def _ranks(systems: Sequence[System], request: SweepRequest) -> tuple[int | None, str]:
    """Return the number of ranks of all, None where each has its own, and how to have others in words."""
    if request.nodes or request.ranks or request.ranks_per_node:
        whole = None if request.nodes or request.ranks_per_node else request.ranks
        return whole, "ranks as they were requested"
    ranks = common_ranks(systems)
    if ranks is None:
        return None, "each has its own number of ranks, since none is possible on all; --ranks for another"
    return ranks, f"{counted(ranks, 'rank')} on each, as many as all can have; --ranks for another number"


def _selected(request: SweepRequest) -> Chosen | None:
    """Return which implementations `--impl` names; without it an interconnect is as fast as its library."""
    if "--impl" not in given():
        return None
    names: set[str] = set()
    for platform in ("gpu", "cpu"):
        with suppress(UsageError):  # there may be such implementations on the other platform
            names.update(choose(request.implementations, platform))
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


def show(tables: Sequence[InterconnectTable], what_ifs: Sequence[str] = ()) -> None:
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
        click.echo("\n".join([table.title, *lines(table.columns, table.cells), "", *table.verdict()[1:], ""]))
    click.echo(LEGEND, err=True)


def _head(table: InterconnectTable) -> Iterator[str]:
    """Yield what each interconnect is, how its times are known, and what makes them unlike."""
    width = max(len(one.name) for one in table.interconnects)
    for one in table.interconnects:
        yield f"{printable(one.name):<{width}}  {one.origin}: {printable(one.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for one in table.interconnects:
        for remark in (*one.remarks, *handicaps(one.results)):
            yield f"note: {one.name}: {remark}"


def as_json(tables: Sequence[InterconnectTable]) -> list[dict[str, Any]]:
    """Return a record for each table: what is compared, the rows, and the verdict in sentences."""
    found = []
    for table in tables:
        interconnects = [
            {"name": one.name, "title": one.title, "origin": one.origin, "ranks": count, "remarks": one.remarks}
            for one, count in zip(table.interconnects, table.ranks, strict=True)
        ]
        rows = {"interconnects": interconnects, "rows": table.records(), "verdict": table.verdict()}
        found.append({"case": table.title} | rows)
    return found

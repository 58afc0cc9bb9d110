"""Interconnects side by side: systems to predict, as a table, as CSV and as JSON.

`collbench predict A,B,...` prints them for what it is given, `collbench compare` for runs of different machines.
"""

import math
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
from collbench.cli.options import given, made, print_answer, print_basis
from collbench.cli.running import say_where, software
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.present.terminal import lines
from collbench.requests.notices import is_leader
from collbench.requests.sessions import predicting_session
from collbench.requests.sweeps import SweepRequest, find_system
from collbench.results import timed
from collbench.topology.system import System, launched_in_graph
from collbench.units import counted, format_list, printable

LEGEND = (
    "vs: above 1 is faster, ~ bands or intervals overlap; *: fastest, ?: perhaps fastest; by: over the next\n"
    "band: nine in ten of what is predicted, the 95 % interval of a measured median"
)


def side_by_side(
    names: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], graph: bool = False
) -> int:
    """Predict every system, and print them as a table for each kind of case; the exit status."""
    if len(set(names)) < len(names):
        raise UsageError(f"{','.join(names)} names a system twice; name each once")
    systems = [launched_in_graph(system) if graph else system for system in map(find_system, names)]
    request = made(SweepRequest, options, on=",".join(names))
    ranks, ranks_in_words = _ranks(systems, request)
    every, sessions = [], []
    for name, system in zip(short_names(names), systems, strict=True):
        if ranks:
            request = replace(request, ranks=ranks, nodes=math.ceil(ranks / system.gpus))
        if options["out"]:
            request = replace(request, out=options["out"] / name.replace("/", "-"))
        with predicting_session(system, request, what_ifs=what_ifs) as session:
            results = list(session.run())
        sessions.append(session)
        skipped = dict.fromkeys(f"{row.implementation} skipped: {row.reason}" for row in results if row.reason)
        title = f"{session.topology}; {', '.join(software(session))}"
        every.append(Interconnect(name, title, tuple(timed(results)), tuple(skipped)))
    compared = tables(every, _selected(request))
    reasons = left_out(every, compared)
    if not compared:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if is_leader(launched()):

        def answer() -> None:
            print_basis(format_list(each.name for each in every))
            for session in filter(lambda session: session.path, sessions):
                say_where(session, options["plot"])
            show(compared, what_ifs)

        for line in (ranks_in_words, *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        rows = [record for table in compared for record in table.records()]
        document = {"measured": False, "tables": as_json(compared)}
        print_answer(answer, options["as_json"], document, options["as_csv"], list(rows[0]), rows)
    return 0


def _ranks(systems: Sequence[System], request: SweepRequest) -> tuple[int | None, str]:
    """Return the number of ranks of all, None where each has its own, and how to have others in words."""
    if request.nodes or request.ranks_per_node:
        return None, "ranks as they were requested"
    if request.ranks:
        return request.ranks, "ranks as they were requested"
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
        # What one platform has no implementation for, the other may.
        with suppress(UsageError):
            names.update(choose(request.implementations, platform))
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


def show(tables: Sequence[InterconnectTable], what_ifs: Sequence[str] = ()) -> None:
    """Print who is fastest, where and by how much, then every table, and what the columns mean."""
    answer = f"answer: with {', '.join(what_ifs)} on all, " if what_ifs else "answer: "
    for table in tables:
        title = f"{table.title}: " if len(tables) > 1 else ""
        click.echo(f"{answer}{title}{table.verdict()[0]}")
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
    width = max(len(each.name) for each in table.interconnects)
    for each in table.interconnects:
        yield f"{printable(each.name):<{width}}  {each.origin}: {printable(each.title)}"
    if table.unlike:
        yield f"note: {table.unlike}"
    for each in table.interconnects:
        for remark in (*each.remarks, *handicaps(each.results)):
            yield f"note: {each.name}: {remark}"


def as_json(tables: Sequence[InterconnectTable]) -> list[dict[str, Any]]:
    """Return a record for each table: what is compared, the rows, and the verdict in sentences."""
    records = []
    for table in tables:
        interconnects = [
            {"name": each.name, "title": each.title, "origin": each.origin, "ranks": count, "remarks": each.remarks}
            for each, count in zip(table.interconnects, table.ranks, strict=True)
        ]
        rows = {"interconnects": interconnects, "rows": table.records(), "verdict": table.verdict()}
        records.append({"case": table.title} | rows)
    return records

"""List collectives, implementations, platforms and systems; runs, systems, models or formats.

For example:
  collbench list
  collbench list runs results
  collbench list models
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import click

from collbench.algorithms import implementations
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.presence import commands
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.topology import files
from collbench.topology.products import ARCHITECTURES
from collbench.topology.render import fabric, nic_words

Texts = tuple[str, ...]


class _Lists(click.Group):
    """The lists that records of commands name (`lists`)."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all lists."""
        return sorted({name: None for record in commands().values() for name in record.lists})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one list: a command, or a function that yields the rows of a table, its heading first."""
        for record in commands().values():
            if name in record.lists:
                code: Any = record.load(record.lists[name])
                if isinstance(code, click.Command):
                    return code
                return click.Command(name, callback=lambda rows=code: _print(*rows()), short_help=code.__doc__)
        return None


@click.group(cls=_Lists, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List collectives, implementations with their platforms and collectives, wire formats, and systems."""
    if context.invoked_subcommand:
        return
    every = implementations().values()
    rows: list[Texts] = []
    for collective in COLLECTIVES.values():
        first = (*collective.aliases, collective.name)[0]
        program = f"osu_{first}" if collective.suite == "osu" else f"{first}_perf"
        also = ", ".join((*collective.aliases, program))
        rows.append((collective.name, also, f"{collective.bus_factor(8):.3g}"))
    _print(("collective", "also called", "busbw / algbw, 8 ranks"), *rows)
    _print(
        ("implementation", "platforms", "what it is"),
        *((each.name, ", ".join(each.platforms), each.summary) for each in every),
    )
    wires = ((each.wire.name, each.name, f"{each.wire.nbytes:.3g}", each.wire.summary) for each in every if each.wire)
    _print(("wire format", "implementation", "bytes of an element", "what it is"), *wires)
    _print(("implementation", "collectives"), *((each.name, _covered(each.collectives)) for each in every))
    _print(*systems())
    _print(("dtypes", ", ".join(DATATYPES)), ("reductions", ", ".join(REDUCTIONS)))


def systems() -> Iterator[Texts]:
    """List the described systems for `collbench predict`, `train` and `topo`."""
    yield "system", "GPUs of a node", "joined by", "NICs of a node"
    for name in files.names():
        system = files.load(name)
        gpus = f"{system.gpus} x {system.gpu or ARCHITECTURES[system.arch].name}"
        yield name, gpus, fabric(system), nic_words(system).partition(" each way")[0]


def _print(heading: Texts, *rows: Texts) -> None:
    columns = [Column[Texts](name, itemgetter(place)) for place, name in enumerate(heading)]
    click.echo("\n".join([*lines(columns, rows), ""]))


def _covered(names: Sequence[str]) -> str:
    if len(names) == len(COLLECTIVES):
        return f"all {len(names)}"
    return ", ".join(name for name in COLLECTIVES if name in names)

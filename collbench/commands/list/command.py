"""List collectives, implementations, platforms and systems, and which implementation does what where.

For example:
  collbench list
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import click

from collbench.algorithms import implementations
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.topology import files
from collbench.topology.products import ARCHITECTURES
from collbench.topology.render import fabric, nic_words


@click.command()
def command() -> None:
    """List collectives, implementations, platforms and systems, and which implementation does what where."""
    every = implementations().values()
    rows: list[tuple[str, ...]] = []
    for collective in COLLECTIVES.values():
        first = (*collective.aliases, collective.name)[0]
        program = f"osu_{first}" if collective.suite == "osu" else f"{first}_perf"
        also = ", ".join((*collective.aliases, program))
        rows.append((collective.name, also, f"{collective.bus_factor(8):.3g}"))
    _print(("collective", "also called", "busbw / algbw, 8 ranks"), rows)
    rows = [(each.name, ", ".join(each.platforms), each.summary) for each in every]
    _print(("implementation", "platforms", "what it is"), rows)
    rows = [(each.wire.name, each.name, f"{each.wire.nbytes:.3g}", each.wire.summary) for each in every if each.wire]
    _print(("wire format", "implementation", "bytes of an element", "what it is"), rows)
    _print(("implementation", "collectives"), [(each.name, _covered(each.collectives)) for each in every])
    rows = []
    for name in files.names():
        system = files.load(name)
        gpus = f"{system.gpus} x {system.gpu or ARCHITECTURES[system.arch].name}"
        rows.append((name, gpus, fabric(system), nic_words(system).partition(" each way")[0]))
    _print(("system", "GPUs of a node", "joined by", "NICs of a node"), rows)
    _print(("dtypes", ", ".join(DATATYPES)), [("reductions", ", ".join(REDUCTIONS))])


def _print(heading: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table, with an empty line behind."""
    columns = [Column[tuple[str, ...]](name, itemgetter(place)) for place, name in enumerate(heading)]
    click.echo("\n".join([*lines(columns, rows), ""]))


def _covered(names: Sequence[str]) -> str:
    """Return names of collectives, or that it is all of them."""
    if len(names) == len(COLLECTIVES):
        return f"all {len(names)}"
    return ", ".join(name for name in COLLECTIVES if name in names)
